//! The web page, whose files are in the program.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderName, HeaderValue, header};

use crate::app::App;

/// A file: its path, its media type, its content.
type File = (&'static str, &'static str, &'static str);

const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [File; 8] = [
    ("/", "text/html; charset=utf-8", include_str!("../../page/index.html")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("../../page/style.css")),
    ("/page/icon.svg", "image/svg+xml", include_str!("../../page/icon.svg")),
    ("/page/main.js", SCRIPT, include_str!("../../page/main.js")),
    ("/page/history.js", SCRIPT, include_str!("../../page/history.js")),
    ("/page/mask.js", SCRIPT, include_str!("../../page/mask.js")),
    ("/page/server.js", SCRIPT, include_str!("../../page/server.js")),
    ("/page/texts.js", SCRIPT, include_str!("../../page/texts.js")),
];

/// The content security policy: the page may load its own files, call its own server, and show pictures that it has
/// made.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // An updated program has an updated page.
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The paths of the page.
pub(crate) fn routes() -> Router<Arc<App>> {
    let add = |router: Router<Arc<App>>, file: File| router.route(file.0, get(move || async move { answer(file) }));
    FILES.into_iter().fold(Router::new(), add)
}

/// Whether a path is one of the page's files. These need no key: before the page is loaded, the browser has no key.
pub(crate) fn has(path: &str) -> bool {
    FILES.iter().any(|(other, ..)| *other == path)
}

fn answer((_, media, content): File) -> Response {
    let mut response = ([(header::CONTENT_TYPE, media)], content).into_response();
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
