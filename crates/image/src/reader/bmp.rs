//! BMP, held whole.

use std::fs::File;
use std::io::BufReader;

use ::image::codecs::bmp::BmpDecoder;
use ::image::{ColorType, ImageDecoder};

use super::{Colour, Decoded, Depth, Header, Opening};
use crate::Size;
use crate::error::Result;

impl Opening<'_> {
    pub(super) fn bmp(&self, file: BufReader<File>) -> Result<Decoded> {
        let decoder = BmpDecoder::new(file).map_err(|error| self.damaged(error))?;
        let (width, height) = decoder.dimensions();
        let size = Size { width, height };
        self.check_size(size)?;
        let colour = match decoder.color_type() {
            ColorType::Rgba8 => Colour::Rgba,
            ColorType::Rgb8 => Colour::Rgb,
            other => return Err(self.refused(format!("expected a BMP in RGB, found {other:?}; convert it first"))),
        };
        let header = Header::new(size, colour, Depth::Eight);
        let mut bytes = vec![0; self.check_whole(&header, "has to be decoded whole")?];
        decoder.read_image(&mut bytes).map_err(|error| self.damaged(error))?;
        Ok(Decoded::new(header, self.whole(bytes)))
    }
}
