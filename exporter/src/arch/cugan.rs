//! Real-CUGAN: two U-Nets in a row, whose channels are weighted by a function of their means, for drawn pictures.
//!
//! Upstream: <https://github.com/bilibili/ailab>, `Real-CUGAN/upcunet_v3.py`. Reference: spandrel 0.4.2,
//! `architectures/RealCUGAN`.

use super::{Architecture, Keys, Mismatch, picture};
use crate::nn::{
    Conv2d, Scope, channel_weights, channels, crop_to_image, image_input_of_multiples, pad_around, repeat_channels,
};
use crate::{Contract, Error, Result, Shapes};
use serde::Serialize;
use tileforge_contract::Upscale;
use tileforge_graph::Value;

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Cugan {
    /// Channels of the image, in and out.
    channels: usize,
    form: Form,
    /// Filters of the first convolution of each U-Net. All others are this wide, or 2, 4 or 8 times.
    filters: usize,
    /// Channels between the two layers of the narrower channel attentions. The wider ones have twice as many.
    squeezed: usize,
    /// Whether the network works on values of 0.15 … 0.85. Checkpoints of such networks are marked.
    pro: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    X2,
    X3,
    X4,
    /// ×2 of an unshuffled image.
    Fast,
}

/// Slope of the activations' negative side.
const SLOPE: f32 = 0.1;
/// Factor and offset of the values inside of a network for 0.15 … 0.85.
const PRO: [f32; 2] = [0.7, 0.15];
/// Pixels that the second U-Net cuts from each side.
const CUT: usize = 20;

impl Architecture for Cugan {
    const NAME: &'static str = "RealCUGAN";

    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "unet1.conv1.conv.0.weight",
        "unet1.conv1.conv.2.weight",
        "unet1.conv1_down.weight",
        "unet1.conv2.conv.0.weight",
        "unet1.conv2.conv.2.weight",
        "unet1.conv2.seblock.conv1.weight",
        "unet1.conv2_up.weight",
        "unet1.conv_bottom.weight",
        "unet2.conv1.conv.0.weight",
        "unet2.conv1_down.weight",
        "unet2.conv2.conv.0.weight",
        "unet2.conv2.seblock.conv1.weight",
        "unet2.conv3.conv.0.weight",
        "unet2.conv3.seblock.conv1.weight",
        "unet2.conv3_up.weight",
        "unet2.conv4.conv.0.weight",
        "unet2.conv4_up.weight",
        "unet2.conv5.weight",
        "unet2.conv_bottom.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [filters, inputs, ..] = keys.dims::<4>("unet1.conv1.conv.0.weight")?;
        let [_, _, enlarging, _] = keys.dims::<4>("unet1.conv_bottom.weight")?;
        let (form, outputs) = if keys.contains("conv_final.weight") {
            let [shuffled, ..] = keys.dims::<4>("conv_final.weight")?;
            // A fast network reads four pixels of each channel. Its tensors look like those of a ×4 network for four
            // times the channels, which does not exist.
            (if shuffled == inputs { Form::Fast } else { Form::X4 }, shuffled / 4)
        } else {
            let [outputs, ..] = keys.dims::<4>("unet2.conv_bottom.weight")?;
            (if enlarging == 5 { Form::X3 } else { Form::X2 }, outputs)
        };
        let channels = if form == Form::Fast { inputs / 4 } else { inputs };
        if outputs != channels || channels == 0 {
            return Err(Mismatch::new(format!("expected as many channels in as out, found {channels} and {outputs}")));
        }
        let [squeezed, ..] = keys.dims::<4>("unet1.conv2.seblock.conv1.weight")?;
        // The mark is a tensor, or in upstream's own files a text.
        let pro = keys.contains("pro") || keys.hint("pro").is_some_and(|mark| mark != "false");
        Ok(Cugan { channels, form, filters, squeezed, pro: pro && form != Form::Fast })
    }

    fn contract(&self) -> Contract {
        Upscale {
            size_multiple: self.form.multiple(),
            size_minimum: self.form.least(),
            ..picture(self.form.scale(), self.channels)
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let image = image_input_of_multiples(w, "image", self.channels, self.form.multiple(), shapes)?;
        let least = self.form.least();
        let [_, _, height, width] = image.dims();
        if let Some(size) = [height, width].iter().filter_map(tileforge_graph::Dim::fixed).find(|size| *size < least) {
            return Err(Error::ImageTooSmall { size, extended: size + 2 * self.form.around(), least });
        }
        w.trace().output("upscaled", &self.network(w, &image));
        Ok(())
    }

    /// Ignores the mark, which has no value.
    fn ignores(&self, name: &str) -> bool {
        name == "pro"
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        if self.pro { vec![("pro", "true".into())] } else { Vec::new() }
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = Cugan { channels: 3, form: Form::X2, filters: 2, squeezed: 2, pro: false };
        let published = Cugan { filters: 32, squeezed: 8, ..tiny.clone() };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-pro-x3", Cugan { form: Form::X3, pro: true, ..tiny.clone() }),
            ("tiny-x4", Cugan { form: Form::X4, ..tiny.clone() }),
            ("tiny-pro-x4", Cugan { form: Form::X4, pro: true, ..tiny.clone() }),
            ("tiny-fast-x2", Cugan { form: Form::Fast, ..tiny.clone() }),
            ("tiny-grey-x2", Cugan { channels: 1, ..tiny }),
            ("cugan-x2", published.clone()),
            ("cugan-x3", Cugan { form: Form::X3, ..published.clone() }),
            ("cugan-x4", Cugan { form: Form::X4, ..published.clone() }),
            ("cugan-pro-x2", Cugan { pro: true, ..published.clone() }),
            ("cugan-fast-x2", Cugan { form: Form::Fast, ..published }),
        ]
    }
}

impl Form {
    fn scale(self) -> usize {
        match self {
            Form::X2 | Form::Fast => 2,
            Form::X3 => 3,
            Form::X4 => 4,
        }
    }

    /// Sizes are multiples of this: they are halved twice after they were enlarged.
    fn multiple(self) -> usize {
        match self {
            Form::X2 | Form::X4 => 2,
            Form::X3 | Form::Fast => 4,
        }
    }

    /// Pixels that are added on each side; the U-Nets cut them off again.
    fn around(self) -> usize {
        match self {
            Form::X2 => 18,
            Form::X3 => 14,
            Form::X4 => 19,
            Form::Fast => 38,
        }
    }

    /// The smallest side that has enough pixels to mirror.
    fn least(self) -> usize {
        if self == Form::Fast { 40 } else { 20 }
    }
}

impl Cugan {
    /// `image`: `[batch, channels, height, width]`.
    fn network(&self, w: &Scope<'_>, image: &Value) -> Value {
        let image = if self.pro { image.scale(PRO[0]).offset(PRO[1]) } else { image.clone() };
        let (multiple, scale) = (self.form.multiple(), self.form.scale());
        let padded = pad_around(&image, multiple, self.form.around());
        let shuffled = 4 * self.channels;
        let upscaled = match self.form {
            Form::X2 | Form::X3 => {
                let x = self.first(&w.at("unet1"), &padded, self.channels);
                let y = self.second(&w.at("unet2"), &x, self.channels);
                crop_to_image(&(y + x.crop_border(CUT)), &image, multiple, scale)
            }
            // The image in larger pixels is added before the shuffle, where it has fewer values.
            Form::X4 => {
                let details = self.details(w, &padded, shuffled);
                let details = crop_to_image(&details, &image, multiple, 2);
                (details + repeat_channels(&image.upsample_nearest(2), 4)).depth_to_space(2)
            }
            Form::Fast => {
                let details = self.details(w, &padded.pixel_unshuffle(2), shuffled).depth_to_space(2);
                crop_to_image(&details, &image, multiple, 2) + image.upsample_nearest(2)
            }
        };
        if self.pro { upscaled.offset(-PRO[1]).scale(1.0 / PRO[0]) } else { upscaled }
    }

    /// Both U-Nets, and a convolution of the sum of their features: twice as large as `x` without its padding.
    fn details(&self, w: &Scope<'_>, x: &Value, filters: usize) -> Value {
        let x = self.first(&w.at("unet1"), x, 2 * self.filters);
        let y = self.second(&w.at("unet2"), &x, 2 * self.filters);
        // Upstream cuts one pixel more after the last convolution.
        let sum = y.crop_border(1) + x.crop_border(CUT + 1);
        Conv2d::new(filters, 3).padded(0).apply(&w.at("conv_final"), &sum)
    }

    /// A U-Net of two levels that enlarges its image, by 3 or by 2.
    fn first(&self, w: &Scope<'_>, x: &Value, outputs: usize) -> Value {
        let f = self.filters;
        let fine = self.convolutions(&w.at("conv1"), x, [f, 2 * f], None);
        let coarse = halve(&w.at("conv1_down"), &fine);
        let coarse = self.convolutions(&w.at("conv2"), &coarse, [4 * f, 2 * f], Some(self.squeezed));
        let sum = fine.crop_border(4) + double(&w.at("conv2_up"), &coarse);
        let x = Conv2d::new(2 * f, 3).padded(0).apply(&w.at("conv3"), &sum).leaky_relu(SLOPE);
        let [kernel, stride, cut] = if self.form == Form::X3 { [5, 3, 2] } else { [4, 2, 3] };
        transposed(&w.at("conv_bottom"), &x, outputs, [kernel, stride, cut])
    }

    /// A U-Net of three levels that keeps the size, except for [`CUT`] pixels.
    fn second(&self, w: &Scope<'_>, x: &Value, outputs: usize) -> Value {
        let (f, squeezed) = (self.filters, self.squeezed);
        let fine = self.convolutions(&w.at("conv1"), x, [f, 2 * f], None);
        let middle = halve(&w.at("conv1_down"), &fine);
        let middle = self.convolutions(&w.at("conv2"), &middle, [2 * f, 4 * f], Some(2 * squeezed));
        let coarse = halve(&w.at("conv2_down"), &middle);
        let coarse = self.convolutions(&w.at("conv3"), &coarse, [8 * f, 4 * f], Some(2 * squeezed));
        let middle = middle.crop_border(4) + double(&w.at("conv3_up"), &coarse);
        let middle = self.convolutions(&w.at("conv4"), &middle, [2 * f, 2 * f], Some(squeezed));
        let fine = fine.crop_border(16) + double(&w.at("conv4_up"), &middle);
        let x = Conv2d::new(2 * f, 3).padded(0).apply(&w.at("conv5"), &fine).leaky_relu(SLOPE);
        Conv2d::new(outputs, 3).padded(0).apply(&w.at("conv_bottom"), &x)
    }

    /// Two convolutions without padding, whose channels may be weighted by a function of their means.
    fn convolutions(&self, w: &Scope<'_>, x: &Value, filters: [usize; 2], squeezed: Option<usize>) -> Value {
        let x = Conv2d::new(filters[0], 3).padded(0).apply(&w.at("conv.0"), x).leaky_relu(SLOPE);
        let x = Conv2d::new(filters[1], 3).padded(0).apply(&w.at("conv.2"), &x).leaky_relu(SLOPE);
        match squeezed {
            Some(squeezed) => &x * channel_weights([&w.at("seblock.conv1"), &w.at("seblock.conv2")], &x, squeezed),
            None => x,
        }
    }
}

/// A convolution of each 2 × 2 pixels.
fn halve(w: &Scope<'_>, x: &Value) -> Value {
    Conv2d::new(channels(x), 2).padded(0).strided(2).apply(w, x).leaky_relu(SLOPE)
}

/// Each pixel becomes 2 × 2 pixels.
fn double(w: &Scope<'_>, x: &Value) -> Value {
    transposed(w, x, channels(x), [2, 2, 0]).leaky_relu(SLOPE)
}

/// A transposed convolution that cuts pixels from each side.
fn transposed(w: &Scope<'_>, x: &Value, filters: usize, [kernel, stride, cut]: [usize; 3]) -> Value {
    let weight = w.tensor("weight", [channels(x), filters, kernel, kernel]);
    x.conv_transpose(&weight, Some(&w.tensor("bias", [filters])), stride, cut)
}
