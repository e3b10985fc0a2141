//! Pictures to depth.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_image::Limits;
use tileforge_runtime::Error as RuntimeError;
use tileforge_runtime::depth::{self, DepthFormat, DepthMap, Estimate};
use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::pixels::Pixels;

use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::request::Request;

/// An estimate as a file of a format, in memory.
///
/// # Errors
/// The format does not hold such an estimate; there is no place for a temporary file.
pub fn encode_depth(estimate: &Estimate, format: DepthFormat) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().map_err(Error::Temporary)?;
    let path = folder.path().join(format!("depth.{}", format.ending()));
    estimate.write(&path, None)?;
    std::fs::read(&path).map_err(Error::Temporary)
}

/// An engine that gives the depth of each pixel, for any number of callers.
#[derive(Debug)]
pub struct DepthEstimator(Service<depth::Estimator>);

impl DepthEstimator {
    pub(crate) fn new(service: Service<depth::Estimator>) -> Self {
        Self(service)
    }

    /// Whether it needs a rough map beside each picture.
    pub fn takes_map(&self) -> bool {
        self.0.task().takes_map()
    }

    /// The depth of a picture, and waits for it. `map` is that of a sensor, for networks that refine one.
    ///
    /// # Errors
    /// There is a map where the network takes none, or none where it takes one, or one of another size.
    pub fn depth(&self, picture: Picture, map: Option<DepthMap>) -> Result<Estimate> {
        self.submit(picture, map, Terms::default())?.wait()
    }

    /// The same, when the request's turn comes.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn submit(
        &self,
        picture: Picture,
        map: Option<DepthMap>,
        terms: impl Into<Terms>,
    ) -> Result<Request<Estimate>> {
        let place = Arc::new(Mutex::new(None));
        let made = place.clone();
        let open =
            move || Ok(depth::DepthInput { picture: Pixels::read(&mut picture.source(), &Limits::default())?, map });
        let keep = move |estimate: &Estimate| {
            *place.lock() = Some(estimate.clone());
            Ok(())
        };
        let handle = self.0.submit(depth::DepthRequest::new(open, keep), terms)?;
        Ok(Request::new(handle, move |_| {
            made.lock().take().ok_or_else(|| Error::Runtime(RuntimeError::Internal("depth".into())))
        }))
    }
}
