//! Where the graphs of an engine come from.

use crate::{Error, ModelFile, Result, Tile};
use exporter::{Checkpoint, Shapes, Task};
use graph::Model;
use runtime::engine::manifest::Interface;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A model that an engine can be built of.
#[derive(Debug)]
pub struct Source {
    name: String,
    path: PathBuf,
    licence: Option<String>,
    kind: Kind,
    interface: Interface,
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
    /// Opens a checkpoint (`.safetensors`, `.safetensors.index.json`), an exported graph (`.onnx`) or a model file (`.yaml`).
    ///
    /// # Errors
    /// It is none of them, it cannot be read, or it is not what its model file says.
    pub fn open(path: &Path) -> Result<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension {
            "yaml" | "yml" => {
                let file = ModelFile::read(path)?;
                let source = Self::of_checkpoint(file.name.clone(), &file.checkpoint, file.set)?;
                let task = source.interface.task.name();
                if source.architecture != file.architecture || task != file.task {
                    let expected = format!("{} for {}", file.architecture, file.task);
                    return Err(Error::input(path, format!("expected {expected}, found {} for {task}", source.architecture)));
                }
                Ok(Source { licence: Some(file.licence), ..source })
            }
            "onnx" => Self::of_graph(path),
            "safetensors" | "json" => Self::of_checkpoint(name_of(path), path, BTreeMap::new()),
            _ => {
                Err(Error::input(path, "expected a checkpoint (.safetensors, .safetensors.index.json), a graph (.onnx) or a model (.yaml)"))
            }
        }
    }

    fn of_checkpoint(name: String, path: &Path, hints: BTreeMap<String, String>) -> Result<Self> {
        let checkpoint = Checkpoint::open(path)?;
        let shapes = exporter::arch::detect(&checkpoint, &hints)?.example_shapes();
        let export = exporter::export(&checkpoint, &shapes, &hints)?;
        let interface = interface(path, &export.model)?;
        Ok(Source {
            name,
            path: path.to_owned(),
            licence: None,
            interface,
            architecture: export.network.architecture().into(),
            parameters: checkpoint.parameters(),
            kind: Kind::Checkpoint { checkpoint: Box::new(checkpoint), hints },
        })
    }

    fn of_graph(path: &Path) -> Result<Self> {
        let model = graph::load(path)?;
        let key = "tileforge.architecture";
        let architecture = model.metadata.get(key).cloned();
        let architecture = architecture.ok_or_else(|| {
            Error::input(path, format!("expected a graph made by `exporter`, found none of its metadata (`{key}`); export the checkpoint"))
        })?;
        Ok(Source {
            name: name_of(path),
            path: path.to_owned(),
            licence: None,
            interface: interface(path, &model)?,
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

    /// How pixels become tensors and tensors pixels.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The task, as profiles key it.
    pub fn task(&self) -> Task {
        match self.interface.task {
            runtime::engine::manifest::Task::Upscale => Task::Upscale,
        }
    }

    /// SHA-256 of the checkpoint, if the source is one in a single file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn checkpoint_sha256(&self) -> Result<Option<String>> {
        match &self.kind {
            Kind::Checkpoint { checkpoint, .. } => match checkpoint.files() {
                [file] => Ok(Some(runtime::digest::sha256_file(file)?.sha256)),
                _ => Ok(None),
            },
            Kind::Graph(_) => Ok(None),
        }
    }

    /// The tile shapes that an engine of this source can have: those of the profile, rounded up to what the network takes; or the one
    /// shape of a graph whose sizes are fixed.
    pub fn tiles(&self, wanted: &[Tile]) -> Vec<Tile> {
        if let Kind::Graph(model) = &self.kind
            && let Some([_, _, height, width]) = model.inputs.first().and_then(|port| port.ty.fixed_dims()).as_deref()
        {
            return vec![Tile { height: *height, width: *width }];
        }
        let (multiple, minimum) = (self.interface.size_multiple as usize, self.interface.size_minimum as usize);
        let fit = |side: usize| side.max(minimum).next_multiple_of(multiple);
        let mut tiles = Vec::new();
        for tile in wanted {
            let tile = Tile { height: fit(tile.height), width: fit(tile.width) };
            if !tiles.contains(&tile) {
                tiles.push(tile);
            }
        }
        tiles
    }

    /// The graph for one tile: batch 1.
    ///
    /// # Errors
    /// The network does not take this size.
    pub fn graph(&self, tile: Tile) -> Result<Model> {
        let dims = [1, self.interface.channels as usize, tile.height, tile.width];
        let input = &self.interface.input;
        match &self.kind {
            Kind::Checkpoint { checkpoint, hints } => Ok(exporter::export(checkpoint, &Shapes::of(input, &dims), hints)?.model),
            Kind::Graph(model) => Ok(model.specialised(&BTreeMap::from([(input.clone(), dims.to_vec())]))?),
        }
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// How the pixels of an engine become tensors; engines are built of upscalers only, so far.
fn interface(path: &Path, model: &Model) -> Result<Interface> {
    match model.metadata.get("tileforge.task").filter(|task| **task != Task::Upscale.to_string()) {
        Some(task) => Err(Error::input(path, format!("engines of task `{task}` are not built yet, only of `{}`", Task::Upscale))),
        None => Ok(Interface::from_metadata(&model.metadata)?),
    }
}

/// A file's name without its extensions.
fn name_of(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let known = [".safetensors.index.json", ".safetensors", ".onnx"];
    known.iter().find_map(|extension| name.strip_suffix(extension)).map_or_else(|| name.clone(), str::to_owned)
}
