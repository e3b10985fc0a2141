//! LaMa: fills in what a mask covers, by convolutions of an image and of its spectrum.
//!
//! Paper: <https://arxiv.org/abs/2109.07161>; fast Fourier convolutions:
//! <https://papers.nips.cc/paper/2020/hash/2fd5d41ec6cfab47e32164d5624269b1-Abstract.html>. Upstream:
//! <https://github.com/advimman/lama>, `saicinpainting/training/modules/ffc.py`. Reference: spandrel 0.4.2,
//! `architectures/LaMa`.

use super::{Architecture, Keys, Mismatch};
use crate::nn::{
    BATCH_NORM_EPSILON, Conv2d, Fourier, Scope, batch_norm_of_sum, channels, conv_transpose2d_batch_norm,
    conv2d_batch_norm,
};
use crate::{Contract, Error, Result, Shapes, Task};
use serde::Serialize;
use tileforge_contract::{Inpaint, Precision};
use tileforge_graph::{Border, Constant, DataType, Dim, TensorType, Value};

/// Hyperparameters. All of them follow from names and shapes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LaMa {
    /// Width of the first convolution. It doubles with each halving of the image.
    filters: usize,
    /// How often the image is halved.
    halvings: usize,
    /// Residual blocks at the smallest size.
    blocks: usize,
    /// Channels of the smallest size that are transformed.
    transformed: usize,
    /// What the names of the network's tensors begin with.
    #[serde(skip)]
    names: Names,
}

/// The names of the network in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// `model.1`, what is left of `model.model.1`.
    Bare,
    /// `generator.model.1`, as upstream's training saves them.
    Generator,
}

impl Names {
    const ALL: [Self; 2] = [Self::Bare, Self::Generator];

    fn prefix(self) -> &'static str {
        match self {
            Self::Bare => "model",
            Self::Generator => "generator.model",
        }
    }
}

/// Channels of the image, and with its mask.
const COLOURS: usize = 3;
const INPUTS: usize = COLOURS + 1;
/// Upstream pads the first and the last convolution by this.
const BORDER: usize = 3;
/// The number of the first layer: a border stands before it.
const FIRST: usize = 1;

impl Architecture for LaMa {
    const NAME: &'static str = "LaMa";

    const TASK: Task = Task::Inpaint;

    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &["model.1.bn_l.running_mean", "model.1.ffc.convl2l.weight", "model.2.ffc.convl2l.weight"],
        &[
            "generator.model.1.bn_l.running_mean",
            "generator.model.1.ffc.convl2l.weight",
            "generator.model.2.ffc.convl2l.weight",
        ],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let has = |names: &Names| keys.contains(&format!("{}.1.bn_l.running_mean", names.prefix()));
        let names = Names::ALL.into_iter().find(has).unwrap_or(Names::Bare);
        let at = |layer: usize, name: &str| format!("{}.{layer}.{name}", names.prefix());
        let [filters, inputs, ..] = keys.dims::<4>(&at(FIRST, "ffc.convl2l.weight"))?;
        if inputs != INPUTS {
            return Err(Mismatch::new(format!("expected a first layer of {INPUTS} channels, found {inputs}")));
        }
        let halvings = (FIRST + 1..).take_while(|layer| keys.contains(&at(*layer, "ffc.convl2l.weight"))).count();
        if !(1..=MOST_HALVINGS).contains(&halvings) {
            return Err(Mismatch::new(format!(
                "expected 1 to {MOST_HALVINGS} halvings of the image, found {halvings}"
            )));
        }
        let block = FIRST + 1 + halvings;
        let blocks = (block..).take_while(|layer| keys.contains(&at(*layer, "conv1.ffc.convl2l.weight"))).count();
        let [transformed, ..] = keys.dims::<4>(&at(block, "conv1.ffc.convl2g.weight"))?;
        let [outputs, ..] = keys.dims::<4>(&at(block + blocks + 1 + 3 * halvings + 1, "weight"))?;
        if outputs != COLOURS {
            return Err(Mismatch::new(format!("expected {COLOURS} channels out, found {outputs}")));
        }
        let found = LaMa { filters, halvings, blocks, transformed, names };
        if !(2..found.widest()).contains(&transformed) || !transformed.is_multiple_of(2) {
            let expected = format!("an even part of {} channels that are transformed", found.widest());
            return Err(Mismatch::new(format!("expected {expected}, found {transformed}")));
        }
        Ok(found)
    }

    fn contract(&self) -> Contract {
        Inpaint {
            image: "image".into(),
            mask: "mask".into(),
            output: "inpainted".into(),
            range: [0.0, 1.0],
            size_multiple: self.multiple(),
            // The smallest image that its border can be mirrored in, after all halvings.
            size_minimum: 2 * self.multiple(),
            // Upstream transforms in FP32: the first number of a spectrum is a sum over the image.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
        }
        .contract()
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let [batch, height, width] = ["batch", "height", "width"].map(Dim::symbol);
        let sides = [height, width].map(|side| side.times(self.multiple()).unwrap_or(side));
        let dims = |channels: usize| [&[batch.clone(), Dim::Fixed(channels)][..], &sides].concat();
        let (of_image, of_mask) = (dims(COLOURS), dims(1));
        let [image, mask] = shapes.resolve([("image", &of_image), ("mask", &of_mask)])?;
        let sizes = image[2..].iter().map(Dim::fixed).collect::<Option<Vec<usize>>>();
        let Some([height, width]) = sizes.as_deref().and_then(|sizes| <[usize; 2]>::try_from(sizes).ok()) else {
            let example = vec![1, COLOURS, 512, 512];
            return Err(Error::NeedsFixedShape {
                input: "image".into(),
                reason: "its transforms are constants",
                example,
            });
        };
        if let Some(size) = [height, width].into_iter().find(|size| *size < 2 * self.multiple()) {
            let least = 2 * self.multiple();
            return Err(Error::ImageTooSmall { size, extended: size, least });
        }
        let image = w.trace().input("image", TensorType::new(DataType::F32, image));
        let mask = w.trace().input("mask", TensorType::new(DataType::F32, mask));
        let kept = w.trace().constant("one", &[], Constant::F32(&[1.0])) - &mask;
        let shown = &image * &kept;
        let made = self.network(&w.at(self.names.prefix()), &shown.concat(&[&mask], 1), [height, width]);
        w.trace().output("inpainted", &(made * mask + image * kept));
        Ok(())
    }

    /// Ignores counters of the training, and in upstream's checkpoints the discriminators.
    fn ignores(&self, name: &str) -> bool {
        name.ends_with(".num_batches_tracked") || (self.names == Names::Generator && !name.starts_with("generator."))
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let published = LaMa { filters: 64, halvings: 3, blocks: 18, transformed: 384, names: Names::Generator };
        let tiny = LaMa { filters: 4, halvings: 3, blocks: 2, transformed: 24, names: Names::Bare };
        vec![
            ("tiny", tiny.clone()),
            ("tiny-training", LaMa { filters: 8, halvings: 2, blocks: 1, names: Names::Generator, ..tiny.clone() }),
            ("tiny-one-halving", LaMa { halvings: 1, blocks: 1, transformed: 6, ..tiny }),
            ("big-lama", published),
        ]
    }

    fn example_shapes(&self) -> Shapes {
        // Even and odd numbers of columns have different transforms.
        let [height, width] = [2 * self.multiple(), 3 * self.multiple()];
        Shapes::from(
            [("image", COLOURS), ("mask", 1)]
                .map(|(name, channels)| (name.to_owned(), vec![1, channels, height, width]))
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>(),
        )
    }
}

/// An image is never halved more often in a checkpoint that can be exported.
const MOST_HALVINGS: usize = 6;

/// Features that are convolved directly, and features that are convolved in their spectra.
#[derive(Debug, Clone)]
struct Parts {
    local: Value,
    global: Option<Value>,
}

impl LaMa {
    /// Heights and widths are multiples of this.
    fn multiple(&self) -> usize {
        1 << self.halvings
    }

    /// Channels at the smallest size.
    fn widest(&self) -> usize {
        self.filters << self.halvings
    }

    /// `x`: the image without what the mask covers, and the mask. `size`: its height and width.
    fn network(&self, w: &Scope<'_>, x: &Value, [height, width]: [usize; 2]) -> Value {
        let fourier = Fourier::new([height >> self.halvings, width >> self.halvings]);
        let first = Conv2d::new(self.filters, 2 * BORDER + 1).padded(0).unbiased();
        let x = x.pad([BORDER; 4], Border::Reflect);
        let at = w.at(FIRST.to_string());
        let local = conv2d_batch_norm(first, [&at.at("ffc.convl2l"), &at.at("bn_l")], &x, BATCH_NORM_EPSILON).relu();
        let mut parts = Parts { local, global: None };
        let mut layer = FIRST + 1;
        for halving in 1..=self.halvings {
            let filters = self.filters << halving;
            let transformed = if halving == self.halvings { self.transformed } else { 0 };
            let widths = [filters - transformed, transformed];
            parts = convolve(&w.at(layer.to_string()), &parts, widths, 2, &fourier);
            layer += 1;
        }
        let widths = [self.widest() - self.transformed, self.transformed];
        for _ in 0..self.blocks {
            let w = w.at(layer.to_string());
            let inner = convolve(&w.at("conv1"), &parts, widths, 1, &fourier);
            let inner = convolve(&w.at("conv2"), &inner, widths, 1, &fourier);
            let global = parts.global.as_ref().zip(inner.global).map(|(x, inner)| x + inner);
            parts = Parts { local: &parts.local + inner.local, global };
            layer += 1;
        }
        let mut x = match &parts.global {
            Some(global) => parts.local.concat(&[global], 1),
            None => parts.local,
        };
        // A layer that joins the parts has a number, too; so has each activation.
        layer += 1;
        for halving in (0..self.halvings).rev() {
            let scopes = [w.at(layer.to_string()), w.at((layer + 1).to_string())];
            let filters = self.filters << halving;
            x = conv_transpose2d_batch_norm(scopes.each_ref(), &x, filters, BATCH_NORM_EPSILON).relu();
            layer += 3;
        }
        let last = Conv2d::new(COLOURS, 2 * BORDER + 1).padded(0);
        last.apply(&w.at((layer + 1).to_string()), &x.pad([BORDER; 4], Border::Reflect)).sigmoid()
    }
}

/// A fast Fourier convolution with `[local, global]` filters, a normalisation and an activation. The step from global
/// to global features works on spectra; all other steps are convolutions of side 3.
fn convolve(w: &Scope<'_>, x: &Parts, [local, global]: [usize; 2], stride: usize, fourier: &Fourier) -> Parts {
    let ffc = w.at("ffc");
    let bordered = |x: &Value| x.pad([1; 4], Border::Reflect);
    let convolution = |filters: usize| Conv2d::new(filters, 3).padded(0).strided(stride).unbiased();
    let (of_local, of_global) = (bordered(&x.local), x.global.as_ref().map(bordered));
    let [l2l, g2l, l2g, spectral] = ["convl2l", "convg2l", "convl2g", "convg2g.conv2"].map(|name| ffc.at(name));
    let mut parts = vec![(convolution(local), &l2l, &of_local)];
    parts.extend(of_global.as_ref().map(|x| (convolution(local), &g2l, x)));
    let made = batch_norm_of_sum(&parts, &w.at("bn_l"), BATCH_NORM_EPSILON).relu();
    if global == 0 {
        return Parts { local: made, global: None };
    }
    let transformed = x.global.as_ref().map(|x| spectral_features(&ffc.at("convg2g"), x, global / 2, fourier));
    let mut parts = vec![(convolution(global), &l2g, &of_local)];
    parts.extend(transformed.as_ref().map(|x| (Conv2d::new(global, 1).unbiased(), &spectral, x)));
    Parts { local: made, global: Some(batch_norm_of_sum(&parts, &w.at("bn_g"), BATCH_NORM_EPSILON).relu()) }
}

/// Features plus what a convolution of side 1 makes of their spectrum.
fn spectral_features(w: &Scope<'_>, x: &Value, filters: usize, fourier: &Fourier) -> Value {
    let pointwise = |filters: usize, conv: &Scope<'_>, norm: &Scope<'_>, x: &Value| {
        conv2d_batch_norm(Conv2d::new(filters, 1).unbiased(), [conv, norm], x, BATCH_NORM_EPSILON).relu()
    };
    let x = pointwise(filters, &w.at("conv1.0"), &w.at("conv1.1"), x);
    let unit = w.at("fu");
    let spectrum = fourier.spectrum(&unit, &x);
    let spectrum = pointwise(2 * channels(&x), &unit.at("conv_layer"), &unit.at("bn"), &spectrum);
    &x + fourier.image(&unit, &spectrum)
}
