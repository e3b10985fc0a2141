//! The estimated depth, and its files.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use exr::prelude::{self as openexr, WritableImage};
use tileforge_contract::DataType;
use tileforge_image::{Colour, Depth, Format, Header, ImageWriter, RowSink, Size};

use super::colour_map::ColourMap;
use crate::error::{Error, Result};
use crate::output_file::OutputFile;
use crate::pixels::Pixels;
use crate::tensor_file::{self, Stored};

/// What the values of an estimate are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthKind {
    /// Distances in metres; 0 where the network gives none.
    Metres,
    /// Larger is nearer; scale and shift differ from picture to picture.
    RelativeInverse,
}

/// The depth of each pixel of a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Width and height: those of the picture.
    pub size: Size,
    /// What the values are.
    pub kind: DepthKind,
    /// `[height, width]`.
    pub values: Vec<f32>,
}

/// How an estimate is coloured.
#[derive(Clone, Debug, PartialEq)]
pub struct Colouring {
    /// The colours.
    pub map: ColourMap,
    /// The values of the first and the last colour; `None`: 0.1 and 5 metres, or the minimum and maximum of a relative
    /// estimate.
    pub range: Option<[f32; 2]>,
}

/// The distances of the first and the last colour in the reference.
const METRES: [f32; 2] = [0.1, 5.0];

/// The kind of file that an estimate is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthFormat {
    /// 16 bits: millimetres, with 0 where there is no depth or more than 65.535 metres; or relative depth from 0
    /// (farthest) to 65,535 (nearest). Or colours, on request.
    Png,
    /// 32-bit floats in a channel `Z`.
    Exr,
    /// 32-bit floats.
    Tiff,
    /// 32-bit floats, `[height, width]`.
    Npy,
}

impl DepthFormat {
    /// The format for a file name's ending.
    ///
    /// # Errors
    /// [`Error::Image`] for another ending.
    pub fn of_name(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        ending.to_ascii_lowercase().parse().map_err(|_| {
            tileforge_image::Error::image(path, "expected a name that ends in .png, .exr, .tif, .tiff or .npy").into()
        })
    }

    /// The ending of a file's name.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Exr => "exr",
            Self::Tiff => "tif",
            Self::Npy => "npy",
        }
    }
}

impl FromStr for DepthFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "png" => Ok(Self::Png),
            "exr" => Ok(Self::Exr),
            "tif" | "tiff" => Ok(Self::Tiff),
            "npy" => Ok(Self::Npy),
            _ => Err("expected png, exr, tiff or npy".into()),
        }
    }
}

impl Estimate {
    /// How many pixels have no depth.
    pub fn missing(&self) -> usize {
        match self.kind {
            DepthKind::Metres => self.values.iter().filter(|value| **value == 0.0).count(),
            DepthKind::RelativeInverse => 0,
        }
    }

    /// Writes it in the format of the file's ending, or as a coloured PNG. The file appears only when it is complete.
    ///
    /// # Errors
    /// [`Error::Image`], [`Error::File`]: it cannot be written, or colours are asked for in another format than PNG.
    pub fn write(&self, path: &Path, colouring: Option<&Colouring>) -> Result<()> {
        match (DepthFormat::of_name(path)?, colouring) {
            (DepthFormat::Png, None) => self.write_levels(path),
            (DepthFormat::Png, Some(colouring)) => self.write_colours(path, colouring),
            (_, Some(_)) => Err(tileforge_image::Error::image(path, "colours go into a .png").into()),
            (DepthFormat::Tiff, None) => {
                let bytes: Vec<u8> = self.values.iter().flat_map(|value| value.to_ne_bytes()).collect();
                self.write_picture(path, Format::Tiff, Colour::Grey, Depth::Float, &bytes)
            }
            (DepthFormat::Exr, None) => self.write_exr(path),
            (DepthFormat::Npy, None) => {
                let shape = vec![self.size.height as usize, self.size.width as usize];
                let bytes = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let stored = Stored { data_type: DataType::F32, shape, bytes };
                tensor_file::write(path, &[("depth".into(), stored)], &BTreeMap::new())
            }
        }
    }

    /// The least and the largest value.
    fn extent(&self) -> [f32; 2] {
        self.values
            .iter()
            .fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], value| [low.min(*value), high.max(*value)])
    }

    fn write_levels(&self, path: &Path) -> Result<()> {
        const WHITE: f32 = 65_535.0;
        let [low, high] = self.extent();
        let level = |value: f32| match self.kind {
            DepthKind::Metres => {
                Some((value * 1000.0).round()).filter(|millimetres| *millimetres <= WHITE).unwrap_or(0.0)
            }
            DepthKind::RelativeInverse if high > low => ((value - low) / (high - low) * WHITE).round(),
            DepthKind::RelativeInverse => 0.0,
        };
        let bytes: Vec<u8> = self.values.iter().flat_map(|value| (level(*value) as u16).to_be_bytes()).collect();
        self.write_picture(path, Format::Png, Colour::Grey, Depth::Sixteen, &bytes)
    }

    fn write_colours(&self, path: &Path, colouring: &Colouring) -> Result<()> {
        self.write_picture(path, Format::Png, Colour::Rgb, Depth::Eight, &self.colours(colouring))
    }

    /// The estimate as a frame of a film, in colours.
    pub fn coloured(&self, colouring: &Colouring) -> Pixels {
        let samples = self.colours(colouring).into_iter().map(|level| f32::from(level) / 255.0).collect();
        Pixels { size: self.size, channels: 3, samples }
    }

    /// Red, green and blue for each pixel.
    fn colours(&self, colouring: &Colouring) -> Vec<u8> {
        let [first, last] = colouring.range.unwrap_or_else(|| match self.kind {
            DepthKind::Metres => METRES,
            DepthKind::RelativeInverse => self.extent(),
        });
        let part = |value: f32| if last == first { 0.0 } else { (value - first) / (last - first) };
        let colour = |value: &f32| match self.kind {
            // No depth is black.
            DepthKind::Metres if *value == 0.0 => [0; 3],
            _ => colouring.map.colour(part(*value)),
        };
        self.values.iter().flat_map(colour).collect()
    }

    fn write_picture(&self, path: &Path, format: Format, colour: Colour, depth: Depth, bytes: &[u8]) -> Result<()> {
        let header = Header::new(self.size, colour, depth);
        let mut writer = ImageWriter::create(path, format, header)?;
        writer.write_rows(bytes)?;
        Ok(Box::new(writer).finish()?)
    }

    fn write_exr(&self, path: &Path) -> Result<()> {
        let channel = openexr::AnyChannel::new("Z", openexr::FlatSamples::F32(self.values.clone()));
        let size = (self.size.width as usize, self.size.height as usize);
        let channels = openexr::AnyChannels::sort(std::iter::once(channel).collect());
        let encoding = openexr::Encoding::SMALL_LOSSLESS;
        let layer = openexr::Layer::new(size, openexr::LayerAttributes::default(), encoding, channels);
        let output = OutputFile::create(path)?;
        let written = openexr::Image::from_layer(layer).write().to_buffered(std::io::BufWriter::new(output.file()));
        written.map_err(|error| Error::DepthMap {
            path: path.to_owned(),
            problem: format!("cannot be written: {error}"),
        })?;
        output.finish()
    }
}
