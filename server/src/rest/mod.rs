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
mod request;
mod models;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::app::App;
use crate::connections::Protocol;
use crate::context;
use crate::failure::{Failure, FailureKind};
use crate::pictures;

pub(crate) use answer::json;
pub(crate) use models::{change, check_no_parameters, check_version, described};

/// Everything that is served over HTTP.
pub(crate) fn router(app: &Arc<App>) -> Router {
    Router::new()
        .merge(pictures::routes())
        .route("/metrics", get(models::metrics))
        .route("/v2", get(models::server))
        .route("/v2/health/live", get(models::live))
        .route("/v2/health/ready", get(models::ready))
        .route("/v2/models/{name}", get(models::metadata))
        .route("/v2/models/{name}/ready", get(models::model_ready))
        .route("/v2/models/{name}/infer", post(infer::infer))
        .route("/v2/models/{name}/versions/{version}", get(models::metadata))
        .route("/v2/models/{name}/versions/{version}/ready", get(models::model_ready))
        .route("/v2/models/{name}/versions/{version}/infer", post(infer::infer))
        .route(context::INDEX, post(models::index))
        .route("/v2/repository/models/{name}/load", post(models::load))
        .route("/v2/repository/models/{name}/unload", post(models::unload))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state((app.clone(), Protocol::Http), context::handle))
        .with_state(app.clone())
}

async fn no_such_path() -> Failure {
    Failure::new(FailureKind::NotFound, "there is nothing at this path")
}

async fn no_such_method() -> Failure {
    Failure::new(FailureKind::Method, "this path takes another method")
}
