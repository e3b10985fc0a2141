//! Tiles that run together, and the pictures that they are of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tileforge_image::tile::Tile;

use super::clock::Clock;
use super::model::Model;
use super::request::Statistics;
use super::routing::Run;
use super::tensors::Pair;
use crate::error::{Error, Result};
use crate::executor::{Cancel, Reply};

/// One picture, as the stages between its first and its last row see it.
pub(super) struct Ticket {
    /// Its place among all pictures.
    pub(super) number: u64,
    pub(super) clock: Clock,
    pub(super) reply: Reply<Statistics>,
    /// A tile ran in parts that are not exact.
    pub(super) approximated: AtomicBool,
}

/// One run of the model on one tile: a place in a batch.
pub(super) struct Slot {
    pub(super) ticket: Arc<Ticket>,
    pub(super) tile: Tile,
    pub(super) run: Run,
    /// The tile's channel that goes around the model, with the tile's last run.
    pub(super) around: Option<Vec<f32>>,
    /// No run of this tile follows.
    pub(super) last: bool,
}

/// Tiles that run together.
pub(super) struct Batch {
    /// Its place in the order of all batches.
    pub(super) number: u64,
    pub(super) model: Arc<Model>,
    pub(super) slots: Vec<Slot>,
    pub(super) tensors: Pair,
    /// Why it did not run.
    pub(super) failed: Option<Arc<Error>>,
}

impl Batch {
    /// What the model gave for one slot, `[channels, height · scale, width · scale]`.
    pub(super) fn output(&self, slot: usize) -> Result<&[f32]> {
        self.model.output(&self.tensors, slot)
    }

    /// Where one slot's input goes, `[channels, height, width]`.
    pub(super) fn input(&mut self, slot: usize) -> Result<&mut [f32]> {
        self.model.input(&mut self.tensors, slot)
    }

    /// Whether nobody needs any of its tiles.
    pub(super) fn is_over(&self) -> bool {
        self.slots.iter().all(|slot| slot.ticket.reply.is_over())
    }

    /// What ends its run: the flag of its picture, where all tiles are of one.
    fn cancel(&self) -> Cancel {
        let mut tickets = self.slots.iter().map(|slot| &slot.ticket);
        match tickets.next() {
            Some(first) if tickets.all(|other| Arc::ptr_eq(first, other)) => first.reply.cancel().clone(),
            _ => Cancel::new(),
        }
    }

    /// Runs it on a stream, with at most `most` images at once.
    pub(super) fn run(&mut self, stream: usize, most: usize) -> Result<()> {
        let (started, count) = (Instant::now(), self.slots.len());
        let cancel = self.cancel();
        self.model.run(&mut self.tensors, count, stream, most, &cancel)?;
        let ended = Instant::now();
        if !self.model.is_exact() {
            self.slots.iter().for_each(|slot| slot.ticket.approximated.store(true, Ordering::SeqCst));
        }
        self.slots.iter().for_each(|slot| slot.ticket.clock.ran(started, ended, 1.0 / count as f64));
        Ok(())
    }
}
