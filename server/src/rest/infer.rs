//! Inference with tensors as JSON and as bytes.
//!
//! With the extension for binary tensors, the header `Inference-Header-Content-Length` has the length of the JSON; the
//! bytes of the tensors follow, in the order in which the JSON names them.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use serde::ser::{Error as _, SerializeSeq};
use serde::{Serialize, Serializer};
use tileforge::DataType;

use super::models::{Named, NamedPath};
use super::request::{Input as TextInput, Numbers, Parameter, Parameters, Request};
use crate::app::{self, App};
use crate::body;
use crate::bounded_json::Object;
use crate::caller::Caller;
use crate::datatype::{self, Elements};
use crate::failure::{Failure, FailureKind, Result, WORD_MAXIMUM, shown};
use crate::inference::{self, InferRequest, Input, Output, RequestOptions, beside};

/// The header with the length of the JSON in a body.
const JSON_LENGTH: &str = "inference-header-content-length";

pub(super) async fn infer(
    State(app): State<Arc<App>>,
    path: NamedPath,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    let model = app.repository.get(&Named::of(path)?.name)?;
    check_encoding(&headers)?;
    let json_length = headers.get(JSON_LENGTH).cloned();
    let bytes = body::read(body).await?;
    let text = json_length.as_ref().map_or(bytes.len(), |_| 0);
    let mut read = beside(text, move || read(json_length.as_ref(), &bytes)).await??;
    read.request.options.caller = caller;
    let outputs = inference::infer(&app, &model, read.request).await?;
    let bytes = outputs.iter().map(|output| output.bytes.len()).sum();
    beside(bytes, move || write(&model.name, &read.id, outputs, &read.binary)).await?
}

/// Refuses compressed bodies.
fn check_encoding(headers: &HeaderMap) -> Result<()> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => {
            Err(Failure::new(FailureKind::MediaType, "expected a body without compression"))
        }
        _ => Ok(()),
    }
}

/// A request, and how its answer is written.
struct Read {
    id: String,
    request: InferRequest,
    binary: Binary,
}

/// Which outputs are written as bytes.
struct Binary {
    default: bool,
    outputs: Vec<(String, bool)>,
}

impl Binary {
    fn of(&self, name: &str) -> bool {
        self.outputs.iter().find(|(other, _)| other == name).map_or(self.default, |(_, binary)| *binary)
    }
}

fn read(json_length: Option<&HeaderValue>, body: &Bytes) -> Result<Read> {
    let length = match json_length {
        None => body.len(),
        Some(value) => {
            let length: Option<usize> = value.to_str().ok().and_then(|text| text.parse().ok());
            length.filter(|length| *length <= body.len()).ok_or_else(|| {
                let most = body.len();
                Failure::invalid(format!("Inference-Header-Content-Length: expected at most the body's {most} bytes"))
            })?
        }
    };
    let (text, mut rest) = (body.slice(..length), body.slice(length..));
    let Object(request) =
        serde_json::from_slice(&text).map_err(|error| Failure::invalid(format!("the JSON of the request: {error}")))?;
    let Request { id, parameters, inputs, outputs } = request;
    let inputs = inputs.into_iter().map(|Object(input)| of_text(input, &mut rest)).collect::<Result<Vec<_>>>()?;
    if !rest.is_empty() {
        return Err(Failure::invalid(format!("expected nothing behind the tensors, found {} bytes", rest.len())));
    }
    let default = flag(&parameters, "binary_data_output")?.unwrap_or(false);
    let mut binary = Binary { default, outputs: Vec::new() };
    for Object(output) in &outputs {
        refuse_shared_memory(&output.parameters)?;
        if output.parameters.get("classification").is_some_and(|classes| *classes != Parameter::Integer(0)) {
            return Err(Failure::invalid(format!(
                "output {}: classes are not served",
                shown(&output.name, WORD_MAXIMUM)
            )));
        }
        binary.outputs.push((output.name.clone(), flag(&output.parameters, "binary_data")?.unwrap_or(default)));
    }
    let half = match parameters.get("output_datatype") {
        None => false,
        Some(Parameter::Text(name)) if name == "FP32" => false,
        Some(Parameter::Text(name)) if name == "FP16" => true,
        Some(_) => return Err(Failure::invalid("output_datatype: expected FP32 or FP16")),
    };
    let options = RequestOptions {
        caller: Caller::default(),
        timeout: whole(&parameters, "timeout")?.filter(|micros| *micros > 0).map(Duration::from_micros),
        priority: RequestOptions::priority_of(whole(&parameters, "priority")?.unwrap_or(0)),
    };
    let outputs = outputs.into_iter().map(|Object(output)| output.name).collect();
    Ok(Read { id, request: InferRequest { inputs, outputs, half, options }, binary })
}

/// An input; if its elements are bytes, takes the next ones of the body.
fn of_text(input: TextInput, rest: &mut Bytes) -> Result<Input> {
    let TextInput { name, datatype, shape, parameters, data } = input;
    refuse_shared_memory(&parameters)?;
    let wrong = |message: &str| Failure::invalid(format!("input {}: {message}", shown(&name, WORD_MAXIMUM)));
    let elements = match (parameters.get("binary_data_size"), data) {
        (None, Some(Numbers(elements))) => elements,
        (None, None) => return Err(wrong("expected `data` or `binary_data_size`")),
        (Some(_), Some(_)) => return Err(wrong("expected either `data` or `binary_data_size`")),
        (Some(Parameter::Integer(size)), None) => {
            let size = usize::try_from(*size).ok().filter(|size| *size <= rest.len());
            let found = rest.len();
            let size = size.ok_or_else(|| {
                wrong(&format!("expected a `binary_data_size` of at most the {found} bytes that are left"))
            })?;
            Elements::Bytes(rest.split_to(size))
        }
        (Some(_), None) => return Err(wrong("expected a whole number as `binary_data_size`")),
    };
    Ok(Input { name, datatype, shape, elements })
}

/// Refuses shared memory: clients cannot name memory of this machine.
fn refuse_shared_memory(parameters: &Parameters) -> Result<()> {
    if parameters.contains_key("shared_memory_region") {
        return Err(Failure::invalid("shared memory is not served"));
    }
    Ok(())
}

fn flag(parameters: &Parameters, name: &str) -> Result<Option<bool>> {
    match parameters.get(name) {
        None => Ok(None),
        Some(Parameter::Bool(value)) => Ok(Some(*value)),
        Some(_) => Err(Failure::invalid(format!("{name}: expected true or false"))),
    }
}

fn whole(parameters: &Parameters, name: &str) -> Result<Option<u64>> {
    let wrong = || Failure::invalid(format!("{name}: expected a whole number of at least 0"));
    match parameters.get(name) {
        None => Ok(None),
        Some(Parameter::Integer(value)) => u64::try_from(*value).map(Some).map_err(|_| wrong()),
        Some(_) => Err(wrong()),
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    model_name: &'a str,
    model_version: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    outputs: Vec<AnswerOutput<'a>>,
}

#[derive(Serialize)]
struct AnswerOutput<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<BinarySize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data<'a>>,
}

#[derive(Serialize)]
struct BinarySize {
    binary_data_size: usize,
}

/// The elements of an output, as numbers.
struct Data<'a>(&'a Output);

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        fn all<S: Serializer, const N: usize, T: Serialize>(
            bytes: &[u8],
            serializer: S,
            read: impl Fn([u8; N]) -> std::result::Result<T, &'static str>,
        ) -> std::result::Result<S::Ok, S::Error> {
            let elements = bytes.as_chunks::<N>().0;
            let mut array = serializer.serialize_seq(Some(elements.len()))?;
            for element in elements {
                array.serialize_element(&read(*element).map_err(S::Error::custom)?)?;
            }
            array.end()
        }
        let Output { data_type, bytes, .. } = self.0;
        match data_type {
            DataType::F32 => all(bytes, serializer, |bytes| {
                Some(f32::from_le_bytes(bytes)).filter(|value| value.is_finite()).ok_or("a value is not finite")
            }),
            DataType::I64 => all(bytes, serializer, |bytes| Ok(i64::from_le_bytes(bytes))),
            DataType::I32 => all(bytes, serializer, |bytes| Ok(i32::from_le_bytes(bytes))),
            _ => Err(S::Error::custom("elements of this type are given as bytes alone")),
        }
    }
}

fn write(model: &str, id: &str, outputs: Vec<Output>, binary: &Binary) -> Result<Response> {
    let described = |output: &'_ Output| binary.of(&output.name).then_some(output.bytes.len());
    let answer = Answer {
        model_name: model,
        model_version: app::MODEL_VERSION,
        id,
        outputs: outputs
            .iter()
            .map(|output| AnswerOutput {
                name: &output.name,
                datatype: datatype::name_of(output.data_type),
                shape: &output.shape,
                parameters: described(output).map(|binary_data_size| BinarySize { binary_data_size }),
                data: described(output).is_none().then_some(Data(output)),
            })
            .collect(),
    };
    let failed =
        |error: serde_json::Error| Failure::invalid(format!("the answer cannot be JSON: {error}; ask for bytes"));
    let text = serde_json::to_vec(&answer).map_err(failed)?;
    drop(answer);
    let behind: Vec<Bytes> =
        outputs.into_iter().filter(|output| binary.of(&output.name)).map(|output| output.bytes).collect();
    if behind.is_empty() {
        let kind = HeaderValue::from_static("application/json");
        let mut response = Response::new(Body::from(text));
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        return Ok(response);
    }
    let mut all = BytesMut::with_capacity(text.len() + behind.iter().map(Bytes::len).sum::<usize>());
    all.extend_from_slice(&text);
    behind.iter().for_each(|bytes| all.extend_from_slice(bytes));
    let mut response = Response::new(Body::from(all.freeze()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(JSON_LENGTH, HeaderValue::from(text.len()));
    Ok(response)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::*;

    fn refused(length: &str, text: &str, tensors: &[u8]) -> String {
        let value = HeaderValue::from_str(&length.replace("JSON", &text.len().to_string())).unwrap();
        let body = Bytes::from([text.as_bytes(), tensors].concat());
        read(Some(&value), &body).err().map_or_else(String::new, |failure| failure.message)
    }

    fn of_two(first: &str, second: &str) -> String {
        let input = |name: &str, size: &str| {
            format!(r#"{{"name":"{name}","datatype":"FP32","shape":[1],"parameters":{{"binary_data_size":{size}}}}}"#)
        };
        format!(r#"{{"inputs":[{},{}]}}"#, input("a", first), input("b", second))
    }

    #[test]
    fn bytes_behind_the_text_belong_to_one_input_each() {
        assert_eq!(refused("JSON", &of_two("4", "4"), &[0; 8]), "");
        for (first, second, bytes, expected) in [
            ("4", "8", 8, "input b: expected a `binary_data_size` of at most the 4 bytes that are left"),
            ("9", "0", 8, "input a: expected a `binary_data_size` of at most the 8 bytes that are left"),
            ("-1", "0", 8, "input a: expected a `binary_data_size` of at most"),
            ("4", "4", 9, "expected nothing behind the tensors, found 1 bytes"),
            ("1.5", "4", 8, "input a: expected a whole number as `binary_data_size`"),
            ("9223372036854775807", "4", 8, "input a: expected a `binary_data_size` of at most"),
            ("9223372036854775808", "4", 8, "the JSON of the request: the number is too large"),
        ] {
            let found = refused("JSON", &of_two(first, second), &vec![0; bytes]);
            assert!(found.starts_with(expected), "{found}");
        }
        for length in ["-1", "x", "", "1000", "18446744073709551616"] {
            let found = refused(length, &of_two("4", "4"), &[0; 8]);
            assert!(found.starts_with("Inference-Header-Content-Length: expected at most"), "{length}: {found}");
        }
        assert!(refused("3", &of_two("4", "4"), &[0; 8]).starts_with("the JSON of the request: EOF"));
        let both =
            r#"{"inputs":[{"name":"a","datatype":"FP32","shape":[1],"data":[1],"parameters":{"binary_data_size":4}}]}"#;
        assert_eq!(refused("JSON", both, &[0; 4]), "input a: expected either `data` or `binary_data_size`");
        let shared =
            r#"{"inputs":[{"name":"a","datatype":"FP32","shape":[1],"parameters":{"shared_memory_region":"x"}}]}"#;
        assert_eq!(refused("JSON", shared, &[]), "shared memory is not served");
    }
}
