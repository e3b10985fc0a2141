//! The protocol of a socket.

/// The protocol of a socket.
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

    /// The number of bytes by which a client shows that it uses the protocol: for HTTP/2, its preface (RFC 9113, 3.4).
    /// Everything after them has its own limits.
    pub(crate) fn first_bytes(self) -> usize {
        match self {
            Self::Http => 1,
            Self::Grpc => 24,
        }
    }
}
