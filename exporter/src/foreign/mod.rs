//! ONNX files that other programs wrote: `torch.onnx.export`, tf2onnx, and whatever else. Such a file states names and
//! sizes. The user has to state what its values mean.
//!
//! | module | holds |
//! |---|---|
//! | [`open`] | the file as a graph in operators of today, in FP32 |
//! | `picture` | which axes of its tensors are a picture's |
//! | `padding` | explicit paddings in the place of `auto_pad` |
//! | [`Survey`] | what can be found without running it |

mod padding;
mod picture;
mod survey;

use crate::{Error, Result};
use std::collections::BTreeSet;
use std::path::Path;
use tileforge_contract::ARCHITECTURE_KEY;
use tileforge_graph::rewrite::{is_half, lifted_to_fp32, remove_unread, to_current_opset};
use tileforge_graph::{Dim, Model, Node, TensorType};

pub use picture::{Layout, Picture, PictureTensor, receptive_field};
pub use survey::Survey;

/// Domains of operators that ONNX Runtime has.
const KNOWN_DOMAINS: [&str; 3] = ["", "ai.onnx.ml", "com.microsoft"];

/// A graph that another program wrote.
#[derive(Debug, Clone)]
pub struct ForeignGraph {
    /// The graph: opset 20 or newer, FP32, constants as weights. Types are inferred as far as they can be without
    /// running it.
    pub model: Model,
    /// The form that the file has.
    pub file: FileForm,
}

/// The form of a file, before anything was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileForm {
    /// The version of ONNX's own operators.
    pub opset: i64,
    /// The program that wrote it, and its version.
    pub producer: (String, String),
    /// Inputs and outputs, with their types.
    pub inputs: Vec<(String, TensorType)>,
    /// As the inputs.
    pub outputs: Vec<(String, TensorType)>,
    /// It has values in FP16 or BF16.
    pub half: bool,
    /// It has QuantizeLinear or DequantizeLinear.
    pub quantised: bool,
}

/// Whether another program than `exporter` wrote an ONNX file: such a file does not say what its tensors mean.
///
/// # Errors
/// The file cannot be read as an ONNX model.
pub fn is_foreign(path: &Path) -> Result<bool> {
    let model = tileforge_graph::load_untyped(path)?;
    Ok(!model.metadata.contains_key(ARCHITECTURE_KEY))
}

/// Reads a graph that another program wrote.
///
/// # Errors
/// The file cannot be read; it has a custom operator; an operator of an older set has no newer form.
pub fn open(path: &Path) -> Result<ForeignGraph> {
    let read = tileforge_graph::load_untyped(path)?;
    lifted(read).map_err(|error| Error::Graph(error.in_file(path)))
}

fn lifted(read: Model) -> Result<ForeignGraph, tileforge_graph::Error> {
    if let Some(node) = read.nodes.iter().find(|node| !KNOWN_DOMAINS.contains(&node.domain.as_str())) {
        return Err(custom(node));
    }
    if read.inputs.is_empty() || read.outputs.is_empty() {
        let (inputs, outputs) = (read.inputs.len(), read.outputs.len());
        let reason = format!("expected inputs and outputs, found {inputs} and {outputs}");
        return Err(tileforge_graph::Error::Graph(reason));
    }
    let file = FileForm::of(&read);
    let mut model = lifted_to_fp32(&to_current_opset(&read)?)?;
    padding::make_explicit(&mut model);
    // The shapes that a file states for its outputs may be wrong. Shapes that follow from the operators are right.
    for port in &mut model.outputs {
        for (axis, dim) in port.ty.dims.iter_mut().enumerate() {
            *dim = Dim::symbol(format!("{}.{axis}", port.name));
        }
    }
    remove_unread(&mut model);
    model.infer_types()?;
    Ok(ForeignGraph { model, file })
}

fn custom(node: &Node) -> tileforge_graph::Error {
    tileforge_graph::Error::Node {
        node: node.name.clone(),
        operator: node.operator.clone(),
        reason: format!(
            "it is a custom operator, of the domain `{}`, which ONNX Runtime does not have; export the network with \
             operators of ONNX",
            node.domain
        ),
    }
}

impl FileForm {
    fn of(model: &Model) -> Self {
        let ports = |ports: &[tileforge_graph::Port]| {
            ports.iter().map(|port| (port.name.clone(), port.ty.clone())).collect::<Vec<_>>()
        };
        let operators: BTreeSet<&str> = model.nodes.iter().map(|node| node.operator.as_str()).collect();
        Self {
            opset: model.opsets.iter().find(|set| set.domain.is_empty()).map_or(0, |set| set.version),
            producer: model.producer.clone(),
            inputs: ports(&model.inputs),
            outputs: ports(&model.outputs),
            half: is_half(model),
            quantised: operators.contains("QuantizeLinear") || operators.contains("DequantizeLinear"),
        }
    }
}
