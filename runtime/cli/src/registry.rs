//! Engines from a registry: chooses the variant that fits, and pulls the engines of `--engine oci://…`.

use std::env;
use std::path::{Path, PathBuf};

use tileforge_engine::{NamedEngines, PublicKey};
use tileforge_registry::{
    Authorities, Cache, Credentials, Error as RegistryError, Offer, Purpose, Reference, Registry, Variant,
    pull_to_cache,
};
use tileforge_runtime::Result;
use tileforge_session::choice::{self, Candidate};
use tileforge_session::{Environment, Placement};
use tileforge_terminal::{Progress, engine_folders, report};

use super::chosen::{Named, Signed};
use super::failure::{CommandResult, Failure};

/// Replaces references and names by the engines' directories. Pulls the engines that the cache lacks.
pub(crate) fn bring(named: Named<'_>, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    for path in named.paths {
        *path = match reference(path)? {
            Some(reference) => cached(&reference, named.signed.key()?.as_ref(), &environment()?)?,
            None => by_name(path, named.signed, &environment)?,
        };
    }
    Ok(())
}

/// The directory of an engine, named by its path, or by its name if there is no such path. Of several engines of the
/// name, the one that fits this machine best.
fn by_name(engine: &Path, signed: &Signed, environment: &impl Fn() -> Result<Environment>) -> Result<PathBuf, Failure> {
    let mut found = NamedEngines::in_folders(engine_folders()).find(engine)?;
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    let (directory, verdict) = choice::of_directories(&found, signed.key()?.as_ref(), &environment()?)?;
    if let Some(verdict) = verdict {
        report(&format!("{}: {}, the best of {}; {verdict}", engine.display(), directory.display(), found.len()));
    }
    Ok(directory)
}

/// The path as a reference, if it is one.
fn reference(path: &Path) -> Result<Option<Reference>, Failure> {
    match path.to_str().filter(|text| text.starts_with(Reference::SCHEME)) {
        Some(text) => text.parse().map(Some).map_err(|error: RegistryError| Failure::Usage(error.to_string())),
        None => Ok(None),
    }
}

/// The directory of the variant that fits this machine, in the user's cache.
fn cached(reference: &Reference, key: Option<&PublicKey>, environment: &Environment) -> Result<PathBuf, Failure> {
    let cache = environment.cache().ok_or(tileforge_session::Error::NoCache)?;
    let cache = Cache::at(cache.join("registry"));
    let registry = open(reference, false)?;
    let offer = Offer::of(&registry, Some(&cache))?;
    let ranked = rank(&offer.variants, environment);
    let candidate = choice::best(&ranked, false)?;
    let variant = &offer.variants[candidate.index];
    let mut shown = Progress::new();
    let (directory, pulled) = pull_to_cache(&registry, variant, &cache, key, &mut shown)?;
    shown.finish();
    if let Some(pulled) = pulled {
        report(&format!("{}; {:.1} MB pulled", candidate.verdict, pulled.downloaded as f64 / 1e6));
    }
    Ok(directory)
}

/// The connection to the registry of a reference, with credentials and authorities from environment variables.
pub(crate) fn open(reference: &Reference, plain_http: bool) -> Result<Registry, RegistryError> {
    let credentials = Credentials::from_variables(|name| env::var_os(name));
    let authorities = Authorities::from_variables(|name| env::var_os(name));
    Registry::new(reference, Purpose::Pull, credentials, &authorities, plain_http)
}

/// Judges variants, the best for this machine first.
pub(crate) fn rank(variants: &[Variant], environment: &Environment) -> Vec<Candidate> {
    let requirements: Vec<_> = variants.iter().map(|variant| variant.requirements.clone()).collect();
    choice::ranked(&requirements, environment, &Placement::default())
}
