//! State of the process: its hosts, its shutdown, and the check that a forked process uses none of it.
//!
//! A forked process has none of its parent's threads, and its locks may be in any state. So no lock is taken here
//! before [`check`] has confirmed that this process loaded ONNX Runtime itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tileforge::{Cancel, Host, Setup};

use crate::background;
use crate::failure::failed;
use crate::opened::OpenedEngine;

/// The id of the process that loads ONNX Runtime; 0 before.
static LOADED_IN: AtomicU32 = AtomicU32::new(0);

/// Set when the interpreter ends, after [`ENDED_BY`]. Its order with [`RETURNING`] matters.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The thread that ends the interpreter.
static ENDED_BY: OnceLock<ThreadId> = OnceLock::new();

/// Threads that are on their way back to the interpreter.
static RETURNING: AtomicUsize = AtomicUsize::new(0);

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

/// The parent of the cancel flags of all requests; it is set when the interpreter ends.
static EVERYTHING: LazyLock<Cancel> = LazyLock::new(Cancel::new);

#[derive(Default)]
struct State {
    /// The hosts by their cache folder.
    hosts: BTreeMap<Option<PathBuf>, Host>,
    engines: Vec<Weak<OpenedEngine>>,
}

/// A flag for a request.
pub(crate) fn new_cancel() -> Cancel {
    EVERYTHING.child()
}

/// Whether this process was forked from one that had loaded ONNX Runtime.
#[pyfunction]
pub(crate) fn is_foreign() -> bool {
    let owner = LOADED_IN.load(Ordering::SeqCst);
    owner != 0 && owner != std::process::id()
}

/// Whether engines may be used here.
///
/// # Errors
/// This process was forked from one that had opened an engine, or the interpreter ends.
pub(crate) fn check(py: Python<'_>) -> PyResult<()> {
    if is_foreign() {
        let owner = LOADED_IN.load(Ordering::SeqCst);
        return Err(failed(
            py,
            &format!(
                "this process was forked from process {owner}, which had opened an engine: the threads of its engines \
                 are not here. Start processes with multiprocessing's \"spawn\" or \"forkserver\", or open engines \
                 only after the fork"
            ),
        ));
    }
    if ENDING.load(Ordering::SeqCst) {
        return Err(failed(py, "the interpreter is ending: no more requests are taken"));
    }
    Ok(())
}

/// Runs `work` without the interpreter's lock.
///
/// Once the interpreter ends, only two kinds of threads return from here: the thread that ends it, and this package's
/// own threads, for which it waits. Python would end other threads when they take the lock, by unwinding their stacks,
/// and Rust's frames abort the process in that case.
pub(crate) fn apart<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    let made = py.detach(|| {
        let made = work();
        RETURNING.fetch_add(1, Ordering::SeqCst);
        let ends = || ENDED_BY.get() == Some(&thread::current().id());
        if ENDING.load(Ordering::SeqCst) && !ends() && !background::is_own_thread() {
            RETURNING.fetch_sub(1, Ordering::SeqCst);
            loop {
                thread::park();
            }
        }
        made
    });
    RETURNING.fetch_sub(1, Ordering::SeqCst);
    made
}

/// The host with this cache folder. The first one loads ONNX Runtime.
///
/// # Errors
/// The library cannot be loaded, or another one is loaded.
pub(crate) fn host(onnxruntime: PathBuf, folders: Vec<PathBuf>, cache: Option<PathBuf>) -> tileforge::Result<Host> {
    LOADED_IN.store(std::process::id(), Ordering::SeqCst);
    let mut state = STATE.lock();
    // Loaded even if the host exists already, so that another library is refused.
    let setup =
        Setup { onnxruntime: Some(onnxruntime), library_folders: folders, cache: cache.clone(), ..Setup::default() };
    let host = setup.host()?;
    Ok(state.hosts.entry(cache).or_insert(host).clone())
}

/// Registers an engine, to close it before the interpreter ends.
pub(crate) fn remember(engine: &Arc<OpenedEngine>) {
    let mut state = STATE.lock();
    state.engines.retain(|engine| engine.strong_count() > 0);
    state.engines.push(Arc::downgrade(engine));
}

/// Ends all requests, closes all engines and ends the threads of this package. Python calls it before the interpreter
/// ends: threads that compute must not meet libraries that are being unloaded.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    // A forked process has no threads that would have to end.
    if is_foreign() || ENDED_BY.set(thread::current().id()).is_err() {
        return;
    }
    ENDING.store(true, Ordering::SeqCst);
    py.detach(|| {
        EVERYTHING.cancel();
        // Threads that have not seen the flag yet return before the interpreter is destroyed.
        while RETURNING.load(Ordering::SeqCst) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let State { hosts, engines } = std::mem::take(&mut *STATE.lock());
        for engine in engines {
            if let Some(engine) = engine.upgrade() {
                engine.close();
            }
        }
        background::end();
        drop(hosts);
    });
}

/// A value that a forked process leaks: dropping it would wait for threads that do not exist there. In its own
/// process, another thread drops it, because that can take as long as a run of a network.
pub(crate) struct Owned<T: Send + 'static> {
    process: u32,
    /// Until it is dropped.
    value: Option<T>,
}

impl<T: Send + 'static> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: Some(value) }
    }

    /// The value; `None` while it is dropped.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }
}

impl<T: Send + 'static> Drop for Owned<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if std::process::id() == self.process {
            background::later(move || drop(value));
        } else {
            std::mem::forget(value);
        }
    }
}
