//! RRDBNet: residual-in-residual dense blocks, the generator of ESRGAN and Real-ESRGAN.
//!
//! Papers: ESRGAN (<https://arxiv.org/abs/1809.00219>), Real-ESRGAN (<https://arxiv.org/abs/2107.10833>), ESRGAN+
//! (<https://arxiv.org/abs/2001.08073>). Reference: spandrel 0.4.2, `architectures/ESRGAN`.

use super::{Architecture, Keys, Mismatch, reach};
use crate::nn::{Mirror, Scope, conv2d, crop_to_image, image_input, pad_to_multiple};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{Padding, Precision, Upscale};
use tileforge_graph::{ConvOptions, Value};

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RrdbNet {
    naming: Naming,
    /// Channels of the image, in and out.
    channels: usize,
    /// Width of the trunk.
    filters: usize,
    /// Channels that each convolution of a dense block adds.
    growth: usize,
    /// Residual-in-residual dense blocks.
    blocks: usize,
    /// Convolutions after nearest-neighbour upsampling by 2.
    upsamplings: usize,
    /// The input's pixels are first unshuffled in squares of this side (Real-ESRGAN's ×2 and ×1).
    unshuffle: usize,
    /// ESRGAN+'s additional residual paths inside the dense blocks.
    plus: bool,
}

/// The same network has been published with three sets of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Naming {
    /// The first ESRGAN: modules by number.
    Esrgan,
    /// BSRGAN, RealSR and the later ESRGAN code.
    Bsrgan,
    /// Real-ESRGAN and BasicSR.
    RealEsrgan,
}

/// Factor of a dense block's result before it is added to the block's input.
const RESIDUAL_SCALE: f32 = 0.2;
/// Slope of the activation's negative side.
const NEGATIVE_SLOPE: f32 = 0.2;

impl Naming {
    fn first(self) -> &'static str {
        match self {
            Naming::Esrgan => "model.0",
            Naming::Bsrgan | Naming::RealEsrgan => "conv_first",
        }
    }

    /// The prefix of a block's number.
    fn blocks(self) -> &'static str {
        match self {
            Naming::Esrgan => "model.1.sub.",
            Naming::Bsrgan => "RRDB_trunk.",
            Naming::RealEsrgan => "body.",
        }
    }

    fn dense(self, block: usize, dense: usize) -> String {
        let rdb = if self == Naming::RealEsrgan { "rdb" } else { "RDB" };
        format!("{}{block}.{rdb}{dense}", self.blocks())
    }

    fn dense_conv(self, number: usize) -> String {
        // The first ESRGAN wrapped each convolution and its activation into a sequence.
        if self == Naming::Esrgan { format!("conv{number}.0") } else { format!("conv{number}") }
    }

    fn trunk(self, blocks: usize) -> String {
        match self {
            Naming::Esrgan => format!("model.1.sub.{blocks}"),
            Naming::Bsrgan => "trunk_conv".into(),
            Naming::RealEsrgan => "conv_body".into(),
        }
    }

    /// The convolution after the upsampling `number`, from 1.
    fn upsampling(self, number: usize) -> String {
        match self {
            // Upsampling, convolution and activation each count.
            Naming::Esrgan => format!("model.{}", 3 * number),
            Naming::Bsrgan => format!("upconv{number}"),
            Naming::RealEsrgan => format!("conv_up{number}"),
        }
    }

    fn high_resolution(self, upsamplings: usize) -> String {
        match self {
            Naming::Esrgan => format!("model.{}", 3 * upsamplings + 2),
            Naming::Bsrgan => "HRconv".into(),
            Naming::RealEsrgan => "conv_hr".into(),
        }
    }

    fn last(self, upsamplings: usize) -> String {
        match self {
            Naming::Esrgan => format!("model.{}", 3 * upsamplings + 4),
            Naming::Bsrgan | Naming::RealEsrgan => "conv_last".into(),
        }
    }
}

impl Architecture for RrdbNet {
    const NAME: &'static str = "RRDBNet";

    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &["conv_first.weight", "body.0.rdb1.conv1.weight", "conv_body.weight", "conv_last.weight"],
        &["model.0.weight", "model.1.sub.0.RDB1.conv1.0.weight"],
        &["conv_first.weight", "RRDB_trunk.0.RDB1.conv1.weight", "trunk_conv.weight", "conv_last.weight"],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let naming = if keys.contains("model.0.weight") {
            Naming::Esrgan
        } else if keys.contains("trunk_conv.weight") {
            Naming::Bsrgan
        } else {
            Naming::RealEsrgan
        };
        let members = keys.count(naming.blocks());
        // In the first naming, the trunk's convolution has the number after the last block.
        let blocks = if naming == Naming::Esrgan { members.saturating_sub(1) } else { members };
        let upsamplings = match naming {
            Naming::Esrgan => keys.count("model.").saturating_sub(5) / 3,
            _ => (1..).take_while(|number| keys.contains(&format!("{}.weight", naming.upsampling(*number)))).count(),
        };
        let [filters, inputs, ..] = keys.dims::<4>(&format!("{}.weight", naming.first()))?;
        let [channels, ..] = keys.dims::<4>(&format!("{}.weight", naming.last(upsamplings)))?;
        let dense = naming.dense(0, 1);
        let [growth, ..] = keys.dims::<4>(&format!("{dense}.{}.weight", naming.dense_conv(1)))?;
        let unshuffle = match inputs.checked_div(channels) {
            Some(1) => 1,
            Some(4) => 2,
            Some(16) => 4,
            _ => {
                return Err(Mismatch::new(format!(
                    "expected 1, 4 or 16 input channels for each of the {channels} outputs, found {inputs}"
                )));
            }
        };
        if upsamplings > 8 || (1 << upsamplings) < unshuffle {
            return Err(Mismatch::new(format!(
                "{upsamplings} upsamplings by 2 after an unshuffle by {unshuffle} are not supported"
            )));
        }
        let plus = keys.contains(&format!("{dense}.conv1x1.weight"));
        Ok(RrdbNet { naming, channels, filters, growth, blocks, upsamplings, unshuffle, plus })
    }

    fn contract(&self) -> Contract {
        // Two convolutions around the blocks, and five in each dense block. The convolutions at higher resolutions
        // reach less than three pixels further.
        let radius = (2 + 15 * self.blocks + 3) * self.unshuffle;
        Upscale {
            input: "image".into(),
            output: "upscaled".into(),
            scale: self.scale(),
            channels: self.channels,
            range: [0.0, 1.0],
            size_multiple: self.unshuffle,
            size_minimum: self.unshuffle,
            only_size: None,
            padding: Padding::Reflect,
            receptive_field: reach(radius),
            safe_precisions: vec![Precision::Fp32, Precision::Fp16, Precision::Bf16],
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input(w, "image", self.channels, shapes)?;
        let padded = pad_to_multiple(&image, self.unshuffle, Mirror::Reflect)?;
        let upscaled =
            self.network(w, &if self.unshuffle == 1 { padded } else { padded.pixel_unshuffle(self.unshuffle) });
        let upscaled = crop_to_image(&upscaled, &image, self.unshuffle, self.scale());
        w.trace().output("upscaled", &upscaled);
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = RrdbNet {
            naming: Naming::RealEsrgan,
            channels: 3,
            filters: 8,
            growth: 4,
            blocks: 1,
            upsamplings: 2,
            unshuffle: 1,
            plus: false,
        };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-esrgan", RrdbNet { naming: Naming::Esrgan, ..tiny.clone() }),
            ("tiny-bsrgan", RrdbNet { naming: Naming::Bsrgan, ..tiny.clone() }),
            ("tiny-x1", RrdbNet { naming: Naming::Esrgan, upsamplings: 0, ..tiny.clone() }),
            ("tiny-x2", RrdbNet { upsamplings: 1, ..tiny.clone() }),
            ("tiny-x8", RrdbNet { naming: Naming::Bsrgan, upsamplings: 3, ..tiny.clone() }),
            ("tiny-unshuffle-x2", RrdbNet { unshuffle: 2, ..tiny.clone() }),
            ("tiny-unshuffle-x1", RrdbNet { unshuffle: 4, ..tiny.clone() }),
            ("tiny-grey", RrdbNet { channels: 1, ..tiny.clone() }),
            ("tiny-plus", RrdbNet { naming: Naming::Esrgan, plus: true, ..tiny.clone() }),
            ("real-esrgan-x4plus", RrdbNet { filters: 64, growth: 32, blocks: 23, ..tiny.clone() }),
            ("real-esrgan-x2plus", RrdbNet { filters: 64, growth: 32, blocks: 23, unshuffle: 2, ..tiny.clone() }),
            ("real-esrgan-x4plus-anime-6b", RrdbNet { filters: 64, growth: 32, blocks: 6, ..tiny }),
        ]
    }
}

impl RrdbNet {
    fn scale(&self) -> usize {
        (1 << self.upsamplings) / self.unshuffle
    }

    /// `x`: `[batch, channels · unshuffle², height, width]`.
    fn network(&self, w: &Scope<'_>, x: &Value) -> Value {
        let shallow = conv2d(&w.at(self.naming.first()), x, self.filters, 3);
        let mut deep = shallow.clone();
        for block in 0..self.blocks {
            deep = self.residual_in_residual(w, &deep, block);
        }
        let mut x = &shallow + conv2d(&w.at(self.naming.trunk(self.blocks)), &deep, self.filters, 3);
        for number in 1..=self.upsamplings {
            let convolved = conv2d(&w.at(self.naming.upsampling(number)), &x.upsample_nearest(2), self.filters, 3);
            x = convolved.leaky_relu(NEGATIVE_SLOPE);
        }
        let x = conv2d(&w.at(self.naming.high_resolution(self.upsamplings)), &x, self.filters, 3)
            .leaky_relu(NEGATIVE_SLOPE);
        conv2d(&w.at(self.naming.last(self.upsamplings)), &x, self.channels, 3)
    }

    /// x + 0.2 · (three dense blocks of x).
    fn residual_in_residual(&self, w: &Scope<'_>, x: &Value, block: usize) -> Value {
        let mut y = x.clone();
        for dense in 1..=3 {
            y = self.dense(&w.at(self.naming.dense(block, dense)), &y);
        }
        y.scale_channels(RESIDUAL_SCALE) + x
    }

    /// x + 0.2 · (five convolutions, each of which reads x and the results of the earlier ones).
    fn dense(&self, w: &Scope<'_>, x: &Value) -> Value {
        let conv = |number: usize, input: &Value| conv2d(&w.at(self.naming.dense_conv(number)), input, self.growth, 3);
        let activated = |number: usize, input: &Value| conv(number, input).leaky_relu(NEGATIVE_SLOPE);
        let x1 = activated(1, x);
        let mut x2 = activated(2, &x.concat(&[&x1], 1));
        if self.plus {
            let weight = w.at("conv1x1").tensor("weight", [self.growth, self.filters, 1, 1]);
            x2 = x2 + x.conv(&weight, None, &ConvOptions::same(1));
        }
        let x3 = activated(3, &x.concat(&[&x1, &x2], 1));
        let mut x4 = activated(4, &x.concat(&[&x1, &x2, &x3], 1));
        if self.plus {
            x4 = x4 + &x2;
        }
        let x5 = conv2d(&w.at(self.naming.dense_conv(5)), &x.concat(&[&x1, &x2, &x3, &x4], 1), self.filters, 3);
        x5.scale(RESIDUAL_SCALE) + x
    }
}
