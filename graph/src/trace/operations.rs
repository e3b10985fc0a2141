//! The operations of a [`Value`].

use super::{Constant, Value};
use crate::DataType;
use std::ops::{Add, Mul, Sub};

/// Everything about a convolution but its weight. Lists hold one number for each spatial dimension.
#[derive(Debug, Clone)]
pub struct ConvOptions {
    /// Steps between windows.
    pub strides: Vec<i64>,
    /// Zeros added at the beginnings, then at the ends.
    pub pads: Vec<i64>,
    /// Distance of the kernel's taps.
    pub dilations: Vec<i64>,
    /// Number of groups that the channels are split into.
    pub groups: i64,
}

impl ConvOptions {
    /// A 2-D convolution of stride 1 that keeps the size, for an odd kernel.
    pub fn same(kernel: usize) -> Self {
        let pad = (kernel / 2) as i64;
        ConvOptions { strides: vec![1; 2], pads: vec![pad; 4], dilations: vec![1; 2], groups: 1 }
    }
}

impl Value {
    /// Convolution with `weight` `[filters, channels / groups, kernel…]` and an optional `bias` `[filters]`.
    #[must_use]
    pub fn conv(&self, weight: &Value, bias: Option<&Value>, options: &ConvOptions) -> Value {
        let mut inputs = vec![self, weight];
        inputs.extend(bias);
        // Attributes that have their default are left out: what stands in a graph, and in its review, says something.
        let list = |name, values: &Vec<i64>, default| values.iter().any(|v| *v != default).then(|| (name, values.clone().into()));
        let lists = [list("strides", &options.strides, 1), list("pads", &options.pads, 0), list("dilations", &options.dilations, 1)];
        let groups = (options.groups != 1).then(|| ("group", options.groups.into()));
        self.trace.node("Conv", &inputs, lists.into_iter().flatten().chain(groups))
    }

    /// The positive part.
    #[must_use]
    pub fn relu(&self) -> Value {
        self.trace.node("Relu", &[self], [])
    }

    /// `x` where it is positive, `slope · x` elsewhere.
    #[must_use]
    pub fn leaky_relu(&self, slope: f32) -> Value {
        self.trace.node("LeakyRelu", &[self], [("alpha", slope.into())])
    }

    /// As [`Value::leaky_relu`], with a learned slope that stretches to this value's shape.
    #[must_use]
    pub fn prelu(&self, slope: &Value) -> Value {
        self.trace.node("PRelu", &[self, slope], [])
    }

    /// The same values in another type.
    #[must_use]
    pub fn cast(&self, to: DataType) -> Value {
        if self.ty.data_type == to {
            return self.clone();
        }
        self.trace.node("Cast", &[self], [("to", i64::from(to.to_onnx()).into())])
    }

    /// This value, then the others, along `axis`.
    #[must_use]
    pub fn concat(&self, others: &[&Value], axis: i64) -> Value {
        let parts: Vec<&Value> = std::iter::once(self).chain(others.iter().copied()).collect();
        self.trace.node("Concat", &parts, [("axis", axis.into())])
    }

    /// Pixel shuffle: `[batch, channels · block², height, width]` → `[batch, channels, height · block, width · block]`, with the
    /// channels in PyTorch's order (ONNX calls it CRD).
    #[must_use]
    pub fn depth_to_space(&self, block: usize) -> Value {
        self.trace.node("DepthToSpace", &[self], [("blocksize", (block as i64).into()), ("mode", "CRD".into())])
    }

    /// Pixel unshuffle in PyTorch's channel order: `[batch, channels, height, width]` →
    /// `[batch, channels · block², height / block, width / block]`.
    ///
    /// ONNX's SpaceToDepth puts the position in the block first and the channel second; a gather puts them in order.
    #[must_use]
    pub fn pixel_unshuffle(&self, block: usize) -> Value {
        let [_, channels, ..] = self.dims::<4>();
        let channels = channels.fixed().unwrap_or(1);
        let shuffled = self.trace.node("SpaceToDepth", &[self], [("blocksize", (block as i64).into())]);
        if channels == 1 || block == 1 {
            return shuffled;
        }
        // Channel b·channels + c goes to c·block² + b.
        let area = block * block;
        let order: Vec<i64> = (0..channels * area).map(|to| ((to % area) * channels + to / area) as i64).collect();
        shuffled.gather(&order, 1)
    }

    /// The entries `indices` along `axis`, in that order.
    #[must_use]
    pub fn gather(&self, indices: &[i64], axis: i64) -> Value {
        let indices = self.trace.constant("indices", &[indices.len()], Constant::I64(indices));
        self.trace.node("Gather", &[self, &indices], [("axis", axis.into())])
    }

    /// Each pixel of an image becomes `factor` × `factor` equal pixels.
    #[must_use]
    pub fn upsample_nearest(&self, factor: usize) -> Value {
        let scales = self.trace.constant("scales", &[4], Constant::F32(&[1.0, 1.0, factor as f32, factor as f32]));
        let none = self.trace.absent();
        let attributes =
            [("mode", "nearest".into()), ("coordinate_transformation_mode", "asymmetric".into()), ("nearest_mode", "floor".into())];
        self.trace.node("Resize", &[self, &none, &scales], attributes)
    }

    /// Adds rows below and columns to the right of an image by mirroring at the last pixel, which is not repeated.
    #[must_use]
    pub fn pad_reflect(&self, bottom: usize, right: usize) -> Value {
        if bottom == 0 && right == 0 {
            return self.clone();
        }
        let pads = self.trace.constant("pads", &[4], Constant::I64(&[0, 0, bottom as i64, right as i64]));
        let none = self.trace.absent();
        let axes = self.trace.constant("axes", &[2], Constant::I64(&[2, 3]));
        self.trace.node("Pad", &[self, &pads, &none, &axes], [("mode", "reflect".into())])
    }

    /// The part of an image from the top left corner.
    #[must_use]
    pub fn crop(&self, height: usize, width: usize) -> Value {
        let starts = self.trace.constant("starts", &[2], Constant::I64(&[0, 0]));
        let ends = self.trace.constant("ends", &[2], Constant::I64(&[height as i64, width as i64]));
        let axes = self.trace.constant("axes", &[2], Constant::I64(&[2, 3]));
        self.trace.node("Slice", &[self, &starts, &ends, &axes], [])
    }

    /// Every element times a number.
    #[must_use]
    pub fn scale(&self, factor: f32) -> Value {
        self * &self.trace.constant("factor", &[], Constant::F32(&[factor]))
    }
}

macro_rules! binary_operator {
    ($trait:ident, $method:ident, $operator:literal) => {
        impl $trait<&Value> for &Value {
            type Output = Value;

            fn $method(self, other: &Value) -> Value {
                self.trace.node($operator, &[self, other], [])
            }
        }

        impl $trait<Value> for &Value {
            type Output = Value;

            fn $method(self, other: Value) -> Value {
                self.$method(&other)
            }
        }

        impl $trait<&Value> for Value {
            type Output = Value;

            fn $method(self, other: &Value) -> Value {
                (&self).$method(other)
            }
        }

        impl $trait<Value> for Value {
            type Output = Value;

            fn $method(self, other: Value) -> Value {
                (&self).$method(&other)
            }
        }
    };
}

binary_operator!(Add, add, "Add");
binary_operator!(Sub, sub, "Sub");
binary_operator!(Mul, mul, "Mul");
