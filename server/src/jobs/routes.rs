//! The paths of jobs.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tileforge::Format;
use tracing::Instrument;

use super::store::{Job, Outcome, unknown};
use super::work::{KINDS, Work};
use crate::admission::Accepted;
use crate::app::App;
use crate::caller::Caller;
use crate::events::{self, Events, Gone};
use crate::failure::{Failure, FailureKind, Result};
use crate::rest::json as answer;
use crate::traces;
use crate::watcher::Watcher;

/// The paths of jobs.
pub(crate) fn routes() -> Router<Arc<App>> {
    let mut router = Router::new()
        .route("/v1/jobs/{id}", get(status).delete(remove))
        .route("/v1/jobs/{id}/events", get(follow))
        .route("/v1/jobs/{id}/result", get(result));
    for kind in KINDS {
        let make = move |state: State<Arc<App>>, request: Request| make(state, kind, request);
        router = router.route(&format!("/v1/jobs/{kind}"), post(make));
    }
    router
}

/// Removes a job if its client does not receive its id: the client could not cancel it.
struct Unanswered<'a> {
    app: &'a App,
    caller: Caller,
    job: Option<Arc<Job>>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            // The job no longer exists if it has expired.
            let _ = self.app.jobs.remove(&job.id, self.caller);
        }
    }
}

/// Accepts a job. A request that is refused before it is in an engine's queue is refused here, and makes no job.
async fn make(State(app): State<Arc<App>>, kind: &'static str, request: Request) -> Result<Response> {
    let caller = request.extensions().get::<Caller>().copied().unwrap_or_default();
    // The server counts the job until it has ended, not only until this request is answered.
    let accepted = request.extensions().get::<Arc<Accepted>>().cloned();
    let work = Work::read(&app, kind, request).await?;
    let watcher = Watcher::default();
    let mut seen = watcher.subscribe();
    let job = app.jobs.add(kind, caller, watcher.subscribe())?;
    let mut unanswered = Unanswered { app: &app, caller, job: Some(job.clone()) };
    let (running_app, running_job) = (app.clone(), job.clone());
    let run = async move {
        // A panic ends only this job.
        let result = AssertUnwindSafe(work.result(running_app.clone(), watcher)).catch_unwind().await;
        let result = result.unwrap_or_else(|_| Err(Failure::internal("the job failed here")));
        running_app.jobs.end(&running_job, result);
        drop(accepted);
    };
    let running = tokio::spawn(run.instrument(traces::apart("job")));
    app.jobs.runs(&job, running.abort_handle());
    let mut outcome = job.outcome.subscribe();
    tokio::select! {
        submitted = seen.wait_for(|seen| seen.submitted) => drop(submitted),
        ended = outcome.wait_for(|outcome| !outcome.is_open()) => drop(ended),
    }
    let failed = match &*job.outcome.borrow() {
        Outcome::Failed(failure) => Some(failure.clone()),
        _ => None,
    };
    if let Some(failure) = failed {
        return Err(failure);
    }
    unanswered.job = None;
    let mut response = answer(StatusCode::ACCEPTED, &described(&job));
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/jobs/{}", job.id)) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// The id in a path, or why the path is invalid.
type Id = std::result::Result<Path<String>, PathRejection>;

fn named(id: &Id) -> Result<&str> {
    id.as_ref().map(|Path(id)| id.as_str()).map_err(|_| unknown())
}

async fn status(State(app): State<Arc<App>>, caller: Extension<Caller>, id: Id) -> Result<Response> {
    Ok(answer(StatusCode::OK, &described(&*app.jobs.get(named(&id)?, caller.0)?)))
}

/// Cancels an open job, and removes it with its result.
async fn remove(State(app): State<Arc<App>>, caller: Extension<Caller>, id: Id) -> Result<Response> {
    Ok(answer(StatusCode::OK, &described(&*app.jobs.remove(named(&id)?, caller.0)?)))
}

async fn result(State(app): State<Arc<App>>, caller: Extension<Caller>, id: Id) -> Result<Response> {
    let job = app.jobs.get(named(&id)?, caller.0)?;
    match job.outcome.borrow().clone() {
        Outcome::Done(file) => {
            let headers = [(header::CONTENT_TYPE, file.media), (header::CACHE_CONTROL, "no-store")];
            Ok((headers, file.bytes).into_response())
        }
        Outcome::Failed(failure) => Err(failure),
        Outcome::Open => Err(Failure::new(FailureKind::Conflict, "the job has not ended")),
        Outcome::Cancelled => Err(Failure::new(FailureKind::Conflict, "the job was cancelled")),
    }
}

async fn follow(State(app): State<Arc<App>>, caller: Extension<Caller>, id: Id) -> Result<Response> {
    let job = app.jobs.get(named(&id)?, caller.0)?;
    Ok(events::answer(move |events| async move { tell(&app, &job, &events).await }))
}

/// Sends a job's progress, its previews, and its outcome.
async fn tell(app: &App, job: &Job, events: &Events) -> Result<(), Gone> {
    let (mut seen, mut outcome) = (job.seen.clone(), job.outcome.subscribe());
    seen.mark_changed();
    let mut shown = None;
    while outcome.borrow_and_update().is_open() {
        tokio::select! {
            // If both are ready, the outcome comes first.
            biased;
            _ = outcome.changed() => {}
            Ok(()) = seen.changed() => {
                let preview = seen.borrow_and_update().preview.clone();
                events.send("progress", &described(job)).await?;
                let Some(preview) = preview.filter(|preview| Some(preview.steps) != shown) else { continue };
                shown = Some(preview.steps);
                // A preview that cannot be encoded does not end the job; the job's result reports the same failure.
                if let Ok(file) = preview.encoded(&app.coding, Format::Png).await {
                    let picture = STANDARD.encode(file);
                    let event = json!({ "steps": preview.steps, "size": preview.size(), "b64_json": picture });
                    events.send("preview", &event).await?;
                }
            }
        }
    }
    let event = described(job);
    let name = event["status"].as_str().unwrap_or_default().to_owned();
    events.send(&name, &event).await
}

/// The description of a job for clients.
fn described(job: &Job) -> Value {
    let seen = job.seen.borrow().clone();
    let outcome = job.outcome.borrow().clone();
    let status = match &outcome {
        Outcome::Open if seen.place.is_some() || seen.total.is_none() => "queued",
        Outcome::Open => "running",
        Outcome::Done(_) => "completed",
        Outcome::Failed(_) => "failed",
        Outcome::Cancelled => "cancelled",
    };
    let mut described = json!({
        "id": job.id, "object": "job", "kind": job.kind, "status": status,
        // The number of requests in front of it; null once its turn has come.
        "place": if outcome.is_open() { seen.place } else { None },
        "done": seen.done, "total": seen.total,
    });
    match outcome {
        Outcome::Done(file) => {
            described["media_type"] = file.media.into();
            described["bytes"] = file.bytes.len().into();
        }
        Outcome::Failed(failure) => {
            described["error_status"] = failure.status_number().into();
            described["error"] = failure.message.into();
        }
        Outcome::Open | Outcome::Cancelled => {}
    }
    described
}
