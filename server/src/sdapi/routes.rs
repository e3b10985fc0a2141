//! The paths of the API.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::{lists, pictures, running};
use crate::app::App;

/// The paths of the API.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/sdapi/v1/txt2img", post(pictures::text_to_image))
        .route("/sdapi/v1/img2img", post(pictures::image_to_image))
        .route("/sdapi/v1/extra-single-image", post(pictures::extra))
        .route("/sdapi/v1/options", get(lists::options).post(lists::set_options))
        .route("/sdapi/v1/sd-models", get(lists::models))
        .route("/sdapi/v1/refresh-checkpoints", post(lists::refresh))
        .route("/sdapi/v1/samplers", get(lists::samplers))
        .route("/sdapi/v1/schedulers", get(lists::schedulers))
        .route("/sdapi/v1/upscalers", get(lists::upscalers))
        .route("/sdapi/v1/latent-upscale-modes", get(lists::none))
        .route("/sdapi/v1/sd-vae", get(lists::none))
        .route("/sdapi/v1/loras", get(lists::none))
        .route("/sdapi/v1/progress", get(running::progress))
        .route("/sdapi/v1/interrupt", post(running::interrupt))
        .route("/sdapi/v1/skip", post(running::interrupt))
}
