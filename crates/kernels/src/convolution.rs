//! Convolutions with prepared weights.
#![allow(unsafe_code)]

use std::fmt;

use crate::kind::Kind;
use crate::simd::GROUP;
use crate::units::{Error, RunError, Scratch, product, run_units, zeros};
use crate::winograd::{self, Job, Part};

/// Values of `[samples, channels, height, width]`.
#[derive(Clone, Copy, Debug)]
pub struct Image<'i> {
    /// The values of some of the channels, row by row. All parts together are all channels, as if they were joined.
    pub parts: &'i [&'i [f32]],
    /// The number of samples.
    pub samples: usize,
    /// Rows of each channel.
    pub height: usize,
    /// Columns of each channel.
    pub width: usize,
}

/// Zeros around the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pads {
    /// Rows above.
    pub top: usize,
    /// Columns before.
    pub left: usize,
    /// Rows below.
    pub bottom: usize,
    /// Columns after.
    pub right: usize,
}

/// What a result of each output is multiplied by.
#[derive(Clone, Debug, PartialEq)]
pub struct Activation {
    /// Where it is negative.
    pub negative: Vec<f32>,
    /// Elsewhere.
    pub positive: Vec<f32>,
}

/// A 3×3 convolution with a stride of 1: of each place, and of all channels.
pub struct Convolution {
    kind: Kind,
    inputs: usize,
    outputs: usize,
    weights: Vec<f32>,
    bias: Vec<f32>,
    activation: Activation,
}

impl fmt::Debug for Convolution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, inputs, outputs, .. } = self;
        write!(formatter, "a convolution of {inputs} to {outputs} channels by {kind:?}")
    }
}

impl Convolution {
    /// Prepares weights of `[outputs, inputs, 3, 3]`. Without an activation, results stay as they are.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub fn new(
        weights: &[f32],
        channels: [usize; 2],
        bias: Option<&[f32]>,
        activation: Option<Activation>,
    ) -> Result<Self, Error> {
        let kind = Kind::of_this_processor().ok_or(Error::Unsupported)?;
        Self::with(kind, weights, channels, bias, activation)
    }

    fn with(
        kind: Kind,
        weights: &[f32],
        [outputs, inputs]: [usize; 2],
        bias: Option<&[f32]>,
        activation: Option<Activation>,
    ) -> Result<Self, Error> {
        // First of all: lengths of no weights are whatever a file says.
        if weights.is_empty() || product(&[outputs, inputs, 9]) != Some(weights.len()) {
            return Err(Error::Lengths);
        }
        let bias = bias.map_or_else(|| vec![0.0; outputs], <[f32]>::to_vec);
        let same = || Activation { negative: vec![1.0; outputs], positive: vec![1.0; outputs] };
        let activation = activation.unwrap_or_else(same);
        if [&bias, &activation.negative, &activation.positive].iter().any(|values| values.len() != outputs) {
            return Err(Error::Lengths);
        }
        let weights = winograd::transformed(weights, outputs, inputs, zeros)?;
        Ok(Self { kind, inputs, outputs, weights, bias, activation })
    }

    /// The bytes of prepared weights for so many channels: four times those of the weights, and more where the outputs
    /// are no multiple of 8.
    pub const fn bytes_of(outputs: usize, inputs: usize) -> usize {
        let of_groups = outputs.div_ceil(GROUP).saturating_mul(GROUP * winograd::PLACES);
        of_groups.saturating_mul(inputs).saturating_mul(size_of::<f32>())
    }

    /// The bytes of scratch memory that each thread needs.
    pub fn scratch_bytes(&self) -> usize {
        winograd::scratch(self.inputs, self.outputs, self.kind.shape()[0]) * size_of::<f32>()
    }

    /// The channels of results, and of values.
    pub fn channels(&self) -> [usize; 2] {
        [self.outputs, self.inputs]
    }

    /// The height and width of the results; `None` if there would be none.
    pub fn size_of(&self, image: &Image<'_>, pads: Pads) -> Option<[usize; 2]> {
        let along = |length: usize, before: usize, after: usize| {
            let padded = length.checked_add(before)?.checked_add(after)?;
            padded.checked_sub(2).filter(|results| *results > 0 && length > 0)
        };
        Some([along(image.height, pads.top, pads.bottom)?, along(image.width, pads.left, pads.right)?])
    }

    /// Computes the results, of [`Convolution::size_of`]. `each` calls a function as often as it is told, on as many
    /// threads as it likes. Each call computes a part.
    ///
    /// # Errors
    /// There is no memory for a thread; or those of `each`.
    ///
    /// # Panics
    /// The numbers of values and results are not those of the sizes.
    #[allow(clippy::panic, reason = "the sizes are a programmer's, and checked before anything is written")]
    pub fn run<E>(
        &self,
        image: &Image<'_>,
        pads: Pads,
        results: &mut [f32],
        scratch: &Scratch,
        each: impl FnOnce(usize, &(dyn Fn() + Sync)) -> Result<(), E>,
    ) -> Result<(), RunError<E>> {
        let Some([result_height, result_width]) = self.size_of(image, pads) else { return Ok(()) };
        let of_channel = product(&[image.samples, image.height, image.width]);
        let Some(of_channel) = of_channel else { panic!("sizes that no values have: {self:?}") };
        let part = |values: &&[f32]| Part { values: values.as_ptr(), channels: values.len() / of_channel.max(1) };
        let parts: Vec<Part> = image.parts.iter().map(part).collect();
        let are_whole = image.parts.iter().zip(&parts).all(|(values, part)| values.len() == part.channels * of_channel);
        let found: usize = parts.iter().map(|part| part.channels).sum();
        assert!(are_whole && (found == self.inputs || of_channel == 0), "values of {found} channels: {self:?}");
        let expected = product(&[image.samples, self.outputs, result_height, result_width]);
        assert_eq!(Some(results.len()), expected, "results of {self:?}");
        let job = Job {
            parts,
            results: results.as_mut_ptr(),
            samples: image.samples,
            inputs: self.inputs,
            outputs: self.outputs,
            height: image.height,
            width: image.width,
            top: pads.top,
            left: pads.left,
            result_height,
            result_width,
            weights: &self.weights,
            bias: &self.bias,
            negative: &self.activation.negative,
            positive: &self.activation.positive,
        };
        let [blocks, _] = self.kind.shape();
        let floats = winograd::scratch(self.inputs, self.outputs, blocks);
        // SAFETY: the processor has these instructions, since the kind is one of its; the numbers of values and results
        // were compared; and the memory is as large as its function says.
        unsafe { run_units(self.kind, &job, job.blocks().div_ceil(blocks), floats, scratch, each) }
    }
}

#[cfg(test)]
mod tests;
