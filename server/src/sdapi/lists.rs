//! Engines, samplers, schedulers, upscalers and options.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tileforge::Task;
use tileforge::diffusion::schedulers::{sampler_names, spread_names};

use crate::app::App;
use crate::body;
use crate::bounded_json;
use crate::caller::Caller;
use crate::failure::Result;
use crate::model::{Model, Purpose};
use crate::rest::json as answer;

fn list(entries: impl IntoIterator<Item = Value>) -> Response {
    answer(StatusCode::OK, &entries.into_iter().collect::<Vec<_>>())
}

/// The pipelines that make pictures from texts.
fn pipelines(app: &App) -> Vec<String> {
    let ready =
        app.repository.ready().into_iter().filter(|(_, purpose)| *purpose == Purpose::Generate).map(|(name, _)| name);
    ready.filter(|name| app.repository.get(name).is_ok_and(|model| model.generator().is_ok())).collect()
}

/// The pipeline that a request names; else the one that the caller has chosen; else the first.
pub(super) fn pipeline(app: &App, caller: Caller, named: Option<&str>) -> Result<Arc<Model>> {
    let chosen = || app.sdapi.chosen.lock().get(&caller).cloned();
    let name = named.filter(|name| !name.is_empty()).map(str::to_owned).or_else(chosen);
    let name = name.or_else(|| pipelines(app).into_iter().next());
    app.repository.choose(name.as_deref(), |purpose| purpose == Purpose::Generate, "texts to pictures")
}

pub(super) async fn models(State(app): State<Arc<App>>) -> Response {
    list(pipelines(&app).into_iter().map(|name| {
        json!({ "title": name, "model_name": name, "hash": null, "sha256": null, "filename": name, "config": null })
    }))
}

pub(super) async fn samplers() -> Response {
    list(sampler_names().map(|name| json!({ "name": name, "aliases": [], "options": {} })))
}

pub(super) async fn schedulers() -> Response {
    list(["Automatic"].into_iter().chain(spread_names()).map(|label| {
        let name = label.to_ascii_lowercase().replace(' ', "_");
        json!({ "name": name, "label": label, "aliases": null, "default_rho": -1.0, "need_inner_model": false })
    }))
}

pub(super) async fn upscalers(State(app): State<Arc<App>>) -> Response {
    let engines = app.repository.ready().into_iter().filter(|(_, purpose)| *purpose == Purpose::Network(Task::Upscale));
    let names = ["None".to_owned()].into_iter().chain(engines.map(|(name, _)| name));
    list(
        names.map(
            |name| json!({ "name": name, "model_name": null, "model_path": null, "model_url": null, "scale": null }),
        ),
    )
}

/// The answer for lists that are always empty here.
pub(super) async fn none() -> Response {
    list([])
}

pub(super) async fn options(State(app): State<Arc<App>>, caller: Extension<Caller>) -> Response {
    let chosen = pipeline(&app, caller.0, None).map(|model| model.name.clone()).unwrap_or_default();
    answer(StatusCode::OK, &json!({ "sd_model_checkpoint": chosen, "samples_format": "png", "sd_vae": "Automatic" }))
}

/// Values for options. Clients send back all options that they have read; only the engine can be changed.
#[derive(Deserialize)]
struct Set {
    #[serde(default)]
    sd_model_checkpoint: Option<String>,
}

pub(super) async fn set_options(
    State(app): State<Arc<App>>,
    caller: Extension<Caller>,
    body: Body,
) -> Result<Response> {
    let bytes = body::read(body).await?;
    let set: Set = bounded_json::object(&bytes)?;
    if let Some(name) = set.sd_model_checkpoint.filter(|name| !name.is_empty()) {
        let model = pipeline(&app, caller.0, Some(&name))?;
        model.generator()?;
        app.sdapi.chosen.lock().insert(caller.0, name);
    }
    Ok(answer(StatusCode::OK, &Value::Null))
}

/// Does nothing: the server notices new engines by itself.
pub(super) async fn refresh(body: Body) -> Result<Response> {
    body::read(body).await?;
    Ok(answer(StatusCode::OK, &Value::Null))
}
