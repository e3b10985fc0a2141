//! Discrete Fourier transforms of images, as products with constant matrices.
//!
//! ONNX has an operator DFT, which neither TensorRT nor ONNX Runtime's providers for GPUs run. At a fixed size, a
//! transform is a product with a matrix of cosines and sines. This is fast enough because the images are small:
//! features at an eighth of a picture's size.

use super::{Scope, channels};
use std::f64::consts::TAU;
use tileforge_graph::{Constant, Value};

/// The transforms of real images of one size. Both are scaled by 1/√(height · width), as PyTorch's `norm="ortho"`.
#[derive(Debug)]
pub struct Fourier {
    height: usize,
    width: usize,
}

impl Fourier {
    /// Those of images of this height and width.
    pub fn new([height, width]: [usize; 2]) -> Self {
        Fourier { height, width }
    }

    /// Columns of a spectrum: the others are their complex conjugates.
    fn columns(&self) -> usize {
        self.width / 2 + 1
    }

    fn factor(&self) -> f64 {
        1.0 / ((self.height * self.width) as f64).sqrt()
    }

    /// The matrix that transforms the height of real parts above imaginary parts; with the negative sine, its reverse.
    fn rows(&self, w: &Scope<'_>, sine: fn(f64) -> f64) -> Value {
        let height = self.height;
        let values = matrix([2 * height, 2 * height], |[to, from]| {
            let turn = turn((to % height) * (from % height), height);
            match (to < height, from < height) {
                (true, true) | (false, false) => turn.cos(),
                (true, false) => sine(turn),
                (false, true) => -sine(turn),
            }
        });
        w.trace().constant("rows", &[2 * height, 2 * height], Constant::F32(&values))
    }

    /// The transform of `x` `[batch, channels, height, width]` → `[batch, 2 · channels, height, width / 2 + 1]`, where
    /// the real part of each channel is followed by its imaginary part.
    pub fn spectrum(&self, w: &Scope<'_>, x: &Value) -> Value {
        let (width, columns, height) = (self.width, self.columns(), self.height);
        let along = |name: &str, of: fn(f64) -> f64| {
            let values = matrix([width, columns], |[x, u]| self.factor() * of(turn(x * u, width)));
            w.trace().constant(name, &[width, columns], Constant::F32(&values))
        };
        let (real, imaginary) = (x.matmul(&along("cosines", f64::cos)), x.matmul(&along("sines", |turn| -turn.sin())));
        // The parts stand one below the other, so a single product transforms both along the height.
        let stacked = real.concat(&[&imaginary], 2);
        self.rows(w, f64::sin).matmul(&stacked).reshape(&[0, 2 * channels(x) as i64, height as i64, columns as i64])
    }

    /// The reverse of [`Fourier::spectrum`].
    pub fn image(&self, w: &Scope<'_>, spectrum: &Value) -> Value {
        let (width, columns, height) = (self.width, self.columns(), self.height);
        let each = (channels(spectrum) / 2) as i64;
        let stacked =
            self.rows(w, |turn| -turn.sin()).matmul(&spectrum.reshape(&[0, each, 2 * height as i64, columns as i64]));
        // A column also stands for its conjugate, unless it is its own conjugate.
        let weight = |u: usize| if u == 0 || 2 * u == width { 1.0 } else { 2.0 };
        let along = |name: &str, of: fn(f64) -> f64| {
            let values = matrix([columns, width], |[u, x]| self.factor() * weight(u) * of(turn(u * x, width)));
            w.trace().constant(name, &[columns, width], Constant::F32(&values))
        };
        let real = stacked.slice(2, 0, height).matmul(&along("cosines", f64::cos));
        real + stacked.slice(2, height, 2 * height).matmul(&along("sines", |turn| -turn.sin()))
    }
}

/// The angle of `product` steps, where `size` steps are a full turn.
fn turn(product: usize, size: usize) -> f64 {
    TAU * (product % size.max(1)) as f64 / size.max(1) as f64
}

fn matrix([rows, columns]: [usize; 2], of: impl Fn([usize; 2]) -> f64) -> Vec<f32> {
    (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column])).map(|at| of(at) as f32).collect()
}
