//! Decoding and encoding, a few at the same time: each takes as much memory as its picture.

use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use tileforge::{Format, Limits, Picture};
use tokio::sync::Semaphore;
use tracing::Instrument;

use crate::budget::Held;
use crate::failure::{Failure, Result};
use crate::traces;

/// The most bytes for each pixel of a decoded picture: four channels of 16 bits.
const BYTES_PER_PIXEL: u64 = 8;

/// Decodes and encodes pictures.
#[derive(Debug)]
pub(crate) struct Coding {
    at_once: Arc<Semaphore>,
    limits: Limits,
}

impl Coding {
    /// Accepts pictures of at most `megapixels` million pixels.
    pub(crate) fn new(megapixels: u32) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let decoded_bytes = u64::from(megapixels) * 1_000_000 * BYTES_PER_PIXEL;
        Self { at_once: Arc::new(Semaphore::new(threads)), limits: Limits { megapixels, decoded_bytes } }
    }

    /// Decodes a picture. Its size is checked before memory is used.
    pub(crate) async fn decode(&self, bytes: Bytes, held: &Arc<Held>) -> Result<Picture> {
        let limits = self.limits;
        let decoding = self.work(move || Picture::from_reader(&*bytes, &limits));
        let picture = decoding.instrument(traces::part("decode")).await??;
        held.add_pixels(picture.size().pixels(), BYTES_PER_PIXEL)?;
        Ok(picture)
    }

    /// Encodes a picture.
    pub(crate) async fn encode(&self, picture: Picture, format: Format) -> Result<Vec<u8>> {
        Ok(self.work(move || picture.encode(format)).instrument(traces::part("encode")).await??)
    }

    /// Runs long work on a picture, outside of the threads of connections.
    pub(crate) async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let failed = || Failure::internal("the picture cannot be worked on");
        let permit = self.at_once.clone().acquire_owned().await.map_err(|_| failed())?;
        let work = move || {
            let result = work();
            drop(permit);
            result
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| failed())
    }
}
