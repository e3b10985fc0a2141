//! The progress of a request, for observers while it runs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tileforge::{Format, Picture, Request};
use tokio::sync::{OnceCell, watch};
use tracing::Instrument;

use crate::coding::Coding;
use crate::failure::{Failure, Result};
use crate::model::Model;
use crate::size::shown;
use crate::traces;

/// The interval at which the place in the queue and the progress are read.
const PERIOD: Duration = Duration::from_millis(100);

/// The progress of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Whether the request is in the engine's queue.
    pub(crate) submitted: bool,
    /// Requests in front of it; `None` once its turn has come.
    pub(crate) place: Option<usize>,
    /// Tiles or steps that are done.
    pub(crate) done: u64,
    /// The number of all tiles or steps; `None` until the request's turn comes.
    pub(crate) total: Option<u64>,
    /// The newest preview.
    pub(crate) preview: Option<Arc<Preview>>,
}

/// A preview of a picture.
pub(crate) struct Preview {
    /// Steps that are done.
    pub(crate) steps: usize,
    picture: Picture,
    /// The preview, encoded once for all observers.
    encoded: OnceCell<(Format, Bytes)>,
}

impl std::fmt::Debug for Preview {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Preview").field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl Preview {
    /// Width and height.
    pub(crate) fn size(&self) -> String {
        shown(self.picture.size())
    }

    /// The preview as a file. The first caller's format is cached; for another format, it is encoded again.
    pub(crate) async fn encoded(&self, coding: &Coding, format: Format) -> Result<Bytes> {
        let encode = || async { coding.encode(self.picture.clone(), format).await.map(Bytes::from) };
        let first = || async { Ok::<_, Failure>((format, encode().await?)) };
        match self.encoded.get_or_try_init(first).await? {
            (kept, bytes) if *kept == format => Ok(bytes.clone()),
            _ => encode().await,
        }
    }
}

/// Publishes the progress of a request. Only the newest state is kept, so a slow reader delays nothing.
#[derive(Clone, Debug)]
pub(crate) struct Watcher(Arc<watch::Sender<Seen>>);

impl Default for Watcher {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Seen::default())))
    }
}

impl Watcher {
    pub(crate) fn subscribe(&self) -> watch::Receiver<Seen> {
        self.0.subscribe()
    }

    /// Publishes a preview.
    pub(crate) fn show(&self, steps: usize, picture: Picture) {
        let preview = Arc::new(Preview { steps, picture, encoded: OnceCell::new() });
        self.0.send_modify(|seen| seen.preview = Some(preview));
    }

    /// Waits for a request, and publishes its progress.
    pub(crate) async fn follow<T: 'static>(&self, model: &Model, request: Request<T>) -> Result<T> {
        self.followed(request).instrument(traces::infer(&model.name)).await
    }

    async fn followed<T: 'static>(&self, request: Request<T>) -> Result<T> {
        let mut request = request;
        if self.0.receiver_count() == 0 {
            return Ok(request.await?);
        }
        self.0.send_modify(|seen| seen.submitted = true);
        let mut period = tokio::time::interval(PERIOD);
        loop {
            tokio::select! {
                result = &mut request => {
                    self.look(&request);
                    return Ok(result?);
                }
                _ = period.tick() => self.look(&request),
            }
        }
    }

    fn look<T>(&self, request: &Request<T>) {
        let (place, progress) = (request.queue_position(), request.progress());
        self.0.send_if_modified(|seen| {
            let is_new = (seen.place, seen.done, seen.total) != (place, progress.done, progress.total);
            (seen.place, seen.done, seen.total) = (place, progress.done, progress.total);
            is_new
        });
    }
}
