//! Pictures as OpenAI's clients ask for them: <https://platform.openai.com/docs/api-reference/images>.
//!
//! | module | holds |
//! |---|---|
//! | `asked` | what a client asks, as JSON or as a form |
//! | `order` | a request that was read and checked, and the pictures that it becomes |
//! | `images` | the answers, whole or as events |
//! | `listed` | the models |
//! | `failure` | errors in OpenAI's form |

mod asked;
mod failure;
mod images;
mod listed;
mod order;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::app::App;

pub(crate) use failure::respond;
pub(crate) use order::{Order, Product};

/// The paths of OpenAI's API.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/models", get(listed::models))
        .route("/v1/models/{name}", get(listed::model))
        .route("/v1/images/generations", post(images::generations))
        .route("/v1/images/edits", post(images::edits))
}
