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

/// Encodes an estimate as a file in memory.
///
/// # Errors
/// The format does not hold such an estimate; no temporary file can be made.
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

    /// Whether each picture needs a rough depth map.
    pub fn takes_map(&self) -> bool {
        self.0.task().takes_map()
    }

    /// Estimates the depth of a picture, and waits for it. `map` is a sensor's depth map, for networks that refine
    /// one.
    ///
    /// # Errors
    /// A map is given but the network takes none, is missing, or has another size than the picture.
    pub fn depth(&self, picture: Picture, map: Option<DepthMap>) -> Result<Estimate> {
        self.submit(picture, map, Terms::default())?.wait()
    }

    /// Submits a picture to estimate its depth.
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
