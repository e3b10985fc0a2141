//! A submitted request and its result as Python objects.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use numpy::PyArray1;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tileforge::{Cancel, DepthKind, Estimate, Generated, Latent, Picture, Tensor};

use crate::background;
use crate::failure::{exception, failed};
use crate::opened::OpenedEngine;
use crate::process::{Owned, apart, check, is_foreign};
use crate::values::made_picture;

/// What a request becomes.
pub(crate) enum Output {
    Picture(Picture),
    Pictures(Vec<Picture>),
    Depth(Estimate),
    Latent(Latent),
    Tensors(BTreeMap<String, Tensor>),
    Generated(Box<Generated>),
}

/// The number of finished steps, with the picture as the network sees it at that step.
type Preview = (usize, Picture);

/// A submitted request.
#[pyclass(frozen, module = "tileforge._native")]
pub(crate) struct Request {
    state: Mutex<State>,
    /// The finished parts and all parts, as last read.
    progress: Mutex<(u64, Option<u64>)>,
    cancel: Cancel,
    previews: Mutex<Option<Receiver<Preview>>>,
    /// Keeps the engine open as long as its requests.
    _engine: Arc<Owned<Arc<OpenedEngine>>>,
}

#[derive(Default)]
struct State {
    /// Until there is a result.
    request: Option<tileforge::Request<Output>>,
    /// Until it is taken.
    result: Option<tileforge::Result<Output>>,
}

impl State {
    /// Waits up to `patience`, and stores the result if there is one. Updates `progress`.
    fn wait(&mut self, patience: Duration, progress: &Mutex<(u64, Option<u64>)>) -> bool {
        if let Some(request) = &mut self.request {
            let result = request.wait_for(patience);
            look(request, progress);
            if result.is_some() {
                self.result = result;
                self.request = None;
            }
        }
        self.request.is_none()
    }
}

fn look(request: &tileforge::Request<Output>, progress: &Mutex<(u64, Option<u64>)>) {
    let seen = request.progress();
    *progress.lock() = (seen.done, seen.total);
}

/// The sending and the receiving end for previews.
pub(crate) fn previews() -> (Sender<Preview>, Receiver<Preview>) {
    channel()
}

impl Request {
    pub(crate) fn new(
        request: tileforge::Request<Output>,
        cancel: Cancel,
        previews: Option<Receiver<Preview>>,
        engine: Arc<Owned<Arc<OpenedEngine>>>,
    ) -> Self {
        let state = Mutex::new(State { request: Some(request), result: None });
        Self { state, progress: Mutex::default(), cancel, previews: Mutex::new(previews), _engine: engine }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if is_foreign() {
            // Dropping it would take locks that a thread of the parent process may hold.
            std::mem::forget(std::mem::take(self.state.get_mut()));
        }
    }
}

#[pymethods]
impl Request {
    /// Waits up to `seconds` for the result, and returns whether there is one.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        check_process(py)?;
        let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Ok(apart(py, || self.state.lock().wait(patience, &self.progress)))
    }

    /// Takes the result.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        check_process(py)?;
        let result = apart(py, || {
            let mut state = self.state.lock();
            state.wait(Duration::ZERO, &self.progress);
            state.result.take()
        });
        let result = result.ok_or_else(|| failed(py, "the request is not finished, or its result was taken"))?;
        converted(py, result.map_err(|error| exception(py, &error))?)
    }

    /// Calls `call` with the request on a thread of this package, as soon as there is a result.
    fn then(this: Bound<'_, Self>, call: Py<PyAny>) -> PyResult<()> {
        check_process(this.py())?;
        let py = this.py();
        let waiter = Arc::new(Waiter { request: this.clone().unbind(), call });
        let waker = Waker::from(waiter.clone());
        let request = this.get();
        let is_finished = apart(py, || {
            let mut state = request.state.lock();
            let Some(waiting) = state.request.as_mut() else { return true };
            let polled = Pin::new(&mut *waiting).poll(&mut Context::from_waker(&waker));
            look(waiting, &request.progress);
            match polled {
                Poll::Pending => false,
                Poll::Ready(result) => {
                    (state.result, state.request) = (Some(result), None);
                    true
                }
            }
        });
        if is_finished {
            waiter.wake();
        }
        Ok(())
    }

    /// Ends the request.
    fn cancel(&self, py: Python<'_>) {
        // In a forked process, the request belongs to the parent.
        if !is_foreign() {
            apart(py, || self.cancel.cancel());
        }
    }

    /// Parts that are done, and all parts or None: tiles, steps, frames.
    fn progress(&self) -> (u64, Option<u64>) {
        // If another thread waits for the request, that thread has updated the progress a moment ago.
        if let Some(request) = self.state.try_lock().as_ref().and_then(|state| state.request.as_ref()) {
            look(request, &self.progress);
        }
        *self.progress.lock()
    }

    /// The previews that have come since the last call: steps that are done, and the picture.
    fn previews<'py>(&self, py: Python<'py>) -> PyResult<Vec<(usize, Bound<'py, PyAny>)>> {
        let previews: Vec<Preview> = self.previews.lock().iter().flat_map(Receiver::try_iter).collect();
        let made = |(steps, picture)| Ok((steps, made_picture(py, picture).into_pyobject(py)?.into_any()));
        previews.into_iter().map(made).collect()
    }
}

/// Refuses a forked process: no thread there would finish the request.
fn check_process(py: Python<'_>) -> PyResult<()> {
    if is_foreign() { check(py) } else { Ok(()) }
}

/// Calls Python when a request is finished.
struct Waiter {
    request: Py<Request>,
    call: Py<PyAny>,
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        background::call(move || {
            // `None` if the interpreter has ended: then nothing waits for the request.
            let _ = Python::try_attach(|py| {
                if let Err(error) = self.call.call1(py, (&self.request,)) {
                    error.write_unraisable(py, Some(self.call.bind(py)));
                }
            });
        });
    }
}

fn converted(py: Python<'_>, output: Output) -> PyResult<Bound<'_, PyAny>> {
    Ok(match output {
        Output::Picture(picture) => made_picture(py, picture).into_pyobject(py)?.into_any(),
        Output::Pictures(pictures) => pictures_of(py, pictures)?.into_any(),
        Output::Depth(Estimate { size, kind, values }) => {
            let kind = match kind {
                DepthKind::Metres => "metres",
                DepthKind::RelativeInverse => "relative_inverse",
            };
            (PyArray1::from_vec(py, values), size.height, size.width, kind).into_pyobject(py)?.into_any()
        }
        Output::Latent(latent) => latent_of(py, latent)?.into_any(),
        Output::Tensors(tensors) => {
            let tensors = tensors.into_iter().map(|(name, tensor)| {
                let bytes = apart(py, || tensor.to_bytes());
                (name, tensor.data_type().name(), tensor.shape().to_vec(), PyArray1::from_vec(py, bytes))
            });
            tensors.collect::<Vec<_>>().into_pyobject(py)?.into_any()
        }
        Output::Generated(generated) => {
            let Generated { pictures, latents, statistics } = *generated;
            let latents = latents.into_iter().map(|latent| latent_of(py, latent)).collect::<PyResult<Vec<_>>>()?;
            let statistics = serde_json::to_string(&statistics).map_err(|error| failed(py, &error.to_string()))?;
            (pictures_of(py, pictures)?, latents, statistics).into_pyobject(py)?.into_any()
        }
    })
}

fn pictures_of(py: Python<'_>, pictures: Vec<Picture>) -> PyResult<Bound<'_, PyList>> {
    PyList::new(py, pictures.into_iter().map(|picture| made_picture(py, picture)).collect::<Vec<_>>())
}

fn latent_of(py: Python<'_>, latent: Latent) -> PyResult<Bound<'_, PyTuple>> {
    let Latent { channels, frames, size, values, pixels, clip_frames } = latent;
    let pixels = pixels.map(|size| (size.width, size.height));
    let values = PyArray1::from_vec(py, values);
    (values, channels, frames, size.height, size.width, pixels, clip_frames).into_pyobject(py)
}
