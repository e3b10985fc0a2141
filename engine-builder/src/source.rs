//! Where the graphs of an engine come from.

use crate::profile::{Profile, Shapes as ProfileShapes};
use crate::samples::Purpose;
use crate::{Error, ModelFile, Result, Tile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tileforge_exporter::{Checkpoint, Shapes, Task};
use tileforge_graph::{Dim, Model};
use tileforge_runtime::engine::manifest::{Component, Interface, Task as EngineTask};

/// A model that an engine can be built of.
#[derive(Debug)]
pub struct Source {
    name: String,
    path: PathBuf,
    licence: Option<String>,
    kind: Kind,
    purpose: Purpose,
    architecture: String,
    parameters: u64,
}

#[derive(Debug)]
enum Kind {
    /// A graph is traced for each shape.
    Checkpoint { checkpoint: Box<Checkpoint>, hints: BTreeMap<String, String> },
    /// The graph is there; its dynamic sizes are fixed.
    Graph(Box<Model>),
}

impl Source {
    /// Opens a checkpoint (`.safetensors`, `.safetensors.index.json`), an exported graph (`.onnx`) or a model file
    /// (`.yaml`).
    ///
    /// # Errors
    /// It is none of them, it cannot be read, or it is not what its model file says.
    pub fn open(path: &Path) -> Result<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension {
            "yaml" | "yml" => {
                let file = ModelFile::read(path)?;
                let source = Self::of_checkpoint(file.name.clone(), &file.checkpoint, file.set)?;
                let task = source.purpose.task().name();
                if source.architecture != file.architecture || task != file.task {
                    let expected = format!("{} for {}", file.architecture, file.task);
                    return Err(Error::input(
                        path,
                        format!("expected {expected}, found {} for {task}", source.architecture),
                    ));
                }
                Ok(Source { licence: Some(file.licence), ..source })
            }
            "onnx" => Self::of_graph(path),
            "safetensors" | "json" => Self::of_checkpoint(name_of(path), path, BTreeMap::new()),
            _ => Err(Error::input(
                path,
                "expected a checkpoint (.safetensors, .safetensors.index.json), a graph (.onnx) or a model (.yaml)",
            )),
        }
    }

    fn of_checkpoint(name: String, path: &Path, hints: BTreeMap<String, String>) -> Result<Self> {
        let checkpoint = Checkpoint::open(path)?;
        let shapes = tileforge_exporter::arch::detect(&checkpoint, &hints)?.example_shapes();
        let export = tileforge_exporter::export(&checkpoint, &shapes, &hints)?;
        let purpose = purpose(&export.model)?;
        if purpose.images().is_none() {
            let task = purpose.task();
            let reason =
                format!("it is a checkpoint of task `{task}`: make its graph with `exporter export`, and give that");
            return Err(Error::input(path, reason));
        }
        Ok(Source {
            name,
            path: path.to_owned(),
            licence: None,
            purpose,
            architecture: export.network.architecture().into(),
            parameters: checkpoint.parameters(),
            kind: Kind::Checkpoint { checkpoint: Box::new(checkpoint), hints },
        })
    }

    fn of_graph(path: &Path) -> Result<Self> {
        let model = tileforge_graph::load(path)?;
        let key = "tileforge.architecture";
        let architecture = model.metadata.get(key).cloned();
        let architecture = architecture.ok_or_else(|| {
            Error::input(
                path,
                format!(
                    "expected a graph made by `exporter`, found none of its metadata (`{key}`); export the checkpoint"
                ),
            )
        })?;
        Ok(Source {
            name: name_of(path),
            path: path.to_owned(),
            licence: None,
            purpose: purpose(&model)?,
            architecture,
            parameters: model.parameters(),
            kind: Kind::Graph(Box::new(model)),
        })
    }

    /// The model's name: that of its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The licence of the weights, if it is known.
    pub fn licence(&self) -> Option<&str> {
        self.licence.as_deref()
    }

    /// The name of the architecture.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Number of trained parameters.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// What its inputs are.
    pub(crate) fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// The task, as profiles key it.
    pub fn task(&self) -> Task {
        match self.purpose.task() {
            EngineTask::Upscale => Task::Upscale,
            EngineTask::Unet => Task::Unet,
            EngineTask::VaeEncoder => Task::VaeEncoder,
            EngineTask::VaeDecoder => Task::VaeDecoder,
            EngineTask::TextEncoder => Task::TextEncoder,
            EngineTask::Depth => Task::Depth,
            EngineTask::Realtime => Task::Realtime,
        }
    }

    /// SHA-256 of the checkpoint, if the source is one in a single file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn checkpoint_sha256(&self) -> Result<Option<String>> {
        match &self.kind {
            Kind::Checkpoint { checkpoint, .. } => match checkpoint.files() {
                [file] => Ok(Some(tileforge_runtime::digest::sha256_file(file)?.sha256)),
                _ => Ok(None),
            },
            Kind::Graph(_) => Ok(None),
        }
    }

    /// The graphs of an engine for `profile`, the smallest first: for each of its tiles one for one image and one for
    /// its batch, or the one of a graph whose sizes are fixed.
    ///
    /// # Errors
    /// The network does not take such a size, or the profile says nothing of the task.
    pub fn graphs(&self, profile: &Profile) -> Result<Vec<Model>> {
        let shapes = profile.shapes_for(self.task());
        match (&self.purpose, &self.kind) {
            (Purpose::Images(interface), _) => {
                if let Kind::Graph(model) = &self.kind
                    && model.inputs.iter().all(|port| port.ty.fixed_dims().is_some())
                {
                    return Ok(vec![model.as_ref().clone()]);
                }
                let shapes = shapes.ok_or_else(|| self.no_shapes(&profile.name))?;
                let batch = shapes.batch as usize;
                let tiles = fitted(&shapes.tiles, interface.size_multiple as usize, interface.size_minimum as usize);
                // What is left over of a picture runs one by one.
                let batches = if batch == 1 { vec![1] } else { vec![1, batch] };
                let sizes = tiles.iter().flat_map(|tile| batches.iter().map(move |batch| (*tile, *batch)));
                sizes.map(|(tile, batch)| self.graph(interface, tile, batch)).collect()
            }
            (Purpose::Tensors(component), Kind::Graph(model)) => {
                self.graphs_of_tensors(component, model, shapes, &profile.name)
            }
            (Purpose::Tensors(_), Kind::Checkpoint { .. }) => Ok(Vec::new()),
        }
    }

    /// That the profile does not say the sizes of the graph's inputs.
    fn no_shapes(&self, profile: &str) -> Error {
        let task = self.purpose.task();
        let remedy = match self.kind {
            Kind::Graph(_) => "add them, or export it with --shapes",
            Kind::Checkpoint { .. } => "add them, or give a profile that has them",
        };
        Error::input(
            &self.path,
            format!("the profile {profile} has no shapes for task {task} (`tasks: {task}`); {remedy}"),
        )
    }

    /// The graph for some images of one tile.
    fn graph(&self, interface: &Interface, tile: Tile, batch: usize) -> Result<Model> {
        let dims = [batch, interface.channels as usize, tile.height, tile.width];
        let input = &interface.input;
        match &self.kind {
            Kind::Checkpoint { checkpoint, hints } => {
                Ok(tileforge_exporter::export(checkpoint, &Shapes::of(input, &dims), hints)?.model)
            }
            Kind::Graph(model) => Ok(model.specialised(&BTreeMap::from([(input.clone(), dims.to_vec())]))?),
        }
    }

    fn graphs_of_tensors(
        &self,
        component: &Component,
        model: &Model,
        shapes: Option<&ProfileShapes>,
        profile: &str,
    ) -> Result<Vec<Model>> {
        if model.inputs.iter().all(|port| port.ty.fixed_dims().is_some()) {
            return Ok(vec![model.clone()]);
        }
        let shapes = match (shapes, component.task) {
            (Some(shapes), _) => shapes.clone(),
            // Its sizes are those of its tokens.
            (None, EngineTask::TextEncoder) => ProfileShapes { tiles: vec![Tile { height: 1, width: 1 }], batch: 1 },
            (None, _) => return Err(self.no_shapes(profile)),
        };
        let multiple = component.facts.get("size_multiple").and_then(|text| text.parse().ok()).unwrap_or(1);
        let tiles = fitted(&shapes.tiles, multiple, 1);
        tiles.into_iter().map(|tile| self.graph_of_tensors(model, tile, shapes.batch as usize)).collect()
    }

    /// The graph with the sizes that the first input has at a tile; of others, sizes of the same names.
    fn graph_of_tensors(&self, model: &Model, tile: Tile, batch: usize) -> Result<Model> {
        let mut fixed = BTreeMap::new();
        for (position, port) in model.inputs.iter().enumerate() {
            let size = |(axis, dim): (usize, &Dim)| match dim {
                Dim::Fixed(size) => Some(*size),
                Dim::Symbol { .. } if position == 0 && port.ty.dims.len() == 4 && axis == 2 => Some(tile.height),
                Dim::Symbol { .. } if position == 0 && port.ty.dims.len() == 4 && axis == 3 => Some(tile.width),
                Dim::Symbol { .. } if dim.to_string() == "sequence" => Some(TOKENS),
                Dim::Symbol { .. } if dim.to_string() == "batch" => Some(batch),
                // Of other inputs, those are the first one's.
                Dim::Symbol { .. } if dim.to_string().contains("height") => Some(tile.height),
                Dim::Symbol { .. } if dim.to_string().contains("width") => Some(tile.width),
                Dim::Symbol { .. } => None,
            };
            let dims: Option<Vec<usize>> = port.ty.dims.iter().enumerate().map(size).collect();
            let dims = dims.ok_or_else(|| {
                let reason = format!(
                    "the input `{}` is {}: no profile says such sizes; export it with --shapes",
                    port.name, port.ty
                );
                Error::input(&self.path, reason)
            })?;
            fixed.insert(port.name.clone(), dims);
        }
        Ok(model.specialised(&fixed)?)
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Tokens of a text, as tokenizers pad it.
const TOKENS: usize = 77;

/// Tiles rounded up to what a network takes, each once, the smallest first.
fn fitted(wanted: &[Tile], multiple: usize, minimum: usize) -> Vec<Tile> {
    let fit = |side: usize| side.max(minimum).next_multiple_of(multiple.max(1));
    let mut tiles: Vec<Tile> = Vec::new();
    for tile in wanted {
        let tile = Tile { height: fit(tile.height), width: fit(tile.width) };
        if !tiles.contains(&tile) {
            tiles.push(tile);
        }
    }
    tiles.sort_by_key(|tile| tile.height * tile.width);
    tiles
}

/// What the inputs of an exported model are.
fn purpose(model: &Model) -> Result<Purpose> {
    Ok(match tileforge_runtime::engine::task(&model.metadata)? {
        EngineTask::Upscale => Purpose::Images(Interface::from_metadata(&model.metadata)?),
        _ => Purpose::Tensors(Component::from_metadata(&model.metadata)?),
    })
}

/// A file's name without its extensions.
fn name_of(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let known = [".safetensors.index.json", ".safetensors", ".onnx"];
    known.iter().find_map(|extension| name.strip_suffix(extension)).map_or_else(|| name.clone(), str::to_owned)
}
