//! Pictures in memory: from files, bytes, readers and pixels, and to them.

use std::fs;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_image::{Colour, Depth, Format, Header, ImageReader, ImageWriter, Limits, RowSink, RowSource, Size};

use crate::error::{Error, Result};

/// The most bytes of an encoded picture that is not a file.
const ENCODED_BYTES_MAXIMUM: u64 = 1 << 30;

/// The most bytes of a result's pixels in memory. For larger pictures, `tileforge-runtime` works row by row.
const MADE_BYTES_MAXIMUM: u64 = 4 << 30;

/// The name of a picture without a file in errors.
const IN_MEMORY: &str = "picture";

/// The error without the name of a temporary file, which the caller does not know.
fn in_memory(error: tileforge_image::Error) -> tileforge_image::Error {
    use tileforge_image::Error as E;
    let path = PathBuf::from(IN_MEMORY);
    match error {
        E::Image { problem, .. } => E::Image { path, problem },
        E::NoTransparency { format, .. } => E::NoTransparency { path, format },
        other => other,
    }
}

/// A picture in memory, with its colour profile and metadata. Clones share the pixels.
#[derive(Clone, PartialEq)]
pub struct Picture {
    header: Header,
    /// Interleaved rows; [`Depth`] gives the format of a sample.
    rows: Arc<Vec<u8>>,
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Header { size, colour, depth, .. } = &self.header;
        formatter.debug_struct("Picture").field("size", size).field("colour", colour).field("depth", depth).finish()
    }
}

/// The caller's pixels, interleaved: each row has width times channels samples.
#[derive(Clone, Copy, Debug)]
pub struct Pixels<'p> {
    /// Width and height.
    pub size: Size,
    /// Channels.
    pub colour: Colour,
    /// The samples.
    pub data: PixelData<'p>,
    /// Samples from the start of a row to the start of the next; `None`: rows are contiguous.
    pub stride: Option<usize>,
}

/// Samples of one type.
#[derive(Clone, Copy, Debug)]
pub enum PixelData<'p> {
    /// 8 bits: 0 is black, 255 white.
    Eight(&'p [u8]),
    /// 16 bits, in native byte order: 0 is black, 65535 white.
    Sixteen(&'p [u16]),
    /// Floats: 0 is black, 1 white.
    Float(&'p [f32]),
}

/// The samples of a picture, in the ranges of [`PixelData`].
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// 8 bits.
    Eight(Vec<u8>),
    /// 16 bits, in native byte order.
    Sixteen(Vec<u16>),
    /// Floats.
    Float(Vec<f32>),
}

impl PixelData<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Eight(samples) => samples.len(),
            Self::Sixteen(samples) => samples.len(),
            Self::Float(samples) => samples.len(),
        }
    }
}

impl Picture {
    /// Reads a file: PNG, JPEG, WebP, TIFF, BMP or the first frame of a GIF, within the default [`Limits`]: 400
    /// megapixels, and 1 GiB of pixels.
    ///
    /// # Errors
    /// The file has another format, is damaged, or is too large.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let limits = Limits::default();
        Self::of(ImageReader::open(path.as_ref(), &limits)?, &limits)
    }

    /// Decodes an encoded picture in memory.
    ///
    /// # Errors
    /// As [`Picture::open`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::from_reader(bytes, &Limits::default())
    }

    /// Decodes a picture from a reader, which is read to its end: at most 1 GiB of encoded bytes. `limits` are checked
    /// before memory is used for pixels.
    ///
    /// # Errors
    /// As [`Picture::open`]; the reader fails.
    pub fn from_reader(reader: impl Read, limits: &Limits) -> Result<Self> {
        let name = Path::new(IN_MEMORY);
        // Decoders seek, which a plain reader cannot.
        let mut file = tempfile::tempfile().map_err(Error::Temporary)?;
        let count = io::copy(&mut reader.take(ENCODED_BYTES_MAXIMUM + 1), &mut file).map_err(Error::Temporary)?;
        if count > ENCODED_BYTES_MAXIMUM {
            let problem = format!("expected an encoded picture of at most {ENCODED_BYTES_MAXIMUM} bytes, found more");
            return Err(tileforge_image::Error::image(name, problem).into());
        }
        file.rewind().map_err(Error::Temporary)?;
        Self::of(ImageReader::of_file(file, name, limits, None)?, limits)
    }

    fn of(mut reader: ImageReader, limits: &Limits) -> Result<Self> {
        let header = reader.header().clone();
        let bytes = held(&header, limits.decoded_bytes, reader.name())?;
        let row_bytes = header.row_bytes().unwrap_or(bytes);
        let mut rows = vec![0; bytes];
        for row in rows.chunks_exact_mut(row_bytes.max(1)) {
            reader.read_row(row)?;
        }
        Ok(Self { header, rows: Arc::new(rows) })
    }

    /// Copies pixels.
    ///
    /// # Errors
    /// [`Error::Pixels`]: there are no pixels, or fewer samples than the size needs; the stride is shorter than a row;
    /// a float is not finite.
    pub fn from_pixels(pixels: Pixels<'_>) -> Result<Self> {
        let Pixels { size, colour, data, stride } = pixels;
        let wrong = |expected: String, found: String| Err(Error::Pixels { expected, found });
        let (width, height) = (size.width as usize, size.height as usize);
        let row = width.checked_mul(colour.channels()).filter(|row| *row > 0 && height > 0);
        let Some(row) = row else { return wrong("at least one pixel".into(), size.to_string()) };
        let stride = stride.unwrap_or(row);
        if stride < row {
            return wrong(format!("a stride of at least {row} samples, one row"), stride.to_string());
        }
        // The last row may end without its padding.
        let needed = (height - 1).checked_mul(stride).and_then(|rows| rows.checked_add(row));
        if needed.is_none_or(|needed| data.len() < needed) {
            let needed = needed.map_or("more than there can be".into(), |needed| needed.to_string());
            return wrong(format!("{needed} samples for {size}"), data.len().to_string());
        }
        fn rows_of<T: Copy, const N: usize>(
            samples: &[T],
            stride: usize,
            row: usize,
            height: usize,
            bytes: impl Fn(T) -> [u8; N],
        ) -> Vec<u8> {
            let mut rows = vec![0; height * row * N];
            for (y, places) in rows.chunks_exact_mut(row * N).enumerate() {
                let samples = &samples[y * stride..][..row];
                // As fast as copying.
                places.as_chunks_mut().0.iter_mut().zip(samples).for_each(|(place, sample)| *place = bytes(*sample));
            }
            rows
        }
        let (depth, rows) = match data {
            PixelData::Eight(samples) => (Depth::Eight, rows_of(samples, stride, row, height, |sample| [sample])),
            PixelData::Sixteen(samples) => {
                (Depth::Sixteen, rows_of(samples, stride, row, height, |sample: u16| sample.to_be_bytes()))
            }
            PixelData::Float(samples) => {
                let used = (0..height).flat_map(|y| &samples[y * stride..][..row]);
                if let Some(sample) = used.copied().find(|sample| !sample.is_finite()) {
                    return wrong("finite samples".into(), sample.to_string());
                }
                (Depth::Float, rows_of(samples, stride, row, height, |sample: f32| sample.to_ne_bytes()))
            }
        };
        Ok(Self { header: Header::new(size, colour, depth), rows: Arc::new(rows) })
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.header.size
    }

    /// Channels, interleaved.
    pub fn colour(&self) -> Colour {
        self.header.colour
    }

    /// Bits of a sample.
    pub fn depth(&self) -> Depth {
        self.header.depth
    }

    /// The samples in 8 bits, `[height, width, channels]`; deeper samples are rounded.
    pub fn to_eight(&self) -> Vec<u8> {
        match self.header.depth {
            Depth::Eight => self.rows.to_vec(),
            // Casts saturate, so they clamp.
            _ => self.to_floats().into_iter().map(|value| (value * 255.0 + 0.5) as u8).collect(),
        }
    }

    /// The samples in the picture's own depth, `[height, width, channels]`. Samples of 8 bits are not copied if no
    /// clone shares them.
    pub fn into_samples(self) -> Samples {
        match self.header.depth {
            Depth::Eight => Samples::Eight(Arc::try_unwrap(self.rows).unwrap_or_else(|rows| rows.to_vec())),
            Depth::Sixteen => {
                Samples::Sixteen(self.rows.as_chunks().0.iter().map(|bytes| u16::from_be_bytes(*bytes)).collect())
            }
            Depth::Float => {
                Samples::Float(self.rows.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect())
            }
        }
    }

    /// The samples as floats from 0 to 1, `[height, width, channels]`.
    pub fn to_floats(&self) -> Vec<f32> {
        let maximum = self.header.depth.maximum();
        match self.header.depth {
            Depth::Eight => self.rows.iter().map(|sample| f32::from(*sample) / maximum).collect(),
            Depth::Sixteen => {
                let samples = self.rows.as_chunks().0.iter();
                samples.map(|bytes| f32::from(u16::from_be_bytes(*bytes)) / maximum).collect()
            }
            Depth::Float => self.rows.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect(),
        }
    }

    /// Encodes the picture as a file in memory. Samples deeper than the format allows are rounded: see
    /// [`Picture::write`].
    ///
    /// # Errors
    /// The format cannot be written, or does not hold such a picture: alpha in JPEG.
    pub fn encode(&self, format: Format) -> Result<Vec<u8>> {
        let folder = tempfile::tempdir().map_err(Error::Temporary)?;
        let path = folder.path().join(IN_MEMORY);
        self.write_as(&path, format).map_err(in_memory)?;
        fs::read(&path).map_err(Error::Temporary)
    }

    /// Writes the picture, in the format of the name's ending. The file appears only when it is complete. PNG holds 8
    /// and 16 bits, TIFF floats too, JPEG and WebP 8 bits.
    ///
    /// # Errors
    /// As [`Picture::encode`]; the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        Ok(self.write_as(path.as_ref(), Format::of_name(path.as_ref())?)?)
    }

    fn write_as(&self, path: &Path, format: Format) -> tileforge_image::Result<()> {
        let mut writer = ImageWriter::create(path, format, self.header.clone())?;
        let rows = self.rows_in(writer.header().depth);
        writer.write_rows(&rows)?;
        Box::new(writer).finish()
    }

    /// The rows with samples of another depth.
    fn rows_in(&self, depth: Depth) -> std::borrow::Cow<'_, [u8]> {
        if depth == self.header.depth {
            return std::borrow::Cow::Borrowed(&self.rows);
        }
        let maximum = depth.maximum();
        let level = |value: f32| value * maximum + 0.5;
        std::borrow::Cow::Owned(match depth {
            Depth::Eight => self.to_eight(),
            Depth::Sixteen => {
                self.to_floats().into_iter().flat_map(|value| (level(value) as u16).to_be_bytes()).collect()
            }
            Depth::Float => self.to_floats().into_iter().flat_map(f32::to_ne_bytes).collect(),
        })
    }

    /// Adds the picture's bytes to `held`.
    ///
    /// # Errors
    /// The sum exceeds the limit.
    pub(crate) fn held_with(&self, held: &mut u64) -> tileforge_image::Result<()> {
        *held += self.rows.len() as u64;
        if *held <= MADE_BYTES_MAXIMUM {
            return Ok(());
        }
        let problem = format!("its frames are too large to be held in memory, in at most {MADE_BYTES_MAXIMUM} bytes");
        Err(tileforge_image::Error::image(Path::new("result"), problem))
    }

    /// A source of the picture's rows.
    pub(crate) fn source(self) -> PictureSource {
        PictureSource { name: PathBuf::from("picture"), picture: self, row: 0 }
    }
}

impl From<&tileforge_runtime::pixels::Pixels> for Picture {
    /// Samples become 8 bits.
    fn from(pixels: &tileforge_runtime::pixels::Pixels) -> Self {
        // Casts saturate, so they clamp.
        let rows = pixels.samples.iter().map(|value| (value * 255.0 + 0.5) as u8).collect();
        Self { header: pixels.header(Depth::Eight), rows: Arc::new(rows) }
    }
}

/// The rows of a picture.
pub(crate) struct PictureSource {
    name: PathBuf,
    picture: Picture,
    row: usize,
}

impl RowSource for PictureSource {
    fn name(&self) -> &Path {
        &self.name
    }

    fn header(&self) -> &Header {
        &self.picture.header
    }

    fn read_row(&mut self, row: &mut [u8]) -> tileforge_image::Result<()> {
        let rows = self.picture.rows.get(self.row * row.len()..).and_then(|rows| rows.get(..row.len()));
        let rows = rows.ok_or_else(|| tileforge_image::Error::image(&self.name, "it has no more rows"))?;
        row.copy_from_slice(rows);
        self.row += 1;
        Ok(())
    }
}

/// The number of bytes of a picture's pixels, if at most `most`.
fn held(header: &Header, most: u64, name: &Path) -> tileforge_image::Result<usize> {
    let bytes = header.bytes().filter(|bytes| *bytes <= most).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        let problem = format!("{} is too large to be held in memory, in at most {most} bytes", header.size);
        tileforge_image::Error::image(name, problem)
    })
}

/// The place for a finished picture.
pub(crate) type Place = Arc<Mutex<Option<Picture>>>;

/// Receives a finished picture.
type Taken = Box<dyn FnOnce(Picture) -> tileforge_image::Result<()> + Send>;

/// Collects the rows of a picture.
pub(crate) struct Sink {
    header: Header,
    rows: Vec<u8>,
    taken: Taken,
}

impl Sink {
    /// A sink that puts the finished picture into a place.
    ///
    /// # Errors
    /// The picture is too large to be held.
    pub(crate) fn new(header: Header, place: Place) -> tileforge_image::Result<Self> {
        Self::giving(header, move |picture| {
            *place.lock() = Some(picture);
            Ok(())
        })
    }

    /// A sink that passes the finished picture to `taken`.
    ///
    /// # Errors
    /// The picture is too large to be held.
    pub(crate) fn giving(
        header: Header,
        taken: impl FnOnce(Picture) -> tileforge_image::Result<()> + Send + 'static,
    ) -> tileforge_image::Result<Self> {
        held(&header, MADE_BYTES_MAXIMUM, Path::new("result"))?;
        Ok(Self { header, rows: Vec::new(), taken: Box::new(taken) })
    }
}

impl RowSink for Sink {
    fn header(&self) -> &Header {
        &self.header
    }

    fn write_rows(&mut self, rows: &[u8]) -> tileforge_image::Result<()> {
        self.rows.extend_from_slice(rows);
        Ok(())
    }

    fn finish(self: Box<Self>) -> tileforge_image::Result<()> {
        let Self { header, rows, taken } = *self;
        taken(Picture { header, rows: Arc::new(rows) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_pictures_in_memory_name_no_file() {
        let picture = |width, colour: Colour| {
            let size = Size { width, height: 1 };
            let samples = vec![0; width as usize * colour.channels()];
            Picture::from_pixels(Pixels { size, colour, data: PixelData::Eight(&samples), stride: None }).unwrap()
        };
        let refused = |picture: Picture, format| picture.encode(format).unwrap_err().to_string();
        let wide = refused(picture(16_384, Colour::Grey), Format::WebP);
        assert_eq!(wide, "picture: WebP holds at most 16383 pixels a side, and this is 16384×1; write a PNG");
        let clear = refused(picture(1, Colour::Rgba), Format::Jpeg);
        assert_eq!(clear, "picture: JPEG cannot hold transparency, which this picture has");
    }

    #[test]
    fn pictures_that_memory_would_not_hold_are_refused_before_it_is_used() {
        let header = |width, height, depth| Header::new(Size { width, height }, Colour::Rgba, depth);
        let sink = |header| Sink::new(header, Place::default()).err().map(|error| error.to_string());
        assert_eq!(sink(header(32_768, 32_768, Depth::Eight)), None);
        let refused = sink(header(32_768, 32_769, Depth::Eight)).unwrap();
        assert_eq!(refused, "result: 32768×32769 is too large to be held in memory, in at most 4294967296 bytes");
        assert!(sink(header(u32::MAX, u32::MAX, Depth::Float)).is_some());

        // 64 bytes of pixels in a small file.
        let pixels = Pixels {
            size: Size { width: 4, height: 4 },
            colour: Colour::Rgba,
            data: PixelData::Eight(&[9; 64]),
            stride: None,
        };
        let file = Picture::from_pixels(pixels).unwrap().encode(Format::Png).unwrap();
        let within = |decoded_bytes| Limits { decoded_bytes, ..Limits::default() };
        assert!(Picture::from_reader(&*file, &within(64)).is_ok());
        let error = Picture::from_reader(&*file, &within(63)).unwrap_err();
        assert_eq!(error.to_string(), "picture: 4×4 is too large to be held in memory, in at most 63 bytes");
        assert_eq!(error.kind(), crate::ErrorKind::InvalidInput);
    }
}
