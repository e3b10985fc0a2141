//! The list of models in OpenAI's form, with the facts that the page and programs need.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use tileforge::Task;

use crate::app::App;
use crate::failure::Result;
use crate::model::{Model, Purpose};
use crate::rest::{Named, NamedPath, json as answer};
use crate::size::shown;

pub(super) async fn models(State(app): State<Arc<App>>) -> Response {
    let names = app.repository.ready().into_iter().map(|(name, _)| name);
    // A model that is unloaded at this moment is not listed.
    let listed: Vec<Value> =
        names.filter_map(|name| app.repository.get(&name).ok()).map(|model| entry(&model)).collect();
    answer(StatusCode::OK, &json!({ "object": "list", "data": listed }))
}

pub(super) async fn model(State(app): State<Arc<App>>, path: NamedPath) -> Result<Response> {
    let model = app.repository.get(&Named::of(path)?.name)?;
    Ok(answer(StatusCode::OK, &entry(&model)))
}

fn entry(model: &Model) -> Value {
    let task = model.purpose.to_string();
    let mut entry = json!({
        "id": model.name, "object": "model", "created": 0, "owned_by": "tileforge", "task": task,
    });
    if let Ok(generator) = model.generator() {
        entry["sizes"] = generator.sizes().into_iter().map(shown).collect();
        entry["scheduler"] = generator.scheduler().into();
        entry["needs_mask"] = generator.needs_mask().into();
    }
    if model.purpose == Purpose::Network(Task::Inpaint) {
        entry["needs_mask"] = true.into();
    }
    entry
}
