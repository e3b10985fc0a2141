//! The errors of this crate.

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
    /// The reference of a push has a digest; engines are pushed to a tag.
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
    /// The engine is incomplete, not signed as required, or cannot be moved to its directory.
    #[error(transparent)]
    Engine(#[from] tileforge_engine::Error),
    /// No password could be obtained.
    #[error("{}: cannot read a password from it: {reason}", path.display())]
    Credentials {
        /// Docker's configuration.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// There are no trusted certificates, so no server can be trusted.
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
    /// The certificate of a server is signed by an unknown authority.
    #[error(
        "{url}: the certificate of the server is not trusted: this machine does not know the authority that signed \
        it"
    )]
    UnknownAuthority {
        /// The address.
        url: String,
    },
    /// The certificate of a server is not valid.
    #[error("{url}: the certificate of the server is not trusted: {reason}")]
    Untrusted {
        /// The address.
        url: String,
        /// Why.
        reason: String,
    },
    /// A server cannot be reached, or ends the connection before it sends anything.
    #[error("{url}: the registry cannot be reached: {reason}")]
    Unreachable {
        /// The address.
        url: String,
        /// Why.
        reason: String,
    },
    /// A download was cut. The received bytes are kept, and the next pull continues from there.
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
    /// The registry refuses this user, or requires a login.
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
    /// The registry asks for a password over a connection without encryption.
    #[error("{url}: the registry asks for a password, and the connection is not encrypted")]
    OpenPassword {
        /// The address.
        url: String,
    },
    /// The connection to the token server is not encrypted, so it gets no password.
    #[error("{url}: the registry sends its users to the token server {realm}, where passwords would not be encrypted")]
    OpenTokenServer {
        /// The registry's address.
        url: String,
        /// The token server's.
        realm: String,
    },
    /// A server redirects from an encrypted connection to an unencrypted one.
    #[error("{url}: it sends its clients on to {to}, where nothing is encrypted")]
    Downgrade {
        /// The server's address.
        url: String,
        /// The other one.
        to: String,
    },
    /// The registry redirected to another server, which asks for a login.
    #[error("{url}: the registry sent us to {to}, which answers {status}; passwords are for the registry alone")]
    LoginElsewhere {
        /// The registry's address.
        url: String,
        /// That of the other server.
        to: String,
        /// The HTTP status.
        status: u16,
    },
    /// The registry has nothing of this name.
    #[error("{reference}: the registry has no repository or tag of this name")]
    NotFound {
        /// What was asked for.
        reference: String,
    },
    /// A registry's answer violates the specification.
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
    /// A file or document in the registry has the wrong digest or length.
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
        /// Its name in messages.
        reference: String,
        /// What was expected, and what was found.
        problem: String,
    },
    /// An annotation in an index contradicts the engine's manifest.
    #[error("{reference}: {engine}: the index says {key} is `{}`, and the engine's manifest says \
        `{}`", said.escape_debug(), is.escape_debug())]
    Contradiction {
        /// The engine's reference.
        reference: String,
        /// The engine's name in its manifest.
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

    /// An error about a file or folder, as a function of the system's reason.
    pub(crate) fn on(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::file(path, action, source)
    }

    /// Whether the next attempt can reuse the received bytes, because the failure was not caused by them.
    pub(crate) fn is_resumable(&self) -> bool {
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
                | Self::LoginElsewhere { .. }
                | Self::Refused { .. }
                | Self::Space { .. }
                | Self::File { .. }
                | Self::NoCertificates { .. }
                | Self::Credentials { .. }
        )
    }
}
