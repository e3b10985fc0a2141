//! What a job does: what the paths without jobs do.

use std::sync::Arc;

use axum::extract::Request;

use super::store::File;
use crate::app::App;
use crate::failure::{Failure, Result};
use crate::openai::{Order, Product};
use crate::pictures::{DepthWork, UpscaleWork};
use crate::watcher::Watcher;

/// What a job does.
#[derive(Debug)]
pub(super) enum Work {
    Upscale(UpscaleWork),
    Depth(DepthWork),
    Images(Box<Order>),
}

/// The kinds of jobs, as paths name them.
pub(super) const KINDS: [&str; 4] = ["upscale", "depth", "generations", "edits"];

impl Work {
    /// Reads all of a request.
    pub(super) async fn read(app: &App, kind: &str, request: Request) -> Result<Self> {
        Ok(match kind {
            "upscale" => Self::Upscale(UpscaleWork::read(app, request).await?),
            "depth" => Self::Depth(DepthWork::read(app, request).await?),
            "generations" => Self::Images(Box::new(Order::read(app, Product::Generation, request).await?)),
            _ => Self::Images(Box::new(Order::read(app, Product::Edit, request).await?)),
        })
    }

    pub(super) async fn result(self, app: Arc<App>, watcher: Watcher) -> Result<File> {
        let (media, bytes) = match self {
            Self::Upscale(work) => work.file(&app, &watcher).await?,
            Self::Depth(work) => work.file(&app, &watcher).await?,
            Self::Images(order) => {
                let images = order.made(&app, &watcher).await?;
                let text = serde_json::to_vec(&images.answer())
                    .map_err(|error| Failure::internal(format!("the answer cannot be written: {error}")))?;
                ("application/json", text)
            }
        };
        Ok(File { media, bytes: bytes.into() })
    }
}
