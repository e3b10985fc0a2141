//! Measures stages.

use std::time::Instant;

use crate::error::Result;

/// Adds the seconds that a stage takes.
pub(crate) fn timed<T>(seconds: &mut f64, stage: impl FnOnce() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    let made = stage()?;
    *seconds += began.elapsed().as_secs_f64();
    Ok(made)
}
