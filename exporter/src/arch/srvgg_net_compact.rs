//! SRVGGNetCompact: a plain stack of convolutions at the input's resolution, the small network of Real-ESRGAN
//! (realesr-general-x4v3, realesr-animevideov3).
//!
//! Upstream: <https://github.com/xinntao/Real-ESRGAN>, `realesrgan/archs/srvgg_arch.py`. Reference: spandrel 0.4.2,
//! `architectures/Compact`.

use super::{Architecture, Keys, Mismatch, reach};
use crate::nn::{Scope, conv2d, image_input, prelu, repeat_channels};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Padding, Precision, Upscale};
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SrvggNetCompact {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the network.
    filters: usize,
    /// Convolutions between the first and the last.
    convolutions: usize,
    activation: Activation,
    scale: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Activation {
    Prelu,
    Relu,
    LeakyRelu,
}

/// Upstream's constant; no tensor determines it.
const NEGATIVE_SLOPE: f32 = 0.1;

impl Architecture for SrvggNetCompact {
    const NAME: &'static str = "SRVGGNetCompact";

    const SIGNATURES: &'static [&'static [&'static str]] =
        &[&["body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias"]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, channels, ..] = keys.dims::<4>("body.0.weight")?;
        // First convolution, activation, (convolution, activation)…, last convolution.
        let last = keys.count("body.").saturating_sub(1);
        let [shuffled] = keys.dims::<1>(&format!("body.{last}.bias"))?;
        let scale = (shuffled / channels.max(1)).isqrt();
        if scale == 0 || scale * scale * channels != shuffled || !last.is_multiple_of(2) {
            let expected = format!("expected `body.{last}.bias` to have {channels} · scale² elements");
            return Err(Mismatch::new(format!("{expected} and to follow an activation, found {shuffled}")));
        }
        let activation =
            if keys.contains("body.1.weight") { Activation::Prelu } else { Self::activation_from_hint(keys)? };
        Ok(SrvggNetCompact { channels, filters, convolutions: (last / 2).saturating_sub(1), activation, scale })
    }

    fn contract(&self) -> Contract {
        Upscale {
            input: "image".into(),
            output: "upscaled".into(),
            scale: self.scale,
            channels: self.channels,
            range: [0.0, 1.0],
            size_multiple: 1,
            size_minimum: 1,
            only_size: None,
            padding: Padding::Reflect,
            // One pixel for each convolution.
            receptive_field: reach(self.convolutions + 2),
            safe_precisions: vec![Precision::Fp32, Precision::Fp16, Precision::Bf16],
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input(w, "image", self.channels, shapes)?;
        w.trace().output("upscaled", &self.network(&w.at("body"), &image));
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny =
            SrvggNetCompact { channels: 3, filters: 8, convolutions: 2, activation: Activation::Prelu, scale: 4 };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-x1", SrvggNetCompact { scale: 1, ..tiny.clone() }),
            ("tiny-x2-relu", SrvggNetCompact { scale: 2, activation: Activation::Relu, ..tiny.clone() }),
            ("tiny-leakyrelu", SrvggNetCompact { activation: Activation::LeakyRelu, ..tiny.clone() }),
            ("tiny-grey", SrvggNetCompact { channels: 1, ..tiny.clone() }),
            ("realesr-general-x4v3", SrvggNetCompact { filters: 64, convolutions: 32, ..tiny.clone() }),
            ("realesr-animevideov3", SrvggNetCompact { filters: 64, convolutions: 16, ..tiny }),
        ]
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        match self.activation {
            Activation::Prelu => Vec::new(),
            Activation::Relu => vec![("activation", "relu".into())],
            Activation::LeakyRelu => vec![("activation", "leakyrelu".into())],
        }
    }
}

impl SrvggNetCompact {
    /// ReLU and LeakyReLU have no weights, so a checkpoint has the same tensors with either.
    fn activation_from_hint(keys: &Keys<'_>) -> Result<Activation, Mismatch> {
        match keys.hint("activation") {
            Some("relu") => Ok(Activation::Relu),
            Some("leakyrelu") => Ok(Activation::LeakyRelu),
            Some(other) => {
                Err(Mismatch::new(format!("expected the activation `relu` or `leakyrelu`, found `{other}`")))
            }
            None => Err(Mismatch::missing(
                "the tensors do not tell ReLU from LeakyReLU, since neither has weights",
                "activation",
                &["relu", "leakyrelu"],
            )),
        }
    }

    /// Shuffled convolutions of `image` `[batch, channels, height, width]`, plus `image` itself in larger pixels.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let mut x = image.clone();
        for layer in 0..=self.convolutions {
            x = conv2d(&w.at((2 * layer).to_string()), &x, self.filters, 3);
            x = match self.activation {
                Activation::Prelu => prelu(&w.at((2 * layer + 1).to_string()), &x),
                Activation::Relu => x.relu(),
                Activation::LeakyRelu => x.leaky_relu(NEGATIVE_SLOPE),
            };
        }
        let last = 2 * (self.convolutions + 1);
        let details = conv2d(&w.at(last.to_string()), &x, self.channels * self.scale * self.scale, 3);
        (details + repeat_channels(image, self.scale * self.scale)).depth_to_space(self.scale)
    }
}
