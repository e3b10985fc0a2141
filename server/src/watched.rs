//! A socket with time limits: its peer has to keep reading and writing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A socket whose peer has to keep reading and writing.
pub(crate) struct Watched<S> {
    socket: S,
    /// The time limit until the first bytes have arrived.
    first: Option<Pin<Box<Sleep>>>,
    /// The number of first bytes that are still missing.
    missing: usize,
    write_time: Duration,
    /// The time limit while the peer reads nothing.
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    /// The first `bytes` have to arrive within `first`; the peer may stop reading for at most `write_time`.
    pub(crate) fn new(socket: S, bytes: usize, first: Duration, write_time: Duration) -> Self {
        let first = Some(Box::pin(tokio::time::sleep(first)));
        Self { socket, first, missing: bytes, write_time, writing: None }
    }

    /// The result of a write, or an error if its time is over.
    fn written<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.writing = None;
            return result;
        }
        let until = Instant::now() + self.write_time;
        let sleep = self.writing.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(sleep.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(context, buffer);
        if result.is_ready() {
            self.missing = self.missing.saturating_sub(buffer.filled().len() - before);
            if self.missing == 0 {
                self.first = None;
            }
        } else if let Some(first) = &mut self.first {
            ready!(first.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.written(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(context, parts);
        self.written(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_flush(context);
        self.written(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_shutdown(context);
        self.written(context, result)
    }
}
