//! DnCNN: a plain stack of convolutions that finds the noise of an image.
//!
//! Paper: <https://arxiv.org/abs/1608.03981>. Upstream: <https://github.com/cszn/KAIR>, `models/network_dncnn.py`.
//! Reference: spandrel 0.4.2, `architectures/DnCNN`.

use super::restoration::{NOISE_LEVEL, noise_level, with_noise_level};
use super::{Architecture, Keys, Mismatch, picture, reach};
use crate::nn::{Conv2d, Scope, conv2d, conv2d_batch_norm, image_input};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::Upscale;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DnCnn {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the network.
    filters: usize,
    convolutions: usize,
    /// Whether each convolution is followed by a batch normalisation, except the first and the last.
    normalised: bool,
    /// The noise level that the network takes, as the deviation of values of 0 … 255 (FDnCNN).
    #[serde(skip_serializing_if = "Option::is_none")]
    noise_level: Option<f32>,
}

/// Upstream's, for its batch normalisation.
const EPSILON: f64 = 1e-4;

impl Architecture for DnCnn {
    const NAME: &'static str = "DnCNN";

    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &[
            "model.0.weight",
            "model.0.bias",
            "model.2.weight",
            "model.2.bias",
            "model.4.weight",
            "model.4.bias",
            "model.6.weight",
            "model.6.bias",
            "model.8.weight",
            "model.8.bias",
            "model.10.weight",
            "model.10.bias",
            "model.12.weight",
            "model.12.bias",
            "model.14.weight",
            "model.14.bias",
        ],
        &[
            "model.0.weight",
            "model.0.bias",
            "model.2.weight",
            "model.2.bias",
            "model.3.weight",
            "model.3.bias",
            "model.3.running_mean",
            "model.3.running_var",
            "model.5.weight",
            "model.5.bias",
            "model.6.weight",
            "model.6.bias",
            "model.6.running_mean",
            "model.6.running_var",
            "model.8.weight",
            "model.8.bias",
        ],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, inputs, ..] = keys.dims::<4>("model.0.weight")?;
        let layers = keys.count("model.");
        let normalised = keys.contains("model.3.weight");
        let [channels, ..] = keys.dims::<4>(&format!("model.{}.weight", layers.saturating_sub(1)))?;
        let each = if normalised { 3 } else { 2 };
        // The first convolution and its activation, those between, and the last convolution.
        if layers < 3 || !(layers - 3).is_multiple_of(each) {
            return Err(Mismatch::new(format!(
                "{layers} layers are no convolutions with {} layers between them",
                each - 1
            )));
        }
        let noise_level = match inputs {
            inputs if inputs == channels => None,
            inputs if inputs == channels + 1 => Some(noise_level(keys)?),
            _ => {
                return Err(Mismatch::new(format!(
                    "expected {channels} channels at `model.0.weight`, or one more for the noise, found {inputs}"
                )));
            }
        };
        Ok(DnCnn { channels, filters, convolutions: (layers - 3) / each + 2, normalised, noise_level })
    }

    fn contract(&self) -> Contract {
        // One pixel for each convolution.
        Upscale { receptive_field: reach(self.convolutions), ..picture(1, self.channels) }.contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input(w, "image", self.channels, shapes)?;
        w.trace().output("upscaled", &self.network(&w.at("model"), &image));
        Ok(())
    }

    /// Ignores the number of images that the statistics were computed from.
    fn ignores(&self, name: &str) -> bool {
        name.ends_with(".num_batches_tracked")
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        self.noise_level.map(|level| (NOISE_LEVEL, level.to_string())).into_iter().collect()
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = DnCnn { channels: 3, filters: 4, convolutions: 8, normalised: false, noise_level: None };
        let published = DnCnn { channels: 1, filters: 64, convolutions: 17, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-normalised-grey", DnCnn { channels: 1, convolutions: 4, normalised: true, ..tiny.clone() }),
            ("tiny-level", DnCnn { noise_level: Some(25.0), ..tiny }),
            ("dncnn-25", published.clone()),
            ("dncnn-color-blind", DnCnn { channels: 3, convolutions: 20, ..published.clone() }),
            ("fdncnn-color", DnCnn { channels: 3, convolutions: 20, noise_level: Some(15.0), ..published }),
        ]
    }
}

impl DnCnn {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let layer = |number: usize| w.at(number.to_string());
        let first = self.noise_level.map_or_else(|| image.clone(), |level| with_noise_level(image, level));
        let mut x = conv2d(&layer(0), &first, self.filters, 3).relu();
        let each = if self.normalised { 3 } else { 2 };
        for number in (0..self.convolutions - 2).map(|convolution| 2 + each * convolution) {
            x = match self.normalised {
                true => {
                    let convolution = Conv2d::new(self.filters, 3);
                    conv2d_batch_norm(convolution, [&layer(number), &layer(number + 1)], &x, EPSILON)
                }
                false => conv2d(&layer(number), &x, self.filters, 3),
            };
            x = x.relu();
        }
        let last = conv2d(&layer(2 + each * (self.convolutions - 2)), &x, self.channels, 3);
        // A network that takes the noise level outputs the image; the others output the noise.
        if self.noise_level.is_some() { last } else { image - last }
    }
}
