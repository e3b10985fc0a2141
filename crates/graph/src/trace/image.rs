//! Operations of a [`Value`] that is an image `[batch, channels, height, width]`.

use super::{Constant, Size, Value};
use crate::Attribute;

/// BatchNormalization's default. Some runtimes accept no smaller value.
const EPSILON: f32 = 1e-5;

impl Value {
    /// The maximum of each `factor` × `factor` pixels; sizes are rounded down.
    #[must_use]
    pub fn max_pool(&self, factor: usize) -> Value {
        self.max_pool_strided(factor, factor)
    }

    /// The maximum of each `side` × `side` pixels, in windows that are `stride` apart and do not cross the border.
    #[must_use]
    pub fn max_pool_strided(&self, side: usize, stride: usize) -> Value {
        let square = |size: usize| vec![size as i64; 2].into();
        self.trace.node("MaxPool", &[self], [("kernel_shape", square(side)), ("strides", square(stride))])
    }

    /// The maximum of the `side` × `side` pixels around each pixel; `side` is odd.
    #[must_use]
    pub fn max_pool_around(&self, side: usize) -> Value {
        let attributes = [
            ("kernel_shape", vec![side as i64; 2].into()),
            ("strides", vec![1_i64; 2].into()),
            ("pads", vec![(side / 2) as i64; 4].into()),
        ];
        self.trace.node("MaxPool", &[self], attributes)
    }

    /// The mean of each `factor` × `factor` pixels; sizes are rounded down.
    #[must_use]
    pub fn average_pool(&self, factor: usize) -> Value {
        let size = vec![factor as i64; 2];
        self.trace.node("AveragePool", &[self], [("kernel_shape", size.clone().into()), ("strides", size.into())])
    }

    /// Transposed convolution: each pixel becomes a window, overlapping windows at distances of `stride` are added, and
    /// `padding` is cut from each side. `weight` `[channels, filters, kernel, kernel]`, optional `bias` `[filters]`.
    #[must_use]
    pub fn conv_transpose(&self, weight: &Value, bias: Option<&Value>, stride: usize, padding: usize) -> Value {
        self.conv_transpose_cut(weight, bias, stride, [padding; 2])
    }

    /// As [`Value::conv_transpose`], where `before` is cut above and on the left, and `after` below and on the right.
    #[must_use]
    pub fn conv_transpose_cut(
        &self,
        weight: &Value,
        bias: Option<&Value>,
        stride: usize,
        [before, after]: [usize; 2],
    ) -> Value {
        let mut attributes = vec![("strides", vec![stride as i64; 2].into())];
        if before + after > 0 {
            attributes.push(("pads", [before, before, after, after].map(|cut| cut as i64).to_vec().into()));
        }
        let inputs: Vec<&Value> = [self, weight].into_iter().chain(bias).collect();
        self.trace.node("ConvTranspose", &inputs, attributes)
    }

    /// Enlarges an image by `factor` with bilinear interpolation. Beyond the outermost pixel centres, the border is
    /// repeated.
    #[must_use]
    pub fn upsample_bilinear(&self, factor: usize) -> Value {
        let scales = self.trace.constant("scales", &[4], Constant::F32(&[1.0, 1.0, factor as f32, factor as f32]));
        let none = self.trace.absent();
        self.trace.node("Resize", &[self, &none, &scales], [("mode", "linear".into())])
    }

    /// Resizes an image to the height and width of another with bilinear interpolation. Beyond the outermost pixel
    /// centres, the border is repeated.
    #[must_use]
    pub fn resize_bilinear_like(&self, like: &Value) -> Value {
        self.resize_like(like, [("mode", "linear".into())])
    }

    /// Resizes an image to the height and width of another: each pixel is the one that its top left corner falls into.
    #[must_use]
    pub fn resize_nearest_like(&self, like: &Value) -> Value {
        let attributes = [
            ("mode", "nearest".into()),
            ("coordinate_transformation_mode", "asymmetric".into()),
            ("nearest_mode", "floor".into()),
        ];
        self.resize_like(like, attributes)
    }

    fn resize_like(&self, like: &Value, attributes: impl IntoIterator<Item = (&'static str, Attribute)>) -> Value {
        let none = self.trace.absent();
        let sizes = self.sizes("sizes", &[Size::Of(self, 0), Size::Of(self, 1), Size::Of(like, 2), Size::Of(like, 3)]);
        self.trace.node("Resize", &[self, &none, &none, &sizes], attributes)
    }

    /// Resizes an image to `height` × `width` with bilinear interpolation; the corner pixels keep their values.
    #[must_use]
    pub fn resize_bilinear_to_corners(&self, height: usize, width: usize) -> Value {
        let [height, width] = [height, width].map(|size| Size::Number(size as i64));
        let none = self.trace.absent();
        let sizes = self.sizes("sizes", &[Size::Of(self, 0), Size::Of(self, 1), height, width]);
        let attributes = [("mode", "linear".into()), ("coordinate_transformation_mode", "align_corners".into())];
        self.trace.node("Resize", &[self, &none, &none, &sizes], attributes)
    }

    /// Multiplies every element by a number, in the form of a BatchNormalization.
    ///
    /// After a convolution, [`Value::scale`] folds into the convolution. After a sum there is nothing to fold into.
    /// ONNX Runtime's blocked layout for convolutions on a CPU has no product with a constant, but it has
    /// BatchNormalization, so the layers around it stay in that layout. In RRDBNet, this saves all 660 conversions and
    /// a seventh of the time.
    #[must_use]
    pub fn scale_channels(&self, factor: f32) -> Value {
        let channels = self.fixed(1);
        let constant =
            |name: &str, value: f32| self.trace.constant(name, &[channels], Constant::F32(&vec![value; channels]));
        let (factor, zero, variance) =
            (constant("factor", factor), constant("zero", 0.0), constant("variance", 1.0 - EPSILON));
        self.trace.node("BatchNormalization", &[self, &factor, &zero, &zero, &variance], [("epsilon", EPSILON.into())])
    }
}
