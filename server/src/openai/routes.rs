//! The paths of OpenAI's API.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::{images, listed};
use crate::app::App;

/// The paths of OpenAI's API.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/models", get(listed::models))
        .route("/v1/models/{name}", get(listed::model))
        .route("/v1/images/generations", post(images::generations))
        .route("/v1/images/edits", post(images::edits))
}
