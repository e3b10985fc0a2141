//! An engine with its opened services, independent of Python.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge::{
    Decoder, DepthEstimator, Encoder, Generator, Inpainter, Placement, Player, Restorer, Tensors, Upscaler,
};

/// An opened engine with its opened services.
pub(crate) struct OpenedEngine {
    pub(crate) engine: tileforge::Engine,
    pub(crate) placement: Placement,
    /// `None` once it is closed.
    services: Mutex<Option<Services>>,
}

/// The services. Each is opened on first use.
#[derive(Default)]
pub(crate) struct Services {
    pub(crate) upscaler: Option<Arc<Upscaler>>,
    pub(crate) inpainter: Option<Arc<Inpainter>>,
    pub(crate) depth: Option<Arc<DepthEstimator>>,
    pub(crate) encoder: Option<Arc<Encoder>>,
    pub(crate) decoder: Option<Arc<Decoder>>,
    pub(crate) tensors: Option<Arc<Tensors>>,
    pub(crate) generator: Option<Arc<Generator>>,
    pub(crate) player: Option<Arc<Player>>,
    pub(crate) restorer: Option<Arc<Restorer>>,
}

impl OpenedEngine {
    pub(crate) fn new(engine: tileforge::Engine, placement: Placement) -> Self {
        Self { engine, placement, services: Mutex::new(Some(Services::default())) }
    }

    /// Closes the services, and waits for running requests.
    pub(crate) fn close(&self) {
        let services = self.services.lock().take();
        drop(services);
    }

    /// A service, opened now if it is not open yet; `None` once the engine is closed.
    ///
    /// # Errors
    /// The engine does not have this service.
    pub(crate) fn service<S>(
        &self,
        place: impl FnOnce(&mut Services) -> &mut Option<Arc<S>>,
        open: impl FnOnce(&tileforge::Engine, Placement) -> tileforge::Result<S>,
    ) -> tileforge::Result<Option<Arc<S>>> {
        let mut services = self.services.lock();
        let Some(services) = services.as_mut() else { return Ok(None) };
        let place = place(services);
        if place.is_none() {
            *place = Some(Arc::new(open(&self.engine, self.placement.clone())?));
        }
        Ok(place.clone())
    }
}
