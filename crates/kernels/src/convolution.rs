//! Convolutions with prepared weights.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::kind::Kind;
use crate::simd::GROUP;
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

/// Memory that the runs of convolutions share.
#[derive(Debug, Default)]
pub struct Scratch(Mutex<Vec<Vec<f32>>>);

impl Scratch {
    /// Calls `f` with at least so many floats, whose contents are those of an earlier call.
    fn with<R>(&self, floats: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
        let held = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = held().pop().unwrap_or_default();
        if memory.len() < floats {
            memory = vec![0.0; floats];
        }
        let result = f(&mut memory);
        held().push(memory);
        result
    }
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
    /// Prepares weights of `[outputs, inputs, 3, 3]`. Without an activation, results stay as they are. `None`: this
    /// processor lacks the instructions, or numbers of values differ.
    pub fn new(
        weights: &[f32],
        [outputs, inputs]: [usize; 2],
        bias: Option<&[f32]>,
        activation: Option<Activation>,
    ) -> Option<Self> {
        Self::with(Kind::of_this_processor()?, weights, [outputs, inputs], bias, activation)
    }

    fn with(
        kind: Kind,
        weights: &[f32],
        [outputs, inputs]: [usize; 2],
        bias: Option<&[f32]>,
        activation: Option<Activation>,
    ) -> Option<Self> {
        let bias = bias.map_or_else(|| vec![0.0; outputs], <[f32]>::to_vec);
        let same = || Activation { negative: vec![1.0; outputs], positive: vec![1.0; outputs] };
        let activation = activation.unwrap_or_else(same);
        let of_outputs = [&bias, &activation.negative, &activation.positive];
        let fits = weights.len() == outputs * inputs * 9 && of_outputs.iter().all(|values| values.len() == outputs);
        if !fits || outputs == 0 || inputs == 0 {
            return None;
        }
        let weights = winograd::transformed(weights, outputs, inputs);
        Some(Self { kind, inputs, outputs, weights, bias, activation })
    }

    /// The bytes of prepared weights for so many channels: four times those of the weights, and more where the outputs
    /// are no multiple of 8.
    pub const fn bytes_of(outputs: usize, inputs: usize) -> usize {
        let of_groups = outputs.div_ceil(GROUP).saturating_mul(GROUP * winograd::PLACES);
        of_groups.saturating_mul(inputs).saturating_mul(size_of::<f32>())
    }

    /// The bytes of scratch memory that each thread needs.
    pub fn scratch_bytes(&self) -> usize {
        winograd::scratch(self.inputs, self.outputs, self.kind.blocks()) * size_of::<f32>()
    }

    /// The channels of results, and of values.
    pub fn channels(&self) -> [usize; 2] {
        [self.outputs, self.inputs]
    }

    /// The height and width of the results; `None` if there would be none.
    pub fn size_of(&self, image: &Image<'_>, pads: Pads) -> Option<[usize; 2]> {
        let height = (image.height + pads.top + pads.bottom).checked_sub(2).filter(|height| *height > 0)?;
        let width = (image.width + pads.left + pads.right).checked_sub(2).filter(|width| *width > 0)?;
        Some([height, width])
    }

    /// Computes the results, of [`Convolution::size_of`]. `each` calls a function as often as it is told, on as many
    /// threads as it likes. Each call computes a part.
    ///
    /// # Errors
    /// Those of `each`.
    ///
    /// # Panics
    /// The numbers of values and results are not those of the sizes.
    pub fn run<E>(
        &self,
        image: &Image<'_>,
        pads: Pads,
        results: &mut [f32],
        scratch: &Scratch,
        each: impl FnOnce(usize, &(dyn Fn() + Sync)) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some([result_height, result_width]) = self.size_of(image, pads) else { return Ok(()) };
        let of_channel = image.samples * image.height * image.width;
        let part = |values: &&[f32]| Part { values: values.as_ptr(), channels: values.len() / of_channel.max(1) };
        let parts: Vec<Part> = image.parts.iter().map(part).collect();
        let are_whole = image.parts.iter().zip(&parts).all(|(values, part)| values.len() == part.channels * of_channel);
        let found: usize = parts.iter().map(|part| part.channels).sum();
        assert!(are_whole && (found == self.inputs || of_channel == 0), "values of {found} channels: {self:?}");
        assert_eq!(results.len(), image.samples * self.outputs * result_height * result_width, "results of {self:?}");
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
        let blocks = self.kind.blocks();
        let floats = winograd::scratch(self.inputs, self.outputs, blocks);
        let (units, next) = (job.blocks().div_ceil(blocks), AtomicUsize::new(0));
        each(units, &|| {
            let unit = next.fetch_add(1, Ordering::Relaxed);
            if unit >= units {
                return;
            }
            // SAFETY: the processor has these instructions, since the kind is one of its; the numbers of values and
            // results were compared; a unit is run once; and the memory is as large as its function says.
            scratch.with(floats, |memory| unsafe { self.kind.run(&job, unit, memory) });
        })
    }
}

#[cfg(test)]
mod tests;
