//! Pictures to larger pictures.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_image::{Alpha, Size};
use tileforge_runtime::Error as RuntimeError;
use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::upscale;
use tileforge_session::Placement;

use crate::error::{Error, Result};
use crate::picture::{Picture, Place, Sink};
use crate::request::Request;

/// How pictures are cut and run. The default chooses the best tiles for each picture, on the best provider.
#[derive(Clone, Debug, Default)]
pub struct Upscale {
    /// Where the engine runs.
    pub placement: Placement,
    /// The tile's size in input pixels, one of the engine's; `None`: the best for each picture.
    pub tile: Option<Size>,
    /// Tiles in one run; `None`: the largest batch of the engine's graphs.
    pub batch: Option<usize>,
    /// How transparency is enlarged.
    pub alpha: Alpha,
}

impl From<Upscale> for upscale::UpscaleOptions {
    fn from(Upscale { placement, tile, batch, alpha }: Upscale) -> Self {
        Self { placement, tile, batch, alpha, ..Self::default() }
    }
}

/// An engine that makes larger or better pictures, for any number of callers.
#[derive(Debug)]
pub struct Upscaler(Service<upscale::Upscaler>);

impl Upscaler {
    pub(crate) fn new(service: Service<upscale::Upscaler>) -> Self {
        Self(service)
    }

    /// Enlarges a picture, and waits for it.
    ///
    /// # Errors
    /// The picture is too large, or the network fails.
    pub fn upscale(&self, picture: Picture) -> Result<Picture> {
        self.submit(picture, Terms::default())?.wait()
    }

    /// Submits a picture to enlarge.
    ///
    /// # Errors
    /// The service is closed; or the deadline passes, or the request is cancelled, before there is room in the queue.
    pub fn submit(&self, picture: Picture, terms: impl Into<Terms>) -> Result<Request<Picture>> {
        let place: Place = Arc::new(Mutex::new(None));
        let made = place.clone();
        let request = upscale::UpscaleRequest::new(move |output_of| {
            let source = picture.source();
            let header = output_of(tileforge_image::RowSource::header(&source))?;
            let sink = Sink::new(header, place)?;
            Ok(upscale::OpenedPicture { source: Box::new(source), sink: Box::new(sink) })
        });
        let handle = self.0.submit(request, terms)?;
        Ok(Request::new(handle, move |_| {
            made.lock().take().ok_or_else(|| Error::Runtime(RuntimeError::Internal("upscale".into())))
        }))
    }
}
