//! Enlarging images, and padding them to a multiple.

use super::{Scope, channels, conv2d};
use crate::{Error, Result};
use tileforge_graph::{Border, Dim, Value};

/// PyTorch's default slope of LeakyReLU.
const SLOPE: f32 = 0.01;

/// How much must be added to a size. Nothing is added to a dynamic size: the contract demands a multiple.
fn missing(size: &Dim, multiple: usize) -> usize {
    size.fixed().map_or(0, |size| size.next_multiple_of(multiple) - size)
}

/// How an image is mirrored at its edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirror {
    /// At the last pixels, which are not repeated.
    Reflect,
    /// Behind the last pixels, which are repeated.
    Symmetric,
}

/// Pads an image to multiples of `multiple`, with rows below and columns on the right that mirror it.
///
/// # Errors
/// The image is so small that it has fewer pixels to mirror than are missing.
pub fn pad_to_multiple(image: &Value, multiple: usize, mirror: Mirror) -> Result<Value> {
    let [_, _, height, width] = image.dims();
    for size in [&height, &width].into_iter().filter_map(Dim::fixed) {
        let wanted = size.next_multiple_of(multiple);
        let most = if mirror == Mirror::Reflect { size.max(1) - 1 } else { size };
        if wanted - size > most {
            let least = if mirror == Mirror::Reflect { multiple / 2 + 1 } else { multiple.div_ceil(2) };
            return Err(Error::ImageTooSmall { size, extended: wanted, least });
        }
    }
    let missing = [missing(&height, multiple), missing(&width, multiple)];
    match mirror {
        Mirror::Reflect => Ok(image.pad_reflect(missing[0], missing[1])),
        // ONNX's Pad has no symmetric mode.
        Mirror::Symmetric => Ok([(2, &height), (3, &width)].into_iter().zip(missing).fold(
            image.clone(),
            |image, ((axis, size), missing)| match size.fixed() {
                Some(size) if missing > 0 => {
                    let indices: Vec<i64> = (0..size).chain((size - missing..size).rev()).map(|i| i as i64).collect();
                    image.gather(&indices, axis)
                }
                _ => image,
            },
        )),
    }
}

/// As [`pad_to_multiple`], with zeros, which is possible for an image of any size.
pub fn pad_with_zeros_to_multiple(image: &Value, multiple: usize) -> Value {
    extend_to_multiple(image, multiple, Border::Zero)
}

/// As [`pad_to_multiple`], with the last row and column repeated, which is possible for an image of any size.
pub fn pad_with_edges_to_multiple(image: &Value, multiple: usize) -> Value {
    extend_to_multiple(image, multiple, Border::Edge)
}

fn extend_to_multiple(image: &Value, multiple: usize, border: Border) -> Value {
    let [_, _, height, width] = image.dims();
    image.pad([0, 0, missing(&height, multiple), missing(&width, multiple)], border)
}

/// Pads an image to multiples of `multiple` as [`pad_to_multiple`] does, and by `around` more on all sides.
pub fn pad_around(image: &Value, multiple: usize, around: usize) -> Value {
    let [_, _, height, width] = image.dims();
    let (below, right) = (missing(&height, multiple), missing(&width, multiple));
    image.pad([around, around, around + below, around + right], Border::Reflect)
}

/// Crops a network's result, `scale` times as large as the padded image, to undo [`pad_to_multiple`].
pub fn crop_to_image(upscaled: &Value, image: &Value, multiple: usize, scale: usize) -> Value {
    let [_, _, height, width] = image.dims();
    match (height.fixed(), width.fixed()) {
        (Some(h), Some(w)) if missing(&height, multiple) + missing(&width, multiple) > 0 => {
            upscaled.crop(h * scale, w * scale)
        }
        _ => upscaled.clone(),
    }
}

/// The upsampling of most transformers for super-resolution. A convolution makes `filters` features, a convolution and
/// a pixel shuffle enlarge them by each of `factors`, and a last convolution makes `outputs` channels. `x` `[batch,
/// channels, height, width]`. The convolutions in the middle are below `stages`.
pub fn shuffle_upsampling(
    [w, stages]: [&Scope<'_>; 2],
    x: &Value,
    filters: usize,
    factors: &[usize],
    outputs: usize,
) -> Value {
    let x = conv2d(&w.at("conv_before_upsample.0"), x, filters, 3).leaky_relu(SLOPE);
    conv2d(&w.at("conv_last"), &shuffle_stages(stages, &x, 0, factors), outputs, 3)
}

/// A convolution and a pixel shuffle that keep the number of channels, for each of `factors`. The convolutions are the
/// members `first`, `first + 2`, … of `w`.
pub fn shuffle_stages(w: &Scope<'_>, x: &Value, first: usize, factors: &[usize]) -> Value {
    let stage = |x: Value, (number, factor): (usize, &usize)| {
        let filters = channels(&x) * factor * factor;
        conv2d(&w.at((first + 2 * number).to_string()), &x, filters, 3).depth_to_space(*factor)
    };
    factors.iter().enumerate().fold(x.clone(), stage)
}
