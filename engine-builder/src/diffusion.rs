//! Diffusion pipelines in diffusers' layout: networks, tokenizers and a scheduler.

use crate::pipeline::{PipelineExtras, PipelineFile};
use crate::{Error, ModelFile, Result, Source, SourceOptions, WeightFolders};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tileforge_contract::{Contract, Embedding, Meaning, Task, TensorSpec};
use tileforge_engine::{Diffusion, Roles, TextOutput};
use tileforge_exporter::Checkpoint;
use tileforge_exporter::lora::Lora;
use tileforge_exporter::pipeline::{Part, Pipeline};
use tileforge_files::{Digests, TEXT_MAXIMUM_BYTES};
use tileforge_image::Size;
use tileforge_runtime::diffusion::Family;
use tileforge_runtime::diffusion::schedulers::Config;

const INDEX: &str = "model_index.json";
const SCHEDULER: &str = "scheduler/scheduler_config.json";
const UNET: &str = "unet";
const VAE_ENCODER: &str = "vae_encoder";
const VAE_DECODER: &str = "vae_decoder";

/// Text encoders, and the folders of their tokenizers.
const TEXTS: [(&str, &str); 2] = [("text_encoder", "tokenizer"), ("text_encoder_2", "tokenizer_2")];

/// The files of a tokenizer. Not every tokenizer has all of them.
const TOKENIZER_FILES: [&str; 6] = [
    "vocab.json",
    "merges.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
];

/// Rows of each picture in a batch: guidance adds a row with the negative prompt.
const ROWS_WITH_GUIDANCE: usize = 2;

/// The sizes, batch and adaptations of a pipeline's engine.
#[derive(Clone, Debug, Default)]
pub struct DiffusionOptions {
    /// Sizes of the pictures in pixels; empty: the sizes of the profile.
    pub sizes: Vec<Size>,
    /// Pictures that are made together; 0 counts as 1.
    pub batch: usize,
    /// Numbers of tokens of a text; empty: the most that the text encoder takes.
    pub lengths: Vec<usize>,
    /// Low-rank adaptations to merge into the weights.
    pub adaptations: Vec<Lora>,
    /// The remembered digests of weights.
    pub digests: Digests,
}

/// A pipeline that an engine can be built of.
#[derive(Debug)]
pub struct DiffusionSource {
    /// The networks, by the names of the engine's parts.
    pub parts: BTreeMap<String, Source>,
    /// The files and facts beside the parts.
    pub extras: PipelineExtras,
    /// For each file of adaptations, the number of tensors that belong to no network of the pipeline.
    pub left_over: Vec<usize>,
}

impl DiffusionSource {
    /// Whether a folder holds a pipeline.
    pub fn is_one(folder: &Path) -> bool {
        Pipeline::is_one(folder)
    }

    /// Whether a model file describes a whole pipeline: one with an index of its components.
    pub fn is_one_of_models(model: &ModelFile) -> bool {
        model.files.contains_key(INDEX)
    }

    /// Whether 8 bits pay off for a part on a CPU: only for the parts that take nearly all of a picture's time. Texts
    /// and the initial picture are encoded once, and errors in them affect all steps.
    pub fn gains_from_8_bits(part: &str) -> bool {
        [UNET, VAE_DECODER].contains(&part)
    }

    /// Opens a pipeline's folder. `variant` is the variant of the weights, such as `fp16`.
    ///
    /// # Errors
    /// A component or a file is missing, is not supported, or does not belong to the others.
    pub fn open(folder: &Path, variant: Option<&str>, options: &DiffusionOptions) -> Result<Self> {
        Self::of_pipeline(Pipeline::open(folder, &[], variant)?, folder, folder, options)
    }

    /// Opens a pipeline whose weights are in one file, with the configurations, the tokenizers and the scheduler of the
    /// folder `described`.
    ///
    /// # Errors
    /// As [`DiffusionSource::open`]; or the file holds no pipeline.
    pub fn of_single_file(file: &Path, described: &Path, options: &DiffusionOptions) -> Result<Self> {
        let checkpoint = Checkpoint::open(file)?;
        let pipeline = Pipeline::of_single_file(&checkpoint, &[], Some(described))?;
        let reason = "expected the weights of a whole pipeline, found those of one network";
        Self::of_pipeline(pipeline.ok_or_else(|| Error::input(file, reason))?, file, described, options)
    }

    /// Opens the pipeline that a model file describes.
    ///
    /// # Errors
    /// As [`DiffusionSource::open`], or a file is another one than the model's.
    pub fn of_model(model: &ModelFile, weights: &WeightFolders, options: &DiffusionOptions) -> Result<Self> {
        let source =
            SourceOptions { weights: weights.clone(), sizes: options.sizes.clone(), ..SourceOptions::default() };
        let mut parts = Source::parts_of_model(model, &source)?;
        let left_over = Source::merge(&mut parts, &options.adaptations)?;
        // Every listed file that is not a part's own file, from its place on this machine.
        let is_beside = |file: &&String| !parts.values().any(|part| part.path().ends_with(file.as_str()));
        let found = model.files.keys().filter(is_beside).map(|file| Ok((file.clone(), weights.file(model, file)?)));
        let found = found.collect::<Result<BTreeMap<_, _>>>()?;
        Ok(Self { left_over, ..Self::new(parts, &model.path, &|name| found.get(name).cloned(), options)? })
    }

    fn of_pipeline(mut pipeline: Pipeline, weights: &Path, folder: &Path, options: &DiffusionOptions) -> Result<Self> {
        let left_over = pipeline.merge(&options.adaptations)?;
        let weights_known = WeightFolders { digests: options.digests.clone(), ..WeightFolders::default() };
        let source = SourceOptions { sizes: options.sizes.clone(), weights: weights_known, ..SourceOptions::default() };
        let open = |part: &Part| {
            // In a folder, each component has its own folder.
            let component = part.name.trim_end_matches("_encoder").trim_end_matches("_decoder");
            let own = [folder.join(&part.name), folder.join(component)].into_iter().find(|path| path.is_dir());
            let path = if weights.is_dir() { own.unwrap_or_else(|| weights.to_owned()) } else { weights.to_owned() };
            Ok((part.name.clone(), Source::of_component(&path, part, &source)?))
        };
        let parts = pipeline.parts().iter().map(open).collect::<Result<BTreeMap<_, _>>>()?;
        let find = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
        Ok(Self { left_over, ..Self::new(parts, folder, &find, options)? })
    }

    /// `place` is the path in error messages. `find` finds a file by its name in diffusers' layout.
    fn new(parts: BTreeMap<String, Source>, place: &Path, find: Find<'_>, options: &DiffusionOptions) -> Result<Self> {
        let known = [UNET, VAE_ENCODER, VAE_DECODER].into_iter().chain(TEXTS.map(|(text, _)| text));
        let known: Vec<&str> = known.collect();
        if let Some(other) = parts.keys().find(|name| !known.contains(&name.as_str())) {
            let reason = format!("expected the networks {}, found `{other}`", known.join(", "));
            return Err(Error::input(place, reason));
        }
        let networks = Networks::find(&parts, place)?;
        let contracts = parts.iter().map(|(name, part)| (name.as_str(), part.contract())).collect();
        let roles = Roles::of_components(&contracts);
        networks.check_widths(&roles, place)?;
        let is_guided = !networks.unet.inputs.iter().any(|input| matches!(input.meaning, Meaning::Guidance { .. }));
        let index = needed(INDEX, place, find)?;
        let scheduler = needed(SCHEDULER, place, find)?;
        // The picture's gate uses another scheduler class, so that its figure is about the networks alone.
        let runs = Config::open(&scheduler).and_then(|config| config.try_runs());
        runs.map_err(|source| Error::Scheduler { path: scheduler.clone(), source })?;
        let diffusion = Some(Diffusion { roles: Some(Box::new(roles)), ..of_index(&index)? });
        let mut files = BTreeMap::from([(INDEX.to_owned(), index), (SCHEDULER.to_owned(), scheduler)]);
        for (text, contract, tokenizer) in &networks.texts {
            files.extend(of_tokenizer(tokenizer, text, contract, place, find)?);
        }
        let (most, latent_pixels) = (networks.tokens(), networks.latent_pixels());
        let with_runs = |(name, source): (String, Source)| {
            let source = match (name.as_str(), source.task()) {
                (UNET, _) => source.with_timestep_per_sample()?.with_runs(
                    options.rows(is_guided),
                    options.lengths_or(most),
                    latent_pixels,
                ),
                // Profiles have no sizes for text encoders.
                (_, Task::TextEncoder) => source.with_runs(options.texts(), Vec::new(), latent_pixels),
                _ => source.with_runs(Vec::new(), Vec::new(), latent_pixels),
            };
            Ok((name, source))
        };
        let parts = parts.into_iter().map(with_runs).collect::<Result<_>>()?;
        let files = files.into_iter().map(|(name, path)| (name, PipelineFile::Copy(path))).collect();
        Ok(Self {
            parts,
            extras: PipelineExtras { diffusion, files, ..PipelineExtras::default() },
            left_over: Vec::new(),
        })
    }
}

/// The path of a file of a pipeline by its name in diffusers' layout, if the pipeline has it.
type Find<'f> = &'f dyn Fn(&str) -> Option<PathBuf>;

fn needed(name: &str, place: &Path, find: Find<'_>) -> Result<PathBuf> {
    find(name).ok_or_else(|| Error::input(place, format!("expected the file {name}, found none")))
}

impl DiffusionOptions {
    /// The batch sizes of the network: for one picture and for the requested number of pictures, each without and, if
    /// `guided`, also with a second row for guidance.
    fn rows(&self, guided: bool) -> Vec<usize> {
        let batch = self.batch.max(1);
        let mut rows = vec![1, batch];
        if guided {
            rows.extend([ROWS_WITH_GUIDANCE, ROWS_WITH_GUIDANCE * batch]);
        }
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// The batch sizes of text encoders: for one text, and for the texts of the requested number of pictures.
    fn texts(&self) -> Vec<usize> {
        let mut texts = vec![1, self.batch.max(1)];
        texts.dedup();
        texts
    }

    fn lengths_or(&self, most: Option<usize>) -> Vec<usize> {
        if self.lengths.is_empty() { most.into_iter().collect() } else { self.lengths.clone() }
    }
}

/// The contracts of a pipeline's networks.
struct Networks<'p> {
    unet: &'p Contract,
    encoder: &'p Contract,
    decoder: &'p Contract,
    /// Text encoders with their names and the folders of their tokenizers.
    texts: Vec<(&'static str, &'p Contract, &'static str)>,
}

impl<'p> Networks<'p> {
    fn find(parts: &'p BTreeMap<String, Source>, place: &Path) -> Result<Self> {
        let missing = |what: &str| Error::input(place, format!("expected the component {what}, found none"));
        let part = |name: &str, component: &str| {
            parts.get(name).map(Source::contract).ok_or_else(|| missing(&format!("`{component}`")))
        };
        let text = |(text, tokenizer)| Some((text, parts.get(text)?.contract(), tokenizer));
        let texts: Vec<_> = TEXTS.into_iter().filter_map(text).collect();
        if texts.is_empty() {
            return Err(missing("`text_encoder`"));
        }
        Ok(Self {
            unet: part(UNET, "unet")?,
            encoder: part(VAE_ENCODER, "vae")?,
            decoder: part(VAE_DECODER, "vae")?,
            texts,
        })
    }

    /// Checks that the networks fit together. Components of other pipelines have other widths.
    fn check_widths(&self, roles: &Roles, place: &Path) -> Result<()> {
        let mismatch = |what: &str, expected: usize, from: &str, found: usize| {
            let reason = format!(
                "the component unet takes {what} of width {expected}, and {from} gives {found}; are they of one \
                 pipeline, and in the folders of their names?"
            );
            Err(Error::input(place, reason))
        };
        let width = |tensor: &TensorSpec| tensor.channels().unwrap_or(0);
        let names = self.texts.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(" and ");
        for input in &self.unet.inputs {
            let Meaning::Embedding { from } = input.meaning else { continue };
            let outputs = roles.conditions.get(&input.name).map_or(&[][..], Vec::as_slice);
            let given = |output: &TextOutput| {
                let (_, contract, _) = self.texts.iter().find(|(name, ..)| *name == output.part)?;
                contract.output(&output.output).map(width)
            };
            let given: usize = outputs.iter().filter_map(given).sum();
            let what = if from == Embedding::Context { "texts" } else { "projected texts" };
            let parts = outputs.iter().map(|output| output.part.as_str()).collect::<Vec<_>>().join(" and ");
            if given != width(input) {
                return mismatch(what, width(input), if parts.is_empty() { &names } else { &parts }, given);
            }
        }
        let noisy = self.unet.inputs.iter().find_map(|input| match input.meaning {
            Meaning::NoisyLatent { latent, .. } => Some(latent),
            _ => None,
        });
        let decoded = self.decoder.inputs.first().map_or(0, width);
        let encoded = self.encoder.outputs.first().map_or(0, width) / 2;
        match noisy {
            Some(noisy) if noisy != decoded => mismatch("latents", noisy, "the component vae", decoded),
            Some(noisy) if noisy != encoded => mismatch("latents", noisy, "the component vae", encoded),
            _ => Ok(()),
        }
    }

    /// The number of tokens of a text: the most that every text encoder takes.
    fn tokens(&self) -> Option<usize> {
        let most = |contract: &Contract| contract.inputs.iter().find_map(|input| input.most_tokens());
        self.texts.iter().filter_map(|(_, contract, _)| most(contract)).min()
    }

    /// Pixels for each row and column of a latent picture.
    fn latent_pixels(&self) -> usize {
        let rows =
            |tensors: &[TensorSpec]| tensors.iter().find_map(|tensor| tensor.height()).map_or(1, |side| side.step);
        (rows(&self.decoder.outputs) / rows(&self.decoder.inputs).max(1)).max(1)
    }
}

/// The values of the index beside its components. The defaults are diffusers' own.
fn of_index(path: &Path) -> Result<Diffusion> {
    let index = read_object(path)?;
    let class = index.get("_class_name").and_then(Value::as_str);
    let class = class.ok_or_else(|| Error::input(path, "expected the pipeline's class as _class_name"))?;
    let setting = |name: &str, default: bool| match index.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(Error::input(path, format!("{name}: expected true or false, found {other}"))),
    };
    let is_xl = Family::of_class(class) == Family::StableDiffusionXl;
    Ok(Diffusion {
        class: class.to_owned(),
        force_zeros_for_empty_prompt: setting("force_zeros_for_empty_prompt", is_xl)?,
        requires_aesthetics_score: setting("requires_aesthetics_score", false)?,
        roles: None,
    })
}

/// The files of a tokenizer, which must have the vocabulary of the text encoder `text`.
fn of_tokenizer(
    tokenizer: &str,
    text: &str,
    contract: &Contract,
    place: &Path,
    find: Find<'_>,
) -> Result<BTreeMap<String, PathBuf>> {
    let named = TOKENIZER_FILES.map(|file| format!("{tokenizer}/{file}"));
    let files: BTreeMap<String, PathBuf> =
        named.into_iter().filter_map(|name| Some((name.clone(), find(&name)?))).collect();
    let path_of = |file: &str| files.get(&format!("{tokenizer}/{file}"));
    // The tokens of each vocabulary format that is present.
    let mut vocabularies = Vec::new();
    if let (Some(path), Some(_)) = (path_of("vocab.json"), path_of("merges.txt")) {
        let added = path_of("added_tokens.json").map(|path| read_object(path)).transpose()?.unwrap_or_default();
        let last = read_object(path)?.values().chain(added.values()).filter_map(Value::as_u64).max();
        vocabularies.push((path, last));
    }
    if let Some(path) = path_of("tokenizer.json") {
        let whole = read_object(path)?;
        let model = whole.get("model").and_then(|model| model.get("vocab")).and_then(Value::as_object);
        let added = whole.get("added_tokens").and_then(Value::as_array);
        let ids = model.into_iter().flat_map(Map::values);
        let added = added.into_iter().flatten().filter_map(|token| token.get("id"));
        vocabularies.push((path, ids.chain(added).filter_map(Value::as_u64).max()));
    }
    if vocabularies.is_empty() {
        let expected = format!("expected vocab.json and merges.txt, or tokenizer.json, in {tokenizer}");
        return Err(Error::input(place, format!("{expected}: the tokenizer of {text}")));
    }
    let vocabulary = contract.inputs.iter().find_map(|input| match input.meaning {
        Meaning::Tokens { vocabulary } => Some(vocabulary as u64),
        _ => None,
    });
    for (path, last) in vocabularies {
        let found = last.map_or(0, |last| last.saturating_add(1));
        if let Some(expected) = vocabulary.filter(|expected| *expected != found) {
            let reason = format!(
                "expected a vocabulary of {expected} tokens, as {text} has it, found one of {found}; is it the \
                 tokenizer of another model?"
            );
            return Err(Error::input(path, reason));
        }
    }
    Ok(files)
}

fn read_object(path: &Path) -> Result<Map<String, Value>> {
    let bytes = tileforge_files::read(path, TEXT_MAXIMUM_BYTES).map_err(|e| Error::file(path, "read", e))?;
    serde_json::from_slice(&bytes).map_err(|e| Error::input(path, format!("not a JSON object: {e}")))
}
