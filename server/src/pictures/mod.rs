//! Pictures in and pictures out.
//!
//! | module | holds |
//! |---|---|
//! | `upload` | a picture and its settings, as a raw body or as a form |
//! | `media` | which format an answer has |
//! | `enlarge`, `depth` | what is made of a picture |
//! | `listed` | the models, as clients of pictures list them |

mod depth;
mod enlarge;
mod listed;
mod media;
mod upload;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::app::App;

/// The paths for pictures.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/models", get(listed::models))
        .route("/v1/upscale", post(enlarge::upscale))
        .route("/v1/images/upscale", post(enlarge::upscale))
        .route("/v1/depth", post(depth::depth))
}
