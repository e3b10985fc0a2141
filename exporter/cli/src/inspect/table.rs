//! A table of facts.

use super::super::failure::{CommandResult, result};

/// Prints a table of facts; facts without a value are left out.
pub(super) fn show(lines: Vec<(&str, String)>) -> CommandResult {
    let lines = lines.into_iter().filter(|(_, value)| !value.is_empty());
    result(&lines.map(|(name, value)| format!("{name:<16} {value}")).collect::<Vec<_>>().join("\n"))
}
