//! The models, as clients of pictures list them: OpenAI's `GET /v1/models`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use crate::app::App;
use crate::rest::json as answer;

pub(super) async fn models(State(app): State<Arc<App>>) -> Response {
    let entry = |(name, task): (String, Option<tileforge::Task>)| {
        let task = task.map_or("generate".into(), |task| task.to_string());
        json!({ "id": name, "object": "model", "created": 0, "owned_by": "tileforge", "task": task })
    };
    let listed: Vec<_> = app.repository.ready().into_iter().map(entry).collect();
    answer(StatusCode::OK, &json!({ "object": "list", "data": listed }))
}
