//! Films and pictures that are restored.

use tileforge_image::Limits;
use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::restoration::{self, Fitting, RestoreRequest, Settings, Statistics};

use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::stream::{Stream, of_frames};

/// An engine that restores films and pictures, for any number of callers.
#[derive(Debug)]
pub struct Restorer(Service<restoration::Restorer>);

impl Restorer {
    pub(crate) fn new(service: Service<restoration::Restorer>) -> Self {
        Self(service)
    }

    /// Restores one picture, and waits for it.
    ///
    /// # Errors
    /// The engine has no graph for the size that is wanted, or the networks fail.
    pub fn restore(&self, picture: Picture, settings: Settings) -> Result<Picture> {
        let mut stream = self.play([picture], settings, Terms::default())?;
        let made = stream.next().transpose()?;
        stream.finish()?;
        made.ok_or(Error::Runtime(tileforge_runtime::Error::NoFrames))
    }

    /// Restores the frames of a film, which are taken one after the other on another thread. Results come when the batch
    /// after theirs has been computed.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn play<I>(&self, frames: I, settings: Settings, terms: impl Into<Terms>) -> Result<Stream<Statistics>>
    where
        I: IntoIterator<Item = Picture> + Send + 'static,
        I::IntoIter: Send + 'static,
    {
        let (open, results) = of_frames(frames);
        let open = move |fitting: &Fitting| {
            let fitting = fitting.clone();
            open(Box::new(move |size| fitting.result(size)))
        };
        let request = RestoreRequest::new(open, settings, Limits::default());
        Ok(Stream::new(results, self.0.submit(request, terms)?))
    }
}
