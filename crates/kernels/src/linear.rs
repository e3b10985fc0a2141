//! Linear layers with prepared weights.
#![allow(unsafe_code)]

use std::fmt;

use crate::functions::gelu;
use crate::kind::Kind;
use crate::products::Product;
use crate::simd::{LANES, Simd, Work, padded, store_some};
use crate::units::{Error, RunError, Scratch, Units, product, run_units, zeros};

/// Rows of values of a unit, a multiple of all [`Simd::ROWS`]. Their inputs stay in the cache while all outputs are computed.
const CHUNK: usize = 60;

/// Units that a run is cut into where there are rows enough or outputs enough.
const UNITS: usize = 16;

/// The order of a matrix of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// `[inputs, outputs]`.
    ByInput,
    /// `[outputs, inputs]`.
    ByOutput,
}

/// A linear layer: for each row of values, sums of products with the weights, and a bias.
pub struct Linear {
    kind: Kind,
    inputs: usize,
    outputs: usize,
    /// Panels of outputs: each `[inputs, outputs of the panel]`.
    weights: Vec<f32>,
    /// Of all outputs of all panels.
    bias: Vec<f32>,
    has_gelu: bool,
}

impl fmt::Debug for Linear {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, inputs, outputs, .. } = self;
        write!(formatter, "a linear layer of {inputs} to {outputs} values by {kind:?}")
    }
}

impl Linear {
    /// Prepares weights of `[outputs, inputs]`, in the order that `arrangement` says. With `has_gelu`, results go through
    /// `x · Φ(x)`.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub fn new(
        weights: &[f32],
        channels: [usize; 2],
        arrangement: Arrangement,
        bias: Option<&[f32]>,
        has_gelu: bool,
    ) -> Result<Self, Error> {
        let kind = Kind::of_this_processor().ok_or(Error::Unsupported)?;
        Self::with(kind, weights, channels, arrangement, bias, has_gelu)
    }

    fn with(
        kind: Kind,
        weights: &[f32],
        [outputs, inputs]: [usize; 2],
        arrangement: Arrangement,
        bias: Option<&[f32]>,
        has_gelu: bool,
    ) -> Result<Self, Error> {
        // First of all: lengths of no weights are whatever a file says.
        let fits = !weights.is_empty() && product(&[outputs, inputs]) == Some(weights.len());
        if !fits || bias.is_some_and(|bias| bias.len() != outputs) {
            return Err(Error::Lengths);
        }
        let padded = outputs.next_multiple_of(LANES);
        let mut panels = zeros(product(&[padded, inputs]).ok_or(Error::Lengths)?)?;
        for (first, width, panel) in each_panel(kind, outputs, inputs) {
            let panel = &mut panels[panel..][..width * inputs];
            for (input, to) in panel.chunks_exact_mut(width).enumerate() {
                let to = &mut to[..width.min(outputs - first)];
                match arrangement {
                    Arrangement::ByInput => to.copy_from_slice(&weights[input * outputs + first..][..to.len()]),
                    Arrangement::ByOutput => {
                        let column = weights[first * inputs + input..].iter().step_by(inputs);
                        to.iter_mut().zip(column).for_each(|(to, weight)| *to = *weight);
                    }
                }
            }
        }
        let mut biases = zeros(padded)?;
        biases.iter_mut().zip(bias.unwrap_or_default()).for_each(|(to, bias)| *to = *bias);
        Ok(Self { kind, inputs, outputs, weights: panels, bias: biases, has_gelu })
    }

    /// The bytes of prepared weights for so many values: those of the weights, and more where the outputs are no multiple
    /// of 16.
    pub const fn bytes_of(outputs: usize, inputs: usize) -> usize {
        outputs.div_ceil(LANES).saturating_mul(LANES * size_of::<f32>()).saturating_mul(inputs)
    }

    /// The bytes of scratch memory that each thread needs for so many rows.
    pub fn scratch_bytes(&self, rows: usize) -> usize {
        scratch(self.inputs, rows, self.kind).saturating_mul(size_of::<f32>())
    }

    /// The values of a row of results, and of a row of values.
    pub fn channels(&self) -> [usize; 2] {
        [self.outputs, self.inputs]
    }

    /// Computes as many rows of results as there are rows of values. `each` calls a function as often as it is told, on
    /// as many threads as it likes. Each call computes a part.
    ///
    /// # Errors
    /// There is no memory for a thread; or those of `each`.
    ///
    /// # Panics
    /// The numbers of values and results are not those of whole rows.
    pub fn run<E>(
        &self,
        values: &[f32],
        results: &mut [f32],
        scratch: &Scratch,
        each: impl FnOnce(usize, &(dyn Fn() + Sync)) -> Result<(), E>,
    ) -> Result<(), RunError<E>> {
        let rows = values.len() / self.inputs;
        let are_whole = rows * self.inputs == values.len() && product(&[rows, self.outputs]) == Some(results.len());
        assert!(are_whole, "{} values, {} results of {self:?}", values.len(), results.len());
        let chunks = rows.div_ceil(CHUNK);
        let panels = each_panel(self.kind, self.outputs, self.inputs).count();
        let parts = UNITS.div_ceil(chunks.max(1)).min(panels);
        let of_part = panels.div_ceil(parts);
        let job = Job { linear: self, values: values.as_ptr(), results: results.as_mut_ptr(), rows, of_part };
        // SAFETY: the processor has these instructions, since the kind is one of its; the numbers of values and results
        // were compared; and the memory is as large as its function says.
        unsafe {
            let units = chunks * panels.div_ceil(of_part);
            run_units(self.kind, &job, units, self::scratch(self.inputs, rows, self.kind), scratch, each)
        }
    }
}

/// The panels of outputs: the first output, their number, and where the weights begin.
fn each_panel(kind: Kind, outputs: usize, inputs: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let [vectors, _] = kind.shape();
    let whole = vectors * LANES;
    (0..outputs).step_by(whole).map(move |first| {
        let width = whole.min((outputs - first).next_multiple_of(LANES));
        (first, width, first * inputs)
    })
}

/// The floats between two rows of scratch memory.
fn step(inputs: usize) -> usize {
    padded(inputs.next_multiple_of(LANES))
}

/// The floats of scratch memory of a unit, of so many rows in all.
fn scratch(inputs: usize, rows: usize, kind: Kind) -> usize {
    let [vectors, of_product] = kind.shape();
    let rows = CHUNK.min(rows.next_multiple_of(of_product));
    rows.saturating_mul(step(inputs).saturating_add(vectors * LANES))
}

/// A run.
struct Job<'j> {
    linear: &'j Linear,
    values: *const f32,
    /// Nothing else reads or writes them.
    results: *mut f32,
    rows: usize,
    /// Panels of a unit.
    of_part: usize,
}

// SAFETY: no two units write the same results, and nothing writes what they read.
unsafe impl Sync for Job<'_> {}

impl Units for Job<'_> {
    unsafe fn unit(&self, kind: Kind, unit: usize, scratch: &mut [f32]) {
        // SAFETY: as the caller promises.
        unsafe { kind.run(self, unit, scratch) }
    }
}

impl Work for Job<'_> {
    /// Computes some outputs of some rows. The job's pointers must be valid for what its numbers say, and the scratch
    /// memory of [`scratch`] floats at least.
    #[inline(always)]
    unsafe fn run<S: Simd, const BLOCKS: usize, const _SUMS: usize, const ROWS: usize>(
        &self,
        unit: usize,
        scratch: &mut [f32],
    ) {
        const { assert!(CHUNK.is_multiple_of(ROWS), "rows of a chunk are multiplied together") };
        let Linear { inputs, outputs, weights, bias, has_gelu, .. } = self.linear;
        let (inputs, outputs, whole) = (*inputs, *outputs, BLOCKS * LANES);
        let panels = outputs.div_ceil(whole);
        let parts = panels.div_ceil(self.of_part);
        let (first, part) = (unit / parts * CHUNK, unit % parts * self.of_part);
        let (rows, step) = (CHUNK.min(self.rows - first), step(inputs));
        let (scratch, sums) = scratch.split_at_mut(rows.next_multiple_of(ROWS) * step);
        // SAFETY: as the caller promises: the rows are some of the values', and the panels some of the weights'.
        unsafe {
            for row in 0..rows.next_multiple_of(ROWS) {
                let to = &mut scratch[row * step..][..inputs];
                if row < rows {
                    self.values.add((first + row) * inputs).copy_to_nonoverlapping(to.as_mut_ptr(), inputs);
                } else {
                    to.fill(0.0);
                }
            }
            for panel in part..panels.min(part + self.of_part) {
                let output = panel * whole;
                let vectors = (outputs - output).div_ceil(LANES).min(BLOCKS);
                let product = Product {
                    factors: scratch.as_ptr(),
                    of_row: step,
                    rows: rows.next_multiple_of(ROWS),
                    steps: inputs,
                    panels: weights.as_ptr().add(output * inputs),
                    vectors,
                    results: sums.as_mut_ptr(),
                    of_result: whole,
                };
                S::run(&product, 0, &mut []);
                for place in 0..vectors {
                    let (at, bias) = (output + place * LANES, S::load(bias.as_ptr().add(output + place * LANES)));
                    for row in 0..rows {
                        let mut value = S::add(S::load(sums.as_ptr().add(row * whole + place * LANES)), bias);
                        if *has_gelu {
                            value = gelu::<S>(value);
                        }
                        store_some::<S>(self.results.add((first + row) * outputs + at), value, outputs - at);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
