//! Bodies with limits.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::Sleep;

use crate::budget::Held;
use crate::failure::{Failure, FailureKind, Result};

/// The body of a request, with limits of bytes, memory and time.
pub(crate) struct Limited {
    body: Body,
    left: u64,
    most: u64,
    held: Arc<Held>,
    until: Pin<Box<Sleep>>,
}

/// A failure as the error of a body; its source is the same failure for gRPC.
#[derive(Debug, thiserror::Error)]
#[error("{}", .failure.message)]
struct Refused {
    failure: Failure,
    source: tonic::Status,
}

impl Limited {
    pub(crate) fn new(body: Body, most: u64, time: Duration, held: Arc<Held>) -> Self {
        Self { body, left: most, most, held, until: Box::pin(tokio::time::sleep(time)) }
    }

    fn too_large(&self) -> Failure {
        Failure::new(FailureKind::TooLarge, format!("expected a body of at most {} bytes, found more", self.most))
    }
}

impl http_body::Body for Limited {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::BoxError>>> {
        let refuse = |failure: Failure| {
            let source = failure.clone().into();
            Poll::Ready(Some(Err(Refused { failure, source }.into())))
        };
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let Some(left) = self.left.checked_sub(bytes as u64) else { return refuse(self.too_large()) };
                self.left = left;
                match self.held.add(bytes) {
                    Ok(()) => Poll::Ready(Some(Ok(frame))),
                    Err(failure) => refuse(failure),
                }
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending if self.until.as_mut().poll(context).is_ready() => {
                refuse(Failure::new(FailureKind::SlowClient, "the body came too slowly"))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The failure that ended a body.
pub(crate) fn failure_of(error: &(dyn std::error::Error + 'static)) -> Failure {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(Refused { failure, .. }) = error.downcast_ref() {
            return failure.clone();
        }
        cause = error.source();
    }
    Failure::invalid(format!("the body ended early: {error}"))
}

/// All bytes of a body whose limits are those of the request.
pub(crate) async fn read(body: Body) -> Result<Bytes> {
    let mut body = body;
    let mut first = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| failure_of(&error))?.into_data() else { continue };
        match first.take() {
            None if all.is_empty() => first = Some(data),
            None => all.extend_from_slice(&data),
            Some(begin) => {
                let begin: Bytes = begin;
                // The announced length was already compared with the limit.
                let announced = usize::try_from(http_body::Body::size_hint(&body).lower()).unwrap_or(0);
                all.reserve(begin.len() + data.len() + announced.min(1 << 20));
                all.extend_from_slice(&begin);
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| all.freeze()))
}

/// A body that keeps a value alive until the body was sent or dropped.
pub(crate) struct Keeping<T> {
    body: Body,
    _kept: T,
}

impl<T: Send + Unpin + 'static> Keeping<T> {
    pub(crate) fn body(body: Body, kept: T) -> Body {
        Body::new(Self { body, _kept: kept })
    }
}

impl<T: Unpin> http_body::Body for Keeping<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
