//! The manifest of a pipeline engine: `manifest.json` beside the folders of its parts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::manifest::{FileDigest, Gate, MANIFEST_FILE, MANIFEST_MAXIMUM_BYTES, SCHEMA};
use crate::recipe::Recipe;
use crate::roles::Roles;
use crate::signature::SIGNATURE_FILE;
use crate::validate::{check_digest, plain_name, rule};

/// More parts than any pipeline has.
const PARTS_MAXIMUM: usize = 64;

/// What a pipeline engine contains: its networks, and the files beside them.
///
/// It contains the digest of each part's manifest, and each part's manifest contains the digests of the part's files.
/// So a signature over this manifest covers every file, and no file is listed twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineManifest {
    /// Must be [`SCHEMA`].
    pub schema: u32,
    /// The engine's name: its directory's name when it was built.
    pub name: String,
    /// The program that wrote it, such as "engine-builder 0.1.0".
    pub producer: String,
    /// The digest of each part's manifest, by the part's name, which is also its folder's name.
    pub parts: BTreeMap<String, FileDigest>,
    /// What was requested for the build, to repeat it. Parts have no recipes of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Box<Recipe>>,
    /// The settings of a diffusion pipeline. `None` if the parts' contracts are enough, for example for an
    /// autoencoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diffusion: Option<Diffusion>,
    /// The settings of a pipeline that restores films.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoration: Option<Restoration>,
    /// The gates that a picture made by all parts together passed when the engine was built, with figures. The gates
    /// of single networks are in the manifests of the parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// The files beside the parts, by name: `NAME` or `FOLDER/NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, FileDigest>,
}

/// The settings of a diffusion pipeline, from its `model_index.json`.
///
/// Its files are diffusers' own files, such as `tokenizer/vocab.json` and `scheduler/scheduler_config.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diffusion {
    /// The class of the pipeline in diffusers, such as "StableDiffusionXLPipeline".
    pub class: String,
    /// Whether an empty negative prompt gives embeddings of zeros.
    pub force_zeros_for_empty_prompt: bool,
    /// Whether the last time ids are an aesthetic score instead of the size of the picture, as in SDXL's refiner.
    pub requires_aesthetics_score: bool,
    /// The roles of the parts. Older releases did not write them; their parts have the names of diffusers' components.
    /// Use [`Pipeline::roles`](crate::Pipeline::roles), which covers both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<Box<Roles>>,
}

/// The settings of a pipeline that restores films. Its networks are an encoder and a decoder of clips, and a
/// transformer of their latents; the contracts of the parts tell which part is which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restoration {
    /// The file beside the parts with the transformer's constant text states: safetensors with one tensor
    /// `[tokens, width]`.
    pub text: String,
}

impl PipelineManifest {
    /// Checks every rule that can be checked without the files.
    ///
    /// # Errors
    /// [`Error::Schema`](crate::Error::Schema) or [`Error::Manifest`](crate::Error::Manifest) with the first broken
    /// rule.
    pub fn validate(&self) -> Result<()> {
        rule(self.schema == SCHEMA, || format!("schema: expected {SCHEMA}, found {}", self.schema))?;
        plain_name("name", &self.name)?;
        self.recipe.iter().try_for_each(|recipe| recipe.validate())?;
        let count = self.parts.len();
        rule((1..=PARTS_MAXIMUM).contains(&count), || {
            format!("parts: expected 1 to {PARTS_MAXIMUM} parts, found {count}")
        })?;
        for (part, digest) in &self.parts {
            own_name("parts", part)?;
            check_digest("parts", part, &digest.sha256)?;
            rule(digest.bytes <= MANIFEST_MAXIMUM_BYTES, || {
                format!("parts.{part}: expected at most {MANIFEST_MAXIMUM_BYTES} bytes, found {}", digest.bytes)
            })?;
        }
        for (name, digest) in &self.files {
            let (first, rest) = name.split_once('/').map_or((name.as_str(), None), |(first, rest)| (first, Some(rest)));
            own_name("files", first)?;
            rest.map_or(Ok(()), |rest| plain_name("files", rest))?;
            rule(!self.parts.contains_key(first), || {
                format!("files: \"{name}\" lies in the folder of the part \"{first}\", which has its own manifest")
            })?;
            rule(rest.is_none() || !self.files.contains_key(first), || {
                format!("files: \"{first}\" is a file and the folder of \"{name}\"")
            })?;
            check_digest("files", name, &digest.sha256)?;
        }
        for Gate { graph, .. } in &self.gates {
            rule(graph == Gate::PICTURE, || {
                format!("gates: expected those of the \"{}\", found \"{}\"", Gate::PICTURE, graph.escape_debug())
            })?;
        }
        if let Some(Restoration { text }) = &self.restoration {
            rule(self.diffusion.is_none(), || "restoration: expected an engine that is no diffusion pipeline".into())?;
            rule(self.files.contains_key(text), || {
                format!("restoration.text: expected a file beside the parts, found \"{}\"", text.escape_debug())
            })?;
        }
        match &self.diffusion {
            None => rule(self.gates.is_empty() || self.restoration.is_some(), || {
                "gates: only a pipeline of diffusion or restoration makes a picture to measure".into()
            }),
            Some(Diffusion { class, roles, .. }) => {
                let is_part = |part: &str| self.parts.contains_key(part);
                let is_folder = |name: &str| self.files.keys().any(|file| file.split('/').next() == Some(name));
                roles.iter().try_for_each(|roles| roles.validate(is_part, is_folder))?;
                let is_word = !class.is_empty() && class.bytes().all(|byte| byte.is_ascii_alphanumeric());
                rule(is_word, || {
                    format!("diffusion.class: expected the name of a class, found \"{}\"", class.escape_debug())
                })
            }
        }
    }

    /// Whether a file of this name belongs to the engine itself and not to a part: a file that this manifest lists,
    /// the manifest, or its signature.
    pub fn has_file(&self, name: &str) -> bool {
        [MANIFEST_FILE, SIGNATURE_FILE].contains(&name) || self.files.contains_key(name)
    }
}

/// Checks that a name is plain, and is not the name of the manifest or of its signature.
fn own_name(place: &str, name: &str) -> Result<()> {
    plain_name(place, name)?;
    rule(![MANIFEST_FILE, SIGNATURE_FILE].contains(&name), || {
        format!("{place}: expected another name than that of the engine's own \"{name}\"")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::bundle_manifest::BundleManifest;

    fn value() -> Value {
        let digest = json!({ "bytes": 1, "sha256": "0".repeat(64) });
        json!({
            "schema": 2, "name": "sd15", "producer": "engine-builder 0.1.0", "recipe": crate::recipe::tests::value(),
            "parts": { "unet": digest, "vae_decoder": digest },
            "diffusion": {
                "class": "StableDiffusionPipeline", "force_zeros_for_empty_prompt": false,
                "requires_aesthetics_score": false,
            },
            "gates": [{ "name": "psnr_db", "graph": "picture", "value": 91.5, "floor": 80.0 }],
            "files": { "model_index.json": digest, "tokenizer/vocab.json": digest },
        })
    }

    fn parse(value: &Value) -> Result<BundleManifest, String> {
        BundleManifest::parse(value.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_manifest_survives_the_round_trip() {
        let BundleManifest::Pipeline(first) = parse(&value()).unwrap() else { unreachable!("it has parts") };
        assert!(first.has_file("tokenizer/vocab.json") && first.has_file("manifest.json"));
        assert!(!first.has_file("unet/manifest.json"));
        assert_eq!(serde_json::to_value(&first).unwrap(), value());
    }

    /// Roles of parts whose names are not all those of diffusers' components.
    fn stated() -> Value {
        let text = json!({ "part": "text", "tokenizer": "tokenizer" });
        json!({ "denoiser": "unet", "decoder": "vae_decoder", "texts": [text] })
    }

    #[test]
    fn each_broken_rule_is_named() {
        let digest = json!({ "bytes": 1, "sha256": "0".repeat(64) });
        let large = json!({ "bytes": (16 << 20) + 1, "sha256": "0".repeat(64) });
        let set = |key: &'static str, name: &'static str, digest: &Value| {
            let digest = digest.clone();
            move |value: &mut Value| value[key][name] = digest.clone()
        };
        type Change<'c> = &'c dyn Fn(&mut Value);
        let roles = |change: fn(&mut Value)| {
            move |value: &mut Value| {
                value["parts"]["text"] = value["parts"]["unet"].clone();
                value["diffusion"]["roles"] = stated();
                change(&mut value["diffusion"]["roles"]);
            }
        };
        let restores = |text: &'static str| {
            move |value: &mut Value| {
                value["diffusion"] = json!(null);
                value["restoration"] = json!({ "text": text });
            }
        };
        let mut restored = value();
        restores("model_index.json")(&mut restored);
        assert_eq!(parse(&restored).map(drop), Ok(()));
        let cases: [(Change<'_>, &str); 29] = [
            (&|value| value["schema"] = json!(1), "expected a manifest of schema 2, found 1"),
            (&|value| value["unknown"] = json!(1), "unknown field"),
            (&|value| value["graphs"] = json!([]), "unknown field"),
            (&|value| value["name"] = json!("../x"), "plain file name"),
            (&|value| value["recipe"]["model"] = json!("../x"), "recipe.model: expected a plain file name"),
            (&|value| value["parts"] = json!({}), "expected 1 to 64 parts, found 0"),
            (&|value| value["diffusion"]["class"] = json!("a b"), "the name of a class"),
            (&|value| value["diffusion"] = json!(null), "gates: only a pipeline of diffusion or restoration"),
            (&|value| value["gates"][0]["graph"] = json!("unet"), "expected those of the \"picture\", found \"unet\""),
            (&roles(|roles| roles["denoiser"] = json!("x\n")), "expected a part, found \"x\\n\""),
            (&roles(|roles| roles["encoder"] = json!("unet")), "the part \"unet\" has two roles"),
            (&roles(|roles| roles["texts"][0]["part"] = json!("gone")), "expected a part, found \"gone\""),
            (&roles(|roles| roles["texts"][0]["tokenizer"] = json!("../x")), "tokenizer's files, found \"../x\""),
            (&roles(|roles| roles["other"] = json!("unet")), "unknown field"),
            (
                &roles(|roles| roles["conditions"] = json!({ "states\n": [] })),
                "diffusion.roles.conditions.states\\n: expected outputs of text encoders, found none",
            ),
            (
                &roles(|roles| roles["conditions"] = json!({ "states": [{ "part": "unet", "output": "x" }] })),
                "diffusion.roles.conditions.states: expected a part that makes states of texts, found \"unet\"",
            ),
            (&roles(|roles| roles["conditions"] = json!({ "states": [{ "part": "text" }] })), "missing field"),
            (&restores("gone"), "restoration.text: expected a file beside the parts, found \"gone\""),
            (
                &|value| value["restoration"] = json!({ "text": "model_index.json" }),
                "restoration: expected an engine that is no diffusion pipeline",
            ),
            (&set("parts", "a/b", &digest), "plain file name"),
            (&set("parts", "..", &digest), "plain file name"),
            (&set("parts", "manifest.sig", &digest), "another name"),
            (&set("parts", "unet", &large), "expected at most 16777216 bytes"),
            (&set("parts", "unet", &json!({ "bytes": 1, "sha256": "0" })), "64 lower-case"),
            (&set("files", "unet/model.weights", &digest), "lies in the folder of the part \"unet\""),
            (&set("files", "unet", &digest), "lies in the folder of the part \"unet\""),
            (&set("files", "a/b/c", &digest), "plain file name"),
            (&set("files", "manifest.json", &digest), "another name"),
            (&set("files", "tokenizer", &digest), "is a file and the folder of \"tokenizer/vocab.json\""),
        ];
        for (change, expected) in cases {
            let mut value = value();
            change(&mut value);
            let error = parse(&value).unwrap_err();
            assert!(error.contains(expected), "expected {expected}, found {error}");
        }
    }
}
