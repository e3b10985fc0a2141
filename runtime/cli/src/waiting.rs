//! Waits for a request, with a progress bar.

use std::time::Duration;

use tileforge_runtime::Result;
use tileforge_runtime::host::Handle;
use tileforge_terminal::{Progress, Unit};

/// How often the progress bar is updated.
const TICK: Duration = Duration::from_millis(100);

/// Waits for the result; shows a progress bar of the stage meanwhile.
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
