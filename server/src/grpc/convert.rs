//! Conversion of tensor requests and answers from and to protocol buffers.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;

use super::proto::infer_parameter::ParameterChoice;
use super::proto::model_infer_request::InferInputTensor;
use super::proto::model_infer_response::InferOutputTensor;
use super::proto::{InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse};
use crate::app;
use crate::caller::Caller;
use crate::datatype::{self, Elements};
use crate::failure::{Failure, Result};
use crate::inference::{InferRequest, Input, Output, RequestOptions};

type Parameters = HashMap<String, InferParameter>;

/// A request for tensors.
pub(super) fn request(request: ModelInferRequest) -> Result<InferRequest> {
    let ModelInferRequest { parameters, inputs, outputs, raw_input_contents: raw, .. } = request;
    if !raw.is_empty() && raw.len() != inputs.len() {
        let (expected, found) = (inputs.len(), raw.len());
        return Err(Failure::invalid(format!(
            "raw_input_contents: expected {expected}, one for each input, found {found}"
        )));
    }
    let is_raw = !raw.is_empty();
    let mut raw = raw.into_iter();
    let inputs = inputs.into_iter().map(|input| of_message(input, raw.next(), is_raw)).collect::<Result<Vec<_>>>()?;
    for output in &outputs {
        refuse_shared_memory(&output.parameters)?;
        if whole(&output.parameters, "classification")?.unwrap_or(0) != 0 {
            return Err(Failure::invalid("classes are not served"));
        }
    }
    let half = match choice(&parameters, "output_datatype") {
        None => false,
        Some(ParameterChoice::StringParam(name)) if name == "FP32" => false,
        Some(ParameterChoice::StringParam(name)) if name == "FP16" => true,
        Some(_) => return Err(Failure::invalid("output_datatype: expected FP32 or FP16")),
    };
    let options = RequestOptions {
        caller: Caller::default(),
        timeout: whole(&parameters, "timeout")?.filter(|micros| *micros > 0).map(Duration::from_micros),
        priority: RequestOptions::priority_of(whole(&parameters, "priority")?.unwrap_or(0)),
    };
    let outputs = outputs.into_iter().map(|output| output.name).collect();
    Ok(InferRequest { inputs, outputs, half, options })
}

fn of_message(input: InferInputTensor, raw: Option<Bytes>, is_raw: bool) -> Result<Input> {
    let InferInputTensor { name, datatype, shape, parameters, contents } = input;
    refuse_shared_memory(&parameters)?;
    let elements = match (raw, contents) {
        (Some(_), Some(contents)) if contents != InferTensorContents::default() => {
            return Err(Failure::invalid("expected either contents or raw_input_contents, found both"));
        }
        (Some(bytes), _) if is_raw => Elements::Bytes(bytes),
        (_, contents) => of_contents(contents.unwrap_or_default())?,
    };
    Ok(Input { name, datatype, shape, elements })
}

/// The only list of numbers that is present.
fn of_contents(contents: InferTensorContents) -> Result<Elements> {
    let InferTensorContents {
        bool_contents,
        int_contents,
        int64_contents,
        uint_contents,
        uint64_contents,
        fp32_contents,
        fp64_contents,
        bytes_contents,
    } = contents;
    if !bool_contents.is_empty() || !bytes_contents.is_empty() {
        return Err(Failure::invalid("no model here takes booleans or texts"));
    }
    let too_large = |_| Failure::invalid("an element is out of its type's range");
    let mut lists = Vec::new();
    let mut add = |elements: Elements, is_empty: bool| {
        if !is_empty {
            lists.push(elements)
        }
    };
    add(Elements::Integers(int_contents.iter().copied().map(i64::from).collect()), int_contents.is_empty());
    add(Elements::Integers(uint_contents.iter().copied().map(i64::from).collect()), uint_contents.is_empty());
    let unsigned = uint64_contents.iter().copied().map(i64::try_from).collect::<Result<Vec<i64>, _>>();
    add(Elements::Integers(unsigned.map_err(too_large)?), uint64_contents.is_empty());
    let is_empty = int64_contents.is_empty();
    add(Elements::Integers(int64_contents), is_empty);
    let is_empty = fp32_contents.is_empty();
    add(Elements::Floats(fp32_contents), is_empty);
    let is_empty = fp64_contents.is_empty();
    add(Elements::Doubles(fp64_contents), is_empty);
    match (lists.pop(), lists.is_empty()) {
        (Some(elements), true) => Ok(elements),
        (None, _) => Ok(Elements::Integers(Vec::new())),
        (Some(_), false) => Err(Failure::invalid("expected contents of one type, found several")),
    }
}

/// Refuses shared memory: clients cannot name memory of this machine.
fn refuse_shared_memory(parameters: &Parameters) -> Result<()> {
    if parameters.contains_key("shared_memory_region") {
        return Err(Failure::invalid("shared memory is not served"));
    }
    Ok(())
}

fn choice<'p>(parameters: &'p Parameters, name: &str) -> Option<&'p ParameterChoice> {
    parameters.get(name)?.parameter_choice.as_ref()
}

fn whole(parameters: &Parameters, name: &str) -> Result<Option<u64>> {
    let wrong = || Failure::invalid(format!("{name}: expected a whole number of at least 0"));
    match choice(parameters, name) {
        None => Ok(None),
        Some(ParameterChoice::Int64Param(value)) => u64::try_from(*value).map(Some).map_err(|_| wrong()),
        Some(ParameterChoice::Uint64Param(value)) => Ok(Some(*value)),
        Some(_) => Err(wrong()),
    }
}

/// The answer, whose tensors are bytes.
pub(super) fn response(model_name: String, id: String, outputs: Vec<Output>) -> ModelInferResponse {
    let raw_output_contents = outputs.iter().map(|output| output.bytes.clone()).collect();
    let tensor = |output: Output| InferOutputTensor {
        name: output.name,
        datatype: datatype::name_of(output.data_type).into(),
        shape: output.shape.iter().map(|length| i64::try_from(*length).unwrap_or(i64::MAX)).collect(),
        parameters: HashMap::new(),
        contents: None,
    };
    ModelInferResponse {
        model_name,
        model_version: app::MODEL_VERSION.into(),
        id,
        parameters: HashMap::new(),
        outputs: outputs.into_iter().map(tensor).collect(),
        raw_output_contents,
    }
}
