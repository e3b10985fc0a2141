//! A picture of a pipeline that restores films.

use super::making::{Making, of_runtime, test_picture};
use crate::{Error, Result};
use tileforge_engine::Pipeline;
use tileforge_image::{Depth, Format, ImageReader, ImageWriter, Limits};
use tileforge_runtime::autoencoder::CodingOptions;
use tileforge_runtime::frames::{FrameAndPlace, FrameStream};
use tileforge_runtime::host::Host;
use tileforge_runtime::pixels::Pixels;
use tileforge_runtime::restoration::{ColourCorrection, Fitting, RestoreRequest, Restorer, Settings, Wanted};
use tileforge_session::Placement;

/// A picture is a film of one frame.
pub(super) const STEPS: usize = 1;

/// How far the floor of the picture is below the floor of the worst network: equal errors in the encoder, the
/// transformer and the decoder add up to at most three times the error, which is 9.5 dB.
pub(super) const NETWORKS_DB: f64 = 10.0;

/// Restores the test image in the smallest size of a pipeline, without colour correction: it would hide errors.
pub(super) fn make(making: &Making<'_>, host: &Host, pipeline: &Pipeline, placement: Placement) -> Result<Pixels> {
    let options = CodingOptions { placement, ..CodingOptions::default() };
    let restorer = Restorer::new(host, pipeline, options).map_err(of_runtime)?;
    let fitting = restorer.fitting(Wanted::Largest);
    let size = fitting.sizes().iter().copied().min_by_key(|size| size.pixels());
    let size = size.ok_or_else(|| Error::input(making.folder, "expected a size to restore, and it has none"))?;
    let settings = Settings { wanted: Wanted::Exactly(size), colour: ColourCorrection::None, ..Settings::default() };
    // The pictures go through files of floats: a restorer reads and writes rows.
    let [given, made] = ["given.tiff", "made.tiff"].map(|name| making.scratch.join(name));
    let writer = |path, pixels: &Pixels| ImageWriter::create(path, Format::Tiff, pixels.header(Depth::Float));
    let picture = test_picture(size);
    let write = || picture.write(Box::new(writer(&given, &picture)?));
    write().map_err(of_runtime)?;
    let limits = Limits::default();
    let open = {
        let (given, made) = (given.clone(), made.clone());
        move |_: &Fitting| -> tileforge_runtime::Result<Box<dyn FrameStream>> {
            let source = ImageReader::open(&given, &limits)?;
            let sink = ImageWriter::create(&made, Format::Tiff, picture.header(Depth::Float))?;
            Ok(Box::new(OneFrame(Some((Box::new(source), Box::new(sink))))))
        }
    };
    making.result(host, restorer, RestoreRequest::new(open, settings, limits))?;
    let read = || Pixels::read(&mut ImageReader::open(&made, &limits)?, &limits);
    read().map_err(of_runtime)
}

/// A film of one frame.
struct OneFrame(Option<FrameAndPlace>);

impl FrameStream for OneFrame {
    fn next(&mut self) -> tileforge_runtime::Result<Option<FrameAndPlace>> {
        Ok(self.0.take())
    }

    fn finish(self: Box<Self>) -> tileforge_runtime::Result<()> {
        Ok(())
    }
}
