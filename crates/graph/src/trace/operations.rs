//! The operations of a [`Value`].

use super::{Constant, Value};
use crate::DataType;
use std::ops::{Add, Div, Mul, Sub};

/// The options of a convolution. Each list holds one number for each spatial dimension.
#[derive(Debug, Clone)]
pub struct ConvOptions {
    /// Steps between windows.
    pub strides: Vec<i64>,
    /// Zeros added at the beginnings, then at the ends.
    pub pads: Vec<i64>,
    /// Distance between the kernel's taps.
    pub dilations: Vec<i64>,
    /// Number of groups that the channels are split into.
    pub groups: i64,
}

impl ConvOptions {
    /// A 2-D convolution of stride 1 that keeps the size, for an odd kernel.
    pub fn same(kernel: usize) -> Self {
        Self::same_dilated([kernel; 2], 1)
    }

    /// As [`ConvOptions::same`], for a kernel of `[height, width]` whose taps are `dilation` apart.
    pub fn same_dilated(kernel: [usize; 2], dilation: usize) -> Self {
        let [vertical, horizontal] = kernel.map(|size| (size / 2 * dilation) as i64);
        let pads = vec![vertical, horizontal, vertical, horizontal];
        ConvOptions { strides: vec![1; 2], pads, dilations: vec![dilation as i64; 2], groups: 1 }
    }
}

/// What [`Value::pad`] adds to an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Border {
    /// The image mirrored at its outermost pixels, which are not repeated.
    Reflect,
    /// The outermost pixels, repeated.
    Edge,
    /// Zeros.
    Zero,
}

impl Value {
    /// Convolution with `weight` `[filters, channels / groups, kernel…]` and an optional `bias` `[filters]`.
    #[must_use]
    pub fn conv(&self, weight: &Value, bias: Option<&Value>, options: &ConvOptions) -> Value {
        let mut inputs = vec![self, weight];
        inputs.extend(bias);
        // Attributes with default values are left out, so that the ones in a graph and in its review matter.
        let list = |name, values: &Vec<i64>, default| {
            values.iter().any(|v| *v != default).then(|| (name, values.clone().into()))
        };
        let lists = [
            list("strides", &options.strides, 1),
            list("pads", &options.pads, 0),
            list("dilations", &options.dilations, 1),
        ];
        let groups = (options.groups != 1).then(|| ("group", options.groups.into()));
        self.trace.node("Conv", &inputs, lists.into_iter().flatten().chain(groups))
    }

    /// `x` where it is positive, 0 elsewhere.
    #[must_use]
    pub fn relu(&self) -> Value {
        self.trace.node("Relu", &[self], [])
    }

    /// `x` where it is positive, `slope · x` elsewhere.
    #[must_use]
    pub fn leaky_relu(&self, slope: f32) -> Value {
        self.trace.node("LeakyRelu", &[self], [("alpha", slope.into())])
    }

    /// As [`Value::leaky_relu`], with a learned slope that is broadcast to this value's shape.
    #[must_use]
    pub fn prelu(&self, slope: &Value) -> Value {
        self.trace.node("PRelu", &[self, slope], [])
    }

    /// `1 / (1 + e⁻ˣ)`.
    #[must_use]
    pub fn sigmoid(&self) -> Value {
        self.trace.node("Sigmoid", &[self], [])
    }

    /// `(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)`.
    #[must_use]
    pub fn tanh(&self) -> Value {
        self.trace.node("Tanh", &[self], [])
    }

    /// `x · sigmoid(x)`; ONNX has no operator of its own for it before opset 24.
    #[must_use]
    pub fn silu(&self) -> Value {
        self * self.sigmoid()
    }

    /// The sine of an angle in radians.
    #[must_use]
    pub fn sin(&self) -> Value {
        self.trace.node("Sin", &[self], [])
    }

    /// The cosine of an angle in radians.
    #[must_use]
    pub fn cos(&self) -> Value {
        self.trace.node("Cos", &[self], [])
    }

    /// `x · Φ(x)`, computed exactly instead of by the approximation with tanh.
    #[must_use]
    pub fn gelu(&self) -> Value {
        self.trace.node("Gelu", &[self], [])
    }

    /// As [`Value::gelu`], by the approximation with tanh.
    #[must_use]
    pub fn gelu_by_tanh(&self) -> Value {
        self.trace.node("Gelu", &[self], [("approximate", "tanh".into())])
    }

    /// `x · tanh(ln(1 + eˣ))`, written as `x · t / (2 − t)` with `t = s · (2 − s)` and `s = sigmoid(x)`, which no
    /// precision overflows.
    ///
    /// ONNX Runtime's Mish kernel rounds the last values of each thread's share differently. So a result would depend
    /// on the number of threads and on the batch. The kernel is also slower than these operators.
    #[must_use]
    pub fn mish(&self) -> Value {
        // The node that subtracts from this constant belongs to this value's layer.
        let two = self.trace.constant("two", &[], Constant::F32(&[2.0]));
        let two = Value { scope: self.scope.clone(), ..two };
        let s = self.sigmoid();
        let t = &s * (&two - &s);
        self * (&t / (two - &t))
    }

    /// Normalises each channel of each image (all dimensions after the first two) to mean 0 and variance 1, then
    /// multiplies by `scale` `[channels]` and adds `bias` `[channels]`.
    #[must_use]
    pub fn instance_norm(&self, scale: &Value, bias: &Value, epsilon: f32) -> Value {
        self.trace.node("InstanceNormalization", &[self, scale, bias], [("epsilon", epsilon.into())])
    }

    /// Normalises the last dimension to mean 0 and variance 1, then multiplies by `scale` and adds `bias`, both of that
    /// dimension's size.
    #[must_use]
    pub fn layer_norm(&self, scale: &Value, bias: &Value, epsilon: f32) -> Value {
        self.trace.node("LayerNormalization", &[self, scale, bias], [("epsilon", epsilon.into())])
    }

    /// The mean of each channel over the whole image: `[batch, channels, height, width]` → `[batch, channels, 1, 1]`.
    #[must_use]
    pub fn global_average_pool(&self) -> Value {
        self.trace.node("GlobalAveragePool", &[self], [])
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

    /// The same elements in another shape: a 0 keeps a dimension, and one −1 stands for the remaining elements.
    #[must_use]
    pub fn reshape(&self, shape: &[i64]) -> Value {
        let shape = self.trace.constant("shape", &[shape.len()], Constant::I64(shape));
        self.trace.node("Reshape", &[self, &shape], [])
    }

    /// Dimensions in another order: dimension `i` of the result is dimension `permutation[i]` of this.
    #[must_use]
    pub fn transpose(&self, permutation: &[i64]) -> Value {
        self.trace.node("Transpose", &[self], [("perm", permutation.to_vec().into())])
    }

    /// The entries from `start` to before `end` along `axis`.
    #[must_use]
    pub fn slice(&self, axis: i64, start: usize, end: usize) -> Value {
        let [starts, ends] = [start, end].map(|at| self.trace.constant("position", &[1], Constant::I64(&[at as i64])));
        let axes = self.trace.constant("axes", &[1], Constant::I64(&[axis]));
        self.trace.node("Slice", &[self, &starts, &ends, &axes], [])
    }

    /// As [`Value::slice`], with every `step`-th entry. Negative positions count from the end, and `i64::MAX` is the
    /// end.
    #[must_use]
    pub fn slice_by(&self, axis: i64, [start, end]: [i64; 2], step: i64) -> Value {
        let [starts, ends] = [start, end].map(|at| self.trace.constant("position", &[1], Constant::I64(&[at])));
        let axes = self.trace.constant("axes", &[1], Constant::I64(&[axis]));
        if step == 1 {
            return self.trace.node("Slice", &[self, &starts, &ends, &axes], []);
        }
        let steps = self.trace.constant("step", &[1], Constant::I64(&[step]));
        self.trace.node("Slice", &[self, &starts, &ends, &axes, &steps], [])
    }

    /// Every entry plus all before it along `axis`.
    #[must_use]
    pub fn cumulative_sum(&self, axis: i64) -> Value {
        let axis = self.trace.constant("axis", &[], Constant::I64(&[axis]));
        self.trace.node("CumSum", &[self, &axis], [])
    }

    /// The size of a dimension as a float `[1]`, for formulas of positions in an image of unknown size.
    #[must_use]
    pub fn size(&self, axis: usize) -> Value {
        let axis = axis as i64;
        self.trace.node("Shape", &[self], [("start", axis.into()), ("end", (axis + 1).into())]).cast(DataType::F32)
    }

    /// The image `[batch, channels, height, width]` at the positions `grid` [batch, new height, new width, (x, y)],
    /// interpolated between its four nearest pixels. −1 and 1 are the outer edges of the first and the last pixel;
    /// beyond, the border repeats.
    #[must_use]
    pub fn grid_sample(&self, grid: &Value) -> Value {
        self.trace.node("GridSample", &[self, grid], [("mode", "linear".into()), ("padding_mode", "border".into())])
    }

    /// As [`Value::grid_sample`], where −1 and 1 are the centres of the first and the last pixel, and pixels beyond the
    /// border are 0.
    #[must_use]
    pub fn grid_sample_of_corners(&self, grid: &Value) -> Value {
        let attributes = [("mode", "linear".into()), ("padding_mode", "zeros".into()), ("align_corners", 1.into())];
        self.trace.node("GridSample", &[self, grid], attributes)
    }

    /// Pixel shuffle: `[batch, channels · block², height, width]` → `[batch, channels, height · block, width · block]`,
    /// with the channels in PyTorch's order (ONNX calls it CRD).
    #[must_use]
    pub fn depth_to_space(&self, block: usize) -> Value {
        self.trace.node("DepthToSpace", &[self], [("blocksize", (block as i64).into()), ("mode", "CRD".into())])
    }

    /// As [`Value::depth_to_space`], from channels in the order `[block, block, channels]` (ONNX calls it DCR).
    #[must_use]
    pub fn depth_to_space_of_blocks(&self, block: usize) -> Value {
        self.trace.node("DepthToSpace", &[self], [("blocksize", (block as i64).into()), ("mode", "DCR".into())])
    }

    /// The inverse of [`Value::depth_to_space_of_blocks`]: `[batch, channels, height, width]` →
    /// `[batch, block² · channels, height / block, width / block]`, with the channels in the order
    /// `[block, block, channels]`.
    #[must_use]
    pub fn space_to_depth_of_blocks(&self, block: usize) -> Value {
        self.trace.node("SpaceToDepth", &[self], [("blocksize", (block as i64).into())])
    }

    /// Pixel unshuffle in PyTorch's channel order: `[batch, channels, height, width]` →
    /// `[batch, channels · block², height / block, width / block]`.
    ///
    /// ONNX's SpaceToDepth puts the position in the block first and the channel second; a gather restores PyTorch's
    /// order.
    #[must_use]
    pub fn pixel_unshuffle(&self, block: usize) -> Value {
        let channels = self.fixed(1);
        let shuffled = self.space_to_depth_of_blocks(block);
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

    /// The entries along `axis` at the indices that another value holds. The axis becomes that value's dimensions.
    #[must_use]
    pub fn gather_by(&self, indices: &Value, axis: i64) -> Value {
        self.trace.node("Gather", &[self, indices], [("axis", axis.into())])
    }

    /// Takes one entry of each batch element (GatherND with `batch_dims` = 1): `[batch, entries, …]` at the indices
    /// `places` `[batch, 1]` → `[batch, …]`.
    #[must_use]
    pub fn gather_each(&self, places: &Value) -> Value {
        self.trace.node("GatherND", &[self, places], [("batch_dims", 1.into())])
    }

    /// The index of the largest value along `axis`, or of the first of equal ones. The axis gets the size 1.
    #[must_use]
    pub fn arg_max(&self, axis: i64) -> Value {
        self.trace.node("ArgMax", &[self], [("axis", axis.into())])
    }

    /// 1 where the value is this number, 0 elsewhere.
    #[must_use]
    pub fn is_equal_to(&self, number: f32) -> Value {
        let number = self.trace.constant("number", &[], Constant::F32(&[number]));
        self.trace.node("Equal", &[self, &number], []).cast(DataType::F32)
    }

    /// Each pixel of an image becomes `factor` × `factor` equal pixels.
    #[must_use]
    pub fn upsample_nearest(&self, factor: usize) -> Value {
        let scales = self.trace.constant("scales", &[4], Constant::F32(&[1.0, 1.0, factor as f32, factor as f32]));
        let none = self.trace.absent();
        let attributes = [
            ("mode", "nearest".into()),
            ("coordinate_transformation_mode", "asymmetric".into()),
            ("nearest_mode", "floor".into()),
        ];
        self.trace.node("Resize", &[self, &none, &scales], attributes)
    }

    /// Adds rows below an image and columns to its right by mirroring it at the last pixel, which is not repeated.
    #[must_use]
    pub fn pad_reflect(&self, bottom: usize, right: usize) -> Value {
        self.pad([0, 0, bottom, right], Border::Reflect)
    }

    /// Adds rows and columns to an image: above, on the left, below, and on the right.
    #[must_use]
    pub fn pad(&self, sides: [usize; 4], border: Border) -> Value {
        if sides == [0; 4] {
            return self.clone();
        }
        let pads = self.trace.constant("pads", &[4], Constant::I64(&sides.map(|side| side as i64)));
        let none = self.trace.absent();
        let axes = self.trace.constant("axes", &[2], Constant::I64(&[2, 3]));
        let mode = match border {
            Border::Reflect => Some(("mode", "reflect".into())),
            Border::Edge => Some(("mode", "edge".into())),
            Border::Zero => None,
        };
        self.trace.node("Pad", &[self, &pads, &none, &axes], mode)
    }

    /// An image without this many pixels at each of its sides.
    #[must_use]
    pub fn crop_border(&self, pixels: usize) -> Value {
        let starts = self.trace.constant("starts", &[2], Constant::I64(&[pixels as i64; 2]));
        let ends = self.trace.constant("ends", &[2], Constant::I64(&[-(pixels as i64); 2]));
        let axes = self.trace.constant("axes", &[2], Constant::I64(&[2, 3]));
        self.trace.node("Slice", &[self, &starts, &ends, &axes], [])
    }

    /// The top left part of an image.
    #[must_use]
    pub fn crop(&self, height: usize, width: usize) -> Value {
        let starts = self.trace.constant("starts", &[2], Constant::I64(&[0, 0]));
        let ends = self.trace.constant("ends", &[2], Constant::I64(&[height as i64, width as i64]));
        let axes = self.trace.constant("axes", &[2], Constant::I64(&[2, 3]));
        self.trace.node("Slice", &[self, &starts, &ends, &axes], [])
    }

    /// The square root of the sum of squares along `axis`, which gets the size 1.
    #[must_use]
    pub fn length(&self, axis: i64) -> Value {
        let axes = self.trace.constant("axes", &[1], Constant::I64(&[axis]));
        self.trace.node("ReduceL2", &[self, &axes], [])
    }

    /// The mean along `axis`, which gets the size 1.
    #[must_use]
    pub fn mean(&self, axis: i64) -> Value {
        let axes = self.trace.constant("axes", &[1], Constant::I64(&[axis]));
        self.trace.node("ReduceMean", &[self, &axes], [])
    }

    /// The square of every element.
    #[must_use]
    pub fn square(&self) -> Value {
        self.trace.node("Pow", &[self, &self.trace.constant("exponent", &[], Constant::F32(&[2.0]))], [])
    }

    /// The square root of every element.
    #[must_use]
    pub fn sqrt(&self) -> Value {
        self.trace.node("Sqrt", &[self], [])
    }

    /// Every element, or a number where the element is smaller.
    #[must_use]
    pub fn at_least(&self, least: f32) -> Value {
        self.trace.node("Max", &[self, &self.trace.constant("least", &[], Constant::F32(&[least]))], [])
    }

    /// A copy of this value, in which the entries at `indices` along `axis` are `updates`. No index may occur twice.
    #[must_use]
    pub fn scatter(&self, indices: &Value, updates: &Value, axis: i64) -> Value {
        self.trace.node("ScatterElements", &[self, indices, updates], [("axis", axis.into())])
    }

    /// For each index, the entry along `axis` at that index and at its own place along the other axes.
    #[must_use]
    pub fn gather_elements(&self, indices: &Value, axis: i64) -> Value {
        self.trace.node("GatherElements", &[self, indices], [("axis", axis.into())])
    }

    /// 1 where two values are equal, 0 elsewhere.
    #[must_use]
    pub fn equals(&self, other: &Value) -> Value {
        self.trace.node("Equal", &[self, other], []).cast(DataType::F32)
    }

    /// The sum of all entries before each one along `axis`.
    #[must_use]
    pub fn sum_before(&self, axis: i64) -> Value {
        let axis = self.trace.constant("axis", &[], Constant::I64(&[axis]));
        self.trace.node("CumSum", &[self, &axis], [("exclusive", 1.into())])
    }

    /// Every element plus a number.
    #[must_use]
    pub fn offset(&self, by: f32) -> Value {
        self + &self.trace.constant("offset", &[], Constant::F32(&[by]))
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
binary_operator!(Div, div, "Div");
