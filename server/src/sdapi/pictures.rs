//! Pictures from texts and pictures, and larger pictures.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tileforge::diffusion::Fit;
use tileforge::{Colour, Format, Picture, PixelData, Pixels, Size, Task};

use super::body::{Body, Extra};
use super::{lists, running};
use crate::app::App;
use crate::body;
use crate::bounded_json;
use crate::budget::Held;
use crate::caller::Caller;
use crate::failure::{Failure, Result};
use crate::generate::{self, MaskOf, Wanted, decode_text};
use crate::inference::RequestOptions;
use crate::model::Purpose;
use crate::pictures::enlarge;
use crate::rest::json as answer;

/// The default strength with which a picture is changed, as in AUTOMATIC1111.
const STRENGTH: f64 = 0.75;

/// The number of previews while pictures are made.
const PREVIEWS: usize = 4;

/// The body of a request, its caller, and its share of memory.
async fn read<T: DeserializeOwned>(app: &App, request: Request) -> Result<(T, Caller, Arc<Held>)> {
    let caller = request.extensions().get::<Caller>().copied().unwrap_or_default();
    let held = request.extensions().get::<Arc<Held>>().cloned().unwrap_or_else(|| app.budget.open());
    let bytes = body::read(request.into_body()).await?;
    Ok((bounded_json::object(&bytes)?, caller, held))
}

pub(super) async fn text_to_image(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    let (body, caller, held): (Body, _, _) = read(&app, request).await?;
    if body.init_images.is_some() || body.mask.is_some() {
        return Err(Failure::invalid("init_images: expected none; img2img takes a picture"));
    }
    let wanted = wanted(&body, None, None)?;
    made(&app, caller, body, wanted, held, "txt2img").await
}

pub(super) async fn image_to_image(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    let (mut body, caller, held): (Body, _, _) = read(&app, request).await?;
    let mut pictures = body.init_images.take().map(|few| few.0).unwrap_or_default();
    let (Some(text), 0) = (pictures.pop(), pictures.len()) else {
        return Err(Failure::invalid("init_images: expected one picture"));
    };
    let picture = decode_text(&app, "init_images", &text, &held).await?;
    let mask = match &body.mask {
        None => None,
        Some(text) => {
            let inverted = body.inpainting_mask_invert.is_some_and(|number| number.0 != 0);
            let mask = decode_text(&app, "mask", text, &held).await?;
            let grey = move || {
                let grey = generate::mask(&mask, MaskOf::White)?;
                if inverted { without(&grey) } else { Ok(grey) }
            };
            Some(app.coding.work(grey).await??)
        }
    };
    let wanted = wanted(&body, Some(picture), mask)?;
    made(&app, caller, body, wanted, held, "img2img").await
}

/// The inverse of a mask.
fn without(mask: &Picture) -> Result<Picture> {
    let samples: Vec<u8> = mask.to_eight().iter().map(|sample| 255 - sample).collect();
    let data = PixelData::Eight(&samples);
    Ok(Picture::from_pixels(Pixels { size: mask.size(), colour: Colour::Grey, data, stride: None })?)
}

fn wanted(body: &Body, picture: Option<Picture>, mask: Option<Picture>) -> Result<Wanted> {
    body.check()?;
    let size = match (body.width, body.height) {
        (None, None) => None,
        (Some(width), Some(height)) => Some(Size { width, height }),
        _ => return Err(Failure::invalid("width: expected width and height, or none of both")),
    };
    let fit = match body.resize_mode {
        None | Some(0) => Fit::Stretch,
        Some(1) => Fit::Crop,
        Some(_) => return Err(Failure::invalid("resize_mode: expected 0 (stretch) or 1 (crop)")),
    };
    let count = body.batch_size.unwrap_or(1).checked_mul(body.n_iter.unwrap_or(1));
    Ok(Wanted {
        prompt: body.prompt.clone().unwrap_or_default(),
        negative_prompt: body.negative_prompt.clone().filter(|text| !text.is_empty()),
        count: Some(count.unwrap_or(usize::MAX)),
        size,
        // Negative numbers mean any seed.
        seed: body.seed.and_then(|seed| seed.0.try_into().ok()),
        steps: body.steps,
        guidance: body.cfg_scale,
        strength: picture.is_some().then(|| body.denoising_strength.unwrap_or(STRENGTH)),
        scheduler: body.scheduler()?,
        fit: Some(fit),
        picture,
        mask,
        previews: PREVIEWS,
    })
}

async fn made(
    app: &Arc<App>,
    caller: Caller,
    body: Body,
    wanted: Wanted,
    held: Arc<Held>,
    kind: &'static str,
) -> Result<Response> {
    let named = body.overrides().and_then(|all| all.sd_model_checkpoint.as_deref());
    let model = lists::pipeline(app, caller, named)?;
    let [prompt, negative] = [wanted.prompt.clone(), wanted.negative_prompt.clone().unwrap_or_default()];
    let (guidance, sampler, count) = (wanted.guidance, wanted.scheduler.clone(), wanted.count.unwrap_or(1));
    let options = RequestOptions { caller, ..RequestOptions::default() };
    let making = running::run(app, caller, kind, |watcher| {
        let model = &model;
        let held = &held;
        async move { generate::generate(app, model, wanted, options, held, &watcher).await }
    });
    let made = app.metrics.counted(&model.name, count, making).await?;
    let mut images = Vec::with_capacity(made.pictures.len());
    for picture in made.pictures {
        images.push(STANDARD.encode(app.coding.encode(picture, Format::Png).await?));
    }
    // All pictures of a request are made together from one seed.
    let seeds = vec![made.seed; images.len()];
    let info = json!({
        "prompt": prompt, "negative_prompt": negative, "seed": made.seed, "all_seeds": seeds,
        "width": made.size.width, "height": made.size.height, "steps": made.steps, "cfg_scale": guidance,
        "sampler_name": sampler, "batch_size": images.len(), "sd_model_name": model.name,
    });
    if body.send_images == Some(false) {
        images.clear();
    }
    Ok(answer(StatusCode::OK, &json!({ "images": images, "parameters": info, "info": info.to_string() })))
}

pub(super) async fn extra(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    let (body, caller, held): (Extra, _, _) = read(&app, request).await?;
    body.check()?;
    let name = body.upscaler_1.as_deref().filter(|name| !["", "None"].contains(name));
    let model =
        app.repository.choose(name, |purpose| purpose == Purpose::Network(Task::Upscale), "pictures to pictures")?;
    let text = body.image.as_deref().ok_or_else(|| Failure::invalid("image: expected a picture in base64"))?;
    let picture = decode_text(&app, "image", text, &held).await?;
    let width = picture.size().width;
    let options = RequestOptions { caller, ..RequestOptions::default() };
    let enlarging = running::run(&app, caller, "extras", |watcher| {
        let (app, model) = (&app, &model);
        async move { enlarge(app, model, picture, options, &watcher).await }
    });
    let large = app.metrics.counted(&model.name, 1, enlarging).await?;
    let scale = f64::from(large.size().width) / f64::from(width);
    if body.upscaling_resize.is_some_and(|wanted| (wanted - scale).abs() > 1e-6) {
        return Err(Failure::invalid(format!("upscaling_resize: expected {scale}, which this engine makes")));
    }
    let file = STANDARD.encode(app.coding.encode(large, Format::Png).await?);
    Ok(answer(StatusCode::OK, &json!({ "html_info": "", "image": Value::String(file) })))
}
