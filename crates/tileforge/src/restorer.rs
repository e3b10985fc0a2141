//! Films and pictures that are restored.

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

    /// The size of what pictures of a size become.
    ///
    /// # Errors
    /// The engine has no graph for the size that is wanted, or a side of it would have one pixel.
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

    /// The same, when the request's turn comes.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn submit(&self, picture: Picture, settings: Settings, terms: impl Into<Terms>) -> Result<Request<Picture>> {
        self.submit_as([picture], settings, terms, |mut frames| {
            frames.pop().ok_or(Error::Runtime(tileforge_runtime::Error::NoFrames))
        })
    }

    /// Restores the frames of a film, all of which have one size, when the request's turn comes. The frames are taken
    /// one after the other, on another thread.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit). Waiting for the request fails if there is no frame, or if all
    /// results together are too large to be held in memory.
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

    /// Restores the frames of a film, which are taken one after the other on another thread. Results come when the batch
    /// after theirs has been computed.
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
