//! Streams of frames through a real-time network.

use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::realtime::{self, RealtimeRequest};

use crate::error::Result;
use crate::picture::Picture;
use crate::stream::{Stream, of_frames};

/// An engine that turns frames into frames; each run takes the previous result, too.
#[derive(Debug)]
pub struct Player(Service<realtime::Player>);

impl Player {
    pub(crate) fn new(service: Service<realtime::Player>) -> Self {
        Self(service)
    }

    /// Plays frames, which are taken one after the other on another thread: pass an iterator that waits for a camera
    /// or a channel. The stream holds a session from its first frame to its last.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn play<I>(&self, frames: I, terms: impl Into<Terms>) -> Result<Stream>
    where
        I: IntoIterator<Item = Picture> + Send + 'static,
        I::IntoIter: Send + 'static,
    {
        let (open, results) = of_frames(frames);
        let request = RealtimeRequest::new(|| open(Box::new(|header| Ok(header.clone()))));
        Ok(Stream::new(results, self.0.submit(request, terms)?))
    }
}
