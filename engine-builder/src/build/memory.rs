//! The memory that gates need.

use super::graphs::file_name;
use crate::{Error, Result, Source};
use tileforge_graph::Model;

/// Refuses shapes that need more memory than this machine has, before anything is measured: such allocations end the
/// process.
pub(super) fn check_memory(source: &Source, model: &Model) -> Result<()> {
    let (Some((node, peak)), Some(available)) = (model.peak(), tileforge_session::available_memory()) else {
        return Ok(());
    };
    // The reference's outputs stay in memory while the engine's graph runs.
    let reference = model.outputs.iter().filter_map(|port| port.ty.byte_length()).fold(0, u64::saturating_add);
    let needed = peak.saturating_add(reference);
    if needed <= available {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let name = file_name(model)?;
    Err(Error::input(
        source.path(),
        format!(
            "{name}: its gates hold {} MB of values at `{}`, and this machine has {} MB of memory left; choose smaller \
             sizes or a smaller batch",
            megabytes(needed),
            node.name,
            megabytes(available)
        ),
    ))
}
