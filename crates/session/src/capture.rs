//! Who may use GPUs while a CUDA graph is recorded.
//!
//! ONNX Runtime records with `cudaStreamCaptureModeGlobal`. Until the recording ends, a call of any thread that CUDA
//! calls unsafe, such as an allocation or the wait for another stream, fails, and the recording with it. So the run that
//! records is alone, and everything else that uses a GPU is shared work.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static GPUS: RwLock<()> = RwLock::new(());

/// Held during any use of a GPU. A thread holds it once: a second one would wait for the recording that waits for the
/// first.
pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    GPUS.read()
}

/// Held during a run that records a CUDA graph. This thread must not hold [`shared`].
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    GPUS.write()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_recording_waits_for_what_runs_and_nothing_starts_meanwhile() {
        let running = super::shared();
        let (send, receive) = mpsc::channel();
        let recording = {
            let send = send.clone();
            thread::spawn(move || {
                let _alone = super::alone();
                send.send("recorded").unwrap();
            })
        };
        assert!(receive.try_recv().is_err());
        send.send("run ended").unwrap();
        drop(running);
        recording.join().unwrap();
        drop(super::shared());
        assert_eq!(receive.try_iter().collect::<Vec<_>>(), ["run ended", "recorded"]);
    }
}
