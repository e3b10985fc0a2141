//! Colours converted to sRGB by a colour profile: relative colorimetric, without black point compensation.

use std::path::Path;
use std::sync::Arc;

use moxcms::{
    ColorProfile, DataColorSpace, Layout, RenderingIntent, Transform8BitExecutor, Transform16BitExecutor,
    TransformF32Executor, TransformOptions,
};

use super::super::{Colour, Depth, Header};
use super::inks::Inks;
use super::rows::Rows;
use crate::error::{Error, Result};

/// Converts the rows of a grey or RGB picture to sRGB. Alpha is not changed.
pub(super) fn converted(path: &Path, header: &Header, profile: &[u8], rows: Box<dyn Rows>) -> Result<Box<dyn Rows>> {
    let (space, layout) = match header.colour.colour_channels() {
        1 => (DataColorSpace::Gray, Layout::Gray),
        _ => (DataColorSpace::Rgb, Layout::Rgb),
    };
    converting(path, header, profile, space, layout, header.colour.channels(), rows)
}

/// Converts the rows of a CMYK picture to sRGB, and returns a note if the inks and the paper are a guess. Rows have
/// four channels, with 0 for no ink. `header` describes the result.
pub(super) fn from_cmyk(
    path: &Path,
    header: &mut Header,
    rows: Box<dyn Rows>,
) -> Result<(Box<dyn Rows>, Option<String>)> {
    match header.icc_profile.take() {
        Some(profile) => Ok((converting(path, header, &profile, DataColorSpace::Cmyk, Layout::Rgba, 4, rows)?, None)),
        None => {
            let note = "it is CMYK without a colour profile, and is converted as print on coated paper (FOGRA39): if \
                        its colours look wrong, embed the profile that it was made for, or convert it to sRGB by \
                        that profile first";
            Ok((Box::new(Inks::new(rows, header.depth)), Some(note.into())))
        }
    }
}

fn converting(
    path: &Path,
    header: &Header,
    profile: &[u8],
    space: DataColorSpace,
    layout: Layout,
    channels_in: usize,
    rows: Box<dyn Rows>,
) -> Result<Box<dyn Rows>> {
    let refused = |problem: String| {
        Error::image(
            path,
            format!("its colour profile cannot be used: {problem}; convert it to sRGB first, or remove the profile"),
        )
    };
    let source = ColorProfile::new_from_slice(profile).map_err(|error| refused(error.to_string()))?;
    if source.color_space != space {
        return Err(refused(format!("it is for {:?}, and the picture is {space:?}", source.color_space)));
    }
    let srgb = ColorProfile::new_srgb();
    let converter = |rendering_intent| {
        // Precision over speed: the model takes far longer than this.
        let options = TransformOptions { rendering_intent, prefer_fixed_point: false, ..TransformOptions::default() };
        match header.depth {
            Depth::Eight => source.create_transform_8bit(layout, &srgb, Layout::Rgb, options).map(Converter::Eight),
            Depth::Sixteen => {
                source.create_transform_16bit(layout, &srgb, Layout::Rgb, options).map(Converter::Sixteen)
            }
            Depth::Float => source.create_transform_f32(layout, &srgb, Layout::Rgb, options).map(Converter::Float),
        }
    };
    // The perceptual table stands in for tables that a profile lacks (ICC.1:2022, 9.1).
    let converter =
        converter(RenderingIntent::RelativeColorimetric).or_else(|_| converter(RenderingIntent::Perceptual));
    let converter = converter.map_err(|error| refused(error.to_string()))?;
    let inks = if space == DataColorSpace::Cmyk { 4 } else { header.colour.colour_channels() };
    Ok(Box::new(Converted {
        path: path.to_owned(),
        converter,
        colour: header.colour,
        inks,
        channels_in,
        rows,
        row: Vec::new(),
    }))
}

enum Converter {
    Eight(Arc<Transform8BitExecutor>),
    Sixteen(Arc<Transform16BitExecutor>),
    Float(Arc<TransformF32Executor>),
}

struct Converted {
    path: std::path::PathBuf,
    converter: Converter,
    /// The header of the result.
    colour: Colour,
    /// Number of channels that the profile is for.
    inks: usize,
    /// Number of these channels and alpha.
    channels_in: usize,
    rows: Box<dyn Rows>,
    row: Vec<u8>,
}

impl Rows for Converted {
    fn next(&mut self, row: &mut [u8]) -> Result<()> {
        let channels = self.colour.channels();
        self.row.resize(row.len() / channels * self.channels_in, 0);
        self.rows.next(&mut self.row)?;
        let result = match &self.converter {
            Converter::Eight(executor) => {
                let convert = |from: &[u8], to: &mut [u8]| executor.transform(from, to);
                self.convert(row, |[byte]| byte, |sample| [sample], convert)
            }
            Converter::Sixteen(executor) => {
                let convert = |from: &[u16], to: &mut [u16]| executor.transform(from, to);
                self.convert(row, u16::from_be_bytes, u16::to_be_bytes, convert)
            }
            Converter::Float(executor) => {
                let convert = |from: &[f32], to: &mut [f32]| executor.transform(from, to);
                self.convert(row, |bytes| f32::from_ne_bytes(bytes).clamp(0.0, 1.0), f32::to_ne_bytes, convert)
            }
        };
        result.map_err(|error| Error::image(&self.path, format!("its colours cannot be converted: {error}")))
    }

    fn end(&mut self) -> Result<()> {
        self.rows.end()
    }
}

impl Converted {
    fn convert<const BYTES: usize, T: Copy + Default>(
        &self,
        into: &mut [u8],
        sample: impl Fn([u8; BYTES]) -> T,
        bytes: impl Fn(T) -> [u8; BYTES],
        transform: impl Fn(&[T], &mut [T]) -> Result<(), moxcms::CmsError>,
    ) -> Result<(), moxcms::CmsError> {
        let (stored, _) = self.row.as_chunks::<BYTES>();
        let pixels = stored.chunks_exact(self.channels_in);
        let from: Vec<T> = pixels.clone().flat_map(|pixel| &pixel[..self.inks]).map(|&bytes| sample(bytes)).collect();
        let mut to = vec![T::default(); from.len() / self.inks * 3];
        transform(&from, &mut to)?;
        let (into, _) = into.as_chunks_mut::<BYTES>();
        let channels = self.colour.channels();
        for ((into, pixel), stored) in into.chunks_exact_mut(channels).zip(to.chunks_exact(3)).zip(pixels) {
            // All three channels of a grey pixel are equal.
            for (into, &value) in into.iter_mut().take(self.colour.colour_channels()).zip(pixel) {
                *into = bytes(value);
            }
            if self.colour.has_alpha() {
                into[channels - 1] = stored[self.channels_in - 1];
            }
        }
        Ok(())
    }
}
