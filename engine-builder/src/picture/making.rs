//! Makes a picture with the runtime.

use crate::test_image::test_image;
use crate::{Error, Progress, Result};
use std::path::Path;
use std::time::Duration;
use tileforge_image::Size;
use tileforge_runtime::Error as RuntimeError;
use tileforge_runtime::host::{Cancel, Host, Service, Task};
use tileforge_runtime::pixels::Pixels;
use tileforge_session::Environment;

/// The interval between updates of the progress bar.
const TICK: Duration = Duration::from_millis(50);

/// The context for making a picture.
pub(super) struct Making<'m> {
    pub(super) environment: &'m Environment,
    pub(super) progress: &'m dyn Progress,
    /// The engine.
    pub(super) folder: &'m Path,
    /// A folder for temporary files.
    pub(super) scratch: &'m Path,
}

impl Making<'_> {
    /// Submits a request and waits for its result, with a progress bar.
    pub(super) fn result<T: Task>(&self, host: &Host, task: T, request: T::Request) -> Result<T::Output> {
        let service = Service::new(host, task, 1);
        let handle = service.submit(request, &Cancel::new()).map_err(of_runtime)?;
        let mut done = 0;
        loop {
            let made = handle.wait_for(TICK);
            let now = handle.progress().done;
            (done..now).for_each(|_| self.progress.step());
            done = now;
            if let Some(made) = made {
                return made.map_err(of_runtime);
            }
        }
    }
}

/// The built-in test image.
pub(super) fn test_picture(size: Size) -> Pixels {
    const CHANNELS: usize = 3;
    let planes = test_image([CHANNELS, size.height as usize, size.width as usize], [0.0, 1.0]);
    let area = size.pixels() as usize;
    let samples = (0..area).flat_map(|pixel| (0..CHANNELS).map(move |channel| (channel, pixel)));
    let samples = samples.map(|(channel, pixel)| planes[channel * area + pixel]).collect();
    Pixels { size, channels: CHANNELS, samples }
}

/// Unpacks errors that have their own variant in this crate.
pub(super) fn of_runtime(error: RuntimeError) -> Error {
    match error {
        RuntimeError::Engine(error) => error.into(),
        RuntimeError::Session(error) => error.into(),
        other => Error::Picture(other),
    }
}
