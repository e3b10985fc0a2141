//! Writing a model, with its weights in one of three places.
//!
//! Everything is written under temporary names beside the target and renamed at the end, weights first: wherever a
//! graph exists, its weights exist too, even if the process is killed. Nothing is synced to the disk: files that a
//! power cut damages can be made again from the checkpoint.

mod meter;

pub use meter::Written;

use crate::proto::tensor_proto::DataLocation;
use crate::proto::tensor_shape_proto::{Dimension, dimension};
use crate::proto::type_proto;
use crate::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto,
};
use crate::proto::{TypeProto, ValueInfoProto};
use crate::{Dim, Error, MappedFile, Model, Node, Result, TensorType, Weight};
use bytes::Bytes;
use indexmap::IndexMap;
use meter::Meter;
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::{NamedTempFile, TempDir};

/// Tensors of fewer bytes are stored in the graph itself. Shapes and axes must be there, because operators read them as
/// constants; biases may be.
const EXTERNAL_FROM: u64 = 1024;
/// Tensors begin at multiples of this in a weight file, so that any vector load is aligned.
const ALIGNMENT: u64 = 64;
/// From this size on, a range of a checkpoint is copied by the system instead of through a buffer.
const COPIED_BY_SYSTEM_FROM: u64 = 64 << 10;
const PAGE: u64 = 4096;
const PAGE_ALIGNED_FROM: u64 = 1 << 20;
/// A protobuf message has at most 2 GiB. Half a megabyte of it is left for the graph around the weights.
const INLINE_LIMIT: u64 = (2 << 30) - (512 << 10);

/// Where a model's weights go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightStorage {
    /// Weights that a checkpoint holds unchanged stay there: the graph points into a hard link of the checkpoint beside
    /// it. Computed weights go to `NAME.weights`.
    Link,
    /// All weights go to `NAME.weights` beside the graph.
    Copy,
    /// All weights go into the graph's file, which is limited to 2 GiB.
    Inline,
}

/// How a checkpoint came to be beside the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMethod {
    /// It was already there.
    InPlace,
    /// A second name of the same file.
    HardLink,
    /// A copy that shares the disk blocks.
    Reflink,
    /// A real copy: the system allows neither a link nor a shared copy here.
    Copied {
        /// The system's reason why there is no hard link.
        reason: NoLink,
    },
}

/// Why a checkpoint has no second name beside the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLink {
    /// The folder is on another file system.
    OtherFileSystem,
    /// The system lets nobody make hard links to files of other users (`protected_hardlinks` of proc_sys_fs(5)), or this
    /// file system has none.
    NotPermitted,
    /// Another reason, such as too many links.
    Other,
}

impl NoLink {
    fn of(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::CrossesDevices => Self::OtherFileSystem,
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::Unsupported => Self::NotPermitted,
            _ => Self::Other,
        }
    }
}

/// A checkpoint that a graph points into.
#[derive(Debug, Clone)]
pub struct LinkedFile {
    /// Its name beside the graph.
    pub path: PathBuf,
    /// How it came there.
    pub method: LinkMethod,
}

/// The files that were written.
#[derive(Debug, Clone, Default)]
pub struct SaveReport {
    /// The weight file, if one was needed, and its bytes.
    pub weights: Option<(PathBuf, u64)>,
    /// Checkpoints that the graph points into.
    pub linked: Vec<LinkedFile>,
}

/// Writes a model to `path`.
///
/// # Errors
/// A file cannot be written or read, or `Inline` is asked for more than 2 GiB. Nothing is left behind then.
pub fn save(model: &Model, path: &Path, storage: WeightStorage) -> Result<SaveReport> {
    save_with_progress(model, path, storage, &mut |_| {})
}

/// As [`save`]. `progress` gets how far the writing of weights is: first that nothing is written, then about once a
/// megabyte, and at last the total. It is not called where the graph only points into checkpoints.
///
/// # Errors
/// As [`save`].
pub fn save_with_progress(
    model: &Model,
    path: &Path,
    storage: WeightStorage,
    progress: &mut dyn FnMut(Written),
) -> Result<SaveReport> {
    let folder = folder_of(path);
    let stem = path.file_stem().map_or_else(|| "model".into(), |stem| stem.to_string_lossy().into_owned());
    let mut store = WeightStore::new(folder, format!("{stem}.weights"), progress);
    match storage {
        WeightStorage::Link => store.link_prefix = Some(stem),
        WeightStorage::Copy => {}
        WeightStorage::Inline => {
            let bytes: u64 = model.weights.values().map(Weight::byte_length).sum();
            if bytes > INLINE_LIMIT {
                return Err(Error::Graph(format!(
                    "the weights have {bytes} bytes; one file holds at most {INLINE_LIMIT}: link or copy them"
                )));
            }
            store.inline = true;
        }
    }
    save_into(&[(model, path)], store)
}

/// Writes several models that share one weight file, `weights` beside them. Equal weights are stored once.
///
/// # Errors
/// A file cannot be written or read, or the models are not in the weight file's folder. Nothing is left behind then.
pub fn save_sharing_weights(models: &[(&Model, &Path)], weights: &Path) -> Result<SaveReport> {
    let folder = folder_of(weights);
    if let Some((_, path)) = models.iter().find(|(_, path)| folder_of(path) != folder) {
        return Err(Error::file(path, "share weights", format!("it is not in the folder of {}", weights.display())));
    }
    let name = weights.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.ok_or_else(|| Error::file(weights, "write the weights", "expected a file name"))?;
    save_into(models, WeightStore::new(folder, name, &mut |_| {}))
}

fn save_into(models: &[(&Model, &Path)], mut store: WeightStore<'_>) -> Result<SaveReport> {
    let bytes = store.bytes_to_write(models);
    store.meter.expect(bytes);
    let mut graphs = Vec::with_capacity(models.len());
    for (model, path) in models {
        let encoded = to_onnx(model, &mut store)?.encode_to_vec();
        let mut file = temporary(store.folder)?;
        file.write_all(&encoded).map_err(|e| Error::file(path, "write the graph", e))?;
        graphs.push((Staged::File(file), path.to_path_buf()));
    }
    let (mut staged, report) = store.finish()?;
    staged.append(&mut graphs);
    // Only renames are left, which need no space. A folder in their way is found before the first of them.
    if let Some((_, path)) = staged.iter().find(|(_, path)| path.is_dir()) {
        return Err(Error::file(path, "write", "there is a folder of this name"));
    }
    staged.into_iter().try_for_each(|(staged, path)| staged.rename(&path))?;
    Ok(report)
}

/// A finished file, which is removed unless it is renamed to its place.
enum Staged {
    File(NamedTempFile),
    /// A linked checkpoint, alone in a temporary folder.
    Link(TempDir),
}

/// The name of a linked checkpoint in its temporary folder.
const LINKED: &str = "checkpoint";

impl Staged {
    fn rename(self, path: &Path) -> Result<()> {
        match self {
            Staged::File(file) => {
                // Temporary files are private to their owner; results get the permissions of any new file.
                let permissions = permissions_of_new_files();
                fs::set_permissions(file.path(), permissions)
                    .map_err(|e| Error::file(path, "set the permissions", e))?;
                file.persist(path).map(drop).map_err(|e| Error::file(path, "rename", e.error))
            }
            Staged::Link(folder) => {
                fs::rename(folder.path().join(LINKED), path).map_err(|e| Error::file(path, "rename", e))
            }
        }
    }
}

/// Where weights go while graphs are written.
struct WeightStore<'a> {
    folder: &'a Path,
    /// Name of the weight file.
    name: String,
    inline: bool,
    /// With a prefix, mapped files are linked as `PREFIX.FILE-NAME`.
    link_prefix: Option<String>,
    file: Option<BufWriter<NamedTempFile>>,
    position: u64,
    placed: HashMap<Weight, (String, u64)>,
    links: IndexMap<Arc<MappedFile>, String>,
    meter: Meter<'a>,
}

impl<'a> WeightStore<'a> {
    fn new(folder: &'a Path, name: String, progress: &'a mut dyn FnMut(Written)) -> Self {
        let (inline, link_prefix) = (false, None);
        WeightStore {
            folder,
            name,
            inline,
            link_prefix,
            file: None,
            position: 0,
            placed: HashMap::new(),
            links: IndexMap::new(),
            meter: Meter::new(progress),
        }
    }

    /// Bytes of the weights that are written, each once: all but those that the graph's file points into, and without
    /// the small ones that every graph holds itself.
    fn bytes_to_write(&self, models: &[(&Model, &Path)]) -> u64 {
        let weights = models.iter().flat_map(|(model, _)| model.weights.values());
        if self.inline {
            return weights.map(Weight::byte_length).sum();
        }
        let written = weights.filter(|weight| weight.byte_length() >= EXTERNAL_FROM && self.linked(weight).is_none());
        written.collect::<HashSet<_>>().into_iter().map(Weight::byte_length).sum()
    }

    /// The checkpoint that the graph points into for this weight, and the offset there; `None` for a weight that has to
    /// be written.
    fn linked<'w>(&self, weight: &'w Weight) -> Option<(&'w Arc<MappedFile>, u64)> {
        // A tensor that does not begin at a multiple of its element's size would be read misaligned.
        let is_aligned = |(_, offset): &(_, u64)| offset.is_multiple_of(weight.data_type().size() as u64);
        weight.file_range().filter(|_| self.link_prefix.is_some()).filter(is_aligned)
    }

    /// The bytes of a weight that is stored in the graph.
    fn inlined(&mut self, weight: &Weight) -> Result<Bytes> {
        let mut bytes = Vec::with_capacity(usize::try_from(weight.byte_length()).unwrap_or_default());
        weight.stream(&mut |piece| {
            bytes.extend_from_slice(piece);
            if self.inline {
                self.meter.add(piece.len() as u64);
            }
            Ok(())
        })?;
        Ok(bytes.into())
    }

    /// Stores a weight and returns its place as `(file name, offset)`; `None` for a weight that belongs into the graph.
    fn place(&mut self, weight: &Weight) -> Result<Option<(String, u64)>> {
        if self.inline || weight.byte_length() < EXTERNAL_FROM {
            return Ok(None);
        }
        if let Some(place) = self.placed.get(weight) {
            return Ok(Some(place.clone()));
        }
        let place = match (&self.link_prefix, self.linked(weight)) {
            (Some(prefix), Some((file, offset))) => {
                let name = link_name(self.folder, prefix, file, &self.links);
                self.links.insert(file.clone(), name.clone());
                (name, offset)
            }
            _ => (self.name.clone(), self.append(weight)?),
        };
        self.placed.insert(weight.clone(), place.clone());
        Ok(Some(place))
    }

    fn append(&mut self, weight: &Weight) -> Result<u64> {
        let path = self.folder.join(&self.name);
        let fail = |e: std::io::Error| Error::file(&path, "write the weights", e);
        let writer = match &mut self.file {
            Some(writer) => writer,
            None => self.file.insert(BufWriter::with_capacity(1 << 20, temporary(self.folder)?)),
        };
        let meter = &mut self.meter;
        let stream = |writer: &mut BufWriter<NamedTempFile>, meter: &mut Meter<'_>| {
            weight.stream(&mut |piece| {
                writer.write_all(piece).map_err(fail)?;
                meter.add(piece.len() as u64);
                Ok(())
            })
        };
        let length = weight.byte_length();
        let offset = self.position.next_multiple_of(if length >= PAGE_ALIGNED_FROM { PAGE } else { ALIGNMENT });
        let padding = [0; PAGE as usize];
        writer.write_all(&padding[..(offset - self.position) as usize]).map_err(fail)?;
        match weight.file_range().filter(|_| length >= COPIED_BY_SYSTEM_FROM) {
            Some((file, start)) => {
                // The system appends at the end of the file, so the buffer must be empty.
                writer.flush().map_err(fail)?;
                match file.append_to(start, length, writer.get_ref().as_file(), &mut |bytes| meter.add(bytes)) {
                    Err(error) if error.kind() == std::io::ErrorKind::Unsupported => stream(writer, meter)?,
                    done => done.map_err(fail)?,
                }
            }
            None => stream(writer, meter)?,
        }
        self.position = offset + length;
        Ok(offset)
    }

    /// Finishes the weight file and the links. They are renamed before the graphs that point to them.
    fn finish(mut self) -> Result<(Vec<(Staged, PathBuf)>, SaveReport)> {
        let (mut staged, mut report) = (Vec::new(), SaveReport::default());
        if let Some(writer) = self.file {
            let path = self.folder.join(&self.name);
            let file = writer.into_inner().map_err(|e| Error::file(&path, "write the weights", e.error()))?;
            staged.push((Staged::File(file), path.clone()));
            report.weights = Some((path, self.position));
        }
        for (file, name) in self.links {
            let path = self.folder.join(name);
            let (link, method) = link(&file, &path, &mut self.meter)?;
            staged.extend(link.map(|link| (link, path.clone())));
            report.linked.push(LinkedFile { path, method });
        }
        Ok((staged, report))
    }
}

/// The name of a mapped file beside the graph: its own name, if it is there already.
fn link_name(folder: &Path, prefix: &str, file: &Arc<MappedFile>, known: &IndexMap<Arc<MappedFile>, String>) -> String {
    if let Some(name) = known.get(file) {
        return name.clone();
    }
    let own = file.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let real_folder = |path: &Path| path.canonicalize().ok();
    // ONNX Runtime follows no symbolic link out of the folder, so the real path counts.
    let here = file.path().canonicalize().is_ok_and(|real| real.parent().map(Path::to_owned) == real_folder(folder));
    if here
        && file
            .path()
            .canonicalize()
            .is_ok_and(|real| real.file_name().is_some_and(|name| name.to_string_lossy() == own))
    {
        return own;
    }
    let taken = |name: &str| known.values().any(|known| known == name);
    let mut name = format!("{prefix}.{own}");
    let mut number = 1_u64;
    while taken(&name) {
        number += 1;
        name = format!("{prefix}.{number}.{own}");
    }
    name
}

/// Makes `target` a link to `file`, or a copy of it, unless it already is a link.
fn link(file: &MappedFile, target: &Path, meter: &mut Meter<'_>) -> Result<(Option<Staged>, LinkMethod)> {
    let fail = |e: std::io::Error| Error::file(target, "link the checkpoint", e);
    // A hard link to a symbolic link would be another symbolic link.
    let source = file.path().canonicalize().map_err(fail)?;
    let inode = |path: &Path| fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()));
    if inode(target).is_ok_and(|target| inode(&source).is_ok_and(|source| source == target)) {
        let same_name = source == target.canonicalize().unwrap_or_default();
        return Ok((None, if same_name { LinkMethod::InPlace } else { LinkMethod::HardLink }));
    }
    let folder = tempfile::Builder::new().prefix(".link-").tempdir_in(folder_of(target)).map_err(fail)?;
    let made = folder.path().join(LINKED);
    let method = match fs::hard_link(&source, &made) {
        Ok(()) => LinkMethod::HardLink,
        Err(_) if reflink_copy::reflink(&source, &made).is_ok() => LinkMethod::Reflink,
        Err(error) => {
            copy(file, &made, meter).map_err(fail)?;
            LinkMethod::Copied { reason: NoLink::of(&error) }
        }
    };
    Ok((Some(Staged::Link(folder)), method))
}

/// Copies a file with its permissions.
fn copy(file: &MappedFile, to: &Path, meter: &mut Meter<'_>) -> std::io::Result<()> {
    let length = file.bytes().len() as u64;
    meter.expect(length);
    let mut target = fs::File::create_new(to)?;
    match file.append_to(0, length, &target, &mut |bytes| meter.add(bytes)) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            let stream = file.stream(0, length, &mut |piece| {
                target.write_all(piece).map_err(|e| Error::file(to, "write", e))?;
                meter.add(piece.len() as u64);
                Ok(())
            });
            stream.map_err(std::io::Error::other)?;
        }
        done => done?,
    }
    fs::set_permissions(to, fs::metadata(file.path())?.permissions())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn temporary(folder: &Path) -> Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".saving-")
        .tempfile_in(folder)
        .map_err(|e| Error::file(folder, "create a file in", e))
}

fn permissions_of_new_files() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    // `umask` can only read the mask by setting it, which is not safe with threads; /proc shows it without that.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok());
    fs::Permissions::from_mode(0o666 & !mask.unwrap_or(0o022))
}

fn to_onnx(model: &Model, store: &mut WeightStore<'_>) -> Result<ModelProto> {
    let mut initializer = Vec::with_capacity(model.weights.len());
    for (name, weight) in &model.weights {
        initializer.push(tensor(name, weight, store)?);
    }
    let is_output = |name: &str| model.outputs.iter().any(|port| port.name == name);
    let made = model.nodes.iter().flat_map(|node| &node.outputs).filter(|name| !is_output(name));
    let graph = GraphProto {
        name: Some(model.name.clone()),
        node: model.nodes.iter().map(node).collect(),
        initializer,
        input: model.inputs.iter().map(|port| value_info(&port.name, &port.ty)).collect(),
        output: model.outputs.iter().map(|port| value_info(&port.name, &port.ty)).collect(),
        value_info: made.filter_map(|name| Some(value_info(name, model.types.get(name)?))).collect(),
        ..GraphProto::default()
    };
    let entry = |(key, value): (&String, &String)| StringStringEntryProto {
        key: Some(key.clone()),
        value: Some(value.clone()),
    };
    let opset =
        |set: &crate::Opset| OperatorSetIdProto { domain: Some(set.domain.clone()), version: Some(set.version) };
    Ok(ModelProto {
        ir_version: Some(model.ir_version),
        opset_import: model.opsets.iter().map(opset).collect(),
        producer_name: Some(model.producer.0.clone()),
        producer_version: Some(model.producer.1.clone()),
        graph: Some(graph),
        metadata_props: model.metadata.iter().map(entry).collect(),
        ..ModelProto::default()
    })
}

fn node(node: &Node) -> NodeProto {
    NodeProto {
        name: Some(node.name.clone()),
        op_type: Some(node.operator.clone()),
        domain: (!node.domain.is_empty()).then(|| node.domain.clone()),
        input: node.inputs.clone(),
        output: node.outputs.clone(),
        attribute: node.attributes.iter().map(|(name, value)| value.to_onnx(name)).collect(),
        ..NodeProto::default()
    }
}

fn tensor(name: &str, weight: &Weight, store: &mut WeightStore<'_>) -> Result<TensorProto> {
    let mut proto = TensorProto {
        name: Some(name.into()),
        data_type: Some(weight.data_type().to_onnx()),
        dims: weight.dims().iter().map(|&dim| dim as i64).collect(),
        ..TensorProto::default()
    };
    match store.place(weight)? {
        None => proto.raw_data = Some(store.inlined(weight)?),
        Some((location, offset)) => {
            let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.into()), value: Some(value) };
            let (offset, length) = (offset.to_string(), weight.byte_length().to_string());
            proto.external_data = vec![entry("location", location), entry("offset", offset), entry("length", length)];
            proto.data_location = Some(DataLocation::External as i32);
        }
    }
    Ok(proto)
}

fn value_info(name: &str, ty: &TensorType) -> ValueInfoProto {
    let dim = |dim: &Dim| {
        let value = match dim {
            Dim::Fixed(size) => dimension::Value::DimValue(*size as i64),
            symbol @ Dim::Symbol { .. } => dimension::Value::DimParam(symbol.to_string()),
        };
        Dimension { value: Some(value), denotation: None }
    };
    let shape = TensorShapeProto { dim: ty.dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(ty.data_type.to_onnx()), shape: Some(shape) };
    let ty = TypeProto { denotation: None, value: Some(type_proto::Value::TensorType(tensor)) };
    ValueInfoProto { name: Some(name.into()), r#type: Some(ty), ..ValueInfoProto::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_checkpoint_counts_and_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::write(&from, [7; 3000]).unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o640)).unwrap();
        let mut reports = Vec::new();
        let mut report = |written| reports.push(written);
        copy(&MappedFile::open(&from).unwrap(), &to, &mut Meter::new(&mut report)).unwrap();
        assert_eq!(fs::read(&to).unwrap(), [7; 3000]);
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(reports, [0, 3000].map(|bytes| Written { bytes, total: 3000 }));
    }
}
