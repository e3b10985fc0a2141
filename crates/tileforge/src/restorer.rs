//! Restores films and pictures.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_image::{Header, Limits, Size};
use tileforge_runtime::frames::FrameStream;
use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::restoration::{self, Fitting, RestoreRequest, RestoreStatistics, Settings, Wanted};

use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::request::Request;
use crate::stream::{HeaderOf, Stream, given_to, of_frames};

/// An engine that restores films and pictures, for any number of callers. Results have no transparency.
#[derive(Debug)]
pub struct Restorer(Service<restoration::Restorer>);

impl Restorer {
    pub(crate) fn new(service: Service<restoration::Restorer>) -> Self {
        Self(service)
    }

    /// The size of the result for pictures of a size.
    ///
    /// # Errors
    /// The engine has no graph for the wanted size, or a side of the result would have one pixel.
    pub fn size_of(&self, picture: Size, wanted: Wanted) -> Result<Size> {
        Ok(self.0.task().fitting(wanted).result(picture)?)
    }

    /// Restores one picture, and waits for it.
    ///
    /// # Errors
    /// As [`Restorer::size_of`]; the networks fail.
    pub fn restore(&self, picture: Picture, settings: Settings) -> Result<Picture> {
        self.submit(picture, settings, Terms::default())?.wait()
    }

    /// Submits one picture to restore.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn submit(&self, picture: Picture, settings: Settings, terms: impl Into<Terms>) -> Result<Request<Picture>> {
        self.submit_as([picture], settings, terms, |mut frames| {
            frames.pop().ok_or(Error::Runtime(tileforge_runtime::Error::NoFrames))
        })
    }

    /// Submits the frames of a film to restore. All frames must have one size. Frames are taken one after the other,
    /// on another thread.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit). Waiting for the request fails if there is no frame, or if all
    /// results together are too large for memory.
    pub fn submit_film<I>(
        &self,
        frames: I,
        settings: Settings,
        terms: impl Into<Terms>,
    ) -> Result<Request<Vec<Picture>>>
    where
        I: IntoIterator<Item = Picture> + Send + 'static,
        I::IntoIter: Send + 'static,
    {
        self.submit_as(frames, settings, terms, Ok)
    }

    fn submit_as<I, T: 'static>(
        &self,
        frames: I,
        settings: Settings,
        terms: impl Into<Terms>,
        result: impl FnOnce(Vec<Picture>) -> Result<T> + Send + 'static,
    ) -> Result<Request<T>>
    where
        I: IntoIterator<Item = Picture> + Send + 'static,
        I::IntoIter: Send + 'static,
    {
        let made = Arc::new(Mutex::new((Vec::new(), 0)));
        let places = made.clone();
        let take = move |picture: Picture| {
            let (frames, held) = &mut *places.lock();
            picture.held_with(held)?;
            frames.push(picture);
            Ok(())
        };
        let handle = self.0.submit(request(given_to(frames, Arc::new(take)), settings), terms)?;
        Ok(Request::new(handle, move |_| result(std::mem::take(&mut made.lock().0))))
    }

    /// Restores the frames of a film, which are taken one after the other on another thread. A result comes only after
    /// the following batch has been computed.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn play<I>(&self, frames: I, settings: Settings, terms: impl Into<Terms>) -> Result<Stream<RestoreStatistics>>
    where
        I: IntoIterator<Item = Picture> + Send + 'static,
        I::IntoIter: Send + 'static,
    {
        let (open, results) = of_frames(frames);
        Ok(Stream::new(results, self.0.submit(request(open, settings), terms)?))
    }
}

/// The request for frames that `open` opens.
fn request(
    open: impl FnOnce(HeaderOf) -> tileforge_runtime::Result<Box<dyn FrameStream>> + Send + 'static,
    settings: Settings,
) -> RestoreRequest {
    let open = move |fitting: &Fitting| {
        let fitting = fitting.clone();
        open(Box::new(move |header| {
            let (colour, size) = (header.colour.without_alpha(), fitting.result(header.size)?);
            Ok(Header { colour, size, ..header.clone() })
        }))
    };
    RestoreRequest::new(open, settings, Limits::default())
}
