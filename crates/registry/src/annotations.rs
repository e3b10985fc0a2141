//! The annotations of an engine in an index: one request shows which variant fits a machine.
//!
//! This module writes the annotations from the engine's manifests, and compares them with the manifests again after a
//! pull.

use std::collections::BTreeSet;
use std::str::FromStr;

use tileforge_engine::{Contents, Requirements};

use crate::document::{Annotations, TITLE};

/// The prefix of our keys.
const PREFIX: &str = "io.tileforge.engine.";
/// The profile, or profiles, separated by commas.
pub const PROFILE: &str = "io.tileforge.engine.profile";
/// The provider that the engine was built for.
pub const PROVIDER: &str = "io.tileforge.engine.provider";
/// The release of TensorRT for RTX that its plans need, if every graph has one.
pub const RELEASE: &str = "io.tileforge.engine.provider.release";
/// The compute capabilities that the engine was built for, separated by commas.
pub const COMPUTE_CAPABILITIES: &str = "io.tileforge.engine.compute-capabilities";
/// The precision, or precisions, separated by commas.
pub const PRECISION: &str = "io.tileforge.engine.precision";
/// The shapes of the graphs' first inputs, separated by commas.
pub const SHAPES: &str = "io.tileforge.engine.shapes";
/// Bytes of memory that weights and tensors need at least.
pub const MEMORY: &str = "io.tileforge.engine.memory";
/// Bytes of all files, equal ones counted once.
pub const SIZE: &str = "io.tileforge.engine.size";
/// `true` if nothing in the engine is compiled for a GPU.
pub const PORTABLE: &str = "io.tileforge.engine.portable";

/// The longest value that is read.
const VALUE_MAXIMUM: usize = 1 << 14;

/// The annotations of an engine.
pub fn of(contents: &Contents) -> Annotations {
    let requirements = Requirements::of_contents(contents);
    let unique: BTreeSet<_> = contents.files().values().map(|file| (&file.sha256, file.bytes)).collect();
    let size = unique.into_iter().map(|(_, bytes)| bytes).fold(0_u64, u64::saturating_add);
    let Requirements { name, profiles, provider, precisions, compute_capabilities, releases, .. } = &requirements;
    let mut annotations = Annotations::from([
        (TITLE.to_owned(), name.clone()),
        (PROFILE.to_owned(), list(profiles)),
        (PROVIDER.to_owned(), provider.to_string()),
        (PRECISION.to_owned(), list(precisions)),
        (SHAPES.to_owned(), list(&requirements.shapes)),
        (MEMORY.to_owned(), requirements.memory_bytes.to_string()),
        (SIZE.to_owned(), size.to_string()),
    ]);
    if !compute_capabilities.is_empty() {
        annotations.insert(COMPUTE_CAPABILITIES.to_owned(), list(compute_capabilities));
    }
    if requirements.without_plan.is_none() {
        annotations.insert(RELEASE.to_owned(), list(releases));
    }
    if requirements.portable {
        annotations.insert(PORTABLE.to_owned(), "true".to_owned());
    }
    annotations
}

/// What an engine needs, according to its annotations.
///
/// # Errors
/// A key is missing, or its text has the wrong form.
pub fn requirements(annotations: &Annotations) -> Result<Requirements, String> {
    let text = |key: &str| -> Result<Option<&str>, String> {
        let Some(text) = annotations.get(key) else { return Ok(None) };
        if text.is_empty() || text.len() > VALUE_MAXIMUM || text.chars().any(char::is_control) {
            return Err(format!("{key}: expected a line of 1 to {VALUE_MAXIMUM} bytes, found {} bytes", text.len()));
        }
        Ok(Some(text))
    };
    let needed = |key: &str| text(key)?.ok_or_else(|| format!("{key}: expected this annotation, found none"));
    let set = |key: &str| Ok::<_, String>(text(key)?.map_or_else(BTreeSet::new, parts));
    let releases: BTreeSet<String> = set(RELEASE)?;
    let precisions = needed(PRECISION)?.split(',').map(|name| parsed(PRECISION, name));
    Ok(Requirements {
        name: needed(TITLE)?.to_owned(),
        profiles: parts(needed(PROFILE)?),
        provider: parsed(PROVIDER, needed(PROVIDER)?)?,
        precisions: precisions.collect::<Result<_, _>>()?,
        compute_capabilities: set(COMPUTE_CAPABILITIES)?,
        without_plan: releases.is_empty().then(|| "its graphs".to_owned()),
        releases,
        portable: annotations.contains_key(PORTABLE),
        shapes: text(SHAPES)?.map_or_else(Vec::new, |text| text.split(',').map(str::to_owned).collect()),
        memory_bytes: number(MEMORY, needed(MEMORY)?)?,
    })
}

/// Bytes of all files of an engine, according to its annotations.
///
/// # Errors
/// The key is missing, or its text is not a number.
pub fn size(annotations: &Annotations) -> Result<u64, String> {
    let text = annotations.get(SIZE).ok_or_else(|| format!("{SIZE}: expected this annotation, found none"))?;
    number(SIZE, text)
}

/// An annotation of ours that contradicts the engine's manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    pub(crate) key: String,
    pub(crate) said: String,
    pub(crate) is: String,
}

/// The first annotation of ours that differs from the expected one. Annotations of other programs are ignored.
pub(crate) fn contradiction(said: &Annotations, is: &Annotations) -> Option<Contradiction> {
    let ours = |key: &&String| key.starts_with(PREFIX) || key.as_str() == TITLE;
    let keys: BTreeSet<_> = said.keys().chain(is.keys()).filter(ours).collect();
    let text = |of: &Annotations, key| of.get(key).cloned().unwrap_or_else(|| "nothing".to_owned());
    let differs = keys.into_iter().find(|key| said.get(*key) != is.get(*key))?;
    Some(Contradiction { key: differs.clone(), said: text(said, differs), is: text(is, differs) })
}

fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(",")
}

fn parts(text: &str) -> BTreeSet<String> {
    text.split(',').map(str::to_owned).collect()
}

fn parsed<T: FromStr<Err = String>>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|problem| format!("{key}: {problem}"))
}

fn number(key: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{key}: expected a number of bytes, found `{}`", text.escape_debug()))
}

#[cfg(test)]
mod tests {
    use tileforge_contract::{Precision, Provider};

    use super::*;
    use crate::pull::tests::{contents, plan};

    #[test]
    fn what_an_index_says_is_what_the_engine_needs() {
        for contents in [contents(|_| ()), contents(|manifest| manifest.graphs[0].plan = Some(plan()))] {
            let said = of(&contents);
            let mut needs = Requirements::of_contents(&contents);
            // An index does not name graphs.
            needs.without_plan = needs.without_plan.map(|_| "its graphs".to_owned());
            assert_eq!(requirements(&said), Ok(needs), "{said:?}");
            assert_eq!(contradiction(&said, &of(&contents)), None);
        }
        let said = of(&contents(|manifest| {
            manifest.target.provider = Provider::TensorRtRtx;
            manifest.precision = Precision::Fp16;
            manifest.graphs[0].plan = Some(plan());
        }));
        let text = |key: &str| said[key].as_str();
        assert_eq!((text(PROVIDER), text(RELEASE), text(PRECISION)), ("tensorrt-rtx", "1.7.1.116", "fp16"));
        assert_eq!((text(COMPUTE_CAPABILITIES), text(SHAPES)), ("8.6,8.9", "1x3x64x64"));
    }

    #[test]
    fn a_contradiction_is_named_and_the_annotations_of_others_are_not_ours() {
        let is = of(&contents(|_| ()));
        let mut said = is.clone();
        said.insert("org.example.mood".into(), "good".into());
        assert_eq!(contradiction(&said, &is), None);
        said.insert(MEMORY.into(), "1".into());
        let contradiction_of =
            |said: &Annotations| contradiction(said, &is).map(|Contradiction { key, said, .. }| (key, said));
        assert_eq!(contradiction_of(&said), Some((MEMORY.to_owned(), "1".to_owned())));
        said.remove(MEMORY);
        assert_eq!(contradiction_of(&said), Some((MEMORY.to_owned(), "nothing".to_owned())));
    }

    #[test]
    fn what_is_not_of_its_form_is_refused_by_its_key() {
        let is = of(&contents(|_| ()));
        for (key, value, words) in [
            (PROVIDER, "gpu", "expected one of"),
            (PRECISION, "fp32,", "expected one of"),
            (MEMORY, "-1", "a number of bytes"),
            (PROFILE, "", "a line of 1 to"),
            (TITLE, &"a".repeat(VALUE_MAXIMUM + 1), "a line of 1 to"),
            (TITLE, "a\nb", "a line of 1 to"),
        ] {
            let mut said = is.clone();
            said.insert(key.into(), value.into());
            let error = requirements(&said).unwrap_err();
            assert!(error.starts_with(key) && error.contains(words), "{error}");
            said.remove(key);
            assert!(requirements(&said).unwrap_err().contains("found none"));
        }
        let mut longest = is.clone();
        longest.insert(TITLE.into(), "a".repeat(VALUE_MAXIMUM));
        assert_eq!(requirements(&longest).map(|needs| needs.name.len()), Ok(VALUE_MAXIMUM));
        assert!(size(&Annotations::new()).is_err());
    }
}
