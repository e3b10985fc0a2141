//! The stage that writes pictures, one after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender};
use tileforge_image::RowSink;
use tileforge_image::tile::RowBand;

use super::batch::Ticket;
use super::request::Statistics;
use crate::error::Result;
use crate::executor::StageResult;

/// A picture whose rows are on their way to its sink.
pub(super) struct Rows {
    pub(super) ticket: Arc<Ticket>,
    pub(super) sink: Box<dyn RowSink>,
    pub(super) bands: Receiver<RowBand>,
    /// Where bands go back, to be filled again.
    pub(super) spare: Sender<Vec<u8>>,
    pub(super) statistics: Statistics,
}

/// Writes pictures one after the other.
pub(super) struct Encoding {
    pictures: Receiver<Rows>,
    /// The one that is being written. Here, so that its bands stay open while a panic is being noted.
    current: Option<Rows>,
}

impl Encoding {
    pub(super) fn new(pictures: Receiver<Rows>) -> Self {
        Self { pictures, current: None }
    }

    pub(super) fn run(&mut self) -> StageResult<()> {
        while let Ok(rows) = self.pictures.recv() {
            let written = self.current.insert(rows).write();
            let Some(Rows { ticket, sink, mut statistics, .. }) = self.current.take() else { continue };
            let result = match written {
                // The picture was given up on the way; whoever did that tells.
                Ok(false) => continue,
                Ok(true) => ticket.clock.measure(|seconds| &mut seconds.encode, || Ok(sink.finish()?)),
                Err(error) => Err(error),
            };
            statistics.seconds = ticket.clock.stop();
            statistics.exact &= !ticket.approximated.load(Ordering::SeqCst);
            ticket.reply.finish(result.map(|()| statistics));
        }
        Ok(())
    }
}

impl Rows {
    /// Writes all rows that come; false if some are missing.
    fn write(&mut self) -> Result<bool> {
        let header = self.sink.header();
        let row_bytes = header.row_bytes().unwrap_or(usize::MAX);
        let mut rows_left = header.size.height as usize;
        for band in &self.bands {
            self.ticket.reply.go_on()?;
            let written =
                self.ticket.clock.measure(|seconds| &mut seconds.encode, || self.sink.write_rows(&band.bytes));
            written?;
            rows_left = rows_left.saturating_sub(band.bytes.len() / row_bytes);
            // The blender is gone after the last row, and needs no buffer then.
            let _ = self.spare.send(band.bytes);
        }
        Ok(rows_left == 0)
    }
}
