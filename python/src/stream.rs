//! Frames, one after the other.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tileforge::{Cancel, Picture, Player, Terms};

use crate::failure::{exception, failed};
use crate::process::{Owned, apart, check};
use crate::values::{GivenPicture, made_picture, picture};

/// A stream of frames: give one, and take its result later.
#[pyclass(frozen, module = "tileforge._native")]
pub(crate) struct Stream {
    /// `None` once no more frames come.
    frames: Mutex<Option<Sender<Picture>>>,
    results: Owned<Mutex<tileforge::Stream>>,
    cancel: Cancel,
}

impl Stream {
    /// # Errors
    /// As [`Player::play`].
    pub(crate) fn new(player: &Player, cancel: Cancel) -> tileforge::Result<Self> {
        let (sender, frames) = channel();
        let frames = Frames { frames, cancel: cancel.clone() };
        let results = player.play(frames, Terms { refuses_to_wait: true, ..Terms::from(&cancel) })?;
        Ok(Self { frames: Mutex::new(Some(sender)), results: Owned::new(Mutex::new(results)), cancel })
    }
}

/// The interval at which the stream checks whether it is cancelled, while no frame comes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The frames, until no more come or the stream is cancelled: its thread must not wait for the frames of a caller that
/// has dropped the stream.
struct Frames {
    frames: Receiver<Picture>,
    cancel: Cancel,
}

impl Iterator for Frames {
    type Item = Picture;

    fn next(&mut self) -> Option<Picture> {
        while !self.cancel.is_cancelled() {
            match self.frames.recv_timeout(POLL_INTERVAL) {
                Ok(frame) => return Some(frame),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}

#[pymethods]
impl Stream {
    /// Passes a frame to the stream.
    fn give(&self, py: Python<'_>, frame: GivenPicture<'_>) -> PyResult<()> {
        check(py)?;
        let frame = picture(py, &frame)?;
        match &*self.frames.lock() {
            // If the stream has ended, its next result has the reason.
            Some(frames) => frames.send(frame).or(Ok(())),
            None => Err(failed(py, "the stream takes no more frames")),
        }
    }

    /// No more frames come.
    fn finish(&self) {
        *self.frames.lock() = None;
    }

    /// Waits up to `seconds` for the next result: whether there is one, and the frame, which is None after the last
    /// one.
    fn take<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<(bool, Option<Bound<'py, PyAny>>)> {
        check(py)?;
        let results = self.results.get().ok_or_else(|| failed(py, "the stream is closed"))?;
        let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        match apart(py, || results.lock().next_within(patience)) {
            None => Ok((false, None)),
            Some(None) => Ok((true, None)),
            Some(Some(Ok(frame))) => Ok((true, Some(made_picture(py, frame).into_pyobject(py)?.into_any()))),
            Some(Some(Err(error))) => Err(exception(py, &error)),
        }
    }

    /// Ends the stream.
    fn cancel(&self, py: Python<'_>) {
        if check(py).is_ok() {
            apart(py, || self.cancel.cancel());
        }
    }
}
