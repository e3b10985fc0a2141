//! Streams of frames through a real-time network.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use tileforge_image::RowSource;
use tileforge_runtime::frames::{FrameAndPlace, FrameStream};
use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::realtime::{self, RealtimeRequest, Statistics};

use crate::error::{Error, Result};
use crate::picture::{Picture, Sink};
use crate::request::Request;

/// Results that wait to be taken.
const AHEAD: usize = 2;

/// How often the request is looked after while no result comes.
const PATIENCE: Duration = Duration::from_millis(50);

/// An engine that turns frames into frames, each with what it made of the one before.
#[derive(Debug)]
pub struct Player(Service<realtime::Player>);

impl Player {
    pub(crate) fn new(service: Service<realtime::Player>) -> Self {
        Self(service)
    }

    /// Plays frames, which are taken one after the other on another thread: give an iterator that waits for a camera,
    /// or a channel's. The stream holds a session from its first frame to its last.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn play<I>(&self, frames: I, terms: impl Into<Terms>) -> Result<Stream>
    where
        I: IntoIterator<Item = Picture> + Send + 'static,
        I::IntoIter: Send + 'static,
    {
        let (results, taken) = bounded(AHEAD);
        let open = move || -> tileforge_runtime::Result<Box<dyn FrameStream>> {
            Ok(Box::new(Frames { frames: Box::new(frames.into_iter()), results }))
        };
        let handle = self.0.submit(RealtimeRequest::new(open), terms)?;
        Ok(Stream { results: taken, request: Request::new(handle, Ok), ended: false, outcome: None })
    }
}

/// The frames of a stream, and where their results go.
struct Frames {
    frames: Box<dyn Iterator<Item = Picture> + Send>,
    results: Sender<Picture>,
}

impl FrameStream for Frames {
    fn next(&mut self) -> tileforge_runtime::Result<Option<FrameAndPlace>> {
        let Some(frame) = self.frames.next() else { return Ok(None) };
        let source = frame.source();
        let results = self.results.clone();
        let sink = Sink::giving(source.header().clone(), move |picture| {
            // A stream that was dropped is cancelled, and ends at its next frame.
            let _ = results.send(picture);
            Ok(())
        })?;
        Ok(Some((Box::new(source), Box::new(sink))))
    }

    fn finish(self: Box<Self>) -> tileforge_runtime::Result<()> {
        Ok(())
    }
}

/// The results of a stream, in the order of its frames. Taking them slowly slows the stream down; dropping it ends the
/// stream.
#[derive(Debug)]
pub struct Stream {
    results: Receiver<Picture>,
    request: Request<Statistics>,
    ended: bool,
    /// How it ended, until that is told.
    outcome: Option<Result<Statistics>>,
}

impl Stream {
    /// Takes the results that are left, and says what the stream took.
    ///
    /// # Errors
    /// Why it ended before its last frame.
    pub fn finish(mut self) -> Result<Statistics> {
        while self.next().transpose()?.is_some() {}
        self.outcome.take().unwrap_or(Err(Error::Runtime(tileforge_runtime::Error::Taken)))
    }

    /// The next result, if it comes within this time; `None` if it does not. Otherwise as [`Iterator::next`].
    pub fn next_within(&mut self, patience: Duration) -> Option<Option<Result<Picture>>> {
        if !self.ended {
            let patience = match self.results.recv_timeout(patience) {
                Ok(picture) => return Some(Some(Ok(picture))),
                // A request that is cancelled is answered before the last of its threads has ended.
                Err(RecvTimeoutError::Timeout) => Duration::ZERO,
                Err(RecvTimeoutError::Disconnected) => PATIENCE,
            };
            self.outcome = self.request.wait_for(patience);
            self.ended = self.outcome.is_some();
            if !self.ended {
                return None;
            }
        }
        if let Ok(picture) = self.results.try_recv() {
            return Some(Some(Ok(picture)));
        }
        Some(self.outcome.take_if(|outcome| outcome.is_err()).and_then(Result::err).map(Err))
    }

    /// Ends it. What runs for it ends after the node that is being computed.
    pub fn cancel(&self) {
        self.request.cancel();
    }
}

impl Iterator for Stream {
    type Item = Result<Picture>;

    fn next(&mut self) -> Option<Result<Picture>> {
        loop {
            if let Some(next) = self.next_within(PATIENCE) {
                return next;
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.request.cancel();
    }
}
