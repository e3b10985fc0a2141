//! The source of an engine's graphs: a checkpoint, a graph, or a model file.

mod foreign;
mod free;
mod graphs;
mod sizes;

pub(crate) use graphs::{Free, FreeGraph, Graphs};

use crate::digests::{digest_of, prepare};
use crate::foreign::Folding;
use crate::profile::Profile;
use crate::{Error, GraphFile, ModelFile, ModelSizes, Result, Tile, WeightFolders};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tileforge_contract::{ARCHITECTURE_KEY, Contract, Extent, Shapes, Sizes, Task};
use tileforge_engine::digest::FileDigest;
use tileforge_exporter::arch::GraphOf;
use tileforge_exporter::lora::{self, Lora};
use tileforge_exporter::pipeline::{Part, Pipeline, weights_in};
use tileforge_exporter::{Checkpoint, Shapes as FixedShapes};
use tileforge_files::Digests;
use tileforge_graph::Model;
use tileforge_image::Size;

/// Pixels for each row and column of a latent picture: three halvings in the autoencoders of Stable Diffusion 1.5 and
/// XL, and of SeedVR2.
const LATENT_PIXELS: usize = 8;

/// The largest file of a graph: protobuf allows slightly less.
const GRAPH_MAXIMUM_BYTES: u64 = 1 << 31;

/// A model that an engine can be built of.
#[derive(Debug)]
pub struct Source {
    name: String,
    path: PathBuf,
    licence: Option<String>,
    kind: SourceKind,
    contract: Contract,
    architecture: String,
    parameters: u64,
    /// By the exporter's names; null for a graph.
    hyperparameters: serde_json::Value,
    /// Sizes of the graphs, if the model file sets them.
    sizes: Option<ModelSizes>,
    /// Sizes of pictures that replace all others, as in [`SourceOptions`].
    asked: Vec<Size>,
    frames: Option<usize>,
    /// Numbers of samples in one run, instead of the profile's; empty: the profile's.
    batches: Vec<usize>,
    /// Numbers of tokens of a text, if the network sets no limit; empty: the default.
    lengths: Vec<usize>,
    /// Pixels for each row and column of a latent picture.
    latent_pixels: usize,
    /// How frames follow from latent frames.
    latent_frames: Extent,
    /// Whether it is one of several graphs of a model.
    is_part: bool,
    digests: Digests,
}

#[derive(Debug)]
enum SourceKind {
    /// A graph is exported for each shape.
    Checkpoint { checkpoint: Arc<Checkpoint>, task: Task, hints: BTreeMap<String, String> },
    /// The graph exists; its dynamic sizes are fixed.
    Graph(Box<Model>),
    /// The graph exists and computes sizes: it is completed for each size.
    Folded { model: Box<Model>, folding: Folding },
}

/// Facts that a checkpoint does not state.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// The task of the graph, if one checkpoint gives several graphs, such as an autoencoder's encoder and decoder.
    pub task: Option<Task>,
    /// Hyperparameters by name, for facts that the names and shapes of tensors do not determine.
    pub hyperparameters: BTreeMap<String, String>,
    /// The folders of model files' weights, in addition to each model file's own folder.
    pub weights: WeightFolders,
    /// Sizes of pictures in pixels; they replace the sizes of the model file or the profile. Empty: those stay.
    pub sizes: Vec<Size>,
    /// Frames of a video in one run; `None`: as few as the network takes. If a model has graphs for the first and for
    /// later chunks, the frames of the first chunk; later chunks get the largest possible number up to it.
    pub frames: Option<usize>,
}

impl Source {
    /// Opens a checkpoint (a file of safetensors or of PyTorch, the index of its shards, or a folder that holds one),
    /// an exported graph (`.onnx`) or a model file (`.yaml`).
    ///
    /// # Errors
    /// The path is none of these, cannot be read or contradicts its model file, or the options do not suit it.
    pub fn open(path: &Path, options: &SourceOptions) -> Result<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension {
            "yaml" | "yml" => {
                let model = ModelFile::read(path)?;
                let graph = model.graph(None)?;
                if options.task.is_some_and(|task| task != graph.task) {
                    return Err(Error::input(path, format!("its only graph is for {}", graph.task)));
                }
                Self::of_model(&model, graph, options)
            }
            "onnx" if options.task.is_some() || !options.hyperparameters.is_empty() => {
                Err(Error::input(path, "a task and hyperparameters are for checkpoints; a graph has its own"))
            }
            "onnx" => Self::of_graph(path, options),
            _ if Self::is_checkpoint(path) => Self::of_opened(
                name_of(path),
                &OpenedCheckpoint::new(path)?,
                options.task,
                &options.hyperparameters,
                options,
            ),
            _ => Err(Error::input(
                path,
                "expected a checkpoint (.safetensors, .pth, .pt, .ckpt, .bin, their .index.json, or a folder), a graph \
                 (.onnx) or a model (.yaml)",
            )),
        }
    }

    /// Whether a path names a checkpoint: a file of safetensors or of PyTorch, the index of its shards, or a folder.
    pub fn is_checkpoint(path: &Path) -> bool {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        ["safetensors", "json", "pth", "pt", "ckpt", "bin"].contains(&extension) || path.is_dir()
    }

    /// Opens one graph of a model.
    ///
    /// # Errors
    /// The weights are missing or are not the model's, or the network is not the one that the model file describes.
    pub fn of_model(model: &ModelFile, graph: &GraphFile, options: &SourceOptions) -> Result<Self> {
        let opened = OpenedCheckpoint::new(&options.weights.checkpoint(model, &graph.checkpoint)?)?;
        Self::of_opened_model(model, graph, &opened, options)
    }

    /// Opens all graphs of a model, by name.
    ///
    /// # Errors
    /// As [`Source::of_model`], for one of them.
    pub fn parts_of_model(model: &ModelFile, options: &SourceOptions) -> Result<BTreeMap<String, Self>> {
        options.weights.prepare(model)?;
        let mut opened = BTreeMap::new();
        let mut parts = BTreeMap::new();
        for (name, graph) in &model.graphs {
            // Each file is checked and opened once.
            let checkpoint = match opened.entry(&graph.checkpoint) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    entry.insert(OpenedCheckpoint::new(&options.weights.checkpoint(model, &graph.checkpoint)?)?)
                }
            };
            let source = Self::of_opened_model(model, graph, checkpoint, options)?;
            parts.insert(name.clone(), source.into_part());
        }
        Ok(parts)
    }

    /// Merges files of low-rank adaptations into the weights of a pipeline's networks. Returns for each file the
    /// number of tensors that belong to no network.
    ///
    /// # Errors
    /// As [`lora::merge`].
    pub(crate) fn merge(parts: &mut BTreeMap<String, Self>, files: &[Lora]) -> Result<Vec<usize>> {
        let components = parts.iter_mut().filter_map(|(name, source)| match &mut source.kind {
            SourceKind::Checkpoint { checkpoint, .. } => Some((name.as_str(), Arc::make_mut(checkpoint))),
            SourceKind::Graph(_) | SourceKind::Folded { .. } => None,
        });
        Ok(lora::merge(&mut components.collect::<Vec<_>>(), files)?)
    }

    /// Opens all graphs of a checkpoint, by name: `encoder` and `decoder` of an autoencoder, with `_first` and `_next`
    /// if a video has graphs for its first and for later chunks. Most checkpoints give one graph.
    ///
    /// # Errors
    /// As [`Source::open`]; the options name a task.
    pub fn parts_of_checkpoint(path: &Path, options: &SourceOptions) -> Result<BTreeMap<String, Self>> {
        let opened = OpenedCheckpoint::new(path)?;
        if !path.is_dir() && Pipeline::of_single_file(&opened.checkpoint, &[], None)?.is_some() {
            return Err(Error::PipelineFile { path: path.to_owned() });
        }
        let graphs = tileforge_exporter::arch::graphs_of(&opened.checkpoint, &options.hyperparameters)?;
        let is_part = graphs.len() > 1;
        let open = |graph: GraphOf| {
            let name = if is_part { format!("{}-{}", name_of(path), graph.name) } else { name_of(path) };
            let source = Self::of_opened(name, &opened, Some(graph.task), &graph.hints, options)?;
            Ok((graph.name, if is_part { source.into_part() } else { source }))
        };
        graphs.into_iter().map(open).collect()
    }

    fn of_opened_model(
        model: &ModelFile,
        graph: &GraphFile,
        opened: &OpenedCheckpoint,
        options: &SourceOptions,
    ) -> Result<Self> {
        let mut hints = options.hyperparameters.clone();
        for (name, value) in &graph.set {
            hints.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let name = model.graphs.iter().find(|(_, other)| std::ptr::eq(*other, graph)).map_or("", |(name, _)| name);
        let name = if name.is_empty() { model.name.clone() } else { format!("{}-{name}", model.name) };
        let source = Self::of_opened(name, opened, Some(graph.task), &hints, options)?;
        if source.architecture != graph.architecture || source.task() != graph.task {
            let expected = format!("{} for {}", graph.architecture, graph.task);
            let found = format!("{} for {}", source.architecture, source.task());
            return Err(Error::input(&model.path, format!("expected {expected}, found {found}")));
        }
        let differences = graph.differences(&source.hyperparameters);
        if !differences.is_empty() {
            let reason = format!("its weights are of another network: {}", differences.join("; "));
            return Err(Error::input(&model.path, reason));
        }
        Ok(Source { licence: Some(model.licence.clone()), sizes: graph.sizes.clone(), ..source })
    }

    /// The graph of an opened checkpoint for a task; without a task, the only graph.
    fn of_opened(
        name: String,
        opened: &OpenedCheckpoint,
        task: Option<Task>,
        hints: &BTreeMap<String, String>,
        options: &SourceOptions,
    ) -> Result<Self> {
        let OpenedCheckpoint { path, checkpoint } = opened;
        let network = tileforge_exporter::arch::detect_task(checkpoint, task, hints)?;
        let contract = network.contract();
        // A trial export shows that the checkpoint has the network's tensors.
        tileforge_exporter::export_task(checkpoint, Some(contract.task), &network.example_shapes(), hints)?;
        let architecture = network.architecture();
        let hyperparameters = network
            .hyperparameters()
            .map_err(|source| tileforge_exporter::Error::HyperparametersJson { architecture, source })?;
        Ok(Source {
            name,
            path: path.clone(),
            licence: None,
            sizes: None,
            hyperparameters,
            architecture: architecture.into(),
            parameters: checkpoint.parameters(),
            kind: SourceKind::Checkpoint { checkpoint: checkpoint.clone(), task: contract.task, hints: hints.clone() },
            contract,
            asked: options.sizes.clone(),
            frames: options.frames,
            batches: Vec::new(),
            lengths: Vec::new(),
            latent_pixels: LATENT_PIXELS,
            latent_frames: Extent::multiple_of(1),
            is_part: false,
            digests: options.weights.digests.clone(),
        })
    }

    fn of_graph(path: &Path, options: &SourceOptions) -> Result<Self> {
        let model = tileforge_graph::load(path)?;
        tileforge_graph::check_weight_files(path, &options.weights.digests)?;
        let architecture = model.metadata.get(ARCHITECTURE_KEY).cloned().ok_or_else(|| {
            let found = format!("found none of its metadata (`{ARCHITECTURE_KEY}`)");
            Error::input(path, format!("expected a graph made by `exporter`, {found}; export the checkpoint"))
        })?;
        let contract = Contract::from_metadata(&model.metadata);
        let contract = contract.map_err(|e| Error::input(path, format!("{e}; export the checkpoint again")))?;
        Ok(Source {
            name: name_of(path),
            path: path.to_owned(),
            licence: None,
            sizes: None,
            hyperparameters: serde_json::Value::Null,
            contract,
            architecture,
            parameters: model.parameters(),
            kind: SourceKind::Graph(Box::new(model)),
            asked: options.sizes.clone(),
            frames: options.frames,
            batches: Vec::new(),
            lengths: Vec::new(),
            latent_pixels: LATENT_PIXELS,
            latent_frames: Extent::multiple_of(1),
            is_part: false,
            digests: options.weights.digests.clone(),
        })
    }

    /// Opens one component of a diffusion pipeline.
    ///
    /// # Errors
    /// The component's tensors do not match its expected network.
    pub(crate) fn of_component(path: &Path, part: &Part, options: &SourceOptions) -> Result<Self> {
        let opened = OpenedCheckpoint { path: path.to_owned(), checkpoint: part.checkpoint.clone() };
        Ok(Self::of_opened(part.name.clone(), &opened, Some(part.task), &part.hints, options)?.into_part())
    }

    /// The same source as one graph of several.
    fn into_part(self) -> Self {
        // The sizes are for the model's pictures; a text has none.
        let has_pictures = self.contract.inputs.iter().any(|input| input.height().is_some());
        Source { is_part: true, asked: if has_pictures { self.asked } else { Vec::new() }, ..self }
    }

    /// The same source with these numbers of samples in one run and of tokens of a text, and with this many pixels for
    /// each row and column of a latent picture.
    pub(crate) fn with_runs(self, batches: Vec<usize>, lengths: Vec<usize>, latent_pixels: usize) -> Self {
        Self { batches, lengths, latent_pixels, ..self }
    }

    /// The same source with another relation between frames and latent frames.
    pub(crate) fn with_latent_frames(self, latent_frames: Extent) -> Self {
        Self { latent_frames, ..self }
    }

    /// The same source with a timestep for each sample of a batch, so that requests at different steps can share a
    /// run. An existing graph stays unchanged.
    pub(crate) fn with_timestep_per_sample(mut self) -> Result<Self> {
        if let SourceKind::Checkpoint { checkpoint, task, hints } = &mut self.kind {
            hints.entry("timestep".to_owned()).or_insert_with(|| "per-sample".to_owned());
            let network = tileforge_exporter::arch::detect_task(checkpoint, Some(*task), hints)?;
            let architecture = network.architecture();
            let failed = |source| tileforge_exporter::Error::HyperparametersJson { architecture, source };
            (self.contract, self.hyperparameters) = (network.contract(), network.hyperparameters().map_err(failed)?);
        }
        Ok(self)
    }

    /// The model's name: the name of its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The licence of the weights, if known.
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

    /// The model's contract.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// What the model does.
    pub fn task(&self) -> Task {
        self.contract.task
    }

    /// SHA-256 of the checkpoint, if the source is a checkpoint in a single file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn checkpoint_sha256(&self) -> Result<Option<String>> {
        match &self.kind {
            SourceKind::Checkpoint { checkpoint, .. } => match checkpoint.files() {
                [file] => Ok(Some(digest_of(&self.digests, file)?.sha256)),
                _ => Ok(None),
            },
            SourceKind::Graph(_) | SourceKind::Folded { .. } => Ok(None),
        }
    }

    /// The graphs of an engine for `profile`: one for each tile and batch of the profile, and graphs of any size if
    /// profile and network allow them. A graph with fixed sizes is the only graph of its engine.
    ///
    /// # Errors
    /// The network does not take such a size, or the profile has no sizes for the task.
    pub(crate) fn graphs(&self, profile: &Profile) -> Result<Graphs> {
        if let SourceKind::Graph(model) = &self.kind
            && model.inputs.iter().all(|port| port.ty.fixed_dims().is_some())
        {
            if !self.asked.is_empty() {
                return Err(Error::input(&self.path, "sizes were asked for, and the graph's own sizes are fixed"));
            }
            return Ok(Graphs { fixed: vec![model.as_ref().clone()], free: Vec::new() });
        }
        let sizes = self.all_sizes(profile)?;
        let fixed = sizes.iter().map(|sizes| self.graph(sizes)).collect::<Result<_>>()?;
        let mut free = self.any_size(profile)?;
        if free.is_empty() {
            free = self.any_batch(profile, &sizes)?;
        }
        Ok(Graphs { fixed, free })
    }

    /// The graph for one picture of a size in the input's pixels, or of the next larger possible size; `None` if the
    /// graph has only one size.
    pub(crate) fn graph_of_tile(&self, tile: Tile) -> Result<Option<Model>> {
        if let SourceKind::Graph(model) = &self.kind
            && model.inputs.iter().all(|port| port.ty.fixed_dims().is_some())
        {
            return Ok(None);
        }
        let mut inputs = self.contract.inputs.iter();
        let extents = inputs.find_map(|input| Some((input.height()?, input.width()?)));
        let (height, width) =
            extents.map_or((1, 1), |(rows, columns)| (rows.size_for(tile.height), columns.size_for(tile.width)));
        self.graph(&Sizes { height, width, ..Sizes::default() }).map(Some)
    }

    fn graph(&self, sizes: &Sizes) -> Result<Model> {
        let shapes: Shapes = self.contract.input_shapes(sizes)?;
        match &self.kind {
            SourceKind::Checkpoint { checkpoint, task, hints } => {
                Ok(tileforge_exporter::export_task(checkpoint, Some(*task), &FixedShapes::from(shapes), hints)?.model)
            }
            SourceKind::Graph(model) => Ok(model.specialised(&shapes).map_err(|e| e.in_file(&self.path))?),
            SourceKind::Folded { model, folding } => folding.of_shapes(model, &shapes),
        }
    }

    /// The files that the model is read from.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match &self.kind {
            SourceKind::Checkpoint { checkpoint, .. } => {
                [std::slice::from_ref(&self.path), checkpoint.files()].concat()
            }
            // Weights in other files are beside the graph.
            SourceKind::Graph(_) | SourceKind::Folded { .. } => vec![self.path.clone()],
        }
    }

    /// The files that determine the graphs, with their digests.
    pub(crate) fn input_digests(&self) -> Result<Vec<(PathBuf, FileDigest)>> {
        let files = self.inputs()?;
        prepare(&self.digests, &files)?;
        let digested = |file: PathBuf| digest_of(&self.digests, &file).map(|digest| (file, digest));
        files.into_iter().map(digested).collect()
    }

    /// Weights and their index, the configuration beside them, or a graph with its weights.
    fn inputs(&self) -> Result<Vec<PathBuf>> {
        match &self.kind {
            SourceKind::Checkpoint { checkpoint, .. } => {
                let mut files = vec![checkpoint.path().to_owned()];
                files.extend(checkpoint.files().iter().filter(|file| file.as_path() != checkpoint.path()).cloned());
                files.extend(checkpoint.config_file().filter(|file| file.is_file()).map(Path::to_owned));
                Ok(files)
            }
            SourceKind::Graph(_) | SourceKind::Folded { .. } => {
                let bytes = tileforge_files::read(&self.path, GRAPH_MAXIMUM_BYTES)
                    .map_err(|e| Error::file(&self.path, "read", e))?;
                let weights = tileforge_graph::external_files(&bytes, &self.path)?;
                let weights = weights.iter().map(|name| self.path.with_file_name(name));
                Ok(std::iter::once(self.path.clone()).chain(weights).collect())
            }
        }
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An opened checkpoint, from which several graphs can be made.
struct OpenedCheckpoint {
    /// The file or folder that was named.
    path: PathBuf,
    checkpoint: Arc<Checkpoint>,
}

impl OpenedCheckpoint {
    fn new(path: &Path) -> Result<Self> {
        let weights = if path.is_dir() { weights_in(path, None)? } else { path.to_owned() };
        Ok(Self { path: path.to_owned(), checkpoint: Arc::new(Checkpoint::open(weights)?) })
    }
}

/// A file's name without its extensions.
fn name_of(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let known = [".safetensors.index.json", ".bin.index.json", ".safetensors", ".pth", ".pt", ".ckpt", ".bin", ".onnx"];
    known.iter().find_map(|extension| name.strip_suffix(extension)).map_or_else(|| name.clone(), str::to_owned)
}
