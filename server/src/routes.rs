//! All HTTP routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;

use crate::app::App;
use crate::failure::{Failure, FailureKind};
use crate::protocol::Protocol;
use crate::{context, jobs, openai, page, pictures, rest, sdapi};

/// All HTTP routes of a server.
pub(crate) fn http(app: &Arc<App>) -> Router {
    let routes = rest::routes()
        .merge(pictures::routes())
        .merge(openai::routes())
        .merge(jobs::routes())
        .merge(sdapi::routes())
        .merge(page::routes());
    finished(app, routes)
}

/// The HTTP routes of a worker: health and metrics.
pub(crate) fn watching(app: &Arc<App>) -> Router {
    finished(app, rest::watching())
}

fn finished(app: &Arc<App>, routes: Router<Arc<App>>) -> Router {
    routes
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        // Bodies have the limit of the settings everywhere, not axum's default.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state((app.clone(), Protocol::Http), context::handle))
        .with_state(app.clone())
}

async fn no_such_path() -> Failure {
    Failure::new(FailureKind::NotFound, "there is nothing at this path")
}

async fn no_such_method() -> Failure {
    Failure::new(FailureKind::Method, "this path takes another method")
}
