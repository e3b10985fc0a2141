//! The memory of a session's kernels, which ONNX Runtime does not count.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tileforge_kernels::{Convolution, Error, Scratch};

/// What the kernels of one session hold.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) scratch: Scratch,
    /// Bytes of prepared weights.
    prepared: AtomicUsize,
    /// The most bytes of scratch memory of a thread.
    of_thread: AtomicUsize,
}

impl Memory {
    /// Counts bytes of prepared weights.
    pub(super) fn count(&self, prepared: usize) {
        self.prepared.fetch_add(prepared, Ordering::Relaxed);
    }

    /// Counts scratch memory of a thread.
    pub(super) fn count_thread(&self, of_thread: usize) {
        self.of_thread.fetch_max(of_thread, Ordering::Relaxed);
    }

    /// All bytes, with the scratch memory of one thread.
    pub(super) fn bytes(&self) -> u64 {
        self.prepared.load(Ordering::Relaxed).saturating_add(self.of_thread.load(Ordering::Relaxed)) as u64
    }
}

/// Prepared convolutions, by the digest of what they are made of. Sessions with the same weights share them.
#[derive(Default)]
pub(super) struct Shared(Mutex<HashMap<[u8; 32], Weak<Convolution>>>);

impl Shared {
    /// That of these numbers and values: one that a session already has, or a new one.
    pub(super) fn convolution(
        &self,
        numbers: &[usize],
        values: &[&[f32]],
        make: impl FnOnce() -> Result<Convolution, Error>,
    ) -> Result<Arc<Convolution>, Error> {
        let mut digest = Sha256::new();
        for number in numbers {
            digest.update((*number as u64).to_le_bytes());
        }
        for values in values {
            digest.update((values.len() as u64).to_le_bytes());
            let mut bytes = [0; 1 << 14];
            for values in values.chunks(bytes.len() / 4) {
                let parts = bytes.chunks_exact_mut(4).zip(values);
                parts.for_each(|(bytes, value)| bytes.copy_from_slice(&value.to_le_bytes()));
                digest.update(&bytes[..4 * values.len()]);
            }
        }
        let digest: [u8; 32] = digest.finalize().into();
        let mut held = self.0.lock();
        if let Some(convolution) = held.get(&digest).and_then(Weak::upgrade) {
            return Ok(convolution);
        }
        held.retain(|_, convolution| convolution.strong_count() > 0);
        let convolution = Arc::new(make()?);
        held.insert(digest, Arc::downgrade(&convolution));
        Ok(convolution)
    }
}
