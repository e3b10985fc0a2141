//! WebP, held whole.

use std::fs::File;
use std::io::BufReader;

use ::image::codecs::webp::WebPDecoder;
use ::image::{ColorType, ImageDecoder};

use super::{Colour, Decoded, Depth, Header, Opening};
use crate::Size;
use crate::error::Result;

impl Opening<'_> {
    pub(super) fn webp(&self, file: BufReader<File>) -> Result<Decoded> {
        let mut decoder = WebPDecoder::new(file).map_err(|error| self.damaged(error))?;
        if decoder.has_animation() {
            return Err(self.refused("expected a still picture, found an animation; extract its frames first"));
        }
        let (width, height) = decoder.dimensions();
        let colour = if decoder.color_type() == ColorType::Rgba8 { Colour::Rgba } else { Colour::Rgb };
        let icc_profile = decoder.icc_profile().unwrap_or_default();
        let header = Header { size: Size { width, height }, colour, depth: Depth::Eight, icc_profile };
        self.check_size(header.size)?;
        let mut bytes = vec![0; self.check_whole(&header, "has to be decoded whole")?];
        let orientation = decoder.orientation().map_err(|error| self.damaged(error))?;
        decoder.read_image(&mut bytes).map_err(|error| self.damaged(error))?;
        Ok(Decoded { header, orientation, rows: self.whole(bytes) })
    }
}
