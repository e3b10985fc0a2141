//! Reads damaged pictures where that is allowed.

use std::path::PathBuf;

use super::{Decoded, Opening, Rows, Warn};
use crate::Size;
use crate::error::{Error, Result};

/// The fraction of a picture that must have data. It bounds the number of filled-in pixels, whatever size a file
/// claims.
const LEAST_PART: f64 = 0.1;

/// This many pixels may be filled in in any case: they take no time.
const FREE_PIXELS: u64 = 1 << 20;

impl Opening<'_> {
    /// Reports damage and continues, if damage is tolerated.
    pub(super) fn tolerate(&self, error: Error) -> Result<()> {
        tolerated(self.warn.as_ref(), error)
    }

    /// Refuses a damaged picture with hardly any data. `part` is the fraction of the picture that has data, from 0
    /// to 1.
    pub(super) fn check_part(&self, size: Size, part: f64) -> Result<()> {
        if part >= LEAST_PART || size.pixels() <= FREE_PIXELS {
            return Ok(());
        }
        Err(self.refused(format!(
            "there is data for {:.1} % of its {size} pixels; a damaged picture is read from {:.0} % on",
            part * 100.0,
            LEAST_PART * 100.0
        )))
    }

    /// The same picture. If damage is tolerated, its rows do not fail from damage.
    pub(super) fn tolerating(&self, mut decoded: Decoded) -> Decoded {
        if let Some(warn) = self.warn.clone() {
            let (path, size) = (self.path.to_owned(), decoded.header.size);
            decoded.rows = Box::new(Tolerant { rows: decoded.rows, warn, path, size, read: 0, ended: false });
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

/// Rows that are black after the first damaged row.
struct Tolerant {
    rows: Box<dyn Rows>,
    warn: Warn,
    path: PathBuf,
    size: Size,
    /// Rows that could be read.
    read: u32,
    /// Nothing more can be read.
    ended: bool,
}

impl Tolerant {
    /// Refuses to fill in nearly the whole picture.
    fn check_read(&self) -> Result<()> {
        let Self { path, size, read, .. } = self;
        let missing = u64::from(size.width) * u64::from(size.height.saturating_sub(*read));
        if missing <= FREE_PIXELS || f64::from(*read) >= LEAST_PART * f64::from(size.height) {
            return Ok(());
        }
        let (all, least) = (size.height, LEAST_PART * 100.0);
        let problem =
            format!("{read} of its {all} rows can be read; a damaged picture is read from {least:.0} % of them on");
        Err(Error::image(path, problem))
    }
}

impl Rows for Tolerant {
    fn next(&mut self, row: &mut [u8]) -> Result<()> {
        if !self.ended {
            match self.rows.next(row) {
                Ok(()) => {
                    self.read = self.read.saturating_add(1);
                    return Ok(());
                }
                Err(error @ Error::Damaged { .. }) => {
                    self.check_read()?;
                    tolerated(Some(&self.warn), error)?;
                }
                Err(error) => return Err(error),
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
