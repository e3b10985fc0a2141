//! The depth of pictures.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header;
use tileforge::{DepthFormat, Task};
use tracing::Instrument;

use super::upload::{PICTURE, SETTINGS, Upload};
use crate::app::App;
use crate::failure::{Failure, FailureKind, Result};
use crate::inference::RequestOptions;
use crate::model::{Model, Purpose};
use crate::traces;
use crate::watcher::Watcher;

pub(super) async fn depth(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    let work = DepthWork::read(&app, request).await?;
    let (media, bytes) = work.file(&app, &Watcher::default()).await?;
    Ok(([(header::CONTENT_TYPE, media)], bytes).into_response())
}

/// A validated request for depth.
#[derive(Debug)]
pub(crate) struct DepthWork {
    upload: Upload,
    format: DepthFormat,
    model: Arc<Model>,
}

impl DepthWork {
    /// Reads a whole request.
    pub(crate) async fn read(app: &App, request: Request) -> Result<Self> {
        Self::of(app, Upload::read(request).await?)
    }

    /// Checks a picture with its settings.
    pub(crate) fn of(app: &App, upload: Upload) -> Result<Self> {
        let format = match upload.text("format") {
            None => DepthFormat::Png,
            Some(text) => text.parse().map_err(|error: String| Failure::invalid(format!("format: {error}")))?,
        };
        let model =
            app.repository.choose(upload.engine(), |purpose| purpose == Purpose::Network(Task::Depth), "depth")?;
        upload.check(&[&SETTINGS[..], &["format"]].concat(), &PICTURE)?;
        Ok(Self { upload, format, model })
    }

    /// The depth as a file, with the name of its format.
    pub(crate) async fn file(self, app: &App, watcher: &Watcher) -> Result<(&'static str, Vec<u8>)> {
        let Self { mut upload, format, model } = self;
        let made = measured(app, &model, &mut upload, format, watcher);
        let bytes = app.metrics.counted(&model.name, 1, made).await?;
        let media = match format {
            DepthFormat::Png => "image/png",
            DepthFormat::Tiff => "image/tiff",
            DepthFormat::Exr => "image/x-exr",
            DepthFormat::Npy => "application/octet-stream",
        };
        Ok((media, bytes))
    }
}

async fn measured(
    app: &App,
    model: &Model,
    upload: &mut Upload,
    format: DepthFormat,
    watcher: &Watcher,
) -> Result<Vec<u8>> {
    let estimator = model.depth()?;
    if estimator.takes_map() {
        let message = "this engine refines the map of a sensor, which is not served here; use tensors";
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    let (picture, _held) = upload.picture(app).await?;
    let (terms, _cancel) = RequestOptions::of_texts(upload.caller, |name| upload.text(name))?.terms(app);
    let estimate = watcher.follow(model, estimator.submit(picture, None, terms)?).await?;
    let encode = app.coding.work(move || tileforge::encode_depth(&estimate, format));
    let written = encode.instrument(traces::part("encode")).await?;
    Ok(written?)
}
