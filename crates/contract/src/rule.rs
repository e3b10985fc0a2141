//! Checks of a contract's rules.

use crate::{Error, Result};

pub(crate) fn rule(
    holds: bool,
    place: &str,
    expected: impl FnOnce() -> String,
    found: impl FnOnce() -> String,
) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Rule { place: place.to_owned(), expected: expected(), found: found() }) }
}
