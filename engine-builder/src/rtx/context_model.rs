//! The ONNX model that passes a plan to ONNX Runtime's provider for RTX GPUs.
//!
//! For the provider, a plan is one node, `com.microsoft.EPContext`, with the graph's inputs and outputs. The operator
//! is ONNX Runtime's (<https://onnxruntime.ai/docs/execution-providers/EP-Context-Design.html>). The names and types
//! of the attributes are the ones that the provider's release 0.5 writes and reads (NVIDIA/TensorRT-RTX-EP-ABI,
//! `src/onnx_ctx_model_helper.h` and `.cc`).

use crate::{Error, Result};
use std::path::{Component, Path};
use tileforge_graph::{Attribute, Model, Node, Opset, Port};

/// The name under which the provider is registered; it is also the attribute `source`.
pub const PROVIDER: &str = "NvTensorRTRTXExecutionProvider";

/// The domain of the operator.
const DOMAIN: &str = "com.microsoft";

/// The facts about a plan in the node's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFacts<'f> {
    /// The plan's file, relative to the model's folder and within it.
    pub plan: &'f Path,
    /// The name of the graph's file. If a plan has no weights, the provider looks for them there.
    pub graph: &'f str,
    /// The name of the provider's runtime cache for this plan: the same for the same plan, in every process.
    pub partition: &'f str,
    /// The compute capabilities of the plan, such as `89`. The provider only writes this, for human readers.
    pub capabilities: &'f [(u32, u32)],
}

/// The model around a plan. `inputs` and `outputs` are the graph's, with the same names, types and order.
///
/// # Errors
/// [`Error::Input`] for a plan outside the model's folder, which the provider refuses, or for a name that is not a
/// file name.
pub fn context_model(inputs: &[Port], outputs: &[Port], facts: &PlanFacts<'_>) -> Result<Model> {
    let inside = facts.plan.components().all(|part| matches!(part, Component::Normal(_)));
    let Some(plan) = facts.plan.to_str().filter(|plan| inside && !plan.is_empty()) else {
        let reason = "expected a path in UTF-8 within the model's folder, without `.` and `..`";
        return Err(Error::input(facts.plan, reason));
    };
    for name in [facts.graph, facts.partition] {
        if Path::new(name).file_name().is_none_or(|file| file != name) {
            return Err(Error::input(Path::new(name), "expected a file's name, without a folder"));
        }
    }
    let capabilities: Vec<String> = facts.capabilities.iter().map(|(major, minor)| format!("{major}{minor}")).collect();
    let names = |ports: &[Port]| ports.iter().map(|port| port.name.clone()).collect();
    let node = Node {
        name: facts.partition.into(),
        operator: "EPContext".into(),
        domain: DOMAIN.into(),
        inputs: names(inputs),
        outputs: names(outputs),
        attributes: [
            // The node names the plan's file and does not contain its bytes: an attribute is limited to 2 GiB.
            ("embed_mode", Attribute::Int(0)),
            ("ep_cache_context", Attribute::Text(plan.into())),
            ("ep_context_op_domain", Attribute::Text(DOMAIN.into())),
            ("ep_sdk_version", Attribute::Text("1.0".into())),
            ("hardware_architecture", Attribute::Text(capabilities.join(","))),
            // The operator's default is 1, a context that other nodes share. The provider has one context for each
            // node.
            ("main_context", Attribute::Int(0)),
            ("onnx_model_filename", Attribute::Text(facts.graph.into())),
            ("partition_name", Attribute::Text(facts.partition.into())),
            ("source", Attribute::Text(PROVIDER.into())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
    };
    let types = outputs.iter().map(|port| (port.name.clone(), port.ty.clone())).collect();
    Ok(Model {
        name: facts.partition.into(),
        producer: ("tileforge".into(), env!("CARGO_PKG_VERSION").into()),
        ir_version: 10,
        opsets: vec![Opset { domain: String::new(), version: 21 }, Opset { domain: DOMAIN.into(), version: 1 }],
        inputs: inputs.to_vec(),
        outputs: outputs.to_vec(),
        nodes: vec![node],
        types,
        ..Model::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileforge_graph::proto::attribute_proto::AttributeType;
    use tileforge_graph::{DataType, TensorType, WeightStorage, load, save};

    fn ports() -> [Vec<Port>; 2] {
        let port =
            |name: &str, data_type, dims: [usize; 4]| Port { name: name.into(), ty: TensorType::new(data_type, dims) };
        [
            vec![port("image", DataType::F32, [1, 3, 8, 8]), port("mask", DataType::Bool, [1, 1, 8, 8])],
            vec![port("upscaled", DataType::F32, [1, 3, 32, 32])],
        ]
    }

    fn facts(plan: &Path) -> PlanFacts<'_> {
        PlanFacts { plan, graph: "model.onnx", partition: "compact-x4", capabilities: &[(8, 6), (12, 0)] }
    }

    #[test]
    fn the_saved_model_is_one_node_between_the_graph_s_inputs_and_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("context.onnx");
        let [inputs, outputs] = ports();
        let made = context_model(&inputs, &outputs, &facts(Path::new("plans/a.plan"))).unwrap();
        save(&made, &path, WeightStorage::Inline).unwrap();
        let read = load(&path).unwrap();
        assert_eq!((&read.inputs, &read.outputs), (&inputs, &outputs));
        assert!(read.weights.is_empty());
        let [node] = read.nodes.as_slice() else { panic!("{:?}", read.nodes) };
        assert_eq!((node.operator.as_str(), node.domain.as_str()), ("EPContext", "com.microsoft"));
        assert_eq!(node.inputs, ["image", "mask"]);
        assert_eq!(node.outputs, ["upscaled"]);
        assert!(read.opsets.iter().any(|opset| opset.domain == "com.microsoft" && opset.version == 1));
    }

    /// The provider fails at an attribute of another type, and ignores an attribute of another name.
    #[test]
    fn attributes_have_the_provider_s_names_and_types() {
        let [inputs, outputs] = ports();
        let made = context_model(&inputs, &outputs, &facts(Path::new("a.plan"))).unwrap();
        let expected = [
            ("embed_mode", AttributeType::Int),
            ("ep_cache_context", AttributeType::String),
            ("ep_context_op_domain", AttributeType::String),
            ("ep_sdk_version", AttributeType::String),
            ("hardware_architecture", AttributeType::String),
            ("main_context", AttributeType::Int),
            ("onnx_model_filename", AttributeType::String),
            ("partition_name", AttributeType::String),
            ("source", AttributeType::String),
        ];
        let kind = |attribute: &Attribute| match attribute {
            Attribute::Int(_) => AttributeType::Int,
            Attribute::Text(_) => AttributeType::String,
            other => panic!("{other:?}"),
        };
        let found: Vec<_> = made.nodes[0].attributes.iter().map(|(name, value)| (name.as_str(), kind(value))).collect();
        assert_eq!(found, expected);
        let text = |name: &str| made.nodes[0].attributes[name].clone();
        assert_eq!(text("embed_mode"), Attribute::Int(0));
        assert_eq!(text("ep_cache_context"), Attribute::Text("a.plan".into()));
        assert_eq!(text("hardware_architecture"), Attribute::Text("86,120".into()));
        assert_eq!(text("partition_name"), Attribute::Text("compact-x4".into()));
        assert_eq!(text("source"), Attribute::Text("NvTensorRTRTXExecutionProvider".into()));
    }

    #[test]
    fn a_plan_elsewhere_is_refused_as_the_provider_would() {
        let [inputs, outputs] = ports();
        for plan in ["", "../a.plan", "/a.plan", "plans/../../a.plan", "."] {
            let error = context_model(&inputs, &outputs, &facts(Path::new(plan))).unwrap_err().to_string();
            assert!(error.contains("within the model's folder"), "{plan}: {error}");
        }
        let with_folder = PlanFacts { partition: "../x", ..facts(Path::new("a.plan")) };
        assert!(context_model(&inputs, &outputs, &with_folder).unwrap_err().to_string().contains("../x: "));
    }
}
