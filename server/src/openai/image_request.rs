//! A validated request for pictures, and the pictures that it becomes.

use std::sync::Arc;

use axum::extract::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use tileforge::{Format, Picture};

use super::body::{Received, Sent};
use crate::app::App;
use crate::budget::Held;
use crate::caller::Caller;
use crate::failure::{Failure, Result};
use crate::generate::{self, MaskOf, Wanted, decode_text};
use crate::inference::RequestOptions;
use crate::model::{Model, Purpose};
use crate::pictures::{Upload, format_named, media_of};
use crate::size::{check_mask, shown, size_of};
use crate::watcher::Watcher;

/// Most previews that a client of OpenAI's API may ask for.
const PARTIAL_MAXIMUM: usize = 10;

/// Whether pictures are made from texts or from pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    Generation,
    Edit,
}

impl Product {
    /// The prefix of its events' names.
    pub(super) fn event(self) -> &'static str {
        match self {
            Self::Generation => "image_generation",
            Self::Edit => "image_edit",
        }
    }
}

/// A validated request.
#[derive(Debug)]
pub(crate) struct ImageRequest {
    pub(super) format: Format,
    pub(super) streams: bool,
    model: Arc<Model>,
    wanted: Wanted,
    options: RequestOptions,
    held: Arc<Held>,
}

impl ImageRequest {
    /// Reads a whole request.
    pub(crate) async fn read(app: &App, product: Product, request: Request) -> Result<Self> {
        let held = request.extensions().get::<Arc<Held>>().cloned().unwrap_or_else(|| app.budget.open());
        let caller = request.extensions().get::<Caller>().copied().unwrap_or_default();
        Self::check(app, product, Received::read(request).await?, held, caller).await
    }

    /// Checks pictures with their settings.
    pub(crate) async fn of(app: &App, product: Product, upload: Upload) -> Result<Self> {
        let (held, caller) = (upload.held.clone().unwrap_or_else(|| app.budget.open()), upload.caller);
        Self::check(app, product, Received::of_upload(upload)?, held, caller).await
    }

    async fn check(app: &App, product: Product, received: Received, held: Arc<Held>, caller: Caller) -> Result<Self> {
        let Received { body, mut pictures, mask } = received;
        let format = format_named(body.output_format.as_deref())?;
        if body.response_format.as_deref().is_some_and(|format| format != "b64_json") {
            return Err(Failure::invalid("response_format: expected b64_json; there are no addresses of pictures"));
        }
        if body.output_compression.is_some_and(|number| number != 100) {
            return Err(Failure::invalid("output_compression: expected 100; pictures are written in full quality"));
        }
        if body.background.is_some_and(|background| !["auto", "opaque"].contains(&&*background)) {
            return Err(Failure::invalid("background: expected opaque or auto; pictures are not transparent"));
        }
        if body.partial_images.is_some_and(|number| number > PARTIAL_MAXIMUM) {
            return Err(Failure::invalid(format!("partial_images: expected a number up to {PARTIAL_MAXIMUM}")));
        }
        match (product, pictures.len()) {
            (Product::Generation, 0) | (Product::Edit, 1) => {}
            (Product::Generation, _) => {
                return Err(Failure::invalid("image: expected none; /v1/images/edits takes a picture"));
            }
            (Product::Edit, _) => return Err(Failure::invalid("image: expected one picture")),
        }
        let prompt = body.prompt.ok_or_else(|| Failure::invalid("prompt: expected a text"))?;
        let size = body.size.as_deref().filter(|size| *size != "auto").map(size_of).transpose()?;
        let model = app.repository.choose(
            body.model.as_deref(),
            |purpose| purpose == Purpose::Generate,
            "texts to pictures",
        )?;
        let options = RequestOptions {
            caller,
            timeout: body.timeout.map(RequestOptions::timeout_of).transpose()?.flatten(),
            priority: RequestOptions::priority_of(body.priority.unwrap_or(0)),
        };
        let picture = match pictures.pop() {
            Some(sent) => Some(decoded(app, "image", sent, &held).await?),
            None => None,
        };
        let mask = match (mask, &picture) {
            (Some(mask), Some(picture)) => {
                let mask = decoded(app, "mask", mask, &held).await?;
                check_mask(picture, &mask)?;
                Some(app.coding.work(move || generate::mask(&mask, MaskOf::Alpha)).await??)
            }
            (Some(_), None) => return Err(Failure::invalid("mask: expected a picture beside it")),
            // A picture with transparent parts is its own mask.
            (None, Some(picture)) => {
                let picture = picture.clone();
                let of_picture = move || match generate::is_transparent(&picture) {
                    true => generate::mask(&picture, MaskOf::Alpha).map(Some),
                    false => Ok(None),
                };
                app.coding.work(of_picture).await??
            }
            (None, None) => None,
        };
        let streams = body.stream.unwrap_or(false);
        let wanted = Wanted {
            prompt,
            negative_prompt: body.negative_prompt,
            count: body.n,
            size,
            seed: body.seed,
            steps: body.steps,
            guidance: body.guidance_scale,
            strength: body.strength,
            scheduler: body.scheduler,
            fit: None,
            picture,
            mask,
            previews: body.partial_images.unwrap_or(0),
        };
        Ok(Self { format, streams, model, wanted, options, held })
    }

    /// Makes the pictures.
    pub(crate) async fn made(self, app: &App, watcher: &Watcher) -> Result<Images> {
        let (model, count) = (self.model.clone(), self.wanted.count.unwrap_or(1));
        app.metrics.counted(&model.name, count, self.images(app, watcher)).await
    }

    async fn images(self, app: &App, watcher: &Watcher) -> Result<Images> {
        let Self { model, wanted, options, held, format, .. } = self;
        let made = generate::generate(app, &model, wanted, options, &held, watcher).await?;
        let mut files = Vec::with_capacity(made.pictures.len());
        for picture in made.pictures {
            files.push(app.coding.encode(picture, format).await?.into());
        }
        Ok(Images { files, format, size: shown(made.size), seed: made.seed, steps: made.steps })
    }
}

async fn decoded(app: &App, name: &str, sent: Sent, held: &Arc<Held>) -> Result<Picture> {
    match sent {
        Sent::File(bytes) => app.coding.decode(bytes, held).await,
        Sent::Text(text) => decode_text(app, name, &text, held).await,
    }
}

/// Pictures as files, and how to make them again.
#[derive(Debug)]
pub(crate) struct Images {
    pub(super) files: Vec<Bytes>,
    pub(super) format: Format,
    /// Width and height of each.
    pub(super) size: String,
    seed: u64,
    steps: usize,
}

impl Images {
    /// The only picture, with the name of its format.
    pub(crate) fn only(self) -> Result<(&'static str, Bytes)> {
        let media = media_of(self.format);
        let several = || Failure::invalid("n: expected 1; each picture is a job of its own");
        let [file] = <[Bytes; 1]>::try_from(self.files).map_err(|_| several())?;
        Ok((media, file))
    }

    /// The answer as a whole.
    pub(crate) fn answer(&self) -> Value {
        let data: Vec<Value> = self.files.iter().map(|file| json!({ "b64_json": STANDARD.encode(file) })).collect();
        let mut answer = described(&self.size, self.format);
        answer["created"] = now().into();
        answer["data"] = data.into();
        answer["usage"] = usage();
        answer["seed"] = self.seed.into();
        answer["steps"] = self.steps.into();
        answer
    }

    /// The event of one of the pictures.
    pub(super) fn event(&self, kind: &str, file: &Bytes) -> Value {
        let mut event = picture_event(kind, &self.size, self.format, file);
        event["usage"] = usage();
        event["seed"] = self.seed.into();
        event
    }
}

/// An event with a picture.
pub(super) fn picture_event(kind: &str, size: &str, format: Format, file: &Bytes) -> Value {
    let mut event = described(size, format);
    event["type"] = kind.into();
    event["created_at"] = now().into();
    event["b64_json"] = STANDARD.encode(file).into();
    event
}

/// The description of pictures that OpenAI's clients expect.
fn described(size: &str, format: Format) -> Value {
    let format = media_of(format).trim_start_matches("image/");
    json!({ "size": size, "quality": "auto", "background": "opaque", "output_format": format })
}

/// The usage in tokens. Tokens are not counted here, but clients expect the fields.
fn usage() -> Value {
    json!({
        "input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
        "input_tokens_details": { "image_tokens": 0, "text_tokens": 0 },
    })
}

/// Seconds since 1970.
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}
