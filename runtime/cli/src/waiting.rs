//! A request that is waited for, with a bar of how far it is.

use std::time::Duration;

use tileforge_runtime::Result;
use tileforge_runtime::host::Handle;
use tileforge_terminal::{Progress, Unit};

/// How often the bar is looked after.
const TICK: Duration = Duration::from_millis(100);

/// The result, with a bar of the stage until it is there.
pub(crate) fn wait<T>(handle: &Handle<T>, stage: &str, unit: Unit) -> Result<T> {
    let progress = Progress::new();
    let mut begun = false;
    loop {
        let made = handle.wait_for(TICK);
        let now = handle.progress();
        if !begun && (now.total.is_some() || now.done > 0) {
            progress.begin(stage, now.total, unit);
            begun = true;
        }
        progress.set(now.done);
        if let Some(made) = made {
            progress.finish();
            return made;
        }
    }
}
