//! The part of AUTOMATIC1111's API that Open WebUI and SillyTavern call.
//!
//! | module | holds |
//! |---|---|
//! | `asked` | what a client asks, and what of it is not served |
//! | `pictures` | pictures from texts and pictures, and larger pictures |
//! | `lists` | engines, samplers, schedulers, upscalers, options |
//! | `state` | what is kept between the requests of a caller |
//! | `running` | progress and interruption of a caller's requests |

mod asked;
mod lists;
mod pictures;
mod running;
mod state;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::app::App;
use crate::failure::Failure;
pub(crate) use state::State;

/// Paths that are POST and no work.
pub(crate) const NO_WORK: [&str; 4] =
    ["/sdapi/v1/options", "/sdapi/v1/interrupt", "/sdapi/v1/refresh-checkpoints", "/sdapi/v1/skip"];

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

/// The error that clients read.
pub(crate) fn respond(failure: &Failure) -> Value {
    let kind = format!("{:?}", failure.kind);
    json!({ "error": kind, "detail": failure.message, "body": "", "errors": failure.message })
}
