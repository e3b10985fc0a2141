//! Pipelines: several networks that make pictures together, as diffusers saves them in a folder.
//!
//! What is written has the layout and the names that the ecosystem's pipelines for ONNX Runtime load: a folder for each
//! graph with `model.onnx` and the component's `config.json`, and everything that is no network as it was. Pipelines in
//! one file become the same folders, but for what such a file does not hold.

use crate::checkpoint::single_file;
use crate::lora::{self, Lora};
use crate::{Checkpoint, Error, Export, Result, Shapes, Task, export_task};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tileforge_graph::{SaveReport, WeightStorage, Written, save_with_progress};

/// The file that makes a folder a pipeline.
const INDEX: &str = "model_index.json";
const CONFIG: &str = "config.json";
/// Optional in every pipeline that has it, and of no influence on the picture: it only judges it.
const LEFT_OUT: &str = "StableDiffusionSafetyChecker";

/// What SDXL's autoencoder has in its configuration, which single files do not hold.
const SCALING_FACTOR_OF_XL: &str = "0.13025";

/// The classes of networks that graphs can be made of: the graphs' names follow the component's, with these endings.
const CLASSES: [(&str, &[(&str, Task)]); 4] = [
    ("UNet2DConditionModel", &[("", Task::Unet)]),
    ("AutoencoderKL", &[("_encoder", Task::VaeEncoder), ("_decoder", Task::VaeDecoder)]),
    ("CLIPTextModel", &[("", Task::TextEncoder)]),
    ("CLIPTextModelWithProjection", &[("", Task::TextEncoder)]),
];

/// A pipeline whose networks can be exported.
#[derive(Debug)]
pub struct Pipeline {
    parts: Vec<Part>,
    /// Files and folders that are copied: from, and the name in the exported folder.
    copied: Vec<(PathBuf, String)>,
    /// Components that are left out, and their classes.
    left_out: Vec<(String, String)>,
}

/// One graph of a pipeline.
#[derive(Debug, Clone)]
pub struct Part {
    /// The folder that it is exported into.
    pub name: String,
    /// What it does.
    pub task: Task,
    /// Its weights.
    pub checkpoint: Arc<Checkpoint>,
    /// Its configuration, if there is one.
    config: Option<PathBuf>,
    /// What only other components tell.
    hints: BTreeMap<String, String>,
}

/// What was written for one graph.
#[derive(Debug)]
pub struct PartReport {
    /// The folder.
    pub name: String,
    /// The network and its graph.
    pub export: Export,
    /// Its files.
    pub report: SaveReport,
}

impl Pipeline {
    /// Whether a folder is that of a pipeline.
    pub fn is_one(folder: &Path) -> bool {
        folder.join(INDEX).is_file()
    }

    /// Opens a pipeline's folder. `wanted` names the graphs or components to take, and is empty for all; `variant` is
    /// the one of the weights, such as `fp16`.
    ///
    /// # Errors
    /// The index or a component cannot be read, a component is not supported, or there is none of a wanted name.
    pub fn open(folder: &Path, wanted: &[String], variant: Option<&str>) -> Result<Self> {
        let index = read_object(&folder.join(INDEX))?;
        let mut pipeline = Pipeline { parts: Vec::new(), copied: Vec::new(), left_out: Vec::new() };
        let mut known = Vec::new();
        for (name, entry) in index.iter().filter(|(name, _)| !name.starts_with('_')) {
            // Anything but a library and a class is a setting of the pipeline; two nulls are a component that it does
            // without.
            let Some([Value::String(_), Value::String(class)]) = entry.as_array().map(Vec::as_slice) else { continue };
            pipeline.add(&folder.join(name), name, class, wanted, variant, &mut known)?;
        }
        if let Some(missing) = wanted.iter().find(|wanted| !known.contains(*wanted)) {
            let path = folder.to_owned();
            return Err(Error::NoSuchComponent { path, name: missing.clone(), components: known });
        }
        if wanted.is_empty() {
            pipeline.copied.push((folder.join(INDEX), INDEX.into()));
        }
        Ok(pipeline)
    }

    /// The pipeline in a single file, with the names of its authors' code; `None` if the file is not one. `wanted` is
    /// as for [`Pipeline::open`].
    ///
    /// # Errors
    /// There is no component of a wanted name, or the file holds tensors of none that is supported.
    pub fn of_single_file(file: &Checkpoint, wanted: &[String]) -> Result<Option<Self>> {
        let components = single_file::components(file)?;
        if components.is_empty() {
            return Ok(None);
        }
        let is_xl = components.iter().any(|component| component.name == "text_encoder_2");
        let (mut parts, mut known) = (Vec::new(), Vec::new());
        for component in components {
            let checkpoint = Arc::new(component.checkpoint);
            for (ending, task) in component.tasks {
                let name = format!("{}{ending}", component.name);
                known.push(name.clone());
                if wanted.is_empty() || wanted.contains(&name) {
                    let is_vae = matches!(task, Task::VaeEncoder | Task::VaeDecoder);
                    let hints = (is_xl && is_vae)
                        .then(|| ("scaling_factor".into(), SCALING_FACTOR_OF_XL.into()))
                        .into_iter()
                        .collect();
                    parts.push(Part { name, task: *task, checkpoint: checkpoint.clone(), config: None, hints });
                }
            }
        }
        if let Some(missing) = wanted.iter().find(|wanted| !known.contains(*wanted)) {
            let path = file.path().to_owned();
            return Err(Error::NoSuchComponent { path, name: missing.clone(), components: known });
        }
        let unknown = single_file::unknown(file);
        if wanted.is_empty() && !unknown.is_empty() {
            return Err(Error::ForeignTensors {
                path: file.path().to_owned(),
                count: unknown.len(),
                examples: unknown.into_iter().take(3).collect(),
                components: known,
            });
        }
        Ok(Some(Pipeline { parts, copied: Vec::new(), left_out: Vec::new() }))
    }

    fn add(
        &mut self,
        folder: &Path,
        name: &str,
        class: &str,
        wanted: &[String],
        variant: Option<&str>,
        known: &mut Vec<String>,
    ) -> Result<()> {
        let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
        if let Some((_, graphs)) = CLASSES.iter().find(|(known, _)| *known == class) {
            let graphs: Vec<(String, Task)> =
                graphs.iter().map(|(ending, task)| (format!("{name}{ending}"), *task)).collect();
            known.extend(graphs.iter().map(|(graph, _)| graph.clone()));
            let taken: Vec<(String, Task)> = graphs.into_iter().filter(|(graph, _)| is_wanted(graph)).collect();
            if taken.is_empty() {
                return Ok(());
            }
            let checkpoint = Arc::new(Checkpoint::open(weights_in(folder, variant)?)?);
            for (name, task) in taken {
                let config = Some(folder.join(CONFIG));
                let hints = hints(folder, task)?;
                self.parts.push(Part { name, task, checkpoint: checkpoint.clone(), config, hints });
            }
        } else if !wanted.is_empty() {
            // What is no network goes with the whole pipeline only.
        } else if class == LEFT_OUT {
            self.left_out.push((name.into(), class.into()));
        } else if holds_weights(folder)? {
            return Err(Error::UnsupportedComponent {
                path: folder.to_owned(),
                component: name.into(),
                class: class.into(),
                supported: CLASSES.map(|(class, _)| class).into(),
            });
        } else {
            self.copied.push((folder.to_owned(), name.into()));
        }
        Ok(())
    }

    /// Merges files of low-rank adaptations into the networks' weights. Returns, for each file, how many tensors are of
    /// components that are not exported.
    ///
    /// # Errors
    /// As [`lora::merge`].
    pub fn merge(&mut self, files: &[Lora]) -> Result<Vec<usize>> {
        let components = self.parts.iter_mut().map(|part| (part.name.as_str(), Arc::make_mut(&mut part.checkpoint)));
        let mut components: Vec<(&str, &mut Checkpoint)> = components.collect();
        lora::merge(&mut components, files)
    }

    /// The graphs.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Writes the only graph of a pipeline to one file. `progress` gets how far the writing of its weights is.
    ///
    /// # Errors
    /// There are more graphs than one, the network cannot be exported, or a file cannot be written. Nothing is left
    /// behind then.
    pub fn save_one(
        &self,
        path: &Path,
        shapes: &Shapes,
        hints: &BTreeMap<String, String>,
        storage: WeightStorage,
        progress: &mut dyn FnMut(&str, Written),
    ) -> Result<PartReport> {
        let [part] = self.parts.as_slice() else {
            let components = self.parts.iter().map(|part| part.name.clone()).collect();
            return Err(Error::OneGraphPerFile { path: path.to_owned(), components });
        };
        let export = part.export(shapes, hints)?;
        let report = save_with_progress(&export.model, path, storage, &mut |written| progress(&part.name, written))?;
        Ok(PartReport { name: part.name.clone(), export, report })
    }

    /// Components that are left out, and their classes.
    pub fn left_out(&self) -> &[(String, String)] {
        &self.left_out
    }

    /// Writes every graph into a folder of its own below `folder`, which must not exist yet, and copies everything else
    /// of the pipeline. `progress` gets the name of the graph that is written, and how far the writing of its weights is.
    ///
    /// # Errors
    /// `folder` exists, a network cannot be exported, or a file cannot be written. Nothing is left behind then.
    pub fn save(
        &self,
        folder: &Path,
        shapes: &Shapes,
        hints: &BTreeMap<String, String>,
        storage: WeightStorage,
        progress: &mut dyn FnMut(&str, Written),
    ) -> Result<Vec<PartReport>> {
        if folder.symlink_metadata().is_ok() {
            let source =
                io::Error::new(io::ErrorKind::AlreadyExists, "it is there already; name another folder, or remove it");
            return Err(failed(folder, "create")(source));
        }
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let staging = tempfile::Builder::new()
            .prefix(".saving-")
            .tempdir_in(parent)
            .map_err(failed(parent, "create a folder in"))?;
        // Not the temporary folder itself, which is private to its owner.
        let staged = staging.path().join("pipeline");
        fs::create_dir(&staged).map_err(failed(&staged, "create"))?;
        let mut reports = Vec::new();
        for part in &self.parts {
            let into = staged.join(&part.name);
            fs::create_dir(&into).map_err(failed(&into, "create"))?;
            let export = part.export(shapes, hints)?;
            let mut progress = |written| progress(&part.name, written);
            let report = save_with_progress(&export.model, &into.join("model.onnx"), storage, &mut progress)?;
            if let Some(config) = &part.config {
                fs::copy(config, into.join(CONFIG)).map_err(failed(config, "copy"))?;
            }
            reports.push(PartReport { name: part.name.clone(), export, report: moved(report, &staged, folder) });
        }
        for (from, name) in &self.copied {
            copy(from, &staged.join(name)).map_err(failed(from, "copy"))?;
        }
        fs::rename(&staged, folder).map_err(failed(folder, "rename"))?;
        Ok(reports)
    }
}

impl Part {
    /// Makes the part's graph. `hints` go before what other components tell.
    ///
    /// # Errors
    /// As [`export_task`].
    pub fn export(&self, shapes: &Shapes, hints: &BTreeMap<String, String>) -> Result<Export> {
        let all: BTreeMap<String, String> =
            self.hints.iter().chain(hints).map(|(name, value)| (name.clone(), value.clone())).collect();
        export_task(&self.checkpoint, Some(self.task), shapes, &all)
    }
}

fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, action, source }
}

/// The same report with paths in the folder's final place.
fn moved(mut report: SaveReport, from: &Path, to: &Path) -> SaveReport {
    let moved = |path: &Path| path.strip_prefix(from).map_or_else(|_| path.to_owned(), |rest| to.join(rest));
    report.weights = report.weights.map(|(path, bytes)| (moved(&path), bytes));
    report.linked.iter_mut().for_each(|file| file.path = moved(&file.path));
    report
}

/// What another component of the same pipeline tells of a network: SDXL's second text encoder, how wide its embeddings
/// are.
fn hints(folder: &Path, task: Task) -> Result<BTreeMap<String, String>> {
    let other = folder.with_file_name("text_encoder_2").join(CONFIG);
    if task != Task::Unet
        || !other.is_file()
        || read_object(&folder.join(CONFIG))?.get("addition_embed_type").is_none_or(Value::is_null)
    {
        return Ok(BTreeMap::new());
    }
    let width = read_object(&other)?.get("projection_dim").map(ToString::to_string);
    Ok(width.into_iter().map(|width| ("text_embeds_width".into(), width)).collect())
}

/// The weights in a component's folder: a file, or the index of its shards.
///
/// # Errors
/// There are none in safetensors files, or the class in its configuration is not supported.
pub fn weights_in(folder: &Path, variant: Option<&str>) -> Result<PathBuf> {
    let config = folder.join(CONFIG);
    if config.is_file()
        && let Some(Value::String(class)) = read_object(&config)?.get("_class_name")
        && CLASSES.iter().all(|(known, _)| known != class)
    {
        let supported = CLASSES.map(|(class, _)| class).join(", ");
        return Err(Error::checkpoint(
            folder,
            format!("this is a {class}, which is not supported; supported are {supported}"),
        ));
    }
    let variant = variant.map_or_else(String::new, |variant| format!(".{variant}"));
    let names: Vec<String> = ["diffusion_pytorch_model", "model"]
        .iter()
        .flat_map(|stem| [format!("{stem}{variant}.safetensors"), format!("{stem}.safetensors.index{variant}.json")])
        .collect();
    if let Some(path) = names.iter().map(|name| folder.join(name)).find(|path| path.is_file()) {
        return Ok(path);
    }
    let found = names_in(folder)?.into_iter().filter(|name| is_weights(name)).collect();
    Err(Error::NoWeights { path: folder.to_owned(), expected: names, found })
}

fn is_weights(name: &str) -> bool {
    [".safetensors", ".bin", ".pt", ".ckpt", ".msgpack"].iter().any(|extension| name.ends_with(extension))
}

fn holds_weights(folder: &Path) -> Result<bool> {
    Ok(names_in(folder)?.iter().any(|name| is_weights(name)))
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let failed = |source| Error::File { path: folder.to_owned(), action: "read the folder", source };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(failed)?;
    names.sort();
    Ok(names)
}

fn read_object(path: &Path) -> Result<Map<String, Value>> {
    let bytes = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), action: "read", source })?;
    serde_json::from_slice(&bytes).map_err(|e| Error::checkpoint(path, format!("not a JSON object: {e}")))
}

/// A file, or a folder with everything in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
