//! Progress of writing a model.

/// Progress of writing a model's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes written so far.
    pub bytes: u64,
    /// Bytes to be written. It grows once if a checkpoint has to be copied because it cannot be linked.
    pub total: u64,
}

/// Bytes between two reports.
const STEP: u64 = 1 << 20;

/// Counts bytes, and reports them now and then.
pub(super) struct Meter<'p> {
    report: &'p mut dyn FnMut(Written),
    written: Written,
    reported: u64,
}

impl<'p> Meter<'p> {
    pub(super) fn new(report: &'p mut dyn FnMut(Written)) -> Self {
        Meter { report, written: Written { bytes: 0, total: 0 }, reported: 0 }
    }

    /// Adds bytes that are still to be written.
    pub(super) fn expect(&mut self, bytes: u64) {
        if bytes > 0 {
            self.written.total += bytes;
            (self.report)(self.written);
        }
    }

    /// Counts bytes that are written.
    pub(super) fn add(&mut self, bytes: u64) {
        self.written.bytes += bytes;
        let is_last = self.written.bytes == self.written.total;
        if bytes > 0 && (is_last || self.written.bytes - self.reported >= STEP) {
            self.reported = self.written.bytes;
            (self.report)(self.written);
        }
    }
}
