//! The Open Inference Protocol over REST.
//!
//! | module | holds |
//! |---|---|
//! | `models` | health, metadata, and the repository of models |
//! | `infer` | inference with tensors as JSON and as bytes |
//! | `request` | a request for tensors as text |
//! | `answer` | answers and errors in JSON |

mod answer;
mod infer;
mod models;
mod request;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::app::App;
use crate::context;

pub(crate) use answer::json;
pub(crate) use models::{Named, NamedPath, change, check_no_parameters, check_version, described};

/// Health and figures.
pub(crate) fn watching() -> Router<Arc<App>> {
    Router::new()
        .route("/metrics", get(models::metrics))
        .route("/v2/health/live", get(models::live))
        .route("/v2/health/ready", get(models::ready))
}

/// The paths of the protocol.
pub(crate) fn routes() -> Router<Arc<App>> {
    watching()
        .route("/openapi.json", get(models::openapi))
        .route("/v2", get(models::server))
        .route("/v2/models/{name}", get(models::metadata))
        .route("/v2/models/{name}/ready", get(models::model_ready))
        .route("/v2/models/{name}/infer", post(infer::infer))
        .route("/v2/models/{name}/versions/{version}", get(models::metadata))
        .route("/v2/models/{name}/versions/{version}/ready", get(models::model_ready))
        .route("/v2/models/{name}/versions/{version}/infer", post(infer::infer))
        .route(context::INDEX, post(models::index))
        .route("/v2/repository/models/{name}/load", post(models::load))
        .route("/v2/repository/models/{name}/unload", post(models::unload))
}
