//! The weights of an engine's graph, from the engine's checked files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tileforge_engine::Engine;
use tileforge_graph::{ExternalTensor, IN_MEMORY};

use crate::buffer;
use crate::error::{Error, Result};
use crate::native::MappedWeight;

/// The weights of an engine's graph that are in other files of the engine.
pub(crate) struct Weights<'e> {
    engine: &'e Engine,
    /// The graph's ONNX file.
    model: &'e [u8],
    path: &'e Path,
    tensors: Vec<ExternalTensor>,
}

impl<'e> Weights<'e> {
    /// Checks that every file that the graph names is one of the engine's checked files, and holds all bytes of its
    /// weights.
    pub(crate) fn of(engine: &'e Engine, model: &'e [u8], path: &'e Path) -> Result<Self> {
        let files =
            tileforge_graph::external_files(model, path).map_err(|error| Error::unloaded(path, error.to_string()))?;
        for location in files {
            engine.file(&location)?;
        }
        let tensors = tileforge_graph::external_tensors(model, path);
        let tensors = tensors.map_err(|error| Error::unloaded(path, error.to_string()))?;
        let weights = Self { engine, model, path, tensors };
        weights.tensors.iter().try_for_each(|tensor| weights.bytes_of(tensor).map(drop))?;
        Ok(weights)
    }

    fn bytes_of(&self, tensor: &ExternalTensor) -> Result<&'e [u8]> {
        let refused = |problem: &str| Error::unloaded(self.path, format!("weight `{}`: {problem}", tensor.name));
        let bytes = tensor.bytes_in(self.engine.file(&tensor.location)?);
        let bytes = bytes.ok_or_else(|| refused("its bytes end past the end of its file"))?;
        if !(bytes.as_ptr() as usize).is_multiple_of(tensor.data_type.size()) {
            return Err(refused("expected its bytes to begin at a multiple of its element's size"));
        }
        Ok(bytes)
    }

    /// The graph's ONNX file with weight locations relative to the root of the file system, which lead to the engine's
    /// open files. `None` if the system has no such paths.
    ///
    /// ONNX Runtime maps these files, copies only the weights that a kernel needs in another order, and releases the
    /// rest.
    pub(crate) fn in_open_files(&self) -> Result<Option<Vec<u8>>> {
        let mut places = BTreeMap::new();
        for location in self.tensors.iter().map(|tensor| tensor.location.as_str()) {
            if places.contains_key(location) {
                continue;
            }
            let opened = self.engine.opened_path(location)?;
            let place = opened.and_then(|opened| Some(opened.strip_prefix("/").ok()?.to_str()?.to_owned()));
            let Some(place) = place else { return Ok(None) };
            places.insert(location, place);
        }
        let place = |location: &str| places.get(location).cloned().unwrap_or_default();
        let unreadable = |error: tileforge_graph::Error| Error::unloaded(self.path, error.to_string());
        let relocated = tileforge_graph::relocate_weights(self.model, self.path, place).map_err(unreadable)?;
        // Weights of graphs within nodes keep their locations, which must not be resolved from the root.
        let named = tileforge_graph::external_files(&relocated, self.path).map_err(unreadable)?;
        let places: BTreeSet<String> = places.into_values().collect();
        Ok((!places.is_empty() && named == places).then_some(relocated))
    }

    /// The graph's ONNX file for OpenVINO, with the addresses of its weights in the engine's mapped files.
    ///
    /// # Errors
    /// A graph within a node takes weights from a file, which has no address.
    pub(crate) fn for_openvino(&self) -> Result<Vec<u8>> {
        let addresses = self.tensors.iter().map(|tensor| Ok((&tensor.name, self.bytes_of(tensor)?.as_ptr() as usize)));
        let addresses: BTreeMap<&String, usize> = addresses.collect::<Result<_>>()?;
        let address = |tensor: &ExternalTensor| addresses.get(&tensor.name).copied().unwrap_or_default();
        for_openvino(self.model, self.path, address)
    }

    /// The weights in the engine's mapped files.
    pub(crate) fn mapped(&self) -> Result<Vec<MappedWeight<'e>>> {
        let weight = |tensor: &ExternalTensor| {
            let element = buffer::element_type(tensor.data_type);
            let dims = tensor.dims.iter().map(|&dim| i64::try_from(dim)).collect::<Result<_, _>>();
            let dims =
                dims.map_err(|_| Error::unloaded(self.path, format!("weight `{}`: a size is too large", tensor.name)))?;
            Ok(MappedWeight { name: tensor.name.clone(), element, dims, bytes: self.bytes_of(tensor)? })
        };
        self.tensors.iter().map(weight).collect()
    }
}

/// The ONNX file with these bytes for OpenVINO, with weights at these addresses.
///
/// # Errors
/// A graph within a node takes weights from a file, which has no address.
pub(crate) fn for_openvino(model: &[u8], path: &Path, address: impl Fn(&ExternalTensor) -> usize) -> Result<Vec<u8>> {
    let unreadable = |error: tileforge_graph::Error| Error::unloaded(path, error.to_string());
    let stated = tileforge_graph::external_files(model, path).map_err(unreadable)?;
    let placed = tileforge_graph::for_openvino(model, path, address).map_err(unreadable)?;
    let named = tileforge_graph::external_files(&placed, path).map_err(unreadable)?;
    // OpenVINO would open other files itself, and use any address that the file itself states.
    if stated.contains(IN_MEMORY) || named.iter().any(|location| location != IN_MEMORY) {
        return Err(Error::unloaded(path, "expected weights in files beside it alone, and none within nodes".into()));
    }
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tileforge_graph::proto::tensor_proto::{DataLocation, DataType};
    use tileforge_graph::proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto,
    };

    use super::*;

    fn weight(location: &str) -> TensorProto {
        let entry = |(key, value): (&str, &str)| StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        TensorProto {
            name: Some("weight".into()),
            dims: vec![2],
            data_type: Some(DataType::Float as i32),
            data_location: Some(DataLocation::External as i32),
            external_data: [("location", location), ("offset", "0"), ("length", "8")].map(entry).to_vec(),
            ..TensorProto::default()
        }
    }

    fn model(weights: &[&str], of_nodes: &[&str]) -> Vec<u8> {
        let node = |location: &&str| {
            let value = AttributeProto { name: Some("value".into()), t: Some(weight(location)), ..Default::default() };
            NodeProto { op_type: Some("Constant".into()), attribute: vec![value], ..NodeProto::default() }
        };
        let graph = GraphProto {
            initializer: weights.iter().map(|location| weight(location)).collect(),
            node: of_nodes.iter().map(node).collect(),
            ..GraphProto::default()
        };
        ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec()
    }

    #[test]
    fn openvino_reads_weights_from_our_addresses_alone() {
        let path = Path::new("model.onnx");
        let openvino = |weights: &[&str], of_nodes: &[&str]| for_openvino(&model(weights, of_nodes), path, |_| 4096);
        let placed = openvino(&["model.weights"], &[]).unwrap();
        let files = tileforge_graph::external_files(&placed, path).unwrap();
        assert_eq!(files.iter().collect::<Vec<_>>(), [IN_MEMORY]);
        // Other files, which OpenVINO would open itself, and addresses that the file states.
        for (weights, of_nodes) in [(&[][..], &["other.weights"][..]), (&[IN_MEMORY], &[]), (&[], &[IN_MEMORY])] {
            let both = openvino(&[&["model.weights"], weights].concat(), of_nodes);
            assert!(both.is_err() && openvino(weights, of_nodes).is_err(), "{weights:?}, {of_nodes:?}");
        }
    }
}
