//! The tensors of runs, made once and used again and again.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use tileforge_image::Size;
use tileforge_session::Buffer;

use crate::error::{Error, Result};
use crate::executor::PATIENCE;

/// The input and the output of one run.
pub(super) struct Pair {
    pub(super) input: Buffer,
    pub(super) output: Buffer,
}

/// Pairs of tensors that are not in use, each for the largest run of tiles of one size.
pub(super) struct Spare {
    pairs: Mutex<Pairs>,
    returned: Condvar,
}

struct Pairs {
    /// The one that was returned last stands at the end.
    unused: VecDeque<(Size, Pair)>,
    made: usize,
    limit: usize,
}

impl Spare {
    /// At most `limit` pairs exist at the same time, of all sizes together.
    pub(super) fn new(limit: usize) -> Self {
        let pairs = Pairs { unused: VecDeque::new(), made: 0, limit };
        Self { pairs: Mutex::new(pairs), returned: Condvar::new() }
    }

    /// Makes the first pair, if there is none yet, so that it is known before the first tile whether memory holds it.
    pub(super) fn reserve(&self, tile: Size, make: impl Fn() -> Result<Pair>) -> Result<()> {
        let mut pairs = self.pairs.lock();
        if pairs.made == 0 {
            pairs.unused.push_back((tile, make()?));
            pairs.made = 1;
        }
        Ok(())
    }

    /// A pair for tiles of a size: one that is not in use, or one that `make` makes, for which those of other sizes
    /// make room. Waits while all are in use, unless `cancelled`.
    pub(super) fn take(
        &self,
        tile: Size,
        make: impl Fn() -> Result<Pair>,
        cancelled: impl Fn() -> bool,
    ) -> Result<Pair> {
        let mut pairs = self.pairs.lock();
        loop {
            if let Some(place) = pairs.unused.iter().position(|(size, _)| *size == tile)
                && let Some((_, pair)) = pairs.unused.remove(place)
            {
                return Ok(pair);
            }
            if pairs.made >= pairs.limit && pairs.unused.pop_front().is_some() {
                pairs.made -= 1;
            }
            if pairs.made < pairs.limit {
                match make() {
                    // Memory that tiles of other sizes hold is tried next; fewer on their way at the same time are
                    // slower, and enough.
                    Err(error) if error.is_out_of_memory() && pairs.made > 0 => {
                        if pairs.unused.pop_front().is_some() {
                            pairs.made -= 1;
                            continue;
                        }
                        pairs.limit = pairs.made;
                    }
                    made => {
                        let pair = made?;
                        pairs.made += 1;
                        return Ok(pair);
                    }
                }
            }
            if cancelled() {
                return Err(Error::Cancelled);
            }
            self.returned.wait_for(&mut pairs, PATIENCE);
        }
    }

    /// Takes a pair back.
    pub(super) fn give_back(&self, tile: Size, pair: Pair) {
        self.pairs.lock().unused.push_back((tile, pair));
        self.returned.notify_one();
    }
}
