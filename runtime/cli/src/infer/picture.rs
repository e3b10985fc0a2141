//! Pictures, which are opened and created when their turn comes.

use std::path::Path;

use tileforge_image::{Depth, Format, Header, ImageReader, ImageWriter, Limits, PngCompression, RowSink};
use tileforge_runtime::Result;

/// How pictures are opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) limits: Limits,
    /// They are converted to sRGB.
    pub(super) srgb: bool,
    /// Damage is a warning.
    pub(super) tolerant: bool,
}

impl Opening {
    pub(super) fn open(self, path: &Path) -> Result<ImageReader> {
        let source = if self.tolerant {
            ImageReader::open_tolerant(path, &self.limits, |damage| tracing::warn!("{damage}"))?
        } else {
            ImageReader::open(path, &self.limits)?
        };
        Ok(if self.srgb { source.into_srgb()? } else { source })
    }
}

/// How pictures are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// Bits of the samples; `None`: as many as the input has.
    pub(super) depth: Option<Depth>,
    /// Of JPEG.
    pub(super) quality: u8,
    /// Of PNG.
    pub(super) png_compression: PngCompression,
}

impl Writing {
    pub(super) fn create(self, path: &Path, mut header: Header) -> Result<ImageWriter> {
        header.depth = self.depth.unwrap_or(header.depth);
        let format = Format::of_name(path)?;
        let sink = ImageWriter::create(path, format, header)?
            .with_jpeg_quality(self.quality)
            .with_png_compression(self.png_compression, None);
        if self.depth.is_some_and(|depth| depth != sink.header().depth) {
            let problem = format!(
                "{} does not hold samples of that many bits; leave --bit-depth out, or write a TIFF",
                format.name()
            );
            return Err(tileforge_image::Error::image(path, problem).into());
        }
        Ok(sink)
    }
}
