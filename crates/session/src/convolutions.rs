//! Our own kernels in ONNX Runtime: 3×3 convolutions on the processor.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use ort::operator::{
    ComputeContext, Kernel, KernelContext, Operator, OperatorDomain, OperatorInput, OperatorOutput,
    ShapeInferenceContext,
};
use ort::session::builder::SessionBuilder;
use ort::value::{DynTensorValueType, Shape, SymbolicDimensions, TensorElementType, ValueRef, ValueType};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tileforge_contract::Provider;
use tileforge_graph::{Convolution3x3, with_convolutions};
use tileforge_kernels::{self as kernels, Activation, Convolution, Image, Pads, Scratch};

use crate::error::{Error, Result};
use crate::options::{OptimisationLevel, SessionOptions};

/// The most bytes of a session's prepared weights, which are four times as large as weights. RRDBNet needs 255 MiB, and
/// the decoder of Stable Diffusion 342 MiB for all sizes but the smallest.
const MOST_BYTES: usize = 384 << 20;

/// The most channels on a side: the scratch memory of a thread is 5 KB for each.
const MOST_CHANNELS: usize = 1 << 12;

/// The kernels of one session.
#[derive(Clone, Default)]
pub(crate) struct Kernels {
    scratch: Arc<Scratch>,
    /// Bytes of prepared weights.
    prepared: Arc<AtomicUsize>,
    /// The most bytes of scratch memory of a thread.
    of_thread: Arc<AtomicUsize>,
}

impl Kernels {
    /// Whether a session uses them.
    pub(crate) fn are_for(options: &SessionOptions) -> bool {
        let is_usual = options.optimisation == OptimisationLevel::All && options.optimised_model_path.is_none();
        options.own_kernels && options.provider == Provider::Cpu && is_usual && kernels::is_supported()
    }

    /// The ONNX file with these bytes, with our convolutions where they can compute, and the kernels of its session.
    /// `None`: nothing changes.
    pub(crate) fn adapted(options: &SessionOptions, bytes: &[u8], path: &Path) -> Result<Option<(Vec<u8>, Self)>> {
        if !Self::are_for(options) {
            return Ok(None);
        }
        let bytes_of = |[outputs, inputs]: [usize; 2]| match outputs.max(inputs) {
            channels if channels > MOST_CHANNELS => usize::MAX,
            _ => Convolution::bytes_of(outputs, inputs),
        };
        let adapted = with_convolutions(bytes, path, options.dequantises_weights, MOST_BYTES, bytes_of);
        let adapted = adapted.map_err(|error| Error::unloaded(path, error.to_string()))?;
        Ok(adapted.map(|bytes| (bytes, Self::default())))
    }

    /// Makes a session that has the kernels.
    pub(crate) fn open<S>(
        &self,
        builder: SessionBuilder,
        commit: impl FnOnce(SessionBuilder) -> Result<S, String>,
    ) -> Result<S, String> {
        let domain = OperatorDomain::new(Convolution3x3::DOMAIN).and_then(|domain| domain.add(self.clone()));
        let domain = domain.map_err(|error| error.to_string())?;
        let builder = builder.with_operators(domain).map_err(|error| error.to_string())?;
        // ONNX Runtime adds the domain to a list of the process, without a lock, when the first session is made.
        let first = (!IS_KNOWN.load(Ordering::Acquire)).then(|| FIRST.lock());
        let made = commit(builder);
        if made.is_ok() {
            IS_KNOWN.store(true, Ordering::Release);
        }
        drop(first);
        made
    }

    /// The bytes that the kernels hold, with the scratch memory of one thread. ONNX Runtime does not count them.
    pub(crate) fn bytes(&self) -> u64 {
        self.prepared.load(Ordering::Relaxed).saturating_add(self.of_thread.load(Ordering::Relaxed)) as u64
    }
}

/// Whether ONNX Runtime knows our domain.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// Held while it may get to know it.
static FIRST: Mutex<()> = Mutex::new(());

/// Prepared convolutions by the digest of what they are made of. Sessions with the same weights share them.
static PREPARED: LazyLock<Mutex<HashMap<[u8; 32], Weak<Convolution>>>> = LazyLock::new(Mutex::default);

/// One node.
pub(crate) struct Node {
    convolution: Arc<Convolution>,
    /// The inputs beside the values that it was made of.
    constants: [bool; Convolution3x3::FIXED_INPUTS],
    pads: Pads,
    scratch: Arc<Scratch>,
}

fn refused(problem: impl Into<String>) -> ort::Error {
    ort::Error::new(format!("{}: {}", Convolution3x3::NAME, problem.into()))
}

impl Operator for Kernels {
    type Kernel<'attr> = Node;

    fn name(&self) -> &str {
        Convolution3x3::NAME
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        let float = TensorElementType::Float32;
        let required = [OperatorInput::required(float), OperatorInput::required(float)];
        let optional = (0..3).map(move |_| OperatorInput::optional(float));
        required.into_iter().chain(optional).chain([OperatorInput::variadic(0).homogenous(float)])
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(TensorElementType::Float32)]
    }

    fn create_kernel<'attr>(&self, context: &KernelContext<'attr>) -> ort::Result<Node> {
        let [weights, bias, slopes, rises] = [1, 2, 3, 4].map(|place| constant(context, place));
        let constants = [false, true, bias.is_some(), slopes.is_some(), rises.is_some()];
        let weights = weights.ok_or_else(|| refused("its weights are not constant"))?;
        let (shape, weights) = weights.try_extract_tensor::<f32>()?;
        let [outputs, inputs, 3, 3] = **shape else { return Err(refused("expected weights of K×C×3×3")) };
        let channels = [outputs, inputs].map(|length| usize::try_from(length).unwrap_or(0));
        // Lengths of no weights are whatever a file says.
        if weights.is_empty() {
            return Err(refused(kernels::Error::Lengths.to_string()));
        }
        let slope = context.get::<f32>("slope").unwrap_or(1.0);
        let activation = activation(channels[0], slope, floats(&slopes)?, floats(&rises)?);
        let activation = activation.ok_or_else(|| refused(kernels::Error::Lengths.to_string()))?;
        let pads = context.get::<Vec<i64>>("pads").ok_or_else(|| refused("it has no pads"))?;
        let pads: Vec<usize> = pads.iter().filter_map(|pad| usize::try_from(*pad).ok()).collect();
        let [top, left, bottom, right] = *pads else { return Err(refused("expected 4 pads")) };
        if pads.iter().any(|pad| *pad > Convolution3x3::MOST_PADS) {
            return Err(refused(format!("expected pads of at most {}", Convolution3x3::MOST_PADS)));
        }
        let convolution =
            prepared(weights, channels, floats(&bias)?, activation).map_err(|error| refused(error.to_string()))?;
        self.prepared.fetch_add(Convolution::bytes_of(channels[0], channels[1]), Ordering::Relaxed);
        self.of_thread.fetch_max(convolution.scratch_bytes(), Ordering::Relaxed);
        Ok(Node { convolution, constants, pads: Pads { top, left, bottom, right }, scratch: self.scratch.clone() })
    }

    fn infer_shape(&self, context: &mut ShapeInferenceContext) -> ort::Result<()> {
        let inputs = context.inputs();
        let [ValueType::Tensor { shape: values, dimension_symbols, .. }, ValueType::Tensor { shape: weights, .. }, ..] =
            inputs.as_slice()
        else {
            return Ok(());
        };
        let ([samples, _, height, width], [outputs, ..]) = (&values[..], &weights[..]) else { return Ok(()) };
        let pads = context.attr::<Vec<i64>>("pads")?;
        let [top, left, bottom, right] = *pads else { return Ok(()) };
        if pads.iter().any(|pad| !usize::try_from(*pad).is_ok_and(|pad| pad <= Convolution3x3::MOST_PADS)) {
            return Ok(());
        }
        // Lengths that are not known are negative, and may have a name.
        let along = |length: i64, pads: i64| if length < 0 { length } else { length.saturating_add(pads - 2) };
        let shape = [*samples, *outputs, along(*height, top + bottom), along(*width, left + right)];
        let named =
            |axis: usize, stays: bool| dimension_symbols.get(axis).filter(|_| stays).cloned().unwrap_or_default();
        let dimension_symbols = SymbolicDimensions::new([
            named(0, true),
            String::new(),
            named(2, top + bottom == 2),
            named(3, left + right == 2),
        ]);
        // ONNX Runtime would take a length without a name for a number. It infers nothing then.
        let is_stated = |(length, name): (&i64, &String)| *length > 0 || !name.is_empty();
        if !shape.iter().zip(dimension_symbols.iter()).all(is_stated) {
            return Ok(());
        }
        let ty = TensorElementType::Float32;
        context.set_output(0, &ValueType::Tensor { ty, shape: Shape::new(shape), dimension_symbols })
    }
}

/// An input, if it is constant. Whether others are left out is seen when the node runs.
fn constant<'c>(context: &KernelContext<'c>, place: usize) -> Option<ValueRef<'c, DynTensorValueType>> {
    context.constant_input(place).ok()
}

/// The values of a constant input.
fn floats<'v>(input: &'v Option<ValueRef<'_, DynTensorValueType>>) -> ort::Result<Option<&'v [f32]>> {
    let Some(input) = input else { return Ok(None) };
    Ok(Some(input.try_extract_tensor::<f32>()?.1))
}

/// What results are multiplied by; `None` if numbers of values differ.
fn activation(outputs: usize, slope: f32, slopes: Option<&[f32]>, rises: Option<&[f32]>) -> Option<Activation> {
    let of_each = |values: &[f32]| match values {
        [one] => Some(vec![*one; outputs]),
        _ => Some(values.to_vec()).filter(|values| values.len() == outputs),
    };
    let negative = slopes.map_or_else(|| Some(vec![slope; outputs]), of_each)?;
    let positive = match rises {
        Some(rises) => negative.iter().zip(of_each(rises)?).map(|(slope, rise)| slope + rise).collect(),
        None => vec![1.0; outputs],
    };
    Some(Activation { negative, positive })
}

/// The convolution with these weights: one that a session already has, or a new one.
fn prepared(
    weights: &[f32],
    channels: [usize; 2],
    bias: Option<&[f32]>,
    activation: Activation,
) -> Result<Arc<Convolution>, kernels::Error> {
    let mut digest = Sha256::new();
    for length in channels {
        digest.update((length as u64).to_le_bytes());
    }
    for values in [weights, bias.unwrap_or_default(), &activation.negative, &activation.positive] {
        digest.update((values.len() as u64).to_le_bytes());
        let mut bytes = [0; 1 << 14];
        for values in values.chunks(bytes.len() / 4) {
            bytes
                .chunks_exact_mut(4)
                .zip(values)
                .for_each(|(bytes, value)| bytes.copy_from_slice(&value.to_le_bytes()));
            digest.update(&bytes[..4 * values.len()]);
        }
    }
    let digest: [u8; 32] = digest.finalize().into();
    let mut held = PREPARED.lock();
    if let Some(convolution) = held.get(&digest).and_then(Weak::upgrade) {
        return Ok(convolution);
    }
    held.retain(|_, convolution| convolution.strong_count() > 0);
    let convolution = Arc::new(Convolution::new(weights, channels, bias, Some(activation))?);
    held.insert(digest, Arc::downgrade(&convolution));
    Ok(convolution)
}

impl Kernel for Node {
    fn compute(&mut self, context: &ComputeContext) -> ort::Result<()> {
        let count = context.num_inputs()?;
        for place in (2..Convolution3x3::FIXED_INPUTS.min(count)).filter(|place| !self.constants[*place]) {
            if context.input(place)?.is_some() {
                return Err(refused(format!("expected a constant as input {place}")));
            }
        }
        let [outputs, inputs] = self.convolution.channels();
        let values = std::iter::once(0).chain(Convolution3x3::FIXED_INPUTS..count).map(|place| context.input(place));
        let values = values.filter_map(ort::Result::transpose).collect::<ort::Result<Vec<_>>>()?;
        let mut parts = Vec::new();
        let mut size = None;
        let mut channels = 0_usize;
        for values in &values {
            let (shape, values) = values.try_extract_tensor::<f32>()?;
            let lengths: Vec<usize> = shape.iter().filter_map(|length| usize::try_from(*length).ok()).collect();
            let [samples, of_part, height, width] = *lengths else {
                return Err(refused("expected values of N×C×H×W"));
            };
            if *size.get_or_insert([samples, height, width]) != [samples, height, width] {
                return Err(refused(format!("expected values of one size, found {size:?} and {shape:?}")));
            }
            channels = channels.checked_add(of_part).ok_or_else(|| refused("its values have too many channels"))?;
            parts.push(values);
        }
        let Some([samples, height, width]) = size else { return Err(refused("it has no values")) };
        if channels != inputs {
            return Err(refused(format!("expected values of {inputs} channels, found {channels}")));
        }
        let image = Image { parts: &parts, samples, height, width };
        let size = self.convolution.size_of(&image, self.pads);
        let [rows, columns] = size.ok_or_else(|| refused(format!("{width}x{height} gives no results")))?;
        let shape = [samples, outputs, rows, columns].map(|length| length as i64);
        let mut results = context.output(0, shape)?.ok_or_else(|| refused("it has no place for results"))?;
        let (_, results) = results.try_extract_tensor_mut::<f32>()?;
        let each = |count: usize, part: &(dyn Fn() + Sync)| context.par_for(count, 0, |_| part());
        let ran = self.convolution.run(&image, self.pads, results, &self.scratch, each);
        ran.map_err(|error| match error {
            kernels::RunError::Convolution(error) => refused(error.to_string()),
            kernels::RunError::Each(error) => error,
        })
    }
}
