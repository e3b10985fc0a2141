//! What belongs to the process: its hosts, what ends before it ends, and what a forked one may not use.
//!
//! A forked process has none of the threads of the one that it was forked from, and may have its locks in any state. So
//! nothing here is locked before [`check`] has found that this is the process that loaded ONNX Runtime.

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

/// The process that loads ONNX Runtime; 0 before.
static LOADED_IN: AtomicU32 = AtomicU32::new(0);

/// Set when the interpreter ends, after [`ENDED_BY`]. Its order with [`RETURNING`] matters.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The thread that ends it.
static ENDED_BY: OnceLock<ThreadId> = OnceLock::new();

/// Threads that are on their way back to the interpreter.
static RETURNING: AtomicUsize = AtomicUsize::new(0);

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

/// What is set when the interpreter ends: the origin of the flags of all requests.
static EVERYTHING: LazyLock<Cancel> = LazyLock::new(Cancel::new);

#[derive(Default)]
struct State {
    /// By the cache folder.
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

/// Works without the interpreter's lock.
///
/// Once the interpreter ends, only the thread that ends it comes back, and those of this package, for which it waits.
/// Python would end the others where they take the lock, by unwinding their stacks, and frames of Rust abort the process
/// at that.
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
    // With a host that is there, too, so that another library is refused.
    let setup =
        Setup { onnxruntime: Some(onnxruntime), library_folders: folders, cache: cache.clone(), ..Setup::default() };
    let host = setup.host()?;
    Ok(state.hosts.entry(cache).or_insert(host).clone())
}

/// Keeps an engine in mind, to close it before the interpreter ends.
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
        // Those that have not seen it yet come back before the interpreter is gone.
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

/// A value that other processes forget: dropping it would wait for threads that are not there. Where it belongs,
/// another thread drops it, because that can take as long as a run of a network.
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
