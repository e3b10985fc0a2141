//! Larger and better pictures: enlarged by one network, or restored by a pipeline.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header;
use tileforge::restoration::Settings;
use tileforge::{Format, Picture, Task};

use super::media;
use super::restore::{check_none, restore, settings};
use super::upload::Upload;
use crate::app::App;
use crate::failure::Result;
use crate::inference::RequestOptions;
use crate::model::{Model, Purpose};
use crate::watcher::Watcher;

pub(super) async fn upscale(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    let work = UpscaleWork::read(&app, request).await?;
    let (media, bytes) = work.file(&app, &Watcher::default()).await?;
    Ok(([(header::CONTENT_TYPE, media)], bytes).into_response())
}

/// A validated request for a larger picture.
#[derive(Debug)]
pub(crate) struct UpscaleWork {
    upload: Upload,
    format: Format,
    model: Arc<Model>,
    /// The settings for a pipeline that restores.
    restoration: Option<Settings>,
}

impl UpscaleWork {
    /// Reads a whole request.
    pub(crate) async fn read(app: &App, request: Request) -> Result<Self> {
        let accepted = media::wanted(request.headers())?;
        Self::of(app, Upload::read(request).await?, accepted)
    }

    /// Checks a picture with its settings. A format that they do not name is `accepted`.
    pub(crate) fn of(app: &App, upload: Upload, accepted: Format) -> Result<Self> {
        let fits = |purpose| matches!(purpose, Purpose::Network(Task::Upscale) | Purpose::Restore);
        let model = app.repository.choose(upload.engine(), fits, "pictures to pictures")?;
        let restoration = if model.purpose == Purpose::Restore {
            Some(settings(&upload)?)
        } else {
            check_none(&upload)?;
            None
        };
        let format = upload.format()?.unwrap_or(accepted);
        Ok(Self { upload, format, model, restoration })
    }

    /// The larger picture as a file, with the name of its format.
    pub(crate) async fn file(self, app: &App, watcher: &Watcher) -> Result<(&'static str, Vec<u8>)> {
        let Self { mut upload, format, model, restoration } = self;
        let made = made(app, &model, &mut upload, restoration, format, watcher);
        Ok((media::name_of(format), app.metrics.counted(&model.name, 1, made).await?))
    }
}

async fn made(
    app: &App,
    model: &Model,
    upload: &mut Upload,
    restoration: Option<Settings>,
    format: Format,
    watcher: &Watcher,
) -> Result<Vec<u8>> {
    let (picture, held) = upload.picture(app).await?;
    let options = RequestOptions::of_texts(upload.caller, |name| upload.text(name))?;
    let made = match restoration {
        None => enlarge(app, model, picture, options, watcher).await?,
        Some(settings) => restore(app, model, (picture, &held), settings, options, watcher).await?,
    };
    app.coding.encode(made, format).await
}

/// Enlarges a picture.
pub(crate) async fn enlarge(
    app: &App,
    model: &Model,
    picture: Picture,
    options: RequestOptions,
    watcher: &Watcher,
) -> Result<Picture> {
    let upscaler = model.upscaler()?;
    let (terms, _cancel) = options.terms(app);
    watcher.follow(model, upscaler.submit(picture, terms)?).await
}
