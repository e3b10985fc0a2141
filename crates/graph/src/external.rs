//! The external files that hold a graph's weights.

use crate::attribute::graphs;
use crate::message::decode_message;
use crate::proto::tensor_proto::DataLocation;
use crate::proto::{GraphProto, NodeProto, TensorProto, ValueInfoProto};
use crate::{DataType, Error, Result};
use prost::Message;
use std::collections::BTreeSet;
use std::path::Path;

/// The locations of external data in an ONNX file with these bytes: in its main graph and in nested graphs. `path` is
/// the file's, for errors.
///
/// # Errors
/// The bytes are not an ONNX model.
pub fn external_files(bytes: &[u8], path: &Path) -> Result<BTreeSet<String>> {
    let model = decode_message(bytes, path)?;
    let mut found = BTreeSet::new();
    model.graph.iter().for_each(|graph| of_graph(graph, &mut found));
    let nodes = model.functions.iter().flat_map(|function| &function.node);
    nodes.for_each(|node| of_node(node, &mut found));
    Ok(found)
}

/// A weight of a graph whose bytes are in another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalTensor {
    /// The weight's name.
    pub name: String,
    /// Its element type.
    pub data_type: DataType,
    /// Its sizes.
    pub dims: Vec<usize>,
    /// The file's location, as the graph states it.
    pub location: String,
    /// Where its bytes begin in the file.
    pub offset: usize,
    /// Number of its bytes.
    pub length: usize,
}

impl ExternalTensor {
    /// Its bytes within the content of its file; `None` if the file is too short.
    pub fn bytes_in<'f>(&self, file: &'f [u8]) -> Option<&'f [u8]> {
        file.get(self.offset..self.offset.checked_add(self.length)?)
    }
}

/// The external weights of the graph in an ONNX file with these bytes. `path` is the file's path, for errors.
///
/// # Errors
/// The bytes are not an ONNX model, or a weight has an unknown type, impossible sizes, or an invalid location.
pub fn external_tensors(bytes: &[u8], path: &Path) -> Result<Vec<ExternalTensor>> {
    let model = decode_message(bytes, path)?;
    let weights = model.graph.iter().flat_map(|graph| &graph.initializer);
    let external = weights.filter(|tensor| tensor.data_location() == DataLocation::External);
    let described = external.map(|tensor| {
        describe(tensor).map_err(|reason| Error::format(path, format!("weight `{}`: {reason}", tensor.name())))
    });
    described.collect()
}

/// The ONNX file with these bytes, with new locations for the external weights of its graph. `location` maps the old
/// location to the new one. External tensors in nodes' attributes and in nested graphs do not change. `path` is the
/// file's path, for errors.
///
/// # Errors
/// The bytes are not an ONNX model.
pub fn relocate_weights(bytes: &[u8], path: &Path, location: impl Fn(&str) -> String) -> Result<Vec<u8>> {
    let mut model = decode_message(bytes, path)?;
    let weights = model.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
    let external = weights.filter(|tensor| tensor.data_location() == DataLocation::External);
    let entries = external.flat_map(|tensor| &mut tensor.external_data).filter(|entry| entry.key() == "location");
    entries.for_each(|entry| entry.value = Some(location(entry.value())));
    Ok(model.encode_to_vec())
}

/// The names of a graph's inputs and outputs, and how many nodes it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The inputs, in the graph's order, without those that are initializers.
    pub inputs: Vec<String>,
    /// The outputs, in the graph's order.
    pub outputs: Vec<String>,
    /// The number of nodes, without the nodes of nested graphs.
    pub nodes: usize,
}

/// The interface of the graph in the ONNX file with these bytes. `path` is the file's path, for errors.
///
/// # Errors
/// The bytes are not an ONNX model.
pub fn interface(bytes: &[u8], path: &Path) -> Result<Interface> {
    let graph = decode_message(bytes, path)?.graph.unwrap_or_default();
    let weights: BTreeSet<&str> = graph.initializer.iter().map(TensorProto::name).collect();
    let names = |values: &[ValueInfoProto]| values.iter().map(|value| value.name().to_owned()).collect::<Vec<_>>();
    let mut inputs = names(&graph.input);
    inputs.retain(|name| !weights.contains(name.as_str()));
    Ok(Interface { inputs, outputs: names(&graph.output), nodes: graph.node.len() })
}

pub(crate) fn describe(tensor: &TensorProto) -> Result<ExternalTensor, String> {
    let data_type = DataType::from_onnx(tensor.data_type())
        .ok_or_else(|| format!("unknown element type {}", tensor.data_type()))?;
    let dims = tensor.dims.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    let dims = dims.map_err(|_| format!("negative size in {:?}", tensor.dims))?;
    let length = dims.iter().try_fold(data_type.size(), |product, &dim| product.checked_mul(dim));
    let length = length.ok_or_else(|| format!("{dims:?} are more elements than memory can hold"))?;
    let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key() == key).map(|entry| entry.value());
    let number = |key: &str, otherwise: usize| {
        let parsed = entry(key).map_or(Ok(otherwise), str::parse);
        parsed.map_err(|_| format!("external data: expected a number as {key}, found {:?}", entry(key)))
    };
    let (offset, found) = (number("offset", 0)?, number("length", length)?);
    if found != length {
        return Err(format!("expected {length} bytes, found {found}"));
    }
    let location = entry("location").ok_or("external data without a location")?.to_owned();
    Ok(ExternalTensor { name: tensor.name().to_owned(), data_type, dims, location, offset, length })
}

fn of_graph(graph: &GraphProto, found: &mut BTreeSet<String>) {
    graph.initializer.iter().for_each(|tensor| of_tensor(tensor, found));
    for sparse in &graph.sparse_initializer {
        [&sparse.values, &sparse.indices].into_iter().flatten().for_each(|tensor| of_tensor(tensor, found));
    }
    graph.node.iter().for_each(|node| of_node(node, found));
}

fn of_node(node: &NodeProto, found: &mut BTreeSet<String>) {
    for attribute in &node.attribute {
        attribute.t.iter().chain(&attribute.tensors).for_each(|tensor| of_tensor(tensor, found));
        graphs(attribute).for_each(|graph| of_graph(graph, found));
    }
}

fn of_tensor(tensor: &TensorProto, found: &mut BTreeSet<String>) {
    if tensor.data_location() == DataLocation::External || !tensor.external_data.is_empty() {
        let locations = tensor.external_data.iter().filter(|entry| entry.key() == "location");
        found.extend(locations.map(|entry| entry.value().to_owned()));
    }
}
