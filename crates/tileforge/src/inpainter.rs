//! Fills in pictures where a mask is white.

use std::sync::Arc;

use parking_lot::Mutex;
use tileforge_image::{Header, Limits};
use tileforge_runtime::Error as RuntimeError;
use tileforge_runtime::host::{Service, Terms};
use tileforge_runtime::inpaint::{self, InpaintInput, InpaintRequest};

use crate::error::{Error, Result};
use crate::picture::{Picture, Place, Sink};
use crate::request::Request;

/// An engine that fills in what a mask covers, for any number of callers.
#[derive(Debug)]
pub struct Inpainter(Service<inpaint::Inpainter>);

impl Inpainter {
    pub(crate) fn new(service: Service<inpaint::Inpainter>) -> Self {
        Self(service)
    }

    /// Fills in a picture where its mask is white, and waits for it. All other pixels and the transparency do not
    /// change.
    ///
    /// # Errors
    /// The mask has another size; the network fails.
    pub fn inpaint(&self, picture: Picture, mask: Picture) -> Result<Picture> {
        self.submit(picture, mask, Terms::default())?.wait()
    }

    /// Submits a picture to fill in.
    ///
    /// # Errors
    /// As [`Upscaler::submit`](crate::Upscaler::submit).
    pub fn submit(&self, picture: Picture, mask: Picture, terms: impl Into<Terms>) -> Result<Request<Picture>> {
        let place: Place = Arc::new(Mutex::new(None));
        let made = place.clone();
        let open = move || {
            let limits = Limits::default();
            Ok(InpaintInput { picture: Box::new(picture.source()), mask: Box::new(mask.source()), limits })
        };
        let create = move |header: &Header| Ok(Box::new(Sink::new(header.clone(), place)?) as _);
        let handle = self.0.submit(InpaintRequest::new(open, create), terms)?;
        Ok(Request::new(handle, move |_| {
            made.lock().take().ok_or_else(|| Error::Runtime(RuntimeError::Internal("inpaint".into())))
        }))
    }
}
