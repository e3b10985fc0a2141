//! A picture that is opened when its turn comes.

use std::path::PathBuf;

use tileforge_image::{Depth, Format, ImageReader, ImageWriter, Limits, RowSink, RowSource};
use tileforge_runtime::Result;
use tileforge_runtime::upscale::{Open, OutputOf, Request};

use super::arguments::Arguments;
use super::plan::Assignment;

/// Where a picture comes from and goes to, and how.
struct Picture {
    input: PathBuf,
    output: PathBuf,
    limits: Limits,
    srgb: bool,
    depth: Option<Depth>,
    quality: u8,
    tolerant: bool,
}

/// The request for one picture.
pub(super) fn request(assignment: &Assignment, arguments: &Arguments) -> Request {
    let Assignment { input, output } = assignment.clone();
    let Arguments { srgb, bit_depth: depth, quality, tolerant, .. } = *arguments;
    let picture = Picture { input, output, limits: arguments.limits(), srgb, depth, quality, tolerant };
    Request::new(move |output_of| picture.open(output_of))
}

impl Picture {
    fn open(self, output_of: OutputOf<'_>) -> Result<Open> {
        let format = Format::of_name(&self.output)?;
        let source = if self.tolerant {
            ImageReader::open_tolerant(&self.input, &self.limits, |damage| tracing::warn!("{damage}"))?
        } else {
            ImageReader::open(&self.input, &self.limits)?
        };
        let source = if self.srgb { source.into_srgb()? } else { source };
        let mut header = output_of(source.header())?;
        header.depth = self.depth.unwrap_or(header.depth);
        let sink = ImageWriter::create(&self.output, format, header)?.with_jpeg_quality(self.quality);
        if self.depth.is_some_and(|depth| depth != sink.header().depth) {
            let problem = format!(
                "{} does not hold samples of that many bits; leave --bit-depth out, or write a TIFF",
                format.name()
            );
            return Err(tileforge_image::Error::image(&self.output, problem).into());
        }
        Ok(Open { source: Box::new(source), sink: Box::new(sink) })
    }
}
