//! A request for tensors, for every protocol.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tileforge::{Cancel, DataType, Priority, Tensor, TensorInfo, Terms};
use tracing::Instrument;

use crate::app::App;
use crate::caller::Caller;
use crate::datatype::{self, Elements};
use crate::failure::{Failure, Result, WORD_MAXIMUM, shown};
use crate::model::Model;
use crate::traces;

/// The largest number of axes of a tensor.
const AXES_MAXIMUM: usize = 8;

/// From this number of bytes on, tensors are converted on a separate thread, not on that of a connection.
const LARGE: usize = 1 << 18;

/// A request for tensors.
#[derive(Debug, Default)]
pub(crate) struct InferRequest {
    pub(crate) inputs: Vec<Input>,
    /// The requested outputs, in this order; empty for all of them.
    pub(crate) outputs: Vec<String>,
    /// Whether outputs of 32-bit floats are converted to 16 bits.
    pub(crate) half: bool,
    pub(crate) options: RequestOptions,
}

/// How a request is served.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestOptions {
    pub(crate) caller: Caller,
    /// The time limit; without it, the server's.
    pub(crate) timeout: Option<Duration>,
    pub(crate) priority: Priority,
}

impl RequestOptions {
    /// The protocol's number of a priority: 0 is the default, 1 the highest.
    pub(crate) fn priority_of(number: u64) -> Priority {
        match number {
            1 => Priority::Urgent,
            0 | 2 => Priority::Normal,
            _ => Priority::Background,
        }
    }

    /// A client's time limit in seconds; 0 stands for the server's limit, as in the Open Inference Protocol.
    pub(crate) fn timeout_of(seconds: f64) -> Result<Option<Duration>> {
        let wrong = |_| Failure::invalid("timeout: expected seconds");
        let timeout = Duration::try_from_secs_f64(seconds).map_err(wrong)?;
        Ok((seconds > 0.0).then_some(timeout))
    }

    /// The terms in the settings of a form: `timeout` in seconds, and `priority`.
    pub(crate) fn of_texts<'t>(caller: Caller, text: impl Fn(&str) -> Option<&'t str>) -> Result<Self> {
        let timeout = match text("timeout") {
            Some(text) => Self::timeout_of(text.parse().unwrap_or(f64::NAN))?,
            None => None,
        };
        let wrong = |_| Failure::invalid("priority: expected a whole number");
        let number = text("priority").map(|text| text.parse().map_err(wrong));
        Ok(Self { caller, timeout, priority: Self::priority_of(number.transpose()?.unwrap_or(0)) })
    }

    /// The terms for the host, and a guard that cancels the request when it is dropped.
    pub(crate) fn terms(self, app: &App) -> (Terms, CancelOnDrop) {
        let cancel = app.cancel.child();
        let most = app.limits.request_time;
        let deadline = Instant::now() + self.timeout.map_or(most, |timeout| timeout.min(most));
        let terms = Terms {
            priority: self.priority,
            caller: self.caller.0,
            deadline: Some(deadline),
            refuses_to_wait: true,
            cancel: cancel.clone(),
            ..Terms::default()
        };
        (terms, CancelOnDrop(cancel))
    }
}

/// Cancels a request whose client has disconnected.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// An input of a request.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) datatype: String,
    pub(crate) shape: Vec<i64>,
    pub(crate) elements: Elements,
}

/// An output of an answer.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) shape: Vec<usize>,
    /// Little-endian, in row-major order.
    pub(crate) bytes: Bytes,
}

/// Runs a model.
pub(crate) async fn infer(app: &App, model: &Model, request: InferRequest) -> Result<Vec<Output>> {
    let began = Instant::now();
    let mut samples = 0;
    let result = run(app, model, request, &mut samples).await;
    app.metrics.ended(&model.name, samples, began.elapsed(), result.as_ref().err());
    result
}

async fn run(app: &App, model: &Model, request: InferRequest, samples: &mut usize) -> Result<Vec<Output>> {
    let tensors = model.tensors()?;
    let (terms, cancel) = request.options.terms(app);
    let known = tensors.inputs();
    let wanted = wanted(&tensors.outputs(), request.outputs)?;
    let bytes = request.inputs.iter().map(|input| bytes_of(&input.elements)).sum();
    let inputs = request.inputs;
    let inputs = beside(bytes, move || checked(&known, inputs)).await??;
    *samples = inputs.values().filter_map(|tensor| tensor.shape().first()).copied().next().unwrap_or(1);
    let mut made = tensors.submit(inputs, terms)?.instrument(traces::infer(&model.name)).await?;
    drop(cancel);
    let made: Vec<(String, Tensor)> =
        wanted.into_iter().filter_map(|name| made.remove(&name).map(|tensor| (name, tensor))).collect();
    let bytes = made.iter().map(|(_, tensor)| tensor.shape().iter().product::<usize>() * 4).sum();
    let half = request.half;
    beside(bytes, move || made.into_iter().map(|(name, tensor)| output(name, &tensor, half)).collect()).await
}

fn bytes_of(elements: &Elements) -> usize {
    match elements {
        Elements::Bytes(bytes) => bytes.len(),
        Elements::Integers(values) => values.len() * 8,
        Elements::Doubles(values) => values.len() * 8,
        Elements::Floats(values) => values.len() * 4,
    }
}

/// Runs work whose time grows with `bytes`; from [`LARGE`] on, on a separate thread.
pub(crate) async fn beside<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    if bytes < LARGE {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|_| Failure::internal("the request failed here"))
}

/// The names of the requested outputs.
fn wanted(known: &[TensorInfo], wanted: Vec<String>) -> Result<Vec<String>> {
    if wanted.is_empty() {
        return Ok(known.iter().map(|info| info.name.clone()).collect());
    }
    for (place, name) in wanted.iter().enumerate() {
        if !known.iter().any(|info| info.name == *name) {
            return Err(Failure::invalid(format!(
                "expected one of the outputs {}, found {}",
                names(known),
                shown(name, WORD_MAXIMUM)
            )));
        }
        if wanted.iter().take(place).any(|other| other == name) {
            return Err(Failure::invalid(format!("the output {name} is wanted twice")));
        }
    }
    Ok(wanted)
}

/// The tensors of a request, if its inputs are what the model takes. Shapes are compared with the engine's graphs when
/// the request's turn comes.
fn checked(known: &[TensorInfo], inputs: Vec<Input>) -> Result<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for Input { name, datatype, shape, elements } in inputs {
        let Some(info) = known.iter().find(|info| info.name == name) else {
            return Err(Failure::invalid(format!(
                "expected inputs {}, found {}",
                names(known),
                shown(&name, WORD_MAXIMUM)
            )));
        };
        let at = |failure: Failure| Failure { message: format!("input {name}: {}", failure.message), ..failure };
        let wrong = |message: String| at(Failure::invalid(message));
        let expected = info.data_type.unwrap_or(DataType::F32);
        let given = datatype::named(&datatype).filter(|given| datatype::is_taken(*given, expected));
        let given = given.ok_or_else(|| {
            wrong(format!(
                "expected elements of {}, found {}",
                datatype::name_of(expected),
                shown(&datatype, WORD_MAXIMUM)
            ))
        })?;
        let (shape, count) = shape_of(&shape).map_err(at)?;
        let bytes = datatype::to_bytes(elements, given, expected, count).map_err(at)?;
        let tensor = Tensor::from_bytes(expected, &shape, &bytes);
        let tensor = tensor.ok_or_else(|| wrong(format!("its bytes are no {}", datatype::name_of(expected))))?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(wrong("there are two of this name".into()));
        }
    }
    Ok(tensors)
}

/// A shape with its number of elements.
fn shape_of(shape: &[i64]) -> Result<(Vec<usize>, usize)> {
    if shape.len() > AXES_MAXIMUM {
        return Err(Failure::invalid(format!(
            "expected a shape of at most {AXES_MAXIMUM} axes, found {}",
            shape.len()
        )));
    }
    let lengths: Option<Vec<usize>> = shape.iter().map(|length| usize::try_from(*length).ok()).collect();
    let lengths =
        lengths.ok_or_else(|| Failure::invalid(format!("expected lengths of at least 0, found {shape:?}")))?;
    let count = lengths.iter().try_fold(1_usize, |count, length| count.checked_mul(*length));
    let count = count.ok_or_else(|| Failure::invalid(format!("{shape:?} has more elements than there can be")))?;
    Ok((lengths, count))
}

fn names(known: &[TensorInfo]) -> String {
    known.iter().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn output(name: String, tensor: &Tensor, half: bool) -> Output {
    let (data_type, shape) = (tensor.data_type(), tensor.shape().to_vec());
    let bytes = tensor.to_bytes();
    if half && data_type == DataType::F32 {
        return Output { name, data_type: DataType::F16, shape, bytes: datatype::narrowed(&bytes).into() };
    }
    Output { name, data_type, shape, bytes: bytes.into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::*;

    fn input(name: &str, datatype: &str, shape: &[i64], bytes: usize) -> Input {
        let elements = Elements::Bytes(vec![0; bytes].into());
        Input { name: name.into(), datatype: datatype.into(), shape: shape.to_vec(), elements }
    }

    #[test]
    fn a_timeout_of_zero_is_none() {
        let of = |text: &'static str| {
            let options = RequestOptions::of_texts(Caller(0), |name| (name == "timeout").then_some(text));
            options.map(|options| options.timeout).map_err(|failure| failure.message)
        };
        for text in ["0", "0.0", "-0", "0e9"] {
            assert_eq!(of(text), Ok(None), "{text}");
        }
        assert_eq!(of("1.5"), Ok(Some(Duration::from_millis(1500))));
        // A time below the resolution is over at once.
        assert_eq!(of("1e-300"), Ok(Some(Duration::ZERO)));
        for text in ["-1", "x", "NaN", "inf", "1e300", "1 s"] {
            assert_eq!(of(text), Err("timeout: expected seconds".into()), "{text}");
        }
    }

    #[test]
    fn tensors_that_lie_are_refused() {
        let known = [TensorInfo { name: "image".into(), data_type: Some(DataType::F32), shape: vec![None; 2] }];
        let refused = |inputs: Vec<Input>| checked(&known, inputs).unwrap_err().message;
        assert_eq!(checked(&known, vec![input("image", "FP32", &[2, 3], 24)]).unwrap()["image"].shape(), [2, 3]);
        assert_eq!(checked(&known, vec![input("image", "FP32", &[0, 3], 0)]).unwrap()["image"].shape(), [0, 3]);
        for (inputs, expected) in [
            (vec![input("other", "FP32", &[1], 4)], "expected inputs image, found other"),
            (vec![input("image", "INT64", &[1], 8)], "input image: expected elements of FP32, found INT64"),
            (vec![input("image", "BYTES", &[1], 8)], "input image: expected elements of FP32, found BYTES"),
            (vec![input("image", "FP32", &[2, 3], 20)], "input image: expected 24 bytes for its shape, found 20"),
            (vec![input("image", "FP32", &[-1, 3], 0)], "input image: expected lengths of at least 0, found [-1, 3]"),
            (
                vec![input("image", "FP32", &[i64::MAX, 4], 0)],
                "input image: [9223372036854775807, 4] has more elements",
            ),
            (vec![input("image", "FP32", &[1 << 62], 0)], "input image: expected more than there can be bytes"),
            (vec![input("image", "FP32", &[1; 9], 4)], "input image: expected a shape of at most 8 axes, found 9"),
            (vec![input("image", "FP32", &[1], 4), input("image", "FP32", &[1], 4)], "input image: there are two"),
        ] {
            assert!(refused(inputs).starts_with(expected), "{expected}");
        }
        let long = "x".repeat(100_000);
        assert!(refused(vec![input(&long, "FP32", &[1], 4)]).len() < 200);
    }
}
