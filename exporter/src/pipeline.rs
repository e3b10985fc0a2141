//! Pipelines: several networks that make pictures together, in the folder layout of diffusers.
//!
//! The written folder has the layout and the names that existing pipelines for ONNX Runtime load: a folder for each
//! graph with `model.onnx` and the component's `config.json`, and copies of all files that are not networks. A pipeline
//! in one file becomes the same folders, without the files that it does not hold.

use crate::checkpoint::single_file;
use crate::lora::{self, Lora};
use crate::{Checkpoint, Error, Export, Result, Shapes, Task, export_task};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tileforge_files::{
    Digests, TEXT_MAXIMUM_BYTES, is_plain, stated_by_hub_cache,
    unfinished::{self, relocated},
};
use tileforge_graph::{SaveReport, WeightStorage, Written, save_with_progress};

/// The file that makes a folder a pipeline.
const INDEX: &str = "model_index.json";
const CONFIG: &str = "config.json";
/// The class of the safety checker. It is optional in every pipeline, and does not change the picture.
const LEFT_OUT: &str = "StableDiffusionSafetyChecker";

/// The scaling factor of SDXL's autoencoder, from its configuration; single files do not hold it.
const SCALING_FACTOR_OF_XL: &str = "0.13025";

/// The supported classes of networks, and the graphs of each: the ending of the graph's name after the component's
/// name, and its task.
const CLASSES: [(&str, &[(&str, Task)]); 4] = [
    ("UNet2DConditionModel", &[("", Task::Unet)]),
    ("AutoencoderKL", &[("_encoder", Task::VaeEncoder), ("_decoder", Task::VaeDecoder)]),
    ("CLIPTextModel", &[("", Task::TextEncoder)]),
    ("CLIPTextModelWithProjection", &[("", Task::TextEncoder)]),
];

/// A pipeline whose networks can be exported.
#[derive(Debug)]
pub struct Pipeline {
    class: Option<String>,
    parts: Vec<Part>,
    /// Files and folders to copy: the source, and the name in the exported folder.
    copied: Vec<(PathBuf, String)>,
    /// Components that are left out, and their classes.
    left_out: Vec<(String, String)>,
}

/// One graph of a pipeline.
#[derive(Debug, Clone)]
pub struct Part {
    /// The name of the folder that it is exported into.
    pub name: String,
    /// What it does.
    pub task: Task,
    /// Its weights.
    pub checkpoint: Arc<Checkpoint>,
    /// Its configuration, if there is one.
    config: Option<PathBuf>,
    /// Hyperparameters that other components determine.
    pub hints: BTreeMap<String, String>,
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
    /// Whether a folder holds a pipeline.
    pub fn is_one(folder: &Path) -> bool {
        folder.join(INDEX).is_file()
    }

    /// Opens a pipeline's folder. `wanted` names the graphs to export; an empty list stands for all. `variant` is the
    /// variant of the weights, such as `fp16`.
    ///
    /// # Errors
    /// The index or a component cannot be read, a component is not supported, or a wanted name does not exist.
    pub fn open(folder: &Path, wanted: &[String], variant: Option<&str>) -> Result<Self> {
        let index = read_object(&folder.join(INDEX))?;
        let class = index.get("_class_name").and_then(Value::as_str).map(str::to_owned);
        let mut pipeline = Pipeline { class, parts: Vec::new(), copied: Vec::new(), left_out: Vec::new() };
        let mut known = Vec::new();
        for (name, entry) in index.iter().filter(|(name, _)| !name.starts_with('_')) {
            // A component has a library and a class. Other entries are settings of the pipeline, and two nulls are a
            // component that it does not have.
            let Some([Value::String(_), Value::String(class)]) = entry.as_array().map(Vec::as_slice) else { continue };
            if !is_plain(name) {
                let reason = format!("expected the names of folders beside it as components, found {name:?}");
                return Err(Error::checkpoint(&folder.join(INDEX), reason));
            }
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

    /// The pipeline in a single file with the tensor names of its authors' code; `None` if the file is not a pipeline.
    /// `wanted` is as in [`Pipeline::open`]. `described` is the folder of a pipeline whose configurations also apply
    /// to the file's components.
    ///
    /// # Errors
    /// A wanted name does not exist, the file holds tensors of no supported component, or a configuration cannot be
    /// read.
    pub fn of_single_file(file: &Checkpoint, wanted: &[String], described: Option<&Path>) -> Result<Option<Self>> {
        let components = single_file::components(file)?;
        if components.is_empty() {
            return Ok(None);
        }
        let is_xl = components.iter().any(|component| component.name == "text_encoder_2");
        let (mut parts, mut known) = (Vec::new(), Vec::new());
        for component in components {
            let folder = described.map(|described| described.join(component.name));
            let checkpoint = match &folder {
                Some(folder) => component.checkpoint.with_config(folder.join(CONFIG)),
                None => component.checkpoint,
            };
            let checkpoint = Arc::new(checkpoint);
            for (ending, task) in component.tasks {
                let name = format!("{}{ending}", component.name);
                known.push(name.clone());
                if wanted.is_empty() || wanted.contains(&name) {
                    let is_vae = matches!(task, Task::VaeEncoder | Task::VaeDecoder);
                    let hints = match &folder {
                        Some(folder) => hints(folder, *task)?,
                        None if is_xl && is_vae => {
                            BTreeMap::from([("scaling_factor".into(), SCALING_FACTOR_OF_XL.into())])
                        }
                        None => BTreeMap::new(),
                    };
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
        Ok(Some(Pipeline { class: None, parts, copied: Vec::new(), left_out: Vec::new() }))
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
            check_class(folder, name, class)?;
            let checkpoint = Arc::new(Checkpoint::open(weights_in(folder, variant)?)?);
            for (name, task) in taken {
                let config = Some(folder.join(CONFIG));
                let hints = hints(folder, task)?;
                self.parts.push(Part { name, task, checkpoint: checkpoint.clone(), config, hints });
            }
        } else if !wanted.is_empty() {
            // Files that are not networks are copied only with the whole pipeline.
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

    /// Merges files of low-rank adaptations into the networks' weights. Returns for each file the number of tensors
    /// that belong to components that are not exported.
    ///
    /// # Errors
    /// As [`lora::merge`].
    pub fn merge(&mut self, files: &[Lora]) -> Result<Vec<usize>> {
        let components = self.parts.iter_mut().map(|part| (part.name.as_str(), Arc::make_mut(&mut part.checkpoint)));
        let mut components: Vec<(&str, &mut Checkpoint)> = components.collect();
        lora::merge(&mut components, files)
    }

    /// Its class in diffusers, if its index says it.
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// The graphs.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Writes the only graph of a pipeline to one file. `progress` receives the progress of writing its weights.
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
        digests: &Digests,
        progress: &mut dyn FnMut(&str, Written),
    ) -> Result<PartReport> {
        let [part] = self.parts.as_slice() else {
            let components = self.parts.iter().map(|part| part.name.clone()).collect();
            return Err(Error::OneGraphPerFile { path: path.to_owned(), components });
        };
        let export = part.export(shapes, hints)?;
        let mut progress = |written| progress(&part.name, written);
        let report = save_with_progress(&export.model, path, storage, digests, &mut progress)?;
        Ok(PartReport { name: part.name.clone(), export, report })
    }

    /// Components that are left out, and their classes.
    pub fn left_out(&self) -> &[(String, String)] {
        &self.left_out
    }

    /// Writes every graph into a folder of its own below `folder`, which must not exist yet, and copies everything
    /// else of the pipeline. `progress` receives the name of the graph that is being written, and the progress of
    /// writing its weights.
    ///
    /// # Errors
    /// `folder` exists, a network cannot be exported, or a file cannot be written. Nothing is left behind then.
    pub fn save(
        &self,
        folder: &Path,
        shapes: &Shapes,
        hints: &BTreeMap<String, String>,
        storage: WeightStorage,
        digests: &Digests,
        progress: &mut dyn FnMut(&str, Written),
    ) -> Result<Vec<PartReport>> {
        if folder.symlink_metadata().is_ok() {
            let source =
                io::Error::new(io::ErrorKind::AlreadyExists, "it is there already; name another folder, or remove it");
            return Err(failed(folder, "create")(source));
        }
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let staging = unfinished::folder_in(parent).map_err(failed(parent, "create a folder in"))?;
        // A folder inside, because the temporary folder itself is accessible to its owner only.
        let staged = staging.path().join("pipeline");
        fs::create_dir(&staged).map_err(failed(&staged, "create"))?;
        let written = self.write(&staged, folder, &|part| part.export(shapes, hints), storage, digests, progress);
        // When the user reads the message, the temporary folder no longer exists.
        let reports = written.map_err(|error| error.relocated(&staged, folder))?;
        let _finishing = unfinished::finishing();
        fs::rename(&staged, folder).map_err(failed(folder, "rename"))?;
        Ok(reports)
    }

    /// Digests all checkpoints at the same time.
    fn prepare(&self, digests: &Digests) -> Result<()> {
        let files = self.parts.iter().flat_map(|part| part.checkpoint.files());
        let mut files: Vec<PathBuf> = files.filter(|file| stated_by_hub_cache(file).is_none()).cloned().collect();
        files.sort();
        files.dedup();
        digests.prepare(&files).map_err(|(path, source)| Error::File { path, action: "read", source })
    }

    /// Writes everything to `staged`, which will get the name `folder`.
    fn write(
        &self,
        staged: &Path,
        folder: &Path,
        export: &dyn Fn(&Part) -> Result<Export>,
        storage: WeightStorage,
        digests: &Digests,
        progress: &mut dyn FnMut(&str, Written),
    ) -> Result<Vec<PartReport>> {
        if storage == WeightStorage::Link {
            self.prepare(digests)?;
        }
        let mut reports = Vec::new();
        for part in &self.parts {
            let into = staged.join(&part.name);
            fs::create_dir(&into).map_err(failed(&into, "create"))?;
            let export = export(part)?;
            let mut progress = |written| progress(&part.name, written);
            let report = save_with_progress(&export.model, &into.join("model.onnx"), storage, digests, &mut progress)?;
            if let Some(config) = &part.config {
                fs::copy(config, into.join(CONFIG)).map_err(failed(config, "copy"))?;
            }
            reports.push(PartReport { name: part.name.clone(), export, report: moved(report, staged, folder) });
        }
        for (from, name) in &self.copied {
            copy(from, &staged.join(name)).map_err(failed(from, "copy"))?;
        }
        Ok(reports)
    }
}

impl Part {
    /// Makes the part's graph. `hints` take precedence over hyperparameters that other components determine.
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

/// The same report, with the paths of the final folder.
fn moved(mut report: SaveReport, from: &Path, to: &Path) -> SaveReport {
    report.weights = report.weights.map(|(path, bytes)| (relocated(&path, from, to), bytes));
    report.linked.iter_mut().for_each(|file| file.path = relocated(&file.path, from, to));
    report
}

/// Hyperparameters that another component of the pipeline determines: the width of the embeddings of SDXL's second text
/// encoder.
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

/// Checks that a component's own configuration has the class that the pipeline states.
fn check_class(folder: &Path, name: &str, expected: &str) -> Result<()> {
    let path = folder.join(CONFIG);
    if !path.is_file() {
        return Ok(());
    }
    let config = read_object(&path)?;
    // The key in transformers differs from diffusers'.
    let of_diffusers = config.get("_class_name").and_then(Value::as_str);
    let found = of_diffusers.or_else(|| config.get("architectures")?.get(0)?.as_str());
    match found.filter(|found| *found != expected && CLASSES.iter().any(|(known, _)| known == found)) {
        None => Ok(()),
        Some(found) => Err(Error::checkpoint(
            folder,
            format!(
                "expected a component of the class {expected}, as {INDEX} says of `{name}`, found {found} in its \
                 {CONFIG}; put each component into the folder of its name"
            ),
        )),
    }
}

/// The path of the weights in a component's folder: a file, or the index of its shards.
///
/// # Errors
/// The folder has no weights of an expected name, or the class in its configuration is not supported.
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
    // If both exist, safetensors are taken: the weights are the same.
    let files = [
        ("diffusion_pytorch_model", "safetensors"),
        ("model", "safetensors"),
        ("diffusion_pytorch_model", "bin"),
        ("pytorch_model", "bin"),
    ];
    let names: Vec<String> = files
        .iter()
        .flat_map(|(stem, extension)| {
            [format!("{stem}{variant}.{extension}"), format!("{stem}.{extension}.index{variant}.json")]
        })
        .collect();
    if let Some(path) = names.iter().map(|name| folder.join(name)).find(|path| path.is_file()) {
        return Ok(path);
    }
    let found = names_in(folder)?.into_iter().filter(|name| is_weights(name)).collect();
    Err(Error::NoWeights { path: folder.to_owned(), expected: names, found })
}

fn is_weights(name: &str) -> bool {
    [".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".msgpack"].iter().any(|extension| name.ends_with(extension))
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
    let bytes = tileforge_files::read(path, TEXT_MAXIMUM_BYTES).map_err(|source| Error::File {
        path: path.to_owned(),
        action: "read",
        source,
    })?;
    serde_json::from_slice(&bytes).map_err(|e| Error::checkpoint(path, format!("not a JSON object: {e}")))
}

/// A file, or a folder with everything in it. Links to folders are refused, because they may lead in circles.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        let mut source = tileforge_files::open(from)?;
        let mut target = fs::File::create_new(to)?;
        io::copy(&mut source, &mut target)?;
        return target.set_permissions(source.metadata()?.permissions());
    }
    if from.is_symlink() {
        return Err(io::Error::other("expected a folder, found a link to one; replace it by the folder"));
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
