//! A sensor's measurements.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;

use exr::prelude::{self as openexr, ReadChannels, ReadLayers};
use tileforge_contract::DataType;
use tileforge_image::{Colour, Depth, Header, ImageReader, Limits, RowSource, Size};

use crate::error::{Error, Result};
use crate::tensor_file::{self, Contents, Description, Stored};

/// Units of a metre in maps of whole numbers: millimetres.
const MILLIMETRES: f32 = 1000.0;

/// How the values of a map are to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapOptions {
    /// Values are divided by this to give metres; `None`: by 1000 where they are whole numbers, by 1 where they are
    /// floats.
    pub scale: Option<f32>,
    /// Distances above this, in metres, count as not measured.
    pub maximum: f32,
}

impl Default for MapOptions {
    /// Distances up to 25 metres, as in the reference.
    fn default() -> Self {
        Self { scale: None, maximum: 25.0 }
    }
}

/// The distances that a sensor has measured.
#[derive(Clone, Debug, PartialEq)]
pub struct DepthMap {
    /// Width and height.
    pub size: Size,
    /// `[height, width]`, in metres; 0 where nothing was measured.
    pub metres: Vec<f32>,
}

/// The values of a map's file, and whether they were integers.
struct Values {
    size: Size,
    values: Vec<f32>,
    whole: bool,
}

impl DepthMap {
    /// Reads a map: PNG or TIFF with one channel of 16 bits, TIFF, EXR or NPY with floats, or NPY with whole numbers.
    ///
    /// # Errors
    /// [`Error::DepthMap`] for a map of 8 bits, of several channels, or with NaN; [`Error::Image`] and
    /// [`Error::TensorFile`] for a damaged file.
    pub fn read(path: &Path, options: MapOptions, limits: &Limits) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
        let Values { size, values, whole } = match ending.as_str() {
            "npy" => from_npy(path)?,
            "exr" => from_exr(path, limits)?,
            _ => from_picture(path, limits)?,
        };
        if let Some(at) = values.iter().position(|value| value.is_nan()) {
            let (x, y) = (at % size.width as usize, at / size.width as usize);
            return Err(refused(path, format!("NaN at column {x} of row {y}; write 0 where nothing was measured")));
        }
        let scale = options.scale.unwrap_or(if whole { MILLIMETRES } else { 1.0 });
        let metres = |value: &f32| Some(value / scale).filter(|metres| *metres > 0.0 && *metres <= options.maximum);
        Ok(Self { size, metres: values.iter().map(|value| metres(value).unwrap_or(0.0)).collect() })
    }

    /// The reciprocal of each distance; `missing` where nothing was measured.
    pub(super) fn inverse(&self, missing: f32) -> Vec<f32> {
        self.metres.iter().map(|metres| if *metres > 0.0 { 1.0 / metres } else { missing }).collect()
    }
}

fn refused(path: &Path, problem: impl Into<String>) -> Error {
    Error::DepthMap { path: path.to_owned(), problem: problem.into() }
}

fn from_picture(path: &Path, limits: &Limits) -> Result<Values> {
    let mut reader = ImageReader::open(path, limits)?;
    let Header { size, colour, depth, .. } = *reader.header();
    if colour != Colour::Grey {
        let found = colour.channels();
        return Err(refused(path, format!("expected a map of one channel, found {found}: is it a coloured one?")));
    }
    if depth == Depth::Eight {
        let problem = "expected distances of 16 bits or floats, found 8 bits, which only show a map; give what the \
                       sensor wrote";
        return Err(refused(path, problem));
    }
    let mut row = vec![0; reader.header().row_bytes().unwrap_or(0)];
    let mut values = Vec::new();
    for _ in 0..size.height {
        reader.read_row(&mut row)?;
        match depth {
            Depth::Float => values.extend(row.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))),
            _ => values.extend(row.as_chunks::<2>().0.iter().map(|bytes| f32::from(u16::from_be_bytes(*bytes)))),
        }
    }
    Ok(Values { size, values, whole: depth != Depth::Float })
}

/// Possible names of the distance channel in EXR files of several channels.
const EXR_CHANNELS: [&str; 4] = ["Z", "Y", "depth.Z", "Depth"];

fn from_exr(path: &Path, limits: &Limits) -> Result<Values> {
    let damaged = |error: openexr::Error| refused(path, format!("not an EXR file, or a damaged one: {error}"));
    let opened = || {
        let opened = tileforge_files::open(path).map(BufReader::new);
        opened.map_err(|source| Error::file(path, "open", source))
    };
    // The header is read first: the size that it claims may exceed the memory.
    let meta = exr::meta::MetaData::read_from_buffered(opened()?, false).map_err(damaged)?;
    let claimed = meta.headers.first().map_or(0, |header| {
        let size = header.layer_size;
        (size.width() as u64).saturating_mul(size.height() as u64).saturating_mul(4 * header.channels.list.len() as u64)
    });
    if claimed > limits.decoded_bytes {
        return Err(refused(path, format!("it has to be held whole, in at most {} bytes", limits.decoded_bytes)));
    }
    let image = openexr::read().no_deep_data().largest_resolution_level().all_channels().first_valid_layer();
    let image = image.all_attributes().from_buffered(opened()?).map_err(damaged)?;
    let channels = &image.layer_data.channel_data.list;
    let named = |name: &str| channels.iter().find(|channel| channel.name.eq_case_insensitive(name));
    let channel = match channels.as_slice() {
        [only] => Some(only),
        _ => EXR_CHANNELS.iter().find_map(|name| named(name)),
    };
    let channel = channel.ok_or_else(|| {
        let found = channels.iter().map(|channel| channel.name.to_string()).collect::<Vec<_>>().join(", ");
        refused(path, format!("expected one channel, or one called Z or Y, found {found}"))
    })?;
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let size = Size { width: length(image.layer_data.size.width()), height: length(image.layer_data.size.height()) };
    let values: Vec<f32> = channel.sample_data.values_as_f32().collect();
    if values.len() as u64 != size.pixels() {
        return Err(refused(path, "expected a channel of the whole size, found one with fewer samples"));
    }
    Ok(Values { size, values, whole: false })
}

/// The size of a map with these axes.
fn size_of_map(path: &Path, shape: &[usize]) -> Result<Size> {
    // Axes of length 1 are a batch or a channel.
    let lengths: Vec<usize> = shape.iter().copied().filter(|length| *length != 1).collect();
    let size = match (lengths.as_slice(), shape) {
        ([height, width], _) | (_, [height, width]) => u32::try_from(*width).ok().zip(u32::try_from(*height).ok()),
        _ => None,
    };
    let size = size.map(|(width, height)| Size { width, height }).filter(|size| size.pixels() > 0);
    size.ok_or_else(|| refused(path, format!("expected [height, width], found {shape:?}")))
}

fn from_npy(path: &Path) -> Result<Values> {
    let check = |found: &BTreeMap<String, Description>| {
        found.values().try_for_each(|tensor| size_of_map(path, &tensor.shape).map(drop))
    };
    let Contents::Single(Stored { data_type, shape, bytes }) = tensor_file::read_checked(path, check)? else {
        return Err(refused(path, "expected one map"));
    };
    let size = size_of_map(path, &shape)?;
    macro_rules! values {
        ($number:ty) => {
            bytes.as_chunks::<{ size_of::<$number>() }>().0.iter().map(|bytes| <$number>::from_le_bytes(*bytes))
        };
    }
    let values: Vec<f32> = match data_type {
        DataType::F16 => values!(half::f16).map(half::f16::to_f32).collect(),
        DataType::F32 => values!(f32).collect(),
        DataType::F64 => values!(f64).map(|value| value as f32).collect(),
        DataType::U16 => values!(u16).map(f32::from).collect(),
        DataType::I16 => values!(i16).map(f32::from).collect(),
        DataType::U32 => values!(u32).map(|value| value as f32).collect(),
        DataType::I32 => values!(i32).map(|value| value as f32).collect(),
        other => return Err(refused(path, format!("expected distances of 16 bits or more, or floats, found {other}"))),
    };
    Ok(Values { size, values, whole: !data_type.is_float() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data_type: DataType, shape: &[usize], bytes: Vec<u8>, options: MapOptions) -> Result<DepthMap> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map.npy");
        let stored = Stored { data_type, shape: shape.to_vec(), bytes };
        tensor_file::write(&path, &[("map".into(), stored)], &BTreeMap::new()).unwrap();
        DepthMap::read(&path, options, &Limits::default())
    }

    #[test]
    fn whole_numbers_are_millimetres_and_floats_metres() {
        let whole: Vec<u8> = [0_u16, 1500, 25_000, 25_001].iter().flat_map(|value| value.to_le_bytes()).collect();
        let map = read(DataType::U16, &[2, 2], whole.clone(), MapOptions::default()).unwrap();
        assert_eq!(map.metres, [0.0, 1.5, 25.0, 0.0]);
        assert_eq!(map.inverse(0.0), [0.0, 1.0 / 1.5, 0.04, 0.0]);
        let options = MapOptions { scale: Some(5000.0), maximum: 1.0 };
        assert_eq!(read(DataType::U16, &[2, 2], whole, options).unwrap().metres, [0.0, 0.3, 0.0, 0.0]);
        let floats: Vec<u8> = [-1.0_f32, 0.5, f32::INFINITY].iter().flat_map(|value| value.to_le_bytes()).collect();
        let map = read(DataType::F32, &[1, 1, 3], floats, MapOptions::default());
        assert!(matches!(map, Err(Error::DepthMap { .. })), "one row is not told from one column");
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let text = |result: Result<DepthMap>| result.unwrap_err().to_string();
        let bytes = text(read(DataType::U8, &[2, 2], vec![0; 4], MapOptions::default()));
        assert!(bytes.contains("found u8"), "{bytes}");
        let nan: Vec<u8> = [1.0_f32, 2.0, 3.0, f32::NAN].iter().flat_map(|value| value.to_le_bytes()).collect();
        let nan = text(read(DataType::F32, &[2, 2], nan, MapOptions::default()));
        assert!(nan.contains("NaN at column 1 of row 1"), "{nan}");
        let cube = text(read(DataType::U16, &[2, 2, 2], vec![0; 16], MapOptions::default()));
        assert!(cube.contains("expected [height, width], found [2, 2, 2]"), "{cube}");
    }
}
