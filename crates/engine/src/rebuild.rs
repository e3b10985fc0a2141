//! How to make an engine again, from the manifest of an older engine.
//!
//! A manifest of this schema can have a [`Recipe`]. Older manifests of this schema have none, and manifests of an
//! older schema have other keys. From an older schema, only keys whose meaning has not changed are read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use tileforge_contract::Precision;

use crate::bundle_manifest::BundleManifest;
use crate::error::{Error, Result};
use crate::manifest::{MANIFEST_FILE, Recipe, SCHEMA};
use crate::opened::OpenedDirectory;

/// An engine to make again. Only its manifests have been read, not its other files.
#[derive(Clone, Debug, PartialEq)]
pub struct Predecessor {
    /// The schema of its manifest: this release's or an older one.
    pub schema: u64,
    /// Its manifest. For a pipeline, `parts` contains the manifests of its parts instead of their digests.
    pub manifest: Value,
    /// What was requested for its build, if its manifest contains it.
    pub recipe: Option<Box<Recipe>>,
}

impl Predecessor {
    /// Reads the manifests of an engine of this schema or of an older one.
    ///
    /// # Errors
    /// There is no engine; its manifest has a newer schema, or is not valid.
    pub fn read(directory: &Path) -> Result<Self> {
        let opened = OpenedDirectory::open(directory, None)?;
        let invalid = |source: Error| Error::Invalid { path: directory.join(MANIFEST_FILE), source: Box::new(source) };
        let mut manifest = json(&opened).map_err(invalid)?;
        let schema = manifest["schema"].as_u64();
        let schema = schema.ok_or_else(|| invalid(Error::manifest("schema: expected a number")))?;
        let recipe = if schema < u64::from(SCHEMA) {
            None
        } else {
            // A newer schema is refused here.
            match opened.manifest()? {
                BundleManifest::Engine(manifest) => manifest.recipe,
                BundleManifest::Pipeline(manifest) => manifest.recipe,
            }
        };
        let names: Vec<String> = manifest["parts"].as_object().map_or_else(Vec::new, |parts| {
            parts.keys().filter(|name| tileforge_files::is_plain(name)).cloned().collect()
        });
        for name in names {
            if let Some(part) = opened.open_any_part(&name)? {
                manifest["parts"][&name] = json(&part).map_err(invalid)?;
            }
        }
        Ok(Self { schema, manifest, recipe })
    }

    /// Whether an engine of this release can take its place. An engine of an older schema is not removed, because it
    /// is not known which files belong to it.
    pub fn can_be_replaced(&self) -> bool {
        self.schema == u64::from(SCHEMA)
    }

    /// The manifests of its networks: its own, or its parts' with their names.
    pub fn networks(&self) -> Vec<(Option<&str>, &Value)> {
        match self.manifest["parts"].as_object() {
            None => vec![(None, &self.manifest)],
            Some(parts) => parts.iter().map(|(name, part)| (Some(name.as_str()), part)).collect(),
        }
    }

    /// The name of the profile.
    pub fn profile(&self) -> Option<&str> {
        let of_recipe = self.recipe.as_ref().map(|recipe| recipe.profile.name.as_str());
        of_recipe.or_else(|| self.networks().into_iter().find_map(|(_, network)| network["target"]["profile"].as_str()))
    }

    /// The precision of all networks, if they have the same one.
    pub fn precision(&self) -> Option<Precision> {
        let of = |(_, network): (_, &Value)| network["precision"].as_str().map(str::to_owned);
        let found: BTreeSet<Option<String>> = self.networks().into_iter().map(of).collect();
        match found.into_iter().collect::<Vec<_>>().as_slice() {
            [Some(only)] => only.parse().ok(),
            _ => None,
        }
    }

    /// How INT8 chose the ranges of activations, if all networks used the same method.
    pub fn range(&self) -> Option<&str> {
        let found: BTreeSet<&str> =
            self.networks().into_iter().filter_map(|(_, network)| network["calibration"]["range"].as_str()).collect();
        if found.len() == 1 { found.into_iter().next() } else { None }
    }

    /// Whether activations were measured on a folder of the user.
    pub fn was_calibrated_on_a_folder(&self) -> bool {
        self.networks().into_iter().any(|(_, network)| network["calibration"]["source"] == "folder")
    }

    /// The SHA-256 of each file that it was made from, as far as it is recorded, under a readable name.
    pub fn inputs(&self) -> BTreeMap<String, String> {
        if let Some(recipe) = &self.recipe {
            let inputs = recipe.inputs.iter().map(|(name, digest)| (name.clone(), digest.sha256.clone()));
            let adaptations = recipe.diffusion.adaptations.iter();
            return inputs.chain(adaptations.map(|one| (one.file.clone(), one.digest.sha256.clone()))).collect();
        }
        let of = |(part, network): (Option<&str>, &Value)| {
            let sha256 = network["model"]["checkpoint_sha256"].as_str()?;
            Some((
                part.map_or_else(|| "the checkpoint".into(), |part| format!("the checkpoint of {part}")),
                sha256.into(),
            ))
        };
        self.networks().into_iter().filter_map(of).collect()
    }
}

fn json(opened: &OpenedDirectory) -> Result<Value> {
    serde_json::from_slice(opened.manifest_bytes()).map_err(|error| Error::manifest(format!("not a manifest: {error}")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn read(manifests: &[(&str, &Value)]) -> Result<Predecessor> {
        let folder = tempfile::tempdir().unwrap();
        for (place, manifest) in manifests {
            fs::create_dir_all(folder.path().join(place)).unwrap();
            fs::write(folder.path().join(place).join(MANIFEST_FILE), manifest.to_string()).unwrap();
        }
        Predecessor::read(folder.path())
    }

    fn network(precision: &str) -> Value {
        json!({
            "schema": 1, "name": "x4", "producer": "engine-builder 0.0.9",
            "model": { "architecture": "compact", "checkpoint_sha256": "a".repeat(64) },
            "interface": { "kept": "not looked at" }, "precision": precision,
            "calibration": { "source": "folder", "range": "entropy" },
            "target": { "profile": "rtx4090" },
        })
    }

    #[test]
    fn an_older_schema_gives_what_is_known_of_it() {
        let old = read(&[("", &network("int8"))]).unwrap();
        assert_eq!((old.schema, old.recipe.is_none(), old.can_be_replaced()), (1, true, false));
        assert_eq!(
            (old.profile(), old.precision(), old.range()),
            (Some("rtx4090"), Some(Precision::Int8), Some("entropy"))
        );
        assert!(old.was_calibrated_on_a_folder());
        let mut other = network("int8");
        other["calibration"]["source"] = json!("built-in");
        assert!(!read(&[("", &other)]).unwrap().was_calibrated_on_a_folder());
        assert_eq!(old.inputs(), BTreeMap::from([("the checkpoint".to_owned(), "a".repeat(64))]));
    }

    #[test]
    fn parts_are_read_and_differ_or_not() {
        let outer = json!({ "schema": 1, "name": "sd", "parts": { "unet": {}, "vae": {}, "../x": {}, "gone": {} } });
        let old = read(&[("", &outer), ("unet", &network("int8")), ("vae", &network("fp32"))]).unwrap();
        assert_eq!((old.profile(), old.precision()), (Some("rtx4090"), None));
        let names: Vec<String> = old.inputs().into_keys().collect();
        assert_eq!(names, ["the checkpoint of unet", "the checkpoint of vae"]);
    }

    #[test]
    fn a_recipe_is_read_from_this_schema_and_a_newer_one_is_refused() {
        let mut value = serde_json::to_value(crate::validate::tests::manifest(&[(64, 64)])).unwrap();
        value["recipe"] = crate::recipe::tests::value();
        let known = read(&[("", &value)]).unwrap();
        assert!(known.can_be_replaced());
        assert_eq!((known.profile(), known.inputs().len()), (Some("cpu"), 3));
        value["recipe"]["model"] = json!("../x");
        assert!(matches!(read(&[("", &value)]), Err(Error::Invalid { .. })));
        value["schema"] = json!(u64::MAX);
        assert!(read(&[("", &value)]).is_err());
        value["schema"] = json!(3);
        let error = read(&[("", &value)]).unwrap_err();
        assert!(matches!(&error, Error::Invalid { source, .. } if matches!(**source, Error::Schema { found: 3, .. })));
        for wrong in [json!({}), json!([]), json!({ "schema": "1" })] {
            assert!(matches!(read(&[("", &wrong)]), Err(Error::Invalid { .. })), "{wrong}");
        }
    }
}
