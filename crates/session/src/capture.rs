//! Who may use GPUs while a CUDA graph is recorded.
//!
//! ONNX Runtime records with `cudaStreamCaptureModeGlobal`. Until the recording ends, a call of any thread that CUDA
//! calls unsafe, such as an allocation or the wait for another stream, fails, and the recording with it. So the run that
//! records is alone, and everything else that uses a GPU is shared work.
//!
//! Opening a session can take minutes, because a library compiles. A run does not wait for that: it goes on without
//! recording, and the next run tries to record.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static GPUS: RwLock<()> = RwLock::new(());
static OPENING: AtomicUsize = AtomicUsize::new(0);

/// Meanwhile nothing else begins on a GPU. The runs that it waits for are seldom as long.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// While a session is opened on a GPU.
pub(crate) struct Opening {
    _running: RwLockReadGuard<'static, ()>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        OPENING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// As [`shared`], for the opening of a session.
pub(crate) fn opening() -> Opening {
    OPENING.fetch_add(1, Ordering::AcqRel);
    Opening { _running: shared() }
}

/// Held during any use of a GPU. A thread holds it once: a second one would wait for the recording that waits for the
/// first.
pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    GPUS.read()
}

/// Held during a run that records a CUDA graph; `None` if a session is being opened or others run for long. This thread
/// must not hold [`shared`].
pub(crate) fn alone() -> Option<RwLockWriteGuard<'static, ()>> {
    if OPENING.load(Ordering::Acquire) > 0 { None } else { GPUS.try_write_for(LONGEST_WAIT) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use std::iter;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_recording_waits_for_what_runs_and_nothing_starts_meanwhile() {
        let running = super::shared();
        let (send, receive) = mpsc::channel();
        let recording = {
            let send = send.clone();
            thread::spawn(move || {
                let _alone = iter::repeat_with(super::alone).flatten().next();
                send.send("recorded").unwrap();
            })
        };
        assert!(receive.try_recv().is_err());
        send.send("run ended").unwrap();
        drop(running);
        recording.join().unwrap();
        drop(super::shared());
        assert_eq!(receive.try_iter().collect::<Vec<_>>(), ["run ended", "recorded"]);

        let opening = super::opening();
        assert!(super::alone().is_none());
        drop(opening);
        assert!(super::alone().is_some());
    }
}
