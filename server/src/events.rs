//! Server-sent events: <https://html.spec.whatwg.org/multipage/server-sent-events.html>.

use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::traces;

/// The number of events that are buffered for a slow reader. The next one waits for room.
const AHEAD: usize = 1;

/// How long a stream may be silent: proxies close streams that are silent for long.
const SILENCE: Duration = Duration::from_secs(15);

/// The writer of events. The client gets them in the same order.
#[derive(Debug)]
pub(crate) struct Events(mpsc::Sender<Bytes>);

/// The client has disconnected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone;

impl Events {
    /// Sends an event with its name, and waits while the client reads slowly.
    pub(crate) async fn send(&self, name: &str, data: &impl Serialize) -> Result<(), Gone> {
        // JSON has no line feeds outside of texts, and escapes those inside.
        let data = serde_json::to_string(data).map_err(|_| Gone)?;
        self.0.send(format!("event: {name}\ndata: {data}\n\n").into()).await.map_err(|_| Gone)
    }
}

/// An answer whose events `produce` sends. If the client disconnects, `produce` is dropped, and with it the work that
/// it waits for.
pub(crate) fn answer<F>(produce: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(AHEAD);
    let (alive, gone) = (sender.clone(), sender.clone());
    let produced = produce(Events(sender));
    let send = async move {
        let comments = async {
            loop {
                tokio::time::sleep(SILENCE).await;
                if alive.send(Bytes::from_static(b":\n\n")).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            // The stream ends with its last event, or because the client has disconnected.
            _ = produced => {}
            () = comments => {}
            () = gone.closed() => {}
        }
    };
    tokio::spawn(send.instrument(traces::apart("stream")));
    let next = |mut receiver: mpsc::Receiver<Bytes>| async move {
        receiver.recv().await.map(|bytes| (Ok::<_, std::convert::Infallible>(bytes), receiver))
    };
    let mut response = Body::from_stream(stream::unfold(receiver, next)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Without this header, proxies such as nginx buffer events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
