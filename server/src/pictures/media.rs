//! The format of an answer.

use http::{HeaderMap, header};
use tileforge::Format;

use crate::failure::{Failure, FailureKind, Result};

/// The formats of answers with their names, the preferred ones first.
pub(super) const WRITTEN: [(&str, Format); 3] =
    [("image/png", Format::Png), ("image/jpeg", Format::Jpeg), ("image/webp", Format::WebP)];

/// The name of a format.
pub(crate) fn name_of(format: Format) -> &'static str {
    WRITTEN.iter().find(|(_, other)| *other == format).map_or("application/octet-stream", |(name, _)| name)
}

/// The format that a setting names.
pub(crate) fn named(text: Option<&str>) -> Result<Format> {
    match text {
        None | Some("png") => Ok(Format::Png),
        Some("jpeg") => Ok(Format::Jpeg),
        Some("webp") => Ok(Format::WebP),
        Some(_) => Err(Failure::invalid("output_format: expected png, jpeg or webp")),
    }
}

/// The format that a client prefers (RFC 9110, 12.5.1); PNG if it accepts anything.
pub(super) fn wanted(headers: &HeaderMap) -> Result<Format> {
    let texts: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    if texts.is_empty() {
        return Ok(Format::Png);
    }
    let ranges: Vec<(&str, f32)> = texts.iter().flat_map(|text| text.split(',')).filter_map(range).collect();
    let quality = |name: &str| {
        // The most exact range counts.
        let exact = |range: &str| match range {
            range if range.eq_ignore_ascii_case(name) => 3,
            "image/*" => 2,
            "*/*" => 1,
            _ => 0,
        };
        let best = ranges.iter().filter(|(range, _)| exact(range) > 0).max_by_key(|(range, _)| exact(range));
        best.map_or(0.0, |(_, quality)| *quality)
    };
    let mut best = None;
    for (name, format) in WRITTEN {
        let found = quality(name);
        if found > 0.0 && best.is_none_or(|(_, other)| found > other) {
            best = Some((format, found));
        }
    }
    let none = || Failure::new(FailureKind::NotAcceptable, "expected Accept with image/png, image/jpeg or image/webp");
    best.map(|(format, _)| format).ok_or_else(none)
}

/// A range of media types with its quality.
fn range(text: &str) -> Option<(&str, f32)> {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next().filter(|range| !range.is_empty())?;
    let quality = parts.find_map(|part| part.strip_prefix("q="));
    let quality =
        quality.map_or(Some(1.0), |text| text.parse().ok().filter(|quality| (0.0..=1.0).contains(quality)))?;
    Some((range, quality))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_format_that_is_preferred_is_taken() {
        let of = |text: &str| {
            let headers = [(header::ACCEPT, HeaderValue::from_str(text).unwrap())].into_iter().collect();
            wanted(&headers).ok()
        };
        assert_eq!(wanted(&HeaderMap::new()).unwrap(), Format::Png);
        assert_eq!(of("*/*"), Some(Format::Png));
        assert_eq!(of("image/jpeg"), Some(Format::Jpeg));
        assert_eq!(of("text/html,application/xhtml+xml,image/avif,image/webp,*/*;q=0.8"), Some(Format::WebP));
        assert_eq!(of("image/png;q=0.1, image/*;q=0.5"), Some(Format::Jpeg));
        assert_eq!(of("image/png;q=0, image/jpeg;q=0.2"), Some(Format::Jpeg));
        for none in ["text/html", "image/avif", "image/png;q=0", "image/png;q=x", ";;;", "image/png;q=2"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
