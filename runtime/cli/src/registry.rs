//! Engines out of a registry: which variant fits, and those that `--engine oci://…` names.

use std::env;
use std::path::{Path, PathBuf};

use tileforge_engine::PublicKey;
use tileforge_registry::{
    Authorities, Cache, Credentials, Error as RegistryError, Offer, Purpose, Reference, Registry, Variant,
    pull_to_cache,
};
use tileforge_runtime::Result;
use tileforge_session::choice::{self, Candidate};
use tileforge_session::{Environment, Placement};
use tileforge_terminal::{Progress, report};

use super::chosen::Named;
use super::failure::{CommandResult, Failure};

/// Puts the directories of engines in the place of references, after it has pulled those that the cache lacks.
pub(crate) fn bring(named: Named<'_>, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    for path in named.paths {
        if let Some(reference) = reference(path)? {
            *path = cached(&reference, named.signed.key()?.as_ref(), &environment()?)?;
        }
    }
    Ok(())
}

/// The reference that a path is, if it is one.
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

/// The connection to the registry of a reference, as the user's environment says.
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
