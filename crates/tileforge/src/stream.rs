//! Streams of frames, and their results.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use tileforge_image::{Header, RowSource};
use tileforge_runtime::frames::{FrameAndPlace, FrameStream};
use tileforge_runtime::host::Handle;
use tileforge_runtime::realtime::StreamStatistics;

use crate::error::{Error, Result};
use crate::picture::{Picture, Sink};
use crate::request::Request;

/// The most results that wait to be taken.
const AHEAD: usize = 2;

/// How often the request is checked while no result comes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the header of a result from the header of its frame.
pub(crate) type HeaderOf = Box<dyn Fn(&Header) -> tileforge_runtime::Result<Header> + Send>;

/// Takes a result.
pub(crate) type Take = Arc<dyn Fn(Picture) -> tileforge_image::Result<()> + Send + Sync>;

/// A stream that has been opened.
type OpenedFrames = tileforge_runtime::Result<Box<dyn FrameStream>>;

/// The frames of a stream, and the receiver of their results.
struct Frames {
    frames: Box<dyn Iterator<Item = Picture> + Send>,
    header: HeaderOf,
    take: Take,
}

/// Returns a function that opens the stream of frames on another thread, and the receiver of the results.
pub(crate) fn of_frames<I>(frames: I) -> (impl FnOnce(HeaderOf) -> OpenedFrames + Send + 'static, Receiver<Picture>)
where
    I: IntoIterator<Item = Picture> + Send + 'static,
    I::IntoIter: Send + 'static,
{
    let (results, taken) = bounded(AHEAD);
    let take = move |picture| {
        // A stream that was dropped is cancelled, and ends at its next frame.
        let _ = results.send(picture);
        Ok(())
    };
    (given_to(frames, Arc::new(take)), taken)
}

/// As [`of_frames`], but `take` receives the results.
pub(crate) fn given_to<I>(frames: I, take: Take) -> impl FnOnce(HeaderOf) -> OpenedFrames + Send + 'static
where
    I: IntoIterator<Item = Picture> + Send + 'static,
    I::IntoIter: Send + 'static,
{
    move |header| Ok(Box::new(Frames { frames: Box::new(frames.into_iter()), header, take }))
}

impl FrameStream for Frames {
    fn frames(&self) -> Option<u64> {
        match self.frames.size_hint() {
            (least, Some(most)) if least == most => Some(most as u64),
            _ => None,
        }
    }

    fn next(&mut self) -> tileforge_runtime::Result<Option<FrameAndPlace>> {
        let Some(frame) = self.frames.next() else { return Ok(None) };
        let source = frame.source();
        let take = self.take.clone();
        let sink = Sink::giving((self.header)(source.header())?, move |picture| take(picture))?;
        Ok(Some((Box::new(source), Box::new(sink))))
    }

    fn finish(self: Box<Self>) -> tileforge_runtime::Result<()> {
        Ok(())
    }
}

/// The results of a stream, in the order of its frames. Taking them slowly slows the stream down; dropping it ends the
/// stream.
#[derive(Debug)]
pub struct Stream<S = StreamStatistics> {
    results: Receiver<Picture>,
    request: Request<S>,
    ended: bool,
    /// How the stream ended, until this is returned.
    outcome: Option<Result<S>>,
}

impl<S: Send + 'static> Stream<S> {
    pub(crate) fn new(results: Receiver<Picture>, handle: Handle<S>) -> Self {
        Self { results, request: Request::new(handle, Ok), ended: false, outcome: None }
    }
}

impl<S> Stream<S> {
    /// Takes the remaining results, and returns the statistics of the stream.
    ///
    /// # Errors
    /// Why the stream ended before its last frame.
    pub fn finish(mut self) -> Result<S> {
        while self.next().transpose()?.is_some() {}
        self.outcome.take().unwrap_or(Err(Error::Runtime(tileforge_runtime::Error::Taken)))
    }

    /// The next result, as from [`Iterator::next`]; `None` if none comes within `patience`.
    pub fn next_within(&mut self, patience: Duration) -> Option<Option<Result<Picture>>> {
        if !self.ended {
            let patience = match self.results.recv_timeout(patience) {
                Ok(picture) => return Some(Some(Ok(picture))),
                // A request that is cancelled is answered before the last of its threads has ended.
                Err(RecvTimeoutError::Timeout) => Duration::ZERO,
                Err(RecvTimeoutError::Disconnected) => POLL_INTERVAL,
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

    /// Ends the stream. A run in progress ends after the current node.
    pub fn cancel(&self) {
        self.request.cancel();
    }
}

impl<S> Iterator for Stream<S> {
    type Item = Result<Picture>;

    fn next(&mut self) -> Option<Result<Picture>> {
        loop {
            if let Some(next) = self.next_within(POLL_INTERVAL) {
                return next;
            }
        }
    }
}

impl<S> Drop for Stream<S> {
    fn drop(&mut self) {
        self.request.cancel();
    }
}
