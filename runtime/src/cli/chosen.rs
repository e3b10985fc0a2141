//! The engine that a command is about, and where it runs.

use std::path::PathBuf;

use runtime::Result;
use runtime::engine::{Engine, PublicKey};
use runtime::ladder::Placement;
use runtime::provider::Provider;
use runtime::session::SessionOptions;

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

/// Where an engine runs; shared by the commands that run one.
#[derive(clap::Args)]
pub(crate) struct Placing {
    /// auto (the best that fits, from the one that the engine was built for down to the CPU), tensorrt, cuda or cpu.
    #[arg(long, default_value = "auto", value_parser = provider)]
    provider: ProviderChoice,
    /// Take no step down: exit with code 3 where the first provider does not fit, or does not take every node.
    #[arg(long)]
    strict: bool,
    /// Numbers of the GPUs to use, such as 0,1 [default: 0].
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    devices: Vec<u32>,
    /// Sessions that run at the same time [default: by the engine's profile; 1 on the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    streams: Option<u16>,
    /// Threads of each session on the CPU [default: all cores, shared by the streams].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

#[derive(Clone, Copy)]
pub(crate) enum ProviderChoice {
    Auto,
    Only(Provider),
}

fn provider(text: &str) -> Result<ProviderChoice, String> {
    match text {
        "auto" => Ok(ProviderChoice::Auto),
        _ => text.parse().map(ProviderChoice::Only).map_err(|_| "expected auto, tensorrt, cuda or cpu".into()),
    }
}

impl Placing {
    pub(crate) fn placement(&self) -> Placement {
        let provider = match self.provider {
            ProviderChoice::Auto => None,
            ProviderChoice::Only(provider) => Some(provider),
        };
        let session = SessionOptions { strict: self.strict, threads: self.threads.map(usize::from), ..SessionOptions::default() };
        Placement { provider, streams: self.streams.map(usize::from), devices: self.devices.clone(), session }
    }
}
