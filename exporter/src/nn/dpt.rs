//! The head of a dense prediction transformer: from the patches after several blocks to one value for each pixel.
//!
//! Paper: <https://arxiv.org/abs/2103.13413>. Reference: transformers,
//! `models/depth_anything/modeling_depth_anything.py`, and <https://github.com/DepthAnything/Depth-Anything-V2>,
//! `depth_anything_v2/dpt.py`.

use super::{Naming, Scope, conv_transpose2d, conv2d, downsample};
use serde::Serialize;
use tileforge_graph::{ConvOptions, Value};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dpt {
    /// Names of the layers.
    pub naming: Naming,
    /// Channels of each of the four features when they have become images.
    pub widths: [usize; 4],
    /// Channels of the fused features.
    pub features: usize,
    /// Channels before the last convolution.
    pub head: usize,
}

impl Dpt {
    /// `patches` `[batch, rows · columns, width]` from the first to the last → `[batch, 1, height, width]`, positive.
    pub fn apply(
        &self,
        w: &Scope<'_>,
        patches: &[Value; 4],
        [rows, columns]: [usize; 2],
        [height, width]: [usize; 2],
    ) -> Value {
        let levels: [Value; 4] = std::array::from_fn(|i| self.level(w, &patches[i], i, [rows, columns]));
        let size = |level: &Value| [level.fixed(2), level.fixed(3)];
        // Each level is resized to the next finer one, and the finest to twice its size.
        let [finest, second, third, coarsest] = &levels;
        let x = self.fuse(w, None, coarsest, 3, size(third));
        let x = self.fuse(w, Some(&x), third, 2, size(second));
        let x = self.fuse(w, Some(&x), second, 1, size(finest));
        let x = self.fuse(w, Some(&x), finest, 0, size(finest).map(|side| 2 * side));
        let [first, second, third] = match self.naming {
            Naming::Original => ["scratch.output_conv1", "scratch.output_conv2.0", "scratch.output_conv2.2"],
            Naming::Transformers => ["head.conv1", "head.conv2", "head.conv3"],
        };
        let x = conv2d(&w.at(first), &x, self.features / 2, 3).resize_bilinear_to_corners(height, width);
        let x = conv2d(&w.at(second), &x, self.head, 3).relu();
        conv2d(&w.at(third), &x, 1, 1).relu()
    }

    /// Whether a tensor belongs to the one layer that the network does not use: the first level is not added to
    /// anything.
    pub fn ignores(&self, name: &str) -> bool {
        let unused = match self.naming {
            Naming::Original => "scratch.refinenet4.resConfUnit1.",
            Naming::Transformers => "neck.fusion_stage.layers.0.residual_layer1.",
        };
        name.starts_with(unused)
    }

    /// One feature as an image with [`Dpt::features`] channels, at 4, 2, 1 or 0.5 times the size of the patches.
    fn level(&self, w: &Scope<'_>, patches: &Value, number: usize, [rows, columns]: [usize; 2]) -> Value {
        let (project, resize, last) = match self.naming {
            Naming::Original => (
                format!("projects.{number}"),
                format!("resize_layers.{number}"),
                format!("scratch.layer{}_rn", number + 1),
            ),
            Naming::Transformers => {
                let stage = format!("neck.reassemble_stage.layers.{number}");
                (format!("{stage}.projection"), format!("{stage}.resize"), format!("neck.convs.{number}"))
            }
        };
        let width = super::width(patches) as i64;
        let image = patches.transpose(&[0, 2, 1]).reshape(&[0, width, rows as i64, columns as i64]);
        let x = conv2d(&w.at(project), &image, self.widths[number], 1);
        let x = match number {
            0 => conv_transpose2d(&w.at(resize), &x, self.widths[0], 4, 4),
            1 => conv_transpose2d(&w.at(resize), &x, self.widths[1], 2, 2),
            2 => x,
            _ => downsample(&w.at(resize), &x, self.widths[number], [1, 1]),
        };
        let weight = w.at(last).tensor("weight", [self.features, self.widths[number], 3, 3]);
        x.conv(&weight, None, &ConvOptions::same(3))
    }

    /// Adds a finer level to the fused coarser levels, and resizes the sum to the next finer level.
    fn fuse(
        &self,
        w: &Scope<'_>,
        coarser: Option<&Value>,
        level: &Value,
        number: usize,
        [height, width]: [usize; 2],
    ) -> Value {
        let (w, units, output) = match self.naming {
            Naming::Original => {
                (w.at(format!("scratch.refinenet{}", number + 1)), ["resConfUnit1", "resConfUnit2"], "out_conv")
            }
            Naming::Transformers => (
                w.at(format!("neck.fusion_stage.layers.{}", 3 - number)),
                ["residual_layer1", "residual_layer2"],
                "projection",
            ),
        };
        let x = coarser.map_or_else(|| level.clone(), |coarser| coarser + self.residual(&w.at(units[0]), level));
        let x = self.residual(&w.at(units[1]), &x);
        // The reference convolves after the interpolation. A 1×1 convolution and an interpolation commute, and the
        // image is smaller before.
        conv2d(&w.at(output), &x, self.features, 1).resize_bilinear_to_corners(height, width)
    }

    /// `x` + two convolutions, each after a ReLU.
    fn residual(&self, w: &Scope<'_>, x: &Value) -> Value {
        let names = if self.naming == Naming::Original { ["conv1", "conv2"] } else { ["convolution1", "convolution2"] };
        let y = names.iter().fold(x.clone(), |y, name| conv2d(&w.at(name), &y.relu(), self.features, 3));
        y + x
    }
}
