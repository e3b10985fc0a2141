//! Progress and interruption of a caller's requests.

use std::future::Future;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tileforge::Format;
use tokio::sync::watch;

use crate::app::App;
use crate::body;
use crate::caller::Caller;
use crate::failure::{Failure, FailureKind, Result};
use crate::rest::json as answer;
use crate::watcher::Watcher;

use super::state::Running;

/// Removes a request from the list when it ends, for any reason.
struct Listed {
    app: Arc<App>,
    running: Arc<Running>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.app.sdapi.running.lock().retain(|other| !Arc::ptr_eq(other, &self.running));
    }
}

/// Runs work whose progress its caller can read, and that its caller can interrupt.
pub(super) async fn run<T, F>(
    app: &Arc<App>,
    caller: Caller,
    kind: &'static str,
    work: impl FnOnce(Watcher) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let watcher = Watcher::default();
    let (interrupted, mut heard) = watch::channel(false);
    let running = Arc::new(Running { caller, kind, seen: watcher.subscribe(), interrupted });
    app.sdapi.running.lock().push(running.clone());
    let _listed = Listed { app: app.clone(), running };
    tokio::select! {
        result = work(watcher) => result,
        _ = heard.wait_for(|interrupted| *interrupted) => {
            Err(Failure::new(FailureKind::Conflict, "the request was interrupted"))
        }
    }
}

#[derive(Deserialize)]
pub(super) struct ProgressQuery {
    #[serde(default)]
    skip_current_image: bool,
}

/// The progress of the caller's oldest request.
pub(super) async fn progress(
    State(app): State<Arc<App>>,
    caller: Extension<Caller>,
    query: Result<Query<ProgressQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response> {
    let query = query.map_err(|error| Failure::invalid(format!("the query: {}", error.body_text())))?;
    let (count, first) = {
        let running = app.sdapi.running.lock();
        let mine = || running.iter().filter(|running| running.caller == caller.0);
        (mine().count(), mine().next().cloned())
    };
    let seen = first.as_ref().map(|running| running.seen.borrow().clone()).unwrap_or_default();
    let total = seen.total.unwrap_or(0);
    let progress = if total == 0 { 0.0 } else { seen.done as f64 / total as f64 };
    let picture = match seen.preview.filter(|_| !query.skip_current_image) {
        Some(preview) => Some(STANDARD.encode(preview.encoded(&app.coding, Format::Png).await?)),
        None => None,
    };
    let state = json!({
        "skipped": false, "interrupted": false, "stopping_generation": false,
        "job": first.map_or("", |running| running.kind), "job_count": count, "job_no": 0, "job_timestamp": "0",
        "sampling_step": seen.done, "sampling_steps": total,
    });
    let content = json!({
        "progress": progress, "eta_relative": 0.0, "state": state, "current_image": picture, "textinfo": null,
    });
    Ok(answer(StatusCode::OK, &content))
}

/// Cancels the caller's requests.
pub(super) async fn interrupt(State(app): State<Arc<App>>, caller: Extension<Caller>, body: Body) -> Result<Response> {
    body::read(body).await?;
    for running in app.sdapi.running.lock().iter().filter(|running| running.caller == caller.0) {
        running.interrupted.send_replace(true);
    }
    Ok(answer(StatusCode::OK, &Value::Object(serde_json::Map::new())))
}
