//! `engine-builder push`: engines into a registry.

use super::failure::{CommandResult, Failure, result, result_json};
use super::named;
use std::env;
use std::path::PathBuf;
use tileforge_engine::{EngineSource, PublicKey};
use tileforge_registry::{Authorities, Credentials, Purpose, Pushed, Reference, Registry, push};
use tileforge_terminal::{Progress, RequiredSignature, counted, report};

const HELP: &str = "\
Examples:
  engine-builder push engines/rtx4090/x4plus engines/cpu/x4plus oci://ghcr.io/someone/x4plus:1.0
  engine-builder push engines/rtx5090/x4plus oci://ghcr.io/someone/x4plus:1.0 --add

The tag names an index of the engines; `runtime pull` takes the one that fits its machine. Files that the registry has
are not sent again. A signature (`engine-builder sign`) is pushed with its engine.

The password comes from TILEFORGE_REGISTRY_USERNAME and TILEFORGE_REGISTRY_PASSWORD, or from Docker's configuration
(`docker login`; DOCKER_CONFIG is another folder than ~/.docker). A registry on this machine is asked without
encryption, unless a certificate is named for it. A registry with a certificate of an own authority needs that
authority's: in certs.d/HOST:PORT/ca.crt of Podman or Docker, in the system's store, or in SSL_CERT_FILE.";

/// Push engines of one model for several machines to an OCI registry.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// Engines' directories, one for each profile and precision, or names: each stands for its engines of all profiles
    #[arg(value_name = "ENGINE", required = true, num_args = 1..)]
    engines: Vec<PathBuf>,
    /// Where they go: oci://HOST/NAME:TAG, or oci://HOST:PORT/NAME:TAG; without a tag, latest
    #[arg(value_name = "REFERENCE", required = true)]
    reference: Reference,
    #[command(flatten)]
    signed: RequiredSignature,
    /// Keep the engines of other profiles that the tag names already; without it, the tag names only those given
    #[arg(long)]
    add: bool,
    /// Do not encrypt: for a registry in a private network. No password is sent then
    #[arg(long)]
    plain_http: bool,
    /// Print what was pushed as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    let key = arguments.signed.key.as_deref().map(PublicKey::read).transpose()?;
    let engines = named::engines(&arguments.engines)?
        .iter()
        .map(|engine| EngineSource::open_of(engine, key.as_ref()))
        .collect::<Result<Vec<_>, _>>()?;
    let credentials = Credentials::from_variables(|name| env::var_os(name));
    let authorities = Authorities::from_variables(|name| env::var_os(name));
    let registry = Registry::new(&arguments.reference, Purpose::Push, credentials, &authorities, arguments.plain_http);
    let registry = registry.map_err(Failure::Registry)?;
    let mut shown = Progress::new();
    let pushed = push(&registry, &engines, arguments.add, &mut shown);
    shown.finish();
    let pushed = pushed.map_err(Failure::Registry)?;
    if arguments.json {
        return result_json(&pushed);
    }
    let Pushed { digest, engines, kept, sent, there } = &pushed;
    for engine in engines {
        let signed = if engine.is_signed { ", signed" } else { "" };
        report(&format!("{} for {}: {}{signed}", engine.name, engine.profile, engine.digest));
    }
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    report(&format!(
        "{} sent ({:.1} MB), {} there already ({:.1} MB), {} kept",
        counted(sent.files, "file"),
        megabytes(sent.bytes),
        there.files,
        megabytes(there.bytes),
        counted(*kept, "engine")
    ));
    result(&arguments.reference.at(digest).to_string())
}
