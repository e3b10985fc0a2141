//! Sockets: which connections are accepted, and their limits.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::app::App;
use crate::protocol::Protocol;
use crate::watched::Watched;

/// The largest size of the head of a request in bytes.
const HEAD_MAXIMUM: usize = 64 << 10;

/// The interval of pings that check whether the peer of a gRPC connection is alive.
const PING: Duration = Duration::from_secs(20);

/// Calls at the same time on a connection of gRPC.
const CALLS_MAXIMUM: u32 = 256;

/// How long a new connection may still send its first request when the server ends.
const LATECOMERS: Duration = Duration::from_millis(100);

/// The pause in accepting after the system had no more sockets.
const PAUSE: Duration = Duration::from_millis(50);

/// The answer in HTTP/1 to a connection above the limit.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\
    Content-Length: 0\r\n\r\n";

/// A listening socket.
pub(crate) struct Listener {
    listener: TcpListener,
    accepting: Accepting,
}

/// The shared state of accepted connections.
struct Accepting {
    protocol: Protocol,
    router: Router,
    app: Arc<App>,
}

/// The stage of the server's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It serves.
    Serving,
    /// It takes no more connections, and ends open ones with their next answer.
    Closing,
    /// It ends connections whatever they do.
    Ended,
}

impl Listener {
    pub(crate) async fn open(
        address: SocketAddr,
        protocol: Protocol,
        router: Router,
        app: Arc<App>,
    ) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await?, accepting: Accepting { protocol, router, app } })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves connections until the server ends.
    pub(crate) async fn serve(self, mut stage: watch::Receiver<Stage>) {
        let Self { listener, accepting } = self;
        let room = Arc::new(Semaphore::new(accepting.app.limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => accepting.accepted(accepted, &room, &stage, &mut connections).await,
                () = reached(&mut stage, Stage::Closing) => break,
                Some(_) = connections.join_next() => {}
            }
        }
        // Connections that the system has accepted already are served, too. The system's own listener is used, because
        // tokio may not have been notified of the last ones.
        if let Ok(listener) = listener.into_std() {
            while let Ok((socket, address)) = listener.accept() {
                let socket = socket.set_nonblocking(true).and_then(|()| TcpStream::from_std(socket));
                let accepted = socket.map(|socket| (socket, address));
                accepting.accepted(accepted, &room, &stage, &mut connections).await;
            }
        }
        tokio::select! {
            () = async { while connections.join_next().await.is_some() {} } => {}
            () = reached(&mut stage, Stage::Ended) => connections.shutdown().await,
        }
    }
}

impl Accepting {
    /// Serves a connection on its own task.
    async fn accepted(
        &self,
        accepted: io::Result<(TcpStream, SocketAddr)>,
        room: &Arc<Semaphore>,
        stage: &watch::Receiver<Stage>,
        connections: &mut JoinSet<()>,
    ) {
        let mut socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(error = error.to_string(), "no connection can be accepted");
                return tokio::time::sleep(PAUSE).await;
            }
        };
        // If this fails, small answers are delayed a little.
        let _ = socket.set_nodelay(true);
        let Ok(permit) = room.clone().try_acquire_owned() else {
            if self.protocol == Protocol::Http {
                // The socket's buffer is empty, so this does not block.
                let _ = socket.try_write(TOO_MANY);
                let _ = socket.shutdown().await;
            }
            return;
        };
        let open = self.app.metrics.connections.with_label_values(&[self.protocol.name()]);
        let limits = &self.app.limits;
        let (protocol, header_time, write_time) = (self.protocol, limits.header_time, limits.write_time);
        let (router, stage) = (self.router.clone(), stage.clone());
        let tls = self.app.tls.as_ref().map(|tls| match protocol {
            Protocol::Http => tls.http(),
            Protocol::Grpc => tls.grpc(),
        });
        connections.spawn(async move {
            open.inc();
            let spoken = protocol.first_bytes();
            match tls {
                None => {
                    let socket = Watched::new(socket, spoken, header_time, write_time);
                    serve(socket, protocol, router, header_time, stage).await;
                }
                Some(config) => {
                    let socket = Watched::new(socket, 1, header_time, write_time);
                    let handshake = TlsAcceptor::from(config).accept(socket);
                    // A client that does not trust the certificate, or is too slow, ends its own connection.
                    if let Ok(Ok(socket)) = tokio::time::timeout(header_time, handshake).await {
                        let socket = Watched::new(socket, spoken, header_time, write_time);
                        serve(socket, protocol, router, header_time, stage).await;
                    }
                }
            }
            open.dec();
            drop(permit);
        });
    }
}

/// Waits until the server has reached a stage.
async fn reached(stage: &mut watch::Receiver<Stage>, wanted: Stage) {
    // The sender lives as long as the server.
    let _ = stage.wait_for(|stage| *stage >= wanted).await;
}

/// Serves a connection until it closes.
async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    socket: Watched<S>,
    protocol: Protocol,
    router: Router,
    header_time: Duration,
    mut stage: watch::Receiver<Stage>,
) {
    let service =
        hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| router.clone().call(request));
    let io = TokioIo::new(socket);
    let closing = reached(&mut stage, Stage::Closing);
    // Errors that a client causes on its connection are not failures of the server.
    let _ = match protocol {
        Protocol::Http => {
            let mut builder = http1::Builder::new();
            let builder = builder.timer(TokioTimer::new()).header_read_timeout(header_time).max_buf_size(HEAD_MAXIMUM);
            let mut connection = pin!(builder.serve_connection(io, service));
            until(closing, connection.as_mut(), |connection| connection.graceful_shutdown()).await
        }
        Protocol::Grpc => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            let builder = builder
                .timer(TokioTimer::new())
                .keep_alive_interval(PING)
                .keep_alive_timeout(PING)
                .max_concurrent_streams(CALLS_MAXIMUM)
                .max_header_list_size(HEAD_MAXIMUM as u32)
                .initial_stream_window_size(1_u32 << 20)
                .initial_connection_window_size(4_u32 << 20);
            let mut connection = pin!(builder.serve_connection(io, service));
            until(closing, connection.as_mut(), |connection| connection.graceful_shutdown()).await
        }
    };
}

/// Serves a connection, and asks it to end when the server ends.
async fn until<C: Future>(
    closing: impl Future<Output = ()>,
    mut connection: std::pin::Pin<&mut C>,
    close: impl FnOnce(std::pin::Pin<&mut C>),
) -> C::Output {
    // Data that has arrived is read first: on shutdown, hyper closes a connection at once if it has read nothing from
    // it yet.
    tokio::select! {
        biased;
        output = connection.as_mut() => return output,
        () = async { closing.await; tokio::time::sleep(LATECOMERS).await } => {}
    }
    close(connection.as_mut());
    connection.await
}
