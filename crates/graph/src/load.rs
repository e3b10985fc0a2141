//! Reading a model.
#![warn(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::integer_division)]

use crate::message::decode_message;
use crate::proto::tensor_proto::DataLocation;
use crate::proto::tensor_shape_proto::dimension;
use crate::proto::{ModelProto, NodeProto, TensorProto, ValueInfoProto, type_proto};
use crate::{
    Attribute, DataType, Dim, Error, MappedFile, Model, Node, Opset, Port, Result, TensorType, Weight, weight_files,
};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tileforge_contract::CHECKPOINTS_KEY;

/// Reads an ONNX file. Weights stay in their files: in the graph's own file, and in the external files beside it.
///
/// Types are taken from the file and completed by inference.
///
/// # Errors
/// A file cannot be read, it is not an ONNX model, or it has sparse weights or local functions, which are not
/// supported.
pub fn load(path: impl AsRef<Path>) -> Result<Model> {
    let path = path.as_ref();
    let map = MappedFile::open(path)?;
    decode(Bytes::from_owner(Owned(map)), path)
}

/// As [`load`], from bytes that were read from `path`. External weights are read from the folder of `path`.
///
/// # Errors
/// As [`load`].
pub fn decode(bytes: Bytes, path: &Path) -> Result<Model> {
    let (mut model, ..) = Reading::of(bytes, path)?.model()?;
    model.infer_types().map_err(|e| e.in_file(path))?;
    Ok(model)
}

/// Reads an ONNX file that another program wrote. `Constant` nodes become weights. The file's types of intermediate
/// values are dropped, and no types are inferred: the types in the file may be wrong, and inference may need changes
/// that the caller makes first.
///
/// # Errors
/// As [`load`]; or two values have one name.
pub fn load_untyped(path: impl AsRef<Path>) -> Result<Model> {
    let path = path.as_ref();
    let map = MappedFile::open(path)?;
    let (mut model, mut files) = Reading::of(Bytes::from_owner(Owned(map)), path)?.model()?;
    model.types.clear();
    let fail = |reason: String| Error::format(path, reason);
    let outputs: HashSet<String> = model.outputs.iter().map(|port| port.name.clone()).collect();
    let mut kept = Vec::with_capacity(model.nodes.len());
    for node in std::mem::take(&mut model.nodes) {
        let name = node.outputs.first().filter(|_| node.is("Constant")).filter(|name| !outputs.contains(*name));
        let constant = name.and_then(|name| Some((name.clone(), constant(&node, path, &mut files)?)));
        match constant {
            Some((name, weight)) => {
                let weight = weight.map_err(|e| fail(format!("constant `{}`: {e}", name.escape_debug())))?;
                if model.weights.insert(name.clone(), weight).is_some() {
                    return Err(fail(format!("the value `{}` is made twice", name.escape_debug())));
                }
            }
            None => kept.push(node),
        }
    }
    model.nodes = kept;
    let mut made = HashSet::new();
    let ports = model.inputs.iter().map(|port| &port.name);
    let nodes = model.nodes.iter().flat_map(|node| &node.outputs).filter(|name| !name.is_empty());
    for name in ports.chain(model.weights.keys()).chain(nodes) {
        if !made.insert(name.as_str()) {
            return Err(fail(format!("the value `{}` is made twice", name.escape_debug())));
        }
    }
    Ok(model)
}

/// The files of external data that were opened, by their locations.
type Files = HashMap<String, Arc<MappedFile>>;

/// A message that is being read.
struct Reading<'p> {
    proto: ModelProto,
    path: &'p Path,
}

impl<'p> Reading<'p> {
    fn of(bytes: Bytes, path: &'p Path) -> Result<Self> {
        Ok(Self { proto: decode_message(bytes, path)?, path })
    }

    /// The model, without inferred types.
    fn model(self) -> Result<(Model, Files)> {
        let Self { proto, path } = self;
        let fail = |reason: String| Error::format(path, reason);
        let graph = proto.graph.ok_or_else(|| fail("it has no graph".into()))?;
        if !graph.sparse_initializer.is_empty() || !proto.functions.is_empty() {
            return Err(fail("sparse weights and local functions are not supported".into()));
        }
        let mut files = HashMap::new();
        let mut model = Model {
            name: graph.name.unwrap_or_default(),
            producer: (proto.producer_name.unwrap_or_default(), proto.producer_version.unwrap_or_default()),
            ir_version: proto.ir_version.unwrap_or_default(),
            nodes: graph.node.iter().enumerate().map(|(position, proto)| node(position, proto)).collect(),
            ..Model::default()
        };
        let opset = |set: &crate::proto::OperatorSetIdProto| Opset {
            domain: set.domain.clone().filter(|domain| domain != "ai.onnx").unwrap_or_default(),
            version: set.version.unwrap_or_default(),
        };
        model.opsets = proto.opset_import.iter().map(opset).collect();
        let entry = |e: crate::proto::StringStringEntryProto| (e.key.unwrap_or_default(), e.value.unwrap_or_default());
        model.metadata = proto.metadata_props.into_iter().map(entry).collect();
        // A model that is saved later points into other files.
        let recorded = model.metadata.remove(CHECKPOINTS_KEY);
        for proto in &graph.initializer {
            let name = proto.name().to_owned();
            let weight = tensor(proto, path, &mut files);
            let weight = weight.map_err(|e| fail(format!("weight `{}`: {e}", name.escape_debug())))?;
            if model.weights.insert(name.clone(), weight).is_some() {
                return Err(fail(format!("two weights have the name `{}`", name.escape_debug())));
            }
        }
        for record in recorded.map_or(Ok(Vec::new()), |text| weight_files::from_json(&text, path))? {
            if let Some(file) = files.get(&record.file) {
                record.check_length(file)?;
            }
        }
        let port = |info: &ValueInfoProto| {
            let name = info.name().escape_debug();
            let ty = value_type(info)
                .ok_or_else(|| fail(format!("`{name}` is not a tensor of a type and rank that we know")))?;
            Ok(Port { name: info.name().to_owned(), ty })
        };
        // Old files list the weights as inputs too.
        let fed = graph.input.iter().filter(|info| !model.weights.contains_key(info.name()));
        model.inputs = fed.map(port).collect::<Result<_>>()?;
        // Inference completes a type that an output does not state, or states in part.
        let output = |info: &ValueInfoProto| match element_type(info) {
            Some(data_type) if value_type(info).is_none() => {
                Ok(Port { name: info.name().to_owned(), ty: TensorType { data_type, dims: Vec::new() } })
            }
            _ => port(info),
        };
        model.outputs = graph.output.iter().map(output).collect::<Result<_>>()?;
        let known = graph.value_info.iter().chain(&graph.output);
        model.types = known.filter_map(|info| Some((info.name().to_owned(), value_type(info)?))).collect();
        Ok((model, files))
    }
}

/// The value of a `Constant` node, if it is numeric.
fn constant(node: &Node, path: &Path, files: &mut Files) -> Option<Result<Weight, String>> {
    let floats = |values: &[f32], dims: Vec<usize>| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Weight::from_bytes(DataType::F32, dims, bytes).map_err(|e| e.to_string())
    };
    let integers = |values: &[i64], dims: Vec<usize>| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Weight::from_bytes(DataType::I64, dims, bytes).map_err(|e| e.to_string())
    };
    let (name, value) = node.attributes.iter().next().filter(|_| node.attributes.len() == 1)?;
    Some(match (name.as_str(), value) {
        ("value", Attribute::Tensor(proto)) => tensor(proto, path, files),
        ("value_float", Attribute::Float(value)) => floats(&[*value], Vec::new()),
        ("value_floats", Attribute::Floats(values)) => floats(values, vec![values.len()]),
        ("value_int", Attribute::Int(value)) => integers(&[*value], Vec::new()),
        ("value_ints", Attribute::Ints(values)) => integers(values, vec![values.len()]),
        _ => return None,
    })
}

/// Keeps a mapped file alive for as long as slices of it are in use.
struct Owned(Arc<MappedFile>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

fn node(position: usize, proto: &NodeProto) -> Node {
    let operator = proto.op_type().to_owned();
    Node {
        name: proto.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| format!("{operator}.{position}")),
        operator,
        domain: proto.domain.clone().filter(|domain| domain != "ai.onnx").unwrap_or_default(),
        inputs: proto.input.clone(),
        outputs: proto.output.clone(),
        attributes: proto.attribute.iter().map(|a| (a.name().to_owned(), Attribute::from_onnx(a))).collect(),
    }
}

fn element_type(info: &ValueInfoProto) -> Option<DataType> {
    let Some(type_proto::Value::TensorType(tensor)) = info.r#type.as_ref()?.value.as_ref() else { return None };
    DataType::from_onnx(tensor.elem_type())
}

fn value_type(info: &ValueInfoProto) -> Option<TensorType> {
    let Some(type_proto::Value::TensorType(tensor)) = info.r#type.as_ref()?.value.as_ref() else { return None };
    let dim = |(position, dim): (usize, &crate::proto::tensor_shape_proto::Dimension)| match &dim.value {
        // Some exporters write −1 for a dynamic size.
        Some(dimension::Value::DimValue(-1)) => Some(Dim::symbol(format!("{}.{position}", info.name()))),
        Some(dimension::Value::DimValue(size)) => usize::try_from(*size).ok().map(Dim::Fixed),
        Some(dimension::Value::DimParam(name)) if !name.is_empty() => Some(Dim::parse(name)),
        _ => Some(Dim::symbol(format!("{}.{position}", info.name()))),
    };
    let dims = tensor.shape.as_ref()?.dim.iter().enumerate().map(dim).collect::<Option<_>>()?;
    Some(TensorType { data_type: DataType::from_onnx(tensor.elem_type())?, dims })
}

fn tensor(proto: &TensorProto, graph: &Path, files: &mut Files) -> Result<Weight, String> {
    let data_type =
        DataType::from_onnx(proto.data_type()).ok_or_else(|| format!("unknown element type {}", proto.data_type()))?;
    let dims = proto.dims.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    let dims = dims.map_err(|_| format!("negative size in {:?}", proto.dims))?;
    if proto.data_location() == DataLocation::External {
        let entry = |key: &str| proto.external_data.iter().find(|entry| entry.key() == key).map(|entry| entry.value());
        let location = entry("location").ok_or("external data without a location")?;
        let path = Path::new(location);
        if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(format!("external data must be in the graph's folder, found `{location}`"));
        }
        let file = match files.get(location) {
            Some(file) => file.clone(),
            None => {
                let file = graph.parent().unwrap_or(Path::new("")).join(path);
                check_inside(&file, graph)?;
                let file = MappedFile::open(file).map_err(|e| e.to_string())?;
                files.insert(location.to_owned(), file.clone());
                file
            }
        };
        let number = |key: &str| {
            entry(key).map(|value| value.parse::<u64>().map_err(|_| format!("external data: bad {key} `{value}`")))
        };
        let offset = number("offset").transpose()?.unwrap_or(0);
        let weight = Weight::mapped(file, offset, data_type, dims).map_err(|e| e.to_string())?;
        return match number("length").transpose()? {
            Some(length) if length != weight.byte_length() => {
                Err(format!("expected {} bytes, found {length}", weight.byte_length()))
            }
            _ => Ok(weight),
        };
    }
    let bytes = match &proto.raw_data {
        Some(raw) => raw.clone(),
        None => typed_data(proto, data_type),
    };
    Weight::from_bytes(data_type, dims, bytes).map_err(|e| e.to_string())
}

/// Checks that the real path of a file of external data is inside the graph's folder. The folder of the graph's path
/// and the folder of the graph's real path are both allowed: download caches keep all files in one folder and link to
/// them.
fn check_inside(file: &Path, graph: &Path) -> Result<(), String> {
    let failed = |error: io::Error| Error::file(file, "open", error).to_string();
    let real = file.canonicalize().map_err(failed)?;
    let folder = graph.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folders =
        [folder.canonicalize().ok(), graph.canonicalize().ok().and_then(|graph| Some(graph.parent()?.into()))];
    let is_inside = folders.into_iter().flatten().any(|folder: PathBuf| real.starts_with(folder));
    if is_inside {
        return Ok(());
    }
    Err(format!("external data must be in the graph's folder, and {} is a link to {}", file.display(), real.display()))
}

/// The bytes of a tensor that is stored in protobuf's own lists: ONNX packs the small types into 32-bit integers.
fn typed_data(proto: &TensorProto, data_type: DataType) -> Bytes {
    let small =
        |size: usize| proto.int32_data.iter().flat_map(|v| v.to_le_bytes().into_iter().take(size)).collect::<Vec<u8>>();
    let bytes: Vec<u8> = match data_type {
        DataType::F32 => proto.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::F64 => proto.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::I64 => proto.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::U64 => proto.uint64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DataType::U32 => proto.uint64_data.iter().flat_map(|v| v.to_le_bytes()[..4].to_vec()).collect(),
        other => small(other.size()),
    };
    bytes.into()
}
