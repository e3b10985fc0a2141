//! The tensors of runs, made once and used again and again.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use tileforge_contract::DataType;
use tileforge_session::{Buffer, Buffers};

use crate::error::{Error, Result};
use crate::executor::PATIENCE;

/// The input and the output of one run.
pub(super) struct Pair {
    pub(super) input: Buffer,
    pub(super) output: Buffer,
}

/// Pairs of tensors that are not in use.
pub(super) struct Spare {
    tensors: Mutex<Buffers>,
    pairs: Mutex<Pairs>,
    returned: Condvar,
    /// Images in the largest run.
    batch: usize,
    /// Of input and output, for the largest run.
    shapes: [Vec<usize>; 2],
}

struct Pairs {
    unused: VecDeque<Pair>,
    made: usize,
    limit: usize,
}

impl Spare {
    /// At most `limit` pairs are made, of these shapes, for `batch` images.
    pub(super) fn new(tensors: Buffers, shapes: [Vec<usize>; 2], batch: usize, limit: usize) -> Self {
        let pairs = Pairs { unused: VecDeque::new(), made: 0, limit };
        Self { tensors: Mutex::new(tensors), pairs: Mutex::new(pairs), returned: Condvar::new(), batch, shapes }
    }

    /// Tensors for the largest run; waits while all are in use, unless `cancelled`.
    pub(super) fn take(&self, cancelled: impl Fn() -> bool) -> Result<Pair> {
        let mut pairs = self.pairs.lock();
        loop {
            if let Some(pair) = pairs.unused.pop_front() {
                return Ok(pair);
            }
            if pairs.made < pairs.limit {
                match self.make(self.batch) {
                    // Fewer on their way at the same time are slower, and enough.
                    Err(error) if error.is_out_of_memory() && pairs.made > 0 => pairs.limit = pairs.made,
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

    /// Takes tensors back.
    pub(super) fn give_back(&self, pair: Pair) {
        self.pairs.lock().unused.push_back(pair);
        self.returned.notify_one();
    }

    /// Tensors for a run of some images, which the caller keeps.
    pub(super) fn make(&self, batch: usize) -> Result<Pair> {
        let tensors = self.tensors.lock();
        let zeros = |shape: &[usize]| tensors.zeros(DataType::F32, &[&[batch], &shape[1..]].concat());
        Ok(Pair { input: zeros(&self.shapes[0])?, output: zeros(&self.shapes[1])? })
    }
}
