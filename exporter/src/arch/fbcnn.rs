//! FBCNN: a U-Net that removes JPEG's artifacts, and estimates JPEG's quality first.
//!
//! Paper: <https://arxiv.org/abs/2109.14573>. Upstream: <https://github.com/jiaxi-jiang/FBCNN>,
//! `models/network_fbcnn.py`. Reference: spandrel 0.4.2, `architectures/FBCNN`.

use super::restoration::{Down, UnetLayers, Up};
use super::{Architecture, Keys, Mismatch, picture};
use crate::nn::{Scope, channels, crop_to_image, image_input_of_multiples, linear, pad_with_edges_to_multiple};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::Upscale;
use tileforge_graph::{Constant, Value};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Fbcnn {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of each level, from the finest.
    filters: [usize; 4],
    /// Residual blocks of each level.
    blocks: usize,
    layers: UnetLayers,
    /// Width of the layers that work on the quality.
    hidden: usize,
    /// JPEG's quality, 0 … 100, if it is not estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    quality: Option<f32>,
}

/// The image is halved three times.
const MULTIPLE: usize = 8;
const QUALITY: &str = "quality";

impl Architecture for Fbcnn {
    const NAME: &'static str = "FBCNN";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "m_head.weight",
        "m_down1.0.res.0.weight",
        "m_down2.0.res.0.weight",
        "m_body_encoder.0.res.0.weight",
        "m_tail.weight",
        "qf_pred.0.res.0.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let filters = |name: &str| Ok(keys.dims::<4>(name)?[0]);
        let [first, channels, ..] = keys.dims::<4>("m_head.weight")?;
        let outputs = filters("m_tail.weight")?;
        if outputs != channels {
            return Err(Mismatch::new(format!("expected {channels} channels in and out, found {outputs} out")));
        }
        let blocks = keys.count("m_body_encoder.");
        // Upstream can also take the largest of the pixels instead of their mean, which no tensor shows.
        let strided = keys.contains(&format!("m_down1.{blocks}.weight"));
        let up = if keys.contains("m_up3.0.weight") {
            Up::ConvTranspose
        } else if keys.contains("m_up3.0.1.weight") {
            Up::Nearest
        } else {
            Up::PixelShuffle
        };
        let quality = keys.setting::<f32>(QUALITY)?;
        if let Some(quality) = quality.filter(|quality| !(0.0..=100.0).contains(quality)) {
            return Err(Mismatch::new(format!("expected `{QUALITY}` to be 0 to 100, found {quality}")));
        }
        Ok(Fbcnn {
            channels,
            filters: [
                first,
                filters("m_down2.0.res.0.weight")?,
                filters("m_down3.0.res.0.weight")?,
                filters("m_body_encoder.0.res.0.weight")?,
            ],
            blocks,
            layers: UnetLayers { down: if strided { Down::StrideConv } else { Down::AvgPool }, up, biased: true },
            hidden: keys.dims::<2>("qf_embed.0.weight")?[0],
            quality,
        })
    }

    fn contract(&self) -> Contract {
        // The quality is estimated from the means of the whole image.
        Upscale { size_multiple: MULTIPLE, ..picture(1, self.channels) }.contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input_of_multiples(w, "image", self.channels, MULTIPLE, shapes)?;
        let padded = pad_with_edges_to_multiple(&image, MULTIPLE);
        w.trace().output("upscaled", &crop_to_image(&self.network(w, &padded), &image, MULTIPLE, 1));
        Ok(())
    }

    /// Ignores the layers that estimate the quality, if it is given.
    fn ignores(&self, name: &str) -> bool {
        self.quality.is_some() && name.starts_with("qf_pred.")
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        self.quality.map(|quality| (QUALITY, quality.to_string())).into_iter().collect()
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let layers = |down, up| UnetLayers { down, up, biased: true };
        let published = Fbcnn {
            channels: 3,
            filters: [64, 128, 256, 512],
            blocks: 4,
            layers: layers(Down::StrideConv, Up::ConvTranspose),
            hidden: 512,
            quality: None,
        };
        let tiny = Fbcnn { filters: [4, 4, 8, 8], blocks: 2, hidden: 8, ..published.clone() };
        vec![
            ("tiny", tiny.clone()),
            (
                "tiny-pool-upconv-grey",
                Fbcnn { channels: 1, layers: layers(Down::AvgPool, Up::Nearest), ..tiny.clone() },
            ),
            (
                "tiny-pixelshuffle-quality",
                Fbcnn { layers: layers(Down::StrideConv, Up::PixelShuffle), quality: Some(40.0), ..tiny },
            ),
            ("fbcnn-gray", Fbcnn { channels: 1, ..published.clone() }),
            ("fbcnn-color", published),
        ]
    }
}

impl Fbcnn {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let (layers, blocks) = (self.layers, self.blocks);
        let mut levels = vec![layers.convolve(&w.at("m_head"), image, self.filters[0])];
        let mut x = levels[0].clone();
        for (number, filters) in (1..).zip(&self.filters[1..]) {
            let w = w.at(format!("m_down{number}"));
            x = layers.halve(&w, &layers.residual_blocks(&w, &x, 0, blocks), blocks, *filters);
            levels.push(x.clone());
        }
        x = layers.residual_blocks(&w.at("m_body_encoder"), &x, 0, blocks);
        let quality = self.quality(w, &x);
        x = layers.residual_blocks(&w.at("m_body_decoder"), &x, 0, blocks);
        for number in (1..=3).rev() {
            let up = w.at(format!("m_up{number}"));
            let modules = match layers.up {
                Up::ConvTranspose => [up.at("0"), up.at("0")],
                _ => [up.at("0.0"), up.at("0.1")],
            };
            let filters = self.filters[number - 1];
            x = layers.double(modules.each_ref(), &(x + &levels[number]), filters);
            let of_quality = |name: &str| linear(&w.at(format!("{name}_{number}.0")), &quality, filters);
            let factor = of_quality("to_gamma").sigmoid().reshape(&[0, filters as i64, 1, 1]);
            let offset = of_quality("to_beta").tanh().reshape(&[0, filters as i64, 1, 1]);
            for block in 1..=blocks {
                x = layers.two(&up.at(block.to_string()), &x) * &factor + &offset + &x;
            }
        }
        layers.convolve(&w.at("m_tail"), &(x + &levels[0]), self.channels)
    }

    /// Features of JPEG's quality `[1 or batch, hidden]`, which is estimated from the coarsest features of the image
    /// unless it is given.
    fn quality(&self, w: &Scope<'_>, x: &Value) -> Value {
        let quality = match self.quality {
            // Upstream's value is the loss of quality.
            Some(quality) => {
                // The checkpoint has the layers that would estimate it.
                w.marker("qf_pred.0.res.0.weight", &[channels(x), channels(x), 3, 3]);
                w.trace().constant("quality", &[1, 1], Constant::F32(&[1.0 - quality / 100.0]))
            }
            None => {
                let w = w.at("qf_pred");
                // After the blocks: the mean, a reshape, and layers with an activation each.
                let x = self.layers.residual_blocks(&w, x, 0, self.blocks);
                let mut means = x.global_average_pool().reshape(&[0, channels(&x) as i64]);
                for layer in [2, 4] {
                    means = linear(&w.at((self.blocks + layer).to_string()), &means, self.hidden).relu();
                }
                linear(&w.at((self.blocks + 6).to_string()), &means, 1).sigmoid()
            }
        };
        [0, 2, 4].iter().fold(quality, |x, layer| linear(&w.at(format!("qf_embed.{layer}")), &x, self.hidden).relu())
    }
}
