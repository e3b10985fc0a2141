//! Damaged pictures that are read all the same.

use super::{Decoded, Opening, Rows, Warn};
use crate::error::{Error, Result};

impl Opening<'_> {
    /// Reports damage and goes on, where that is allowed.
    pub(super) fn tolerate(&self, error: Error) -> Result<()> {
        tolerated(self.warn.as_ref(), error)
    }

    /// The same picture, with rows that do not fail from damage where that is allowed.
    pub(super) fn tolerating(&self, mut decoded: Decoded) -> Decoded {
        if let Some(warn) = self.warn.clone() {
            decoded.rows = Box::new(Tolerant { rows: decoded.rows, warn, ended: false });
        }
        decoded
    }
}

fn tolerated(warn: Option<&Warn>, error: Error) -> Result<()> {
    match (warn, &error) {
        (Some(warn), Error::Damaged { .. }) => {
            warn(&error);
            Ok(())
        }
        _ => Err(error),
    }
}

/// Rows that are black behind the first damaged one.
struct Tolerant {
    rows: Box<dyn Rows>,
    warn: Warn,
    /// Nothing more can be read.
    ended: bool,
}

impl Rows for Tolerant {
    fn next(&mut self, row: &mut [u8]) -> Result<()> {
        if !self.ended {
            match self.rows.next(row) {
                Ok(()) => return Ok(()),
                Err(error) => tolerated(Some(&self.warn), error)?,
            }
            self.ended = true;
        }
        row.fill(0);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if self.ended { Ok(()) } else { self.rows.end().or_else(|error| tolerated(Some(&self.warn), error)) }
    }
}
