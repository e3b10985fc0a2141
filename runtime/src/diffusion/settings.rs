//! The settings of a request to a pipeline.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tileforge_image::Size;

use super::error::Error;
use super::texts::Reading;
use crate::random::{Noise, Philox, TorchCpu};

/// What a picture is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GenerateKind {
    /// From noise.
    TextToImage,
    /// From a picture with noise in it.
    ImageToImage,
    /// From a picture; a masked part of it is regenerated.
    Inpainting,
}

/// Which defaults a pipeline has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Stable Diffusion 1 and 2.
    StableDiffusion,
    /// SDXL and its refiner.
    StableDiffusionXl,
    /// Latent consistency models, which make a picture in a few steps.
    LatentConsistency,
}

impl Family {
    /// The family of a pipeline's class in diffusers.
    pub fn of_class(class: &str) -> Self {
        match class {
            _ if class.starts_with("StableDiffusionXL") => Self::StableDiffusionXl,
            _ if class.starts_with("LatentConsistencyModel") => Self::LatentConsistency,
            _ => Self::StableDiffusion,
        }
    }
}

/// Which generator draws the noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RandomNumbers {
    /// PyTorch's of the CPU, bit for bit.
    #[default]
    Cpu,
    /// PyTorch's of CUDA devices.
    Philox,
}

impl std::str::FromStr for RandomNumbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cpu" => Ok(Self::Cpu),
            "philox" => Ok(Self::Philox),
            _ => Err("expected cpu or philox".into()),
        }
    }
}

impl RandomNumbers {
    pub(super) fn generator(self, seed: u64) -> Box<dyn Noise> {
        match self {
            Self::Cpu => Box::new(TorchCpu::new(seed)),
            Self::Philox => Box::new(Philox::new(seed)),
        }
    }
}

/// How a picture is fitted to another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// The whole picture, stretched: diffusers' `resize_mode="default"`.
    Stretch,
    /// The middle of the picture, with unchanged proportions.
    Crop,
}

impl std::str::FromStr for Fit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "stretch" => Ok(Self::Stretch),
            "crop" => Ok(Self::Crop),
            _ => Err("expected stretch or crop".into()),
        }
    }
}

fn without_weights() -> bool {
    true
}

/// The version of [`Settings`] that this release writes.
const VERSION: u32 = 1;

/// The version of [`Settings`]; in memory always the newest. Settings from an older release are read with their old
/// meaning. Settings from a newer release are refused, because this release might make another picture of them.
/// Settings without a version come from releases that wrote none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettingsVersion;

impl Serialize for SettingsVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        VERSION.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SettingsVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = u32::deserialize(deserializer)?;
        let problem = || format!("expected settings of version {VERSION}, found {found}, of another release");
        if found == VERSION { Ok(Self) } else { Err(D::Error::custom(problem())) }
    }
}

/// Everything that decides how a picture looks, beside the engine, the picture and the mask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The version, which decides the meaning of the other values.
    #[serde(default)]
    pub version: SettingsVersion,
    /// What is to be seen.
    pub prompt: String,
    /// What is not to be seen. `None` can differ from an empty text: SDXL's pipelines then use zeros.
    pub negative_prompt: Option<String>,
    /// Steps from pure noise to the picture.
    pub steps: usize,
    /// The guidance scale: how much the text counts. With a scale up to 1, the network runs without the negative
    /// prompt. Networks that take the scale as an input always run without it.
    pub guidance: f64,
    /// How far the guided prediction's deviation moves to the conditional one's, 0 to 1.
    pub guidance_rescale: f64,
    /// How much a picture is changed, 0 to 1; has no effect without a picture.
    pub strength: f64,
    /// Noise that DDIM and TCD add in each step, 0 to 1.
    pub eta: f64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The generator of the random numbers.
    pub random_numbers: RandomNumbers,
    /// Width and height. `None`: the picture's size, or the nearest size that the engine makes; without a picture, the
    /// engine's largest.
    pub size: Option<Size>,
    /// How a picture of another size is fitted. `None`: stretched if `size` is set, as in diffusers; cropped if the
    /// engine's nearest size replaces the picture's.
    pub fit: Option<Fit>,
    /// How many pictures are made together, from one seed.
    pub count: usize,
    /// The scheduler's class in diffusers, or a sampler's name in other programs, such as `euler_a`; `None`: the
    /// engine's.
    pub scheduler: Option<String>,
    /// Long texts are encoded in pieces instead of being cut off.
    pub long_prompt: bool,
    /// Brackets are literal, as in diffusers, and not weights ([`prompt`](super::prompt)). Settings from releases
    /// without weights lack this value; it is then true.
    #[serde(default = "without_weights")]
    pub literal_prompt: bool,
    /// Where another network continues, 0 to 1 (`denoising_end` of SDXL's base).
    pub end: f64,
    /// Where another network stopped, 0 to 1 (`denoising_start` of SDXL's refiner).
    pub start: Option<f64>,
    /// The aesthetic score that SDXL's refiner aims at.
    pub aesthetic_score: f64,
    /// The aesthetic score that it avoids.
    pub negative_aesthetic_score: f64,
    /// The result outside of the mask equals the given picture, pixel for pixel.
    pub keep_unmasked: bool,
}

/// The default number of steps, as in diffusers.
const STEPS: usize = 50;
/// The same for latent consistency models.
const STEPS_OF_CONSISTENCY: usize = 4;
/// As in diffusers.
const SCORES: [f64; 2] = [6.0, 2.5];
/// The most pictures of one request.
const MOST_PICTURES: usize = 1024;

impl Settings {
    /// The default settings of diffusers' pipelines of a family.
    pub fn new(prompt: impl Into<String>, kind: GenerateKind, family: Family) -> Self {
        let (steps, guidance, strength) = match (family, kind) {
            (Family::StableDiffusion, GenerateKind::TextToImage) => (STEPS, 7.5, 1.0),
            (Family::StableDiffusion, GenerateKind::ImageToImage) => (STEPS, 7.5, 0.8),
            (Family::StableDiffusion, GenerateKind::Inpainting) => (STEPS, 7.5, 1.0),
            (Family::StableDiffusionXl, GenerateKind::TextToImage) => (STEPS, 5.0, 1.0),
            (Family::StableDiffusionXl, GenerateKind::ImageToImage) => (STEPS, 5.0, 0.3),
            (Family::StableDiffusionXl, GenerateKind::Inpainting) => (STEPS, 7.5, 0.9999),
            (Family::LatentConsistency, GenerateKind::TextToImage) => (STEPS_OF_CONSISTENCY, 8.5, 1.0),
            // diffusers has no such pipeline for masks.
            (Family::LatentConsistency, _) => (STEPS_OF_CONSISTENCY, 8.5, 0.8),
        };
        Self {
            version: SettingsVersion,
            prompt: prompt.into(),
            negative_prompt: None,
            steps,
            guidance,
            guidance_rescale: 0.0,
            strength,
            eta: 0.0,
            seed: 0,
            random_numbers: RandomNumbers::Cpu,
            size: None,
            fit: None,
            count: 1,
            scheduler: None,
            long_prompt: false,
            literal_prompt: false,
            end: 1.0,
            start: None,
            aesthetic_score: SCORES[0],
            negative_aesthetic_score: SCORES[1],
            keep_unmasked: false,
        }
    }

    pub(super) fn reading(&self) -> Reading {
        Reading { long: self.long_prompt, literal: self.literal_prompt }
    }

    /// Checks the numbers that no scheduler checks. Every request is also checked before it is served.
    ///
    /// # Errors
    /// [`Error::Range`]
    pub fn check(&self) -> Result<(), Error> {
        let share = "a number from 0 to 1";
        let score = "a number from 0 to 10";
        for (name, found, most, expected) in [
            ("guidance", self.guidance, 1000.0, "a number from 0 to 1000"),
            ("guidance_rescale", self.guidance_rescale, 1.0, share),
            ("strength", self.strength, 1.0, share),
            ("aesthetic_score", self.aesthetic_score, 10.0, score),
            ("negative_aesthetic_score", self.negative_aesthetic_score, 10.0, score),
        ] {
            if !(0.0..=most).contains(&found) {
                return Err(Error::Range { name, found, expected });
            }
        }
        if !(1..=MOST_PICTURES).contains(&self.count) {
            let expected = "a number of pictures from 1 to 1024";
            return Err(Error::Range { name: "count", found: self.count as f64, expected });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn changed(change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Result<Settings, String> {
        let mut value =
            serde_json::to_value(Settings::new("a fox", GenerateKind::TextToImage, Family::StableDiffusion)).unwrap();
        change(value.as_object_mut().unwrap());
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_say_their_version_and_older_ones_mean_what_they_meant() {
        let settings = Settings::new("a fox", GenerateKind::TextToImage, Family::StableDiffusion);
        assert!(serde_json::to_string(&settings).unwrap().starts_with("{\"version\":1,"));
        assert_eq!(changed(|_| ()).unwrap(), settings);
        // Settings from releases that wrote no version, and from earlier releases without prompt weights.
        let old = changed(|values| drop(values.remove("version"))).unwrap();
        assert_eq!(old, settings);
        let oldest = changed(|values| values.retain(|name, _| !["version", "literal_prompt"].contains(&name.as_str())));
        assert_eq!(oldest.unwrap(), Settings { literal_prompt: true, ..settings });
    }

    #[test]
    fn defaults_are_those_of_the_pipelines_class() {
        let of = |class: &str, kind| {
            let Settings { steps, guidance, strength, .. } = Settings::new("", kind, Family::of_class(class));
            (steps, guidance, strength)
        };
        let (text, image) = (GenerateKind::TextToImage, GenerateKind::ImageToImage);
        assert_eq!(of("StableDiffusionPipeline", text), (50, 7.5, 1.0));
        assert_eq!(of("StableDiffusionXLPipeline", text), (50, 5.0, 1.0));
        assert_eq!(of("StableDiffusionXLImg2ImgPipeline", image), (50, 5.0, 0.3));
        assert_eq!(of("LatentConsistencyModelPipeline", text), (4, 8.5, 1.0));
        assert_eq!(of("LatentConsistencyModelImg2ImgPipeline", image), (4, 8.5, 0.8));
        assert_eq!(of("AltDiffusionPipeline", image), (50, 7.5, 0.8));
    }

    #[test]
    fn settings_of_another_release_are_refused() {
        for (version, words) in [
            (json!(2), "expected settings of version 1, found 2"),
            (json!(0), "expected settings of version 1, found 0"),
            (json!("1"), "expected u32"),
            (json!(-1), "expected u32"),
            (json!(4_294_967_297_u64), "expected u32"),
        ] {
            let problem = changed(|values| drop(values.insert("version".into(), version))).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
        assert!(changed(|values| drop(values.insert("other".into(), json!(1)))).unwrap_err().contains("unknown field"));
    }
}
