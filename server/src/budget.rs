//! Memory for the bodies of all requests together.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::{Failure, FailureKind, Result};

/// The unit of memory, in bytes.
const UNIT: u64 = 4096;

/// Memory for the bodies of all requests together.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    room: Arc<Semaphore>,
    /// The number of all units.
    units: u64,
}

/// Memory that one request holds, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Budget,
    held: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    permit: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        let units = usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(units)), units: units as u64 }
    }

    /// A share without memory yet.
    pub(crate) fn open(&self) -> Arc<Held> {
        Arc::new(Held { budget: self.clone(), held: Mutex::default() })
    }
}

impl Held {
    /// Takes `bytes_per_pixel` more bytes for each of `pixels`.
    pub(crate) fn add_pixels(&self, pixels: u64, bytes_per_pixel: u64) -> Result<()> {
        self.add(usize::try_from(pixels.saturating_mul(bytes_per_pixel)).unwrap_or(usize::MAX))
    }

    /// Takes `bytes` more.
    pub(crate) fn add(&self, bytes: usize) -> Result<()> {
        let mut state = self.held.lock();
        let before = state.bytes.div_ceil(UNIT);
        state.bytes += bytes as u64;
        let more = state.bytes.div_ceil(UNIT) - before;
        if before + more > self.budget.units {
            let message = format!("it needs more than the {} bytes that all requests have", self.budget.units * UNIT);
            return Err(Failure::new(FailureKind::TooLarge, message));
        }
        if more == 0 {
            return Ok(());
        }
        let busy =
            || Failure::new(FailureKind::Busy, "the bodies of other requests take all memory; send it again later");
        let units = u32::try_from(more).map_err(|_| busy())?;
        let permit = self.budget.room.clone().try_acquire_many_owned(units).map_err(|_| busy())?;
        match &mut state.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_given_back_once() {
        let budget = Budget::new(3 * UNIT);
        let one = budget.open();
        one.add(10).unwrap();
        one.add(UNIT as usize).unwrap();
        let other = budget.open();
        assert_eq!(other.add(UNIT as usize + 1).unwrap_err().kind, FailureKind::Busy);
        drop(one);
        budget.open().add(3 * UNIT as usize).unwrap();
    }
}
