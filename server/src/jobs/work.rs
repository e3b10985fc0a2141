//! The work of a job: the same work as that of the paths without jobs.

use std::sync::Arc;

use axum::extract::Request;
use tileforge::Format;

use super::store::File;
use crate::app::App;
use crate::failure::{Failure, Result};
use crate::openai::{ImageRequest, Product};
use crate::pictures::{DepthWork, InpaintWork, Upload, UpscaleWork};
use crate::watcher::Watcher;

/// The work of a job.
#[derive(Debug)]
pub(crate) enum Work {
    Upscale(UpscaleWork),
    Depth(DepthWork),
    Inpaint(InpaintWork),
    Images(Box<ImageRequest>),
}

/// The kinds of jobs, as paths name them.
pub(crate) const KINDS: [&str; 5] = ["upscale", "depth", "inpaint", "generations", "edits"];

/// Whether jobs of a kind draw a seed if none is given.
pub(crate) fn draws(kind: &str) -> bool {
    matches!(kind, "generations" | "edits")
}

impl Work {
    /// Reads a whole request.
    pub(super) async fn read(app: &App, kind: &str, request: Request) -> Result<Self> {
        Ok(match kind {
            "upscale" => Self::Upscale(UpscaleWork::read(app, request).await?),
            "depth" => Self::Depth(DepthWork::read(app, request).await?),
            "inpaint" => Self::Inpaint(InpaintWork::read(app, request).await?),
            "generations" => Self::Images(Box::new(ImageRequest::read(app, Product::Generation, request).await?)),
            _ => Self::Images(Box::new(ImageRequest::read(app, Product::Edit, request).await?)),
        })
    }

    /// As [`Work::read`], from pictures with their settings; the result is one picture.
    pub(crate) async fn of_upload(app: &App, kind: &str, upload: Upload) -> Result<Self> {
        let product = match kind {
            "upscale" => return Ok(Self::Upscale(UpscaleWork::of(app, upload, Format::Png)?)),
            "depth" => return Ok(Self::Depth(DepthWork::of(app, upload)?)),
            "inpaint" => return Ok(Self::Inpaint(InpaintWork::of(app, upload, Format::Png)?)),
            "generations" => Product::Generation,
            _ => Product::Edit,
        };
        if upload.text("n").is_some_and(|n| n != "1") {
            return Err(Failure::invalid("n: expected 1; each picture is a job of its own"));
        }
        Ok(Self::Images(Box::new(ImageRequest::of(app, product, upload).await?)))
    }

    /// The answer of the path without a job.
    pub(super) async fn result(self, app: Arc<App>, watcher: Watcher) -> Result<File> {
        let Self::Images(order) = self else { return self.picture(&app, &watcher).await };
        let images = order.made(&app, &watcher).await?;
        let text = serde_json::to_vec(&images.answer())
            .map_err(|error| Failure::internal(format!("the answer cannot be written: {error}")))?;
        Ok(File { media: "application/json", bytes: text.into() })
    }

    /// The picture, or the depth of one, as a file.
    pub(crate) async fn picture(self, app: &App, watcher: &Watcher) -> Result<File> {
        let (media, bytes) = match self {
            Self::Upscale(work) => work.file(app, watcher).await?,
            Self::Depth(work) => work.file(app, watcher).await?,
            Self::Inpaint(work) => work.file(app, watcher).await?,
            Self::Images(order) => {
                let (media, bytes) = order.made(app, watcher).await?.only()?;
                return Ok(File { media, bytes });
            }
        };
        Ok(File { media, bytes: bytes.into() })
    }
}
