//! Pictures in and pictures out.
//!
//! | module | holds |
//! |---|---|
//! | `upload` | a picture and its settings, as a raw body or as a form |
//! | `media` | which format an answer has |
//! | `enlarge`, `restore`, `depth`, `inpaint` | the results for a picture |

mod depth;
mod enlarge;
mod inpaint;
mod media;
mod restore;
mod upload;

use std::sync::Arc;

use axum::Router;
use axum::routing::post;

use crate::app::App;

pub(crate) use depth::DepthWork;
pub(crate) use enlarge::{UpscaleWork, enlarge};
pub(crate) use inpaint::InpaintWork;
pub(crate) use media::{name_of as media_of, named as format_named};
pub(crate) use upload::Upload;

/// The paths for pictures.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/upscale", post(enlarge::upscale))
        .route("/v1/images/upscale", post(enlarge::upscale))
        .route("/v1/depth", post(depth::depth))
        .route("/v1/inpaint", post(inpaint::inpaint))
}
