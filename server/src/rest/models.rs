//! Health, metadata, and the repository of models.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tileforge::TensorInfo;

use super::answer::json as answer;
use crate::app::{self, App};
use crate::body;
use crate::bounded_json::{self, HasEntries, Object};
use crate::datatype;
use crate::failure::{Failure, FailureKind, RETRY_AFTER, Result, WORD_MAXIMUM, shown};

/// A model that a path names.
#[derive(Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
    version: Option<String>,
}

/// The model that a path names, or why the path is invalid.
pub(crate) type NamedPath = std::result::Result<Path<Named>, PathRejection>;

impl Named {
    /// Of a path.
    pub(crate) fn of(path: NamedPath) -> Result<Self> {
        let Path(named) = path.map_err(|_| Failure::new(FailureKind::NotFound, "there is no such model"))?;
        check_version(&named.name, named.version.as_deref().unwrap_or_default())?;
        Ok(named)
    }
}

/// Refuses a version that does not exist.
pub(crate) fn check_version(name: &str, version: &str) -> Result<()> {
    if version.is_empty() || version == app::MODEL_VERSION {
        return Ok(());
    }
    let shown = shown(name, WORD_MAXIMUM);
    let message = format!("{shown} has the version {} alone", app::MODEL_VERSION);
    Err(Failure::new(FailureKind::NotFound, message))
}

pub(super) async fn live() -> Response {
    answer(StatusCode::OK, &json!({ "live": true }))
}

pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    let ready = app.admission.is_ready();
    readiness(ready, &json!({ "ready": ready }))
}

pub(super) async fn server() -> Response {
    answer(StatusCode::OK, &json!({ "name": app::NAME, "version": app::VERSION, "extensions": app::EXTENSIONS }))
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response> {
    let text = app.metrics.text(&app.host, app.admission.count())?;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The OpenAPI document of everything over HTTP.
const OPENAPI: &str = include_str!("../../openapi.json");

pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], OPENAPI).into_response()
}

#[derive(Serialize)]
struct TensorMetadata {
    name: String,
    datatype: &'static str,
    /// -1: any length.
    shape: Vec<i64>,
}

fn tensor(info: TensorInfo) -> TensorMetadata {
    let (datatype, shape) = described(&info);
    TensorMetadata { name: info.name, datatype, shape }
}

/// A tensor's type and shape in the protocol's terms.
pub(crate) fn described(info: &TensorInfo) -> (&'static str, Vec<i64>) {
    let length = |length: &Option<usize>| length.and_then(|length| i64::try_from(length).ok()).unwrap_or(-1);
    (info.data_type.map_or("BYTES", datatype::name_of), info.shape.iter().map(length).collect())
}

pub(super) async fn metadata(State(app): State<Arc<App>>, path: NamedPath) -> Result<Response> {
    let model = app.repository.get(&Named::of(path)?.name)?;
    let [inputs, outputs] = model.interface().map(|side| side.into_iter().map(tensor).collect::<Vec<_>>());
    let content = json!({
        "name": model.name,
        "versions": [app::MODEL_VERSION],
        "platform": app::PLATFORM,
        "inputs": inputs,
        "outputs": outputs,
    });
    Ok(answer(StatusCode::OK, &content))
}

pub(super) async fn model_ready(State(app): State<Arc<App>>, path: NamedPath) -> Result<Response> {
    let name = Named::of(path)?.name;
    let ready = app.repository.is_ready(&name)? && app.admission.is_ready();
    Ok(readiness(ready, &json!({ "name": name, "ready": ready })))
}

/// The answer whether something takes requests. If it does not, the answer has `Retry-After`.
fn readiness(ready: bool, content: &serde_json::Value) -> Response {
    if ready {
        return answer(StatusCode::OK, content);
    }
    let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, content);
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER.as_secs().into());
    response
}

/// The body of a request for the index.
#[derive(Default, Deserialize)]
struct IndexRequest {
    #[serde(default)]
    ready: bool,
}

pub(super) async fn index(State(app): State<Arc<App>>, body: Body) -> Result<Response> {
    let bytes = body::read(body).await?;
    let body: IndexRequest = bounded_json::object_or_nothing(&bytes)?;
    let listed = app.repository.index().into_iter().filter(|model| model.ready || !body.ready);
    let entry = |model: crate::repository::Listed| {
        let state = if model.ready { "READY" } else { "UNAVAILABLE" };
        json!({ "name": model.name, "version": app::MODEL_VERSION, "state": state, "reason": model.reason })
    };
    Ok(answer(StatusCode::OK, &listed.map(entry).collect::<Vec<_>>()))
}

/// The body of a request to load or unload a model.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Change {
    parameters: Object<HasEntries>,
}

pub(super) async fn load(State(app): State<Arc<App>>, path: NamedPath, body: Body) -> Result<Response> {
    let name = Named::of(path)?.name;
    let bytes = body::read(body).await?;
    let Change { parameters } = bounded_json::object_or_nothing(&bytes)?;
    check_no_parameters(!parameters.0.0)?;
    change(&app, name, true).await?;
    Ok(answer(StatusCode::OK, &json!({})))
}

/// Refuses parameters: only the operator chooses where engines come from, not a client.
pub(crate) fn check_no_parameters(are_none: bool) -> Result<()> {
    if are_none {
        Ok(())
    } else {
        Err(Failure::invalid("expected no parameters: models come from the server's folder"))
    }
}

pub(super) async fn unload(State(app): State<Arc<App>>, path: NamedPath, body: Body) -> Result<Response> {
    let name = Named::of(path)?.name;
    // Clients can state what happens to models that depend on this one. Here no model depends on another.
    let _: Change = bounded_json::object_or_nothing(&body::read(body).await?)?;
    change(&app, name, false).await?;
    Ok(answer(StatusCode::OK, &json!({})))
}

/// Loads or unloads a model, which opens files.
pub(crate) async fn change(app: &Arc<App>, name: String, load: bool) -> Result<()> {
    let app = app.clone();
    let work = move || if load { app.repository.load(&name) } else { app.repository.unload(&name) };
    tokio::task::spawn_blocking(work).await.map_err(|_| Failure::internal("the model cannot be changed"))?
}
