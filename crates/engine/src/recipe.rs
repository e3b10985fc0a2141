//! What was requested for an engine's build: all that another build needs to make it again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tileforge_contract::{ChannelOrder, Contract, Precision, Task};

use crate::digest::FileDigest;
use crate::error::Result;
use crate::validate::{check_digest, plain_name, rule};

/// The inputs and choices of an engine's build.
///
/// Files are recorded by name, without folders. So the same inputs give the same bytes wherever they are, and an
/// engine reveals nothing about the machine that built it. The digests tell whether a file that is found later is the
/// same one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The name of the model file, checkpoint, graph or folder.
    pub model: String,
    /// Where the weights are published, according to the model file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Every file that was read for the graphs or copied into the engine, by its name below the model's folder.
    pub inputs: BTreeMap<String, FileDigest>,
    /// The chosen graph, if the model has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Hyperparameters that the checkpoint does not state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hyperparameters: BTreeMap<String, String>,
    /// Requested sizes of the pictures, width and height, instead of the sizes of the model or profile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<[u32; 2]>,
    /// Frames of a video in one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u16>,
    /// The requested settings of a diffusion pipeline.
    #[serde(default, skip_serializing_if = "DiffusionRecipe::is_empty")]
    pub diffusion: DiffusionRecipe,
    /// What the user stated about an ONNX file that another program wrote.
    #[serde(default, skip_serializing_if = "ForeignRecipe::is_empty")]
    pub foreign: ForeignRecipe,
    /// The profile.
    pub profile: ProfileRecipe,
    /// The requested precision, if it replaces the profile's or the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// How activations were measured.
    pub calibration: CalibrationRecipe,
}

/// What the user stated about an ONNX file that another program wrote, because the file itself does not state it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForeignRecipe {
    /// What the network does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// The values of black and of white, in and out; if not stated, 0 and 1, or 0 and 255 for tensors of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_range: Option<[f32; 2]>,
    /// The order of the channels, in and out; red, green, blue if not stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel_order: Option<ChannelOrder>,
    /// Heights and widths are multiples of this; if not stated, it is found by running the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_multiple: Option<u32>,
    /// The means to subtract from red, green and blue, in values of the range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<[f32; 3]>,
    /// The deviations to divide red, green and blue by afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deviation: Option<[f32; 3]>,
    /// The whole contract, instead of all other fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<Contract>,
}

impl ForeignRecipe {
    /// Whether nothing is stated.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The requested settings of a diffusion pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiffusionRecipe {
    /// Number of pictures that are made together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u16>,
    /// Token counts of a text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<u16>,
    /// The variant of the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Low-rank adaptations that were merged into the weights, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adaptations: Vec<Adaptation>,
    /// The name of the folder with the configuration of a single-file pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

impl DiffusionRecipe {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A file of low-rank adaptations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adaptation {
    /// The file's name.
    pub file: String,
    /// The strength of the adaptation: 1 is as trained.
    pub scale: f64,
    /// The file's size and digest.
    pub digest: FileDigest,
}

/// The profile that an engine was built for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileRecipe {
    /// Its name.
    pub name: String,
    /// SHA-256 of the profile with everything that it inherits.
    pub sha256: String,
}

/// How activations were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationRecipe {
    /// The folder of pictures or tensors, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<FolderRecipe>,
    /// Number of tiles, if another than the usual number was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiles: Option<u32>,
    /// The budget of calibration and gates in minutes. Each minute stands for a fixed number of operations.
    pub budget_minutes: u32,
    /// How the range of an activation was chosen, if another than the usual method was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// Whether the first and the last layer were quantised, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_layers: bool,
}

/// A folder that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderRecipe {
    /// Its name.
    pub name: String,
    /// SHA-256 over the names and digests of the files in it.
    pub sha256: String,
}

impl Recipe {
    /// Checks that all names are plain, all digests are well-formed, scales are finite and sizes are at least 1.
    pub(crate) fn validate(&self) -> Result<()> {
        plain_name("recipe.model", &self.model)?;
        plain_name("recipe.profile.name", &self.profile.name)?;
        check_digest("recipe", "profile", &self.profile.sha256)?;
        for (name, digest) in &self.inputs {
            name.split('/').try_for_each(|part| plain_name("recipe.inputs", part))?;
            check_digest("recipe.inputs", name, &digest.sha256)?;
        }
        for Adaptation { file, scale, digest } in &self.diffusion.adaptations {
            plain_name("recipe.diffusion.adaptations", file)?;
            check_digest("recipe.diffusion.adaptations", file, &digest.sha256)?;
            rule(scale.is_finite(), || format!("recipe.diffusion.adaptations.{file}: expected a finite scale"))?;
        }
        self.diffusion.config.iter().try_for_each(|name| plain_name("recipe.diffusion.config", name))?;
        if let Some(folder) = &self.calibration.folder {
            plain_name("recipe.calibration.folder", &folder.name)?;
            check_digest("recipe.calibration", "folder", &folder.sha256)?;
        }
        rule(self.sizes.iter().all(|[width, height]| *width > 0 && *height > 0), || {
            "recipe.sizes: expected sides of at least 1".into()
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn value() -> Value {
        let digest = json!({ "bytes": 1, "sha256": "0".repeat(64) });
        json!({
            "model": "sd15", "origin": "someone/sd15@main",
            "inputs": { "unet/model.safetensors": digest, "model_index.json": digest },
            "component": "unet", "hyperparameters": { "chunk": "first" }, "sizes": [[64, 128]], "frames": 5,
            "diffusion": {
                "batch": 2, "tokens": [77, 154], "variant": "fp16", "config": "sd15-config",
                "adaptations": [{ "file": "style.safetensors", "scale": 0.8, "digest": digest }],
            },
            "profile": { "name": "cpu", "sha256": "0".repeat(64) },
            "precision": "int8",
            "calibration": {
                "folder": { "name": "photos", "sha256": "0".repeat(64) }, "tiles": 4, "budget_minutes": 10,
                "range": "mse", "all_layers": true,
            },
        })
    }

    fn parse(value: &Value) -> Result<Recipe, String> {
        let recipe: Recipe = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
        recipe.validate().map_err(|error| error.to_string())?;
        Ok(recipe)
    }

    #[test]
    fn a_recipe_survives_the_round_trip_and_leaves_out_what_was_not_asked_for() {
        assert_eq!(serde_json::to_value(parse(&value()).unwrap()).unwrap(), value());
        let least = json!({
            "model": "x4.pth", "inputs": {}, "profile": value()["profile"], "calibration": { "budget_minutes": 10 },
        });
        assert_eq!(serde_json::to_value(parse(&least).unwrap()).unwrap(), least);
    }

    #[test]
    fn names_that_leave_their_folder_are_refused() {
        for (pointer, wrong, expected) in [
            ("/model", json!("../sd15"), "recipe.model"),
            ("/inputs", json!({ "../x": value()["inputs"]["model_index.json"] }), "recipe.inputs"),
            ("/profile/name", json!("/etc/profile"), "recipe.profile.name"),
            ("/profile/sha256", json!("0"), "64 lower-case"),
            ("/diffusion/config", json!(".."), "recipe.diffusion.config"),
            ("/diffusion/adaptations/0/file", json!("a/b"), "recipe.diffusion.adaptations"),
            ("/calibration/folder/name", json!("a\\b"), "recipe.calibration.folder"),
            ("/sizes/0/0", json!(0), "recipe.sizes"),
            ("/sizes/0/1", json!(0), "recipe.sizes"),
            ("/frames", json!("all"), "invalid type"),
        ] {
            let mut value = value();
            *value.pointer_mut(pointer).unwrap() = wrong;
            let error = parse(&value).unwrap_err();
            assert!(error.contains(expected), "{pointer}: {error}");
        }
    }
}
