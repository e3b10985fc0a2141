//! What is spoken on a socket.

/// What is spoken on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.0 and 1.1.
    Http,
    /// gRPC, on HTTP/2.
    Grpc,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }

    /// Bytes with which a client shows that it speaks it: of HTTP/2, its preface (RFC 9113, 3.4). What follows has
    /// limits of its own.
    pub(crate) fn first_bytes(self) -> usize {
        match self {
            Self::Http => 1,
            Self::Grpc => 24,
        }
    }
}
