//! The body of a request to OpenAI's image API, as JSON or as a form.

use std::fmt;

use axum::extract::Request;
use bytes::Bytes;
use http::header;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::body;
use crate::bounded_json::{self, Few};
use crate::failure::{Failure, Result};
use crate::pictures::Upload;

/// The fields of a request. Fields of OpenAI's own models that change no picture here (`quality`, `style`,
/// `moderation`, `user`, `input_fidelity`) are ignored.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Body {
    #[serde(default)]
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) prompt: Option<String>,
    #[serde(default)]
    pub(super) negative_prompt: Option<String>,
    #[serde(default)]
    pub(super) n: Option<usize>,
    #[serde(default)]
    pub(super) size: Option<String>,
    #[serde(default)]
    pub(super) seed: Option<u64>,
    #[serde(default, alias = "num_inference_steps")]
    pub(super) steps: Option<usize>,
    #[serde(default)]
    pub(super) guidance_scale: Option<f64>,
    #[serde(default)]
    pub(super) strength: Option<f64>,
    #[serde(default)]
    pub(super) scheduler: Option<String>,
    #[serde(default)]
    pub(super) response_format: Option<String>,
    #[serde(default)]
    pub(super) output_format: Option<String>,
    #[serde(default)]
    pub(super) output_compression: Option<u32>,
    #[serde(default)]
    pub(super) background: Option<String>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    pub(super) partial_images: Option<usize>,
    /// Seconds.
    #[serde(default)]
    pub(super) timeout: Option<f64>,
    #[serde(default)]
    pub(super) priority: Option<u64>,
    #[serde(default)]
    image: Option<Few<PictureText>>,
    #[serde(default)]
    images: Option<Few<PictureText>>,
    #[serde(default)]
    mask: Option<PictureText>,
}

/// A picture in base64 or as a data URL: a text, or an object with it as `image_url`.
#[derive(Debug)]
struct PictureText(String);

impl<'de> Deserialize<'de> for PictureText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Url {
            image_url: String,
        }
        struct OfPicture;
        impl<'de> Visitor<'de> for OfPicture {
            type Value = PictureText;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a picture in base64, a data URL, or an object with `image_url`")
            }

            fn visit_str<E>(self, text: &str) -> std::result::Result<PictureText, E> {
                Ok(PictureText(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<PictureText, A::Error> {
                let url = Url::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(PictureText(url.image_url))
            }
        }
        deserializer.deserialize_any(OfPicture)
    }
}

/// A picture as it was sent.
#[derive(Debug)]
pub(super) enum Sent {
    /// A file.
    File(Bytes),
    /// Base64, or a data URL.
    Text(String),
}

/// A request with its pictures.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) body: Body,
    pub(super) pictures: Vec<Sent>,
    pub(super) mask: Option<Sent>,
}

impl Received {
    /// Reads a whole request.
    pub(super) async fn read(request: Request) -> Result<Self> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.to_ascii_lowercase().starts_with("application/json") {
            let bytes = body::read(request.into_body()).await?;
            return Ok(Self::of_json(bounded_json::object(&bytes)?));
        }
        Self::of_upload(Upload::read(request).await?)
    }

    fn of_json(body: Body) -> Self {
        let mut body = body;
        let (image, images, mask) = (body.image.take(), body.images.take(), body.mask.take());
        let all = image.into_iter().chain(images).flat_map(|few| few.0);
        let pictures = all.map(|picture| Sent::Text(picture.0)).collect();
        Self { body, pictures, mask: mask.map(|mask| Sent::Text(mask.0)) }
    }

    /// The request in a form.
    pub(super) fn of_upload(upload: Upload) -> Result<Self> {
        fn number<T: std::str::FromStr>(upload: &Upload, name: &str) -> Result<Option<T>> {
            let wrong = |_| Failure::invalid(format!("{name}: expected a number or `true`, `false`"));
            upload.text(name).map(|text| text.parse().map_err(wrong)).transpose()
        }
        let text = |name: &str| upload.text(name).map(str::to_owned);
        let body = Body {
            model: text("model").or_else(|| text("engine")),
            prompt: text("prompt"),
            negative_prompt: text("negative_prompt"),
            n: number(&upload, "n")?,
            size: text("size"),
            seed: number(&upload, "seed")?,
            steps: number(&upload, "steps")?.or(number(&upload, "num_inference_steps")?),
            guidance_scale: number(&upload, "guidance_scale")?,
            strength: number(&upload, "strength")?,
            scheduler: text("scheduler"),
            response_format: text("response_format"),
            output_format: text("output_format"),
            output_compression: number(&upload, "output_compression")?,
            background: text("background"),
            stream: number(&upload, "stream")?,
            partial_images: number(&upload, "partial_images")?,
            timeout: number(&upload, "timeout")?,
            priority: number(&upload, "priority")?,
            ..Body::default()
        };
        let mut received = Self { body, pictures: Vec::new(), mask: None };
        for (name, bytes) in upload.files {
            match name.as_str() {
                // A request without a body.
                "image" if bytes.is_empty() => {}
                "image" | "image[]" => received.pictures.push(Sent::File(bytes)),
                "mask" if received.mask.is_none() => received.mask = Some(Sent::File(bytes)),
                _ => return Err(Failure::invalid("expected the files `image` and `mask`, found another one")),
            }
        }
        Ok(received)
    }
}
