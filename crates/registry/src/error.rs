//! What can go wrong between an engine and a registry.

use std::io;
use std::path::{Path, PathBuf};

use crate::document::Digest;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. The text of an error never repeats its cause: walk [`std::error::Error::source`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text is not a reference.
    #[error("`{}`: expected oci://HOST[:PORT]/NAME[:TAG] or oci://HOST[:PORT]/NAME@sha256:…, but \
        {problem}", text.escape_debug())]
    Reference {
        /// The text.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Engines are pushed to a tag, and a digest was given.
    #[error("{reference}: expected a tag to push to, found a digest")]
    PushToDigest {
        /// The reference.
        reference: String,
    },
    /// Two engines that are pushed together cannot be told apart.
    #[error("{} and {}: expected engines of different profiles or precisions, found two for {profile} in \
        {precision}", first.display(), second.display())]
    Twins {
        /// The directory of one engine.
        first: PathBuf,
        /// That of the other.
        second: PathBuf,
        /// Their profile.
        profile: String,
        /// Their precision.
        precision: String,
    },
    /// The operating system refused something on a file or folder.
    #[error("{}: cannot {action}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The engine is not whole, not signed as it should be, or cannot be put at its place.
    #[error(transparent)]
    Engine(#[from] tileforge_engine::Error),
    /// A password cannot be had.
    #[error("{}: no password can be had: {reason}", path.display())]
    Credentials {
        /// Docker's configuration.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No server can be trusted.
    #[error("{url}: this system has no certificates of authorities to check the server with")]
    NoCertificates {
        /// The address.
        url: String,
    },
    /// A file of certificates cannot be used.
    #[error("{}: {reason}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The certificate of a server is signed by somebody whom nobody has named.
    #[error(
        "{url}: the certificate of the server is not trusted: this machine does not know the authority that signed \
        it"
    )]
    UnknownAuthority {
        /// The address.
        url: String,
    },
    /// The certificate of a server is not one to trust.
    #[error("{url}: the certificate of the server is not trusted: {reason}")]
    Untrusted {
        /// The address.
        url: String,
        /// Why.
        reason: String,
    },
    /// A server cannot be reached, or ends the connection before anything came.
    #[error("{url}: the registry cannot be reached: {reason}")]
    Unreachable {
        /// The address.
        url: String,
        /// Why.
        reason: String,
    },
    /// A download was cut. What came before stays, and the next pull goes on from there.
    #[error("{file}: the download was cut: {reason}; what came is in {}, and the next pull goes on from \
        there", kept.display())]
    Cut {
        /// The engine's file.
        file: String,
        /// The folder with what was downloaded.
        kept: PathBuf,
        /// Why it was cut.
        reason: String,
    },
    /// The registry wants another user, or none of the kind.
    #[error("{url}: the registry refuses this with the answer {status}{}", if *has_login {
        ", for the user that was given"
    } else {
        ", and no user was given"
    })]
    Refused {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// Whether there were a name and a password.
        has_login: bool,
    },
    /// The registry asks for a password, which would not be encrypted on its way.
    #[error("{url}: the registry asks for a password, and the connection is not encrypted")]
    OpenPassword {
        /// The address.
        url: String,
    },
    /// The server for tokens cannot be trusted with a password.
    #[error("{url}: the registry sends its users to the token server {realm}, where passwords would not be encrypted")]
    OpenTokenServer {
        /// The registry's address.
        url: String,
        /// The token server's.
        realm: String,
    },
    /// A server sends its clients from a connection with encryption to one without.
    #[error("{url}: it sends its clients on to {to}, where nothing is encrypted")]
    Downgrade {
        /// The server's address.
        url: String,
        /// The other one.
        to: String,
    },
    /// The registry sent us to another server, which asks who we are.
    #[error("{url}: the registry sent us to {to}, which answers {status}; passwords are for the registry alone")]
    Elsewhere {
        /// The registry's address.
        url: String,
        /// That of the other server.
        to: String,
        /// The HTTP status.
        status: u16,
    },
    /// The registry has nothing of this name.
    #[error("{reference}: the registry has nothing of this name")]
    NotThere {
        /// What was asked for.
        reference: String,
    },
    /// A registry gave another answer than the specification allows.
    #[error("{url}: {problem}")]
    Answer {
        /// The address.
        url: String,
        /// What was expected, and what was found.
        problem: String,
    },
    /// A file of an engine is missing in the registry.
    #[error("{reference}: {file} is listed, and the registry does not have it ({digest})")]
    Missing {
        /// The engine's reference.
        reference: String,
        /// The file.
        file: String,
        /// Its digest.
        digest: Digest,
    },
    /// Something in the registry has not the digest or length that it should have.
    #[error("{reference}: {file}: expected {expected}, found {found}")]
    Altered {
        /// The engine's reference.
        reference: String,
        /// The file, or the document.
        file: String,
        /// The digest or the length that it should have.
        expected: String,
        /// Those that it has.
        found: String,
    },
    /// A manifest or an index breaks a rule.
    #[error("{reference}: {problem}")]
    Document {
        /// What it is called.
        reference: String,
        /// What was expected, and what was found.
        problem: String,
    },
    /// What an index says of an engine is not true.
    #[error("{reference}: {engine}: the index says {key} is `{}`, and the engine's manifest says \
        `{}`", said.escape_debug(), is.escape_debug())]
    Lie {
        /// The engine's reference.
        reference: String,
        /// The engine's name, as its manifest has it.
        engine: String,
        /// The annotation.
        key: String,
        /// What the index says.
        said: String,
        /// What the manifest says.
        is: String,
    },
    /// The disk has not as much space.
    #[error("{}: expected {needed} bytes of free space, found {free}", path.display())]
    Space {
        /// The folder.
        path: PathBuf,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Another process pulls to the same place.
    #[error("{}: another process is pulling to it", path.display())]
    Busy {
        /// The place.
        path: PathBuf,
    },
}

impl Error {
    pub(crate) fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }

    /// An error about a file or folder, for whoever gets the system's reason.
    pub(crate) fn on(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::file(path, action, source)
    }

    /// Whether what has come is of use to the next attempt, because it was not what has come that failed.
    pub(crate) fn may_go_on(&self) -> bool {
        matches!(
            self,
            Self::Cut { .. }
                | Self::Unreachable { .. }
                | Self::UnknownAuthority { .. }
                | Self::Untrusted { .. }
                | Self::Certificates { .. }
                | Self::OpenPassword { .. }
                | Self::OpenTokenServer { .. }
                | Self::Downgrade { .. }
                | Self::Elsewhere { .. }
                | Self::Refused { .. }
                | Self::Space { .. }
                | Self::File { .. }
                | Self::NoCertificates { .. }
                | Self::Credentials { .. }
        )
    }
}
