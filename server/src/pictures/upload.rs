//! A picture and its settings, as a raw body with a query or as a form.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::multipart::MultipartError;
use axum::extract::{FromRequest, Multipart, Query, Request};
use bytes::Bytes;
use http::{HeaderMap, header};
use tileforge::{Format, Picture};

use super::media::named;
use crate::app::App;
use crate::body::{self, failure_of};
use crate::budget::Held;
use crate::caller::Caller;
use crate::failure::{Failure, FailureKind, Result, WORD_MAXIMUM, shown};

/// The largest number of fields of a form.
const FIELDS_MAXIMUM: usize = 32;

/// The names of the field of the picture.
pub(super) const PICTURE: [&str; 2] = ["image", "file"];

/// The name of the field of its mask.
pub(super) const MASK: [&str; 1] = ["mask"];

/// The settings of every picture.
pub(super) const SETTINGS: [&str; 4] = ["engine", "model", "timeout", "priority"];

/// The setting of the format of a picture that comes out.
pub(super) const FORMAT: [&str; 1] = ["output_format"];

/// The largest length in bytes of a field that is not a file.
const TEXT_MAXIMUM: usize = 64 << 10;

/// The files and settings that a client sent.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    /// Files, by the names of their fields.
    pub(crate) files: Vec<(String, Bytes)>,
    /// Settings, by their names.
    pub(crate) texts: BTreeMap<String, String>,
    /// Memory of the request.
    pub(crate) held: Option<Arc<Held>>,
    pub(crate) caller: Caller,
}

impl Upload {
    /// Reads a whole request. A form's fields take precedence over the query's.
    pub(crate) async fn read(request: Request) -> Result<Self> {
        let held = request.extensions().get::<Arc<Held>>().cloned();
        let caller = request.extensions().get::<Caller>().copied().unwrap_or_default();
        let query: Query<BTreeMap<String, String>> = Query::try_from_uri(request.uri())
            .map_err(|error| Failure::invalid(format!("the query: {}", error.body_text())))?;
        let mut upload = Self { texts: query.0, held, caller, ..Self::default() };
        if !is_form(request.headers())? {
            let bytes = body::read(request.into_body()).await?;
            upload.files.push(("image".into(), bytes));
            return Ok(upload);
        }
        let mut form =
            Multipart::from_request(request, &()).await.map_err(|error| Failure::invalid(error.body_text()))?;
        let mut fields = 0;
        while let Some(field) = form.next_field().await.map_err(|error| of_form(&error))? {
            fields += 1;
            if fields > FIELDS_MAXIMUM {
                return Err(Failure::invalid(format!("expected at most {FIELDS_MAXIMUM} fields in the form")));
            }
            let name = field.name().unwrap_or_default().to_owned();
            let is_file = field.file_name().is_some();
            let bytes = field.bytes().await.map_err(|error| of_form(&error))?;
            if is_file {
                upload.files.push((name, bytes));
                continue;
            }
            let text = String::from_utf8(bytes.to_vec()).ok().filter(|text| text.len() <= TEXT_MAXIMUM);
            let wrong =
                || Failure::invalid(format!("a field of the form: expected a text of at most {TEXT_MAXIMUM} bytes"));
            upload.texts.insert(name, text.ok_or_else(wrong)?);
        }
        Ok(upload)
    }

    /// The value of a setting, if it is present.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Refuses settings and files that are not among these names: they could be meant to change the picture.
    pub(super) fn check(&self, settings: &[&str], files: &[&str]) -> Result<()> {
        // A file that was sent as a text is missed later.
        let is_known = |name: &str| settings.contains(&name) || files.contains(&name);
        if let Some(other) = self.texts.keys().find(|name| !is_known(name)) {
            let (known, found) = (settings.join(", "), shown(other, WORD_MAXIMUM));
            return Err(Failure::invalid(format!("expected the settings {known}, found {found}")));
        }
        if let Some((other, _)) = self.files.iter().find(|(name, _)| !files.contains(&name.as_str())) {
            let (known, found) = (files.join(" or "), shown(other, WORD_MAXIMUM));
            return Err(Failure::invalid(format!("expected files as the fields {known}, found {found}")));
        }
        Ok(())
    }

    /// The requested format of the picture that comes out, if there is one.
    pub(super) fn format(&self) -> Result<Option<Format>> {
        self.text(FORMAT[0]).map(|text| named(Some(text))).transpose()
    }

    /// The name of the requested engine, if one is named.
    pub(super) fn engine(&self) -> Option<&str> {
        self.text("engine").or_else(|| self.text("model"))
    }

    /// The decoded picture; its memory counts towards the request's.
    pub(super) async fn picture(&mut self, app: &App) -> Result<(Picture, Arc<Held>)> {
        self.decoded(app, &PICTURE).await
    }

    /// The first file with one of these names, as a picture.
    pub(super) async fn decoded(&mut self, app: &App, names: &[&str]) -> Result<(Picture, Arc<Held>)> {
        let file = self.file(names)?;
        let held = self.held.get_or_insert_with(|| app.budget.open()).clone();
        let picture = app.coding.decode(file, &held).await?;
        Ok((picture, held))
    }

    fn file(&mut self, names: &[&str]) -> Result<Bytes> {
        let place = self.files.iter().position(|(name, _)| names.contains(&name.as_str()));
        let missing = || Failure::invalid(format!("expected a picture as the field {}", names.join(" or ")));
        let (_, bytes) = self.files.remove(place.ok_or_else(missing)?);
        if bytes.is_empty() {
            return Err(Failure::invalid("expected a picture, found nothing"));
        }
        Ok(bytes)
    }
}

/// Whether a body is a form. Otherwise it is the picture, whose format follows from its first bytes.
fn is_form(headers: &HeaderMap) -> Result<bool> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(false) };
    let kind = String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase();
    match kind.split(';').next().unwrap_or_default().trim() {
        "multipart/form-data" => Ok(true),
        "application/octet-stream" => Ok(false),
        kind if kind.starts_with("image/") => Ok(false),
        _ => {
            let message = "expected the picture as the body (image/…), or a form as multipart/form-data";
            Err(Failure::new(FailureKind::MediaType, message))
        }
    }
}

fn of_form(error: &MultipartError) -> Failure {
    let failure = failure_of(error);
    match failure.kind {
        FailureKind::Invalid => Failure::invalid(format!("the form: {}", error.body_text())),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_kind_of_a_body_says_whether_it_is_a_picture_or_a_form() {
        let of = |kind: &[u8]| {
            let headers = [(header::CONTENT_TYPE, HeaderValue::from_bytes(kind).unwrap())].into_iter().collect();
            is_form(&headers).map_err(|failure| failure.kind)
        };
        assert!(!is_form(&HeaderMap::new()).unwrap());
        for kind in ["image/png", "IMAGE/JPEG", "image/x-other; q=1", "application/octet-stream"] {
            assert_eq!(of(kind.as_bytes()), Ok(false), "{kind}");
        }
        assert_eq!(of(b"Multipart/Form-Data; boundary=x"), Ok(true));
        for kind in [
            &b"text/plain"[..],
            b"application/json",
            b"application/x-www-form-urlencoded",
            b"multipart/form-data-x",
            b"multipart/mixed",
            b"image",
            b"",
            b"\xff",
        ] {
            assert_eq!(of(kind), Err(FailureKind::MediaType), "{kind:?}");
        }
    }
}
