//! The fields of requests, and the checks for unsupported ones.

use serde::Deserialize;

use crate::bounded_json::{Few, HasEntries, Object, Whole};
use crate::failure::{Failure, Result};

/// The body of `txt2img` and `img2img`. Fields that change no picture here are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Body {
    pub(super) prompt: Option<String>,
    pub(super) negative_prompt: Option<String>,
    pub(super) seed: Option<Whole>,
    pub(super) steps: Option<usize>,
    pub(super) cfg_scale: Option<f64>,
    pub(super) width: Option<u32>,
    pub(super) height: Option<u32>,
    pub(super) sampler_name: Option<String>,
    pub(super) sampler_index: Option<String>,
    pub(super) scheduler: Option<String>,
    pub(super) batch_size: Option<usize>,
    pub(super) n_iter: Option<usize>,
    pub(super) denoising_strength: Option<f64>,
    pub(super) init_images: Option<Few<String>>,
    pub(super) mask: Option<String>,
    pub(super) resize_mode: Option<u32>,
    pub(super) inpainting_mask_invert: Option<Whole>,
    pub(super) send_images: Option<bool>,
    override_settings: Option<Object<Overrides>>,
    enable_hr: Option<bool>,
    restore_faces: Option<bool>,
    tiling: Option<bool>,
    inpaint_full_res: Option<Whole>,
    clip_skip: Option<f64>,
    subseed_strength: Option<f64>,
    styles: HasEntries,
    refiner_checkpoint: Option<String>,
    script_name: Option<String>,
    alwayson_scripts: HasEntries,
}

/// Settings of one request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Overrides {
    pub(super) sd_model_checkpoint: Option<String>,
    sd_vae: Option<String>,
    #[serde(rename = "CLIP_stop_at_last_layers")]
    clip_stop_at_last_layers: Option<f64>,
}

impl Body {
    /// Refuses what would change the picture and is not served.
    pub(super) fn check(&self) -> Result<()> {
        let text = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        let overrides = self.overrides();
        let vae = overrides.and_then(|all| all.sd_vae.as_deref()).unwrap_or_default();
        let skip = overrides.and_then(|all| all.clip_stop_at_last_layers).or(self.clip_skip);
        refuse(&[
            ("enable_hr", self.enable_hr == Some(true)),
            ("restore_faces", self.restore_faces == Some(true)),
            ("tiling", self.tiling == Some(true)),
            ("inpaint_full_res", self.mask.is_some() && self.inpaint_full_res.is_some_and(|number| number.0 != 0)),
            ("CLIP_stop_at_last_layers", skip.is_some_and(|number| number > 1.0)),
            ("subseed_strength", self.subseed_strength.is_some_and(|number| number > 0.0)),
            ("styles", self.styles.0),
            ("refiner_checkpoint", text(&self.refiner_checkpoint)),
            ("script_name", text(&self.script_name)),
            ("alwayson_scripts", self.alwayson_scripts.0),
            ("sd_vae", !["", "automatic", "none"].contains(&vae.to_ascii_lowercase().as_str())),
        ])
    }

    /// Settings that apply only to this request.
    pub(super) fn overrides(&self) -> Option<&Overrides> {
        self.override_settings.as_ref().map(|Object(all)| all)
    }

    /// The sampler with its scheduler, as one name; `None`: the engine's own.
    pub(super) fn scheduler(&self) -> Result<Option<String>> {
        let sampler = self.sampler_name.as_deref().or(self.sampler_index.as_deref()).filter(|name| !name.is_empty());
        let spread = self.scheduler.as_deref().unwrap_or_default();
        let spread = Some(spread).filter(|spread| !spread.is_empty() && !spread.eq_ignore_ascii_case("automatic"));
        match (sampler, spread) {
            (None, None) => Ok(None),
            (Some(sampler), None) => Ok(Some(sampler.to_owned())),
            (Some(sampler), Some(spread)) => Ok(Some(format!("{sampler} {spread}"))),
            (None, Some(_)) => Err(Failure::invalid("scheduler: expected a sampler beside it, as sampler_name")),
        }
    }
}

/// Refuses the request if it uses one of these fields; names the first one.
fn refuse(fields: &[(&str, bool)]) -> Result<()> {
    match fields.iter().find(|(_, is_asked)| *is_asked) {
        Some((name, _)) => Err(Failure::invalid(format!("{name}: not served; leave it out"))),
        None => Ok(()),
    }
}

/// The body of `extra-single-image`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Extra {
    pub(super) image: Option<String>,
    pub(super) upscaler_1: Option<String>,
    pub(super) upscaling_resize: Option<f64>,
    upscaler_2: Option<String>,
    resize_mode: Option<u32>,
    gfpgan_visibility: Option<f64>,
    codeformer_visibility: Option<f64>,
}

impl Extra {
    /// Refuses what would change the picture and is not served.
    pub(super) fn check(&self) -> Result<()> {
        refuse(&[
            ("upscaler_2", self.upscaler_2.as_deref().is_some_and(|name| !["", "None"].contains(&name))),
            ("resize_mode", self.resize_mode.is_some_and(|mode| mode != 0)),
            ("gfpgan_visibility", self.gfpgan_visibility.is_some_and(|number| number > 0.0)),
            ("codeformer_visibility", self.codeformer_visibility.is_some_and(|number| number > 0.0)),
        ])
    }
}
