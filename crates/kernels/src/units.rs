//! The parts of a kernel's run, on the caller's threads.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::kind::Kind;

/// Memory that the runs of kernels share.
#[derive(Debug, Default)]
pub struct Scratch(pub(crate) Mutex<Vec<Vec<f32>>>);

impl Scratch {
    /// Calls `f` with at least so many floats, whose contents are those of an earlier call.
    fn with(&self, floats: usize, f: impl FnOnce(&mut [f32])) -> Result<(), Error> {
        let held = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = held().pop().unwrap_or_default();
        if memory.len() < floats {
            drop(std::mem::take(&mut memory));
            memory = zeros(floats)?;
        }
        f(&mut memory);
        held().push(memory);
        Ok(())
    }
}

/// Why a kernel cannot be prepared or run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// This processor lacks the instructions.
    Unsupported,
    /// Numbers of weights or channels differ, or are zero.
    Lengths,
    /// There is no memory for so many floats.
    Memory(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => write!(formatter, "this processor lacks the instructions"),
            Self::Lengths => write!(formatter, "the numbers of its weights differ, or are zero"),
            Self::Memory(floats) => write!(formatter, "failed to allocate {floats} floats"),
        }
    }
}

impl std::error::Error for Error {}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError<E> {
    /// As [`Error`] says.
    Kernel(Error),
    /// The caller's threads could not be used.
    Each(E),
}

/// So many zeros.
pub(crate) fn zeros(floats: usize) -> Result<Vec<f32>, Error> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(floats).map_err(|_| Error::Memory(floats))?;
    memory.resize(floats, 0.0);
    Ok(memory)
}

/// The product of lengths; `None` if it is more than memory holds.
pub(crate) fn product(lengths: &[usize]) -> Option<usize> {
    if lengths.contains(&0) {
        return Some(0);
    }
    lengths.iter().try_fold(1_usize, |product, length| product.checked_mul(*length))
}

/// A work of a kernel, compiled where it is written: code that is generic is compiled with its caller's settings.
pub(crate) trait Units: Sync {
    /// Runs one unit.
    ///
    /// # Safety
    /// As [`Kind::run`].
    unsafe fn unit(&self, kind: Kind, unit: usize, scratch: &mut [f32]);
}

/// Runs all units of a work, each once, with so many floats of scratch memory. `each` calls a function as often as it
/// is told, on as many threads as it likes.
///
/// # Safety
/// As [`Units::unit`].
pub(crate) unsafe fn run_units<E>(
    kind: Kind,
    work: &dyn Units,
    units: usize,
    floats: usize,
    scratch: &Scratch,
    each: impl FnOnce(usize, &(dyn Fn() + Sync)) -> Result<(), E>,
) -> Result<(), RunError<E>> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let part = || {
        let unit = next.fetch_add(1, Ordering::Relaxed);
        if unit >= units || failed.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: as the caller promises; a unit is run once.
        if scratch.with(floats, |memory| unsafe { work.unit(kind, unit, memory) }).is_err() {
            failed.store(true, Ordering::Relaxed);
        }
    };
    each(units, &part).map_err(RunError::Each)?;
    if failed.into_inner() { Err(RunError::Kernel(Error::Memory(floats))) } else { Ok(()) }
}
