//! The engine that a command is about.

use std::path::PathBuf;

use runtime::Result;
use runtime::engine::{Engine, PublicKey};

/// The engine, and whose it must be; shared by the commands that open one.
#[derive(clap::Args)]
pub(crate) struct Chosen {
    /// The engine's directory.
    #[arg(long = "engine", value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Refuse the engine unless it was signed with this key, before anything else of it is read: a .pub file of `engine-builder keygen`.
    #[arg(long, value_name = "KEY")]
    require_signature: Option<PathBuf>,
}

impl Chosen {
    /// Opens it, after checking its signature and that its files are whole.
    pub(crate) fn open(&self) -> Result<Engine> {
        let key = self.require_signature.as_deref().map(PublicKey::read).transpose()?;
        Engine::open_of(&self.directory, key.as_ref())
    }
}
