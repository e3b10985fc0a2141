//! Larger and better pictures.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header;
use tileforge::Task;

use super::media;
use super::upload::Upload;
use crate::app::App;
use crate::failure::Result;
use crate::inference::Options;
use crate::model::Model;

pub(super) async fn upscale(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    let format = media::wanted(request.headers())?;
    let mut upload = Upload::read(request).await?;
    let name = upload.text("engine").or_else(|| upload.text("model"));
    let model = app.repository.choose(name, |task| task == Some(Task::Upscale), "pictures to pictures")?;
    let began = Instant::now();
    let result = enlarged(&app, &model, &mut upload, format).await;
    app.metrics.ended(&model.name, 1, began.elapsed(), result.as_ref().err());
    let bytes = result?;
    Ok(([(header::CONTENT_TYPE, media::name_of(format))], bytes).into_response())
}

async fn enlarged(app: &App, model: &Model, upload: &mut Upload, format: tileforge::Format) -> Result<Vec<u8>> {
    let upscaler = model.upscaler()?;
    let file = upload.file(&["image", "file"])?;
    let held = upload.held.clone().unwrap_or_else(|| app.budget.open());
    let picture = app.coding.decode(file, &held).await?;
    let (terms, _cancel) = Options::of_texts(upload.caller, |name| upload.text(name))?.terms(app);
    let large = upscaler.submit(picture, terms)?.await?;
    app.coding.encode(large, format).await
}
