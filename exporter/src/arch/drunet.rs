//! DRUNet: a U-Net of residual blocks that takes the noise level as an additional channel.
//!
//! Paper: <https://arxiv.org/abs/2008.13751>. Upstream: <https://github.com/cszn/KAIR>, `models/network_unet.py`.
//! Reference: spandrel 0.4.2, `architectures/DRUNet`.

use super::restoration::{Down, NOISE_LEVEL, UnetLayers, Up, noise_level, with_noise_level};
use super::{Architecture, Keys, Mismatch, picture, reach};
use crate::nn::{Mirror, Scope, crop_to_image, image_input_of_multiples, pad_to_multiple};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::Upscale;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DruNet {
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of each level, from the finest.
    filters: [usize; 4],
    /// Residual blocks of each level.
    blocks: usize,
    layers: UnetLayers,
    /// The noise level that the network takes, as the deviation of values of 0 … 255.
    noise_level: f32,
}

/// The image is halved three times.
const MULTIPLE: usize = 8;

impl Architecture for DruNet {
    const NAME: &'static str = "DRUNet";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "m_head.weight",
        "m_down1.0.res.0.weight",
        "m_down1.0.res.2.weight",
        "m_down2.0.res.0.weight",
        "m_down3.0.res.0.weight",
        "m_body.0.res.0.weight",
        "m_body.0.res.2.weight",
        "m_up3.2.res.0.weight",
        "m_up3.2.res.2.weight",
        "m_up2.2.res.0.weight",
        "m_up1.2.res.0.weight",
        "m_tail.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let filters = |name: &str| Ok(keys.dims::<4>(name)?[0]);
        let [first, inputs, ..] = keys.dims::<4>("m_head.weight")?;
        let channels = filters("m_tail.weight")?;
        if inputs != channels + 1 {
            return Err(Mismatch::new(format!(
                "expected {} channels at `m_head.weight`, one of them for the noise, found {inputs}",
                channels + 1
            )));
        }
        let blocks = keys.count("m_body.");
        // Upstream can also take the largest of the pixels instead of their mean, which no tensor shows.
        let strided = keys.contains(&format!("m_down1.{blocks}.weight"));
        let up = if keys.contains("m_up3.1.weight") {
            Up::Nearest
        } else if keys.dims::<4>("m_up3.0.weight")?[2] == 3 {
            Up::PixelShuffle
        } else {
            Up::ConvTranspose
        };
        Ok(DruNet {
            channels,
            filters: [
                first,
                filters("m_down2.0.res.0.weight")?,
                filters("m_down3.0.res.0.weight")?,
                filters("m_body.0.res.0.weight")?,
            ],
            blocks,
            layers: UnetLayers { down: if strided { Down::StrideConv } else { Down::AvgPool }, up, biased: false },
            noise_level: noise_level(keys)?,
        })
    }

    fn contract(&self) -> Contract {
        Upscale {
            size_multiple: MULTIPLE,
            receptive_field: reach(self.layers.reach(self.blocks)),
            ..picture(1, self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input_of_multiples(w, "image", self.channels, MULTIPLE, shapes)?;
        let padded = pad_to_multiple(&image, MULTIPLE, Mirror::Reflect)?;
        w.trace().output("upscaled", &crop_to_image(&self.network(w, &padded), &image, MULTIPLE, 1));
        Ok(())
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        vec![(NOISE_LEVEL, self.noise_level.to_string())]
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let layers = |down, up| UnetLayers { down, up, biased: false };
        let published = DruNet {
            channels: 3,
            filters: [64, 128, 256, 512],
            blocks: 4,
            layers: layers(Down::StrideConv, Up::ConvTranspose),
            noise_level: 15.0,
        };
        let tiny = DruNet { filters: [4, 4, 8, 8], blocks: 2, noise_level: 25.0, ..published.clone() };
        vec![
            ("tiny", tiny.clone()),
            (
                "tiny-pool-upconv-grey",
                DruNet { channels: 1, layers: layers(Down::AvgPool, Up::Nearest), ..tiny.clone() },
            ),
            ("tiny-pixelshuffle", DruNet { layers: layers(Down::StrideConv, Up::PixelShuffle), ..tiny }),
            ("drunet-gray", DruNet { channels: 1, ..published.clone() }),
            ("drunet-color", published),
        ]
    }
}

impl DruNet {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let (layers, blocks) = (self.layers, self.blocks);
        let mut levels =
            vec![layers.convolve(&w.at("m_head"), &with_noise_level(image, self.noise_level), self.filters[0])];
        let mut x = levels[0].clone();
        for (number, filters) in (1..).zip(&self.filters[1..]) {
            let w = w.at(format!("m_down{number}"));
            x = layers.halve(&w, &layers.residual_blocks(&w, &x, 0, blocks), blocks, *filters);
            levels.push(x.clone());
        }
        x = layers.residual_blocks(&w.at("m_body"), &x, 0, blocks);
        for number in (1..=3).rev() {
            let w = w.at(format!("m_up{number}"));
            x = layers.double([&w.at("0"), &w.at("1")], &(x + &levels[number]), self.filters[number - 1]);
            x = layers.residual_blocks(&w, &x, layers.modules_up(), blocks);
        }
        layers.convolve(&w.at("m_tail"), &(x + &levels[0]), self.channels)
    }
}
