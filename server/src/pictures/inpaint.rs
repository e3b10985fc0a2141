//! Pictures that are filled in where a mask is white.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header;
use tileforge::{Format, Task};

use super::media;
use super::upload::{FORMAT, MASK, PICTURE, SETTINGS, Upload};
use crate::app::App;
use crate::failure::Result;
use crate::inference::RequestOptions;
use crate::model::{Model, Purpose};
use crate::size::check_mask;
use crate::watcher::Watcher;

/// Bytes that a picture, its mask and the result take for each pixel during the work: samples as floats, and samples
/// as read.
const BYTES_PER_PIXEL: u64 = 40;

pub(super) async fn inpaint(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    let work = InpaintWork::read(&app, request).await?;
    let (media, bytes) = work.file(&app, &Watcher::default()).await?;
    Ok(([(header::CONTENT_TYPE, media)], bytes).into_response())
}

/// A validated request to fill in a picture.
#[derive(Debug)]
pub(crate) struct InpaintWork {
    upload: Upload,
    format: Format,
    model: Arc<Model>,
}

impl InpaintWork {
    /// Reads a whole request.
    pub(crate) async fn read(app: &App, request: Request) -> Result<Self> {
        let accepted = media::wanted(request.headers())?;
        Self::of(app, Upload::read(request).await?, accepted)
    }

    /// Checks a picture and its mask with their settings. A format that they do not name is `accepted`.
    pub(crate) fn of(app: &App, upload: Upload, accepted: Format) -> Result<Self> {
        upload.check(&[&SETTINGS[..], &FORMAT].concat(), &[&PICTURE[..], &MASK].concat())?;
        let format = upload.format()?.unwrap_or(accepted);
        let fits = |purpose| purpose == Purpose::Network(Task::Inpaint);
        let model = app.repository.choose(upload.engine(), fits, "inpainting")?;
        Ok(Self { upload, format, model })
    }

    /// The picture as a file, with the name of its format.
    pub(crate) async fn file(self, app: &App, watcher: &Watcher) -> Result<(&'static str, Vec<u8>)> {
        let Self { mut upload, format, model } = self;
        let made = made(app, &model, &mut upload, format, watcher);
        Ok((media::name_of(format), app.metrics.counted(&model.name, 1, made).await?))
    }
}

async fn made(app: &App, model: &Model, upload: &mut Upload, format: Format, watcher: &Watcher) -> Result<Vec<u8>> {
    let inpainter = model.inpainter()?;
    let (mask, _) = upload.decoded(app, &MASK).await?;
    let (picture, held) = upload.picture(app).await?;
    check_mask(&picture, &mask)?;
    held.add_pixels(picture.size().pixels(), BYTES_PER_PIXEL)?;
    let (terms, _cancel) = RequestOptions::of_texts(upload.caller, |name| upload.text(name))?.terms(app);
    let filled = watcher.follow(model, inpainter.submit(picture, mask, terms)?).await?;
    app.coding.encode(filled, format).await
}
