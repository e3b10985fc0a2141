//! Opens and creates pictures when their turn comes.

use std::path::Path;
use std::sync::Arc;

use tileforge_image::{Depth, Format, Header, ImageReader, ImageWriter, Limits, PngCompression, RowSink, Warn};
use tileforge_runtime::Result;

use super::kind::is_standard_stream;
use super::standard::{Piped, ToStandardOutput};

/// How pictures are opened.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) limits: Limits,
    /// They are converted to sRGB.
    pub(super) srgb: bool,
    /// Damage is a warning.
    pub(super) tolerant: bool,
    /// EXIF and density are left out.
    pub(super) strip_metadata: bool,
    /// Pictures that came through a pipe.
    pub(super) piped: Piped,
}

impl Opening {
    pub(super) fn open(&self, path: &Path) -> Result<ImageReader> {
        let warn = |damage: &tileforge_image::Error| tracing::warn!("{damage}");
        let source = match self.piped.file_of(path) {
            Some(file) => {
                let failed = |source| tileforge_image::Error::File { path: path.to_owned(), action: "open", source };
                let warn = self.tolerant.then(|| -> Warn { Arc::new(warn) });
                ImageReader::of_file(file.map_err(failed)?, path, &self.limits, warn)?
            }
            None if self.tolerant => ImageReader::open_tolerant(path, &self.limits, warn)?,
            None => ImageReader::open(path, &self.limits)?,
        };
        for note in source.notes() {
            tracing::warn!("{}: {note}", path.display());
        }
        let source = if self.srgb { source.into_srgb()? } else { source };
        Ok(if self.strip_metadata { source.without_metadata() } else { source })
    }
}

/// How pictures are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// Bits of the samples; `None`: as many as the input has.
    pub(super) depth: Option<Depth>,
    /// Quality of JPEG outputs.
    pub(super) quality: u8,
    /// Compression of PNG outputs.
    pub(super) png_compression: PngCompression,
    /// The format for standard output, which has no name; `None`: the input's format.
    pub(super) format: Option<Format>,
}

impl Writing {
    /// `input` is the format of the picture that this one is made of.
    pub(super) fn create(self, path: &Path, mut header: Header, input: Format) -> Result<Box<dyn RowSink>> {
        header.depth = self.depth.unwrap_or(header.depth);
        let to_stream = is_standard_stream(path);
        let format = match (to_stream, self.format) {
            (false, _) => Format::of_name(path)?,
            (true, Some(format)) => format,
            (true, None) if input.is_written() => input,
            (true, None) => Format::Png,
        };
        if let Some(lost) = header.code_points.and_then(|points| points.lost_in(format)) {
            tracing::warn!("{}: {} cannot say that its samples are {lost}; PNG can", path.display(), format.name());
        }
        let with = move |writer: ImageWriter| {
            writer.with_jpeg_quality(self.quality).with_png_compression(self.png_compression, None)
        };
        let sink: Box<dyn RowSink> = if to_stream {
            Box::new(ToStandardOutput::new(format, header, with)?)
        } else {
            Box::new(with(ImageWriter::create(path, format, header)?))
        };
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
