//! The engine that a command is about.

use std::path::PathBuf;

use runtime::Result;
use runtime::engine::{Engine, PublicKey};
use runtime::onnxruntime::Library;
use runtime::provider::{self, Provider};

use super::output::report;

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

/// Says once that an engine for a GPU runs on the CPU, and why.
pub(crate) fn say_fallback(engine: &Engine, library: &Library) {
    let target = &engine.manifest().target;
    if target.provider != Provider::Cpu {
        let reason = provider::probe(library).reason_against(target.provider);
        let name = &engine.manifest().name;
        report(&format!("{name}: built for {} ({}), falls back to the CPU: {reason}", target.profile, target.provider));
    }
}
