//! The depth of pictures.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header;
use tileforge::{DepthFormat, Task};

use super::upload::Upload;
use crate::app::App;
use crate::failure::{Failure, FailureKind, Result};
use crate::inference::Options;
use crate::model::Model;

pub(super) async fn depth(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    let mut upload = Upload::read(request).await?;
    let format = match upload.text("format") {
        None => DepthFormat::Png,
        Some(text) => text.parse().map_err(|error: String| Failure::invalid(format!("format: {error}")))?,
    };
    let name = upload.text("engine").or_else(|| upload.text("model"));
    let model = app.repository.choose(name, |task| task == Some(Task::Depth), "depth")?;
    let began = Instant::now();
    let result = measured(&app, &model, &mut upload, format).await;
    app.metrics.ended(&model.name, 1, began.elapsed(), result.as_ref().err());
    let kind = match format {
        DepthFormat::Png => "image/png",
        DepthFormat::Tiff => "image/tiff",
        DepthFormat::Exr => "image/x-exr",
        DepthFormat::Npy => "application/octet-stream",
    };
    Ok(([(header::CONTENT_TYPE, kind)], result?).into_response())
}

async fn measured(app: &App, model: &Model, upload: &mut Upload, format: DepthFormat) -> Result<Vec<u8>> {
    let estimator = model.depth()?;
    if estimator.takes_map() {
        let message = "this engine refines the map of a sensor, which is not served here; use tensors";
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    let file = upload.file(&["image", "file"])?;
    let held = upload.held.clone().unwrap_or_else(|| app.budget.open());
    let picture = app.coding.decode(file, &held).await?;
    let (terms, _cancel) = Options::of_texts(upload.caller, |name| upload.text(name))?.terms(app);
    let estimate = estimator.submit(picture, None, terms)?.await?;
    let written = app.coding.work(move || tileforge::encode_depth(&estimate, format)).await?;
    Ok(written?)
}
