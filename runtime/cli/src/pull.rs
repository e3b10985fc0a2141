//! `runtime pull`: pulls the engine that fits this machine from a registry.

use std::path::PathBuf;

use serde_json::{Value, json};
use tileforge_engine::{Requirements, share};
use tileforge_registry::{Offer, Reference, Variant, pull};
use tileforge_runtime::Result;
use tileforge_session::Environment;
use tileforge_session::choice::{self, Candidate};
use tileforge_terminal::{Progress, print, print_json, report};

use super::chosen::Signed;
use super::failure::{CommandResult, Failure};
use super::registry;

const EXAMPLES: &str = "\
Examples:
  runtime pull oci://ghcr.io/someone/x4plus:1.0 -o engines/x4plus
  runtime pull oci://ghcr.io/someone/x4plus:1.0 --list
  runtime pull oci://ghcr.io/someone/x4plus:1.0 -o engines/x4plus --exact --require-signature release.pub

A pull that was cut goes on where it stopped; until then, what came is in DIR.part. Every file is compared with the
digest that the engine's manifest has. The engine gets its name when everything in it has been checked; an engine that
is already there is replaced at once.

The password comes from TILEFORGE_REGISTRY_USERNAME and TILEFORGE_REGISTRY_PASSWORD, or from Docker's configuration
(`docker login`; DOCKER_CONFIG is another folder than ~/.docker). A registry on this machine is asked without
encryption, unless a certificate is named for it. A registry with a certificate of an own authority needs that
authority's: in certs.d/HOST:PORT/ca.crt of Podman or Docker, in the system's store, or in SSL_CERT_FILE.";

/// Pull the engine that fits this machine best from an OCI registry.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// What `engine-builder push` made: oci://HOST/NAME:TAG, or @sha256:… in the place of the tag.
    #[arg(value_name = "REFERENCE")]
    reference: Reference,
    /// Where the engine's directory goes.
    #[arg(short, long, value_name = "DIR", required_unless_present = "list")]
    output: Option<PathBuf>,
    /// Pull nothing, and show every variant with its verdict, the best for this machine first.
    #[arg(long, conflicts_with_all = ["output", "exact", "share"])]
    list: bool,
    /// Take no fall back: exit with code 3 unless a variant runs here at once on the provider that it was built for,
    /// and on the GPU where there is one.
    #[arg(long)]
    exact: bool,
    /// Only variants for this profile, whether they fit this machine or not.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    #[command(flatten)]
    signed: Signed,
    /// Store files that engines below this folder have, too, only once, as hard links.
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Do not encrypt: for a registry in a private network. No password is sent then.
    #[arg(long)]
    plain_http: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    // The key is read first, so that a bad key fails before any download.
    let key = arguments.signed.key()?;
    let registry = registry::open(&arguments.reference, arguments.plain_http)?;
    let mut variants = Offer::of(&registry, None)?.variants;
    if let Some(profile) = &arguments.profile {
        variants = for_profile(variants, profile)?;
    }
    let ranked = registry::rank(&variants, &environment()?);
    if arguments.list {
        return show(&variants, &ranked, arguments.json);
    }
    let candidate = match (choice::best(&ranked, arguments.exact), &arguments.profile, ranked.first()) {
        // A named profile may be for another machine.
        (Err(_), Some(_), Some(first)) if !arguments.exact => first,
        (best, ..) => best?,
    };
    let Some(output) = &arguments.output else {
        return Err(Failure::Usage("expected --output DIR".into()));
    };
    report(&candidate.verdict.to_string());
    let variant = &variants[candidate.index];
    let mut shown = Progress::new();
    let pulled = pull(&registry, variant, output, key.as_ref(), &mut shown);
    shown.finish();
    let pulled = pulled?;
    let signed = match (pulled.is_signed, &key) {
        (true, Some(_)) => ", signed with the key that was given",
        (true, None) => ", with a signature that was not verified",
        (false, _) => ", not signed",
    };
    report(&format!(
        "{}: {} files are whole{signed}; {:.1} MB downloaded",
        pulled.name,
        pulled.files,
        pulled.downloaded as f64 / 1e6
    ));
    if let Some(folder) = &arguments.share {
        let saved = share::share_files(output, folder)?;
        report(&format!("{:.1} MB of it shared with other engines", saved as f64 / 1e6));
    }
    if arguments.json {
        let mut told = described(variant, candidate);
        told["output"] = json!(output);
        told["downloaded_bytes"] = json!(pulled.downloaded);
        told["signed"] = json!(pulled.is_signed);
        return Ok(print_json(&told)?);
    }
    Ok(print(&output.display().to_string())?)
}

fn for_profile(variants: Vec<Variant>, profile: &str) -> Result<Vec<Variant>, Failure> {
    let profiles = |variant: &Variant| variant.requirements.profiles.iter().cloned().collect::<Vec<_>>().join(", ");
    let all: Vec<String> = variants.iter().map(profiles).collect();
    let wanted = |variant: &Variant| variant.requirements.profiles.contains(profile);
    let found: Vec<Variant> = variants.into_iter().filter(wanted).collect();
    if found.is_empty() {
        let all = all.join(", ");
        return Err(Failure::Usage(format!("--profile {profile}: expected one of the profiles {all}")));
    }
    Ok(found)
}

/// A variant and its verdict, for machines.
fn described(variant: &Variant, candidate: &Candidate) -> Value {
    let Requirements { name, profiles, precisions, compute_capabilities, releases, shapes, memory_bytes, .. } =
        &variant.requirements;
    json!({
        "name": name,
        "profiles": profiles,
        "provider": variant.requirements.provider,
        "precisions": precisions,
        "compute_capabilities": compute_capabilities,
        "releases": releases,
        "shapes": shapes,
        "memory_bytes": memory_bytes,
        "bytes": variant.bytes,
        "digest": variant.digest,
        "verdict": candidate.verdict,
        "exact": candidate.is_exact,
    })
}

fn show(variants: &[Variant], ranked: &[Candidate], json: bool) -> CommandResult {
    if json {
        let all = ranked.iter().map(|candidate| described(&variants[candidate.index], candidate));
        return Ok(print_json(&all.collect::<Vec<_>>())?);
    }
    let line = |candidate: &Candidate| {
        let variant = &variants[candidate.index];
        let precisions = variant.requirements.precisions.iter().map(ToString::to_string).collect::<Vec<_>>();
        let megabytes = variant.bytes as f64 / 1e6;
        let exact = if candidate.is_exact { "" } else { " (a fall back)" };
        let fits = !candidate.verdict.providers().is_empty();
        let verdict = &candidate.verdict;
        format!(
            "{verdict}{}; {}, {megabytes:.1} MB, {}",
            if fits { exact } else { "" },
            precisions.join(", "),
            variant.digest
        )
    };
    Ok(print(&ranked.iter().map(line).collect::<Vec<_>>().join("\n"))?)
}
