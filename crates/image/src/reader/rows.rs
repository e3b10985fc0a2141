//! The rows that every decoder gives.

use crate::error::Result;

/// Decoded rows, from the first to the last, as a [`Header`](crate::Header) describes them.
pub(super) trait Rows: Send {
    fn next(&mut self, row: &mut [u8]) -> Result<()>;

    /// Checks what follows the last row.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}
