//! What an engine computes in: passes over its graphs, never flags of whoever builds or runs them.
//!
//! | module | holds |
//! |---|---|
//! | `half` | FP16 and BF16, with islands of FP32 |
//! | `islands` | which nodes FP16 cannot hold, from calibration |
//! | `quantised` | INT8 and FP8 by QuantizeLinear and DequantizeLinear |
//! | `weights` | weights in 8 bits, alone or as a part of the above |
//! | `calibration`, `histogram`, `range` | tiles of images, what activations look like on them, and the range that 8 bits cover |
//! | `prelu`, `repeated` | forms that ONNX Runtime's CPU kernels are faster at |
//! | `quality` | how far a graph is from its reference, and what each layer has to do with it |

mod calibration;
mod half;
mod histogram;
mod islands;
mod prelu;
mod quality;
mod quantised;
mod range;
mod repeated;
mod rewrite;
mod segments;
#[cfg(test)]
mod tests;
mod weights;

pub use quality::Sensitivity;
use quality::psnr_db;
pub(crate) use quality::{Trial, emulation, speed_ratios};
pub use range::RangeMethod;

use crate::samples::{Purpose, Sample};
use crate::{Error, Floors, Measurement, Result};
use calibration::{CalibrationSamples, Statistics};
use quantised::Scheme;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tileforge_graph::{DataType, Model};
use tileforge_runtime::engine::manifest::{Calibration, Precision};
use tileforge_runtime::provider::Provider;

/// How an engine is converted to its precision.
#[derive(Debug, Clone)]
pub struct PrecisionOptions {
    /// A folder of pictures like those that the engine will see; `None` for the built-in test image.
    pub calibration: Option<PathBuf>,
    /// Tiles that are drawn from them.
    pub calibration_tiles: usize,
    /// How the range of an activation is chosen for INT8.
    pub range: RangeMethod,
    /// Whether the first and the last layer are quantised as well.
    pub all_layers: bool,
    /// Whether every layer is tried alone, for [`Sensitivity`].
    pub sensitivity: bool,
}

impl Default for PrecisionOptions {
    fn default() -> Self {
        PrecisionOptions {
            calibration: None,
            calibration_tiles: 32,
            range: RangeMethod::default(),
            all_layers: false,
            sensitivity: false,
        }
    }
}

/// Samples of the calibration that quality is judged on, evenly of all: each of them is run once for every graph that
/// is tried.
const JUDGED: usize = 4;

impl PrecisionOptions {
    /// That a precision uses what was asked for, and that there is something to calibrate on.
    ///
    /// # Errors
    /// [`Error::Usage`] for what would have no effect; [`Error::File`] if the folder cannot be listed.
    pub(crate) fn check(&self, precision: Precision) -> Result<()> {
        if let Some(folder) = &self.calibration {
            folder.read_dir().map_err(|e| Error::file(folder, "list", e))?;
        }
        let measures = matches!(precision, Precision::Fp16 | Precision::Int8 | Precision::Fp8);
        let in_8_bits = matches!(precision, Precision::Int8 | Precision::Fp8);
        for (option, given, used, users) in [
            ("--calibration", self.calibration.is_some(), measures, "fp16, int8 or fp8"),
            ("--all-layers", self.all_layers, in_8_bits, "int8 or fp8"),
            ("--sensitivity", self.sensitivity, precision != Precision::Fp32, "fp16, bf16, int8 or fp8"),
        ] {
            if given && !used {
                return Err(Error::Usage(format!(
                    "{option} says nothing about an engine in {precision}: leave it out, or build {users}"
                )));
            }
        }
        Ok(())
    }
}

/// What a conversion needs to know.
pub(crate) struct Job<'a> {
    pub(crate) precision: Precision,
    pub(crate) provider: Provider,
    pub(crate) purpose: &'a Purpose,
    pub(crate) floors: &'a Floors,
    pub(crate) options: &'a PrecisionOptions,
}

/// The engine's graphs in its precision.
pub(crate) struct Converted {
    pub(crate) models: Vec<Model>,
    /// Names of the nodes that compute in FP32 (of INT8 and FP8: the layers that were not quantised).
    pub(crate) islands: Vec<String>,
    pub(crate) calibration: Option<Calibration>,
    /// Some of what activations were measured on, if that was given: quality is judged on it, too.
    pub(crate) judged: Vec<Sample>,
    /// The most sensitive layer first.
    pub(crate) sensitivity: Vec<Sensitivity>,
    /// How they were made, and the layers that are in 8 bits.
    recipe: Recipe,
    chosen: BTreeSet<String>,
    /// The smallest graph before, and its file.
    smallest: (Model, PathBuf),
}

impl Converted {
    /// The layer that costs most quality, if the engine's precision costs any: the first of the ranking, or what
    /// halving the suspects leads to, which takes a few runs where a ranking of hundreds takes as many.
    ///
    /// # Errors
    /// ONNX Runtime refuses a graph, or a file cannot be written.
    pub(crate) fn worst_layer(&self, job: &Job<'_>, scratch: &Path) -> Result<Option<Sensitivity>> {
        if job.precision == Precision::Fp32 {
            return Ok(None);
        }
        if let Some(worst) = self.sensitivity.first() {
            return Ok(Some(worst.clone()));
        }
        let (model, file) = &self.smallest;
        let trial = Trial::new(job, file, &self.judged, scratch)?;
        let plain = rewrite::with_plain_weights(model)?;
        let measured = |suspects: &[String]| self.recipe.measured(&plain, suspects, &trial);
        let mut suspects = self.recipe.layers(&plain, &self.chosen);
        while suspects.len() > 1 {
            let (one, other) = suspects.split_at(suspects.len() / 2);
            suspects = if measured(one)? <= measured(other)? { one } else { other }.to_vec();
        }
        let worst = suspects
            .pop()
            .map(|layer| Ok::<_, Error>(Sensitivity { psnr_db: measured(std::slice::from_ref(&layer))?, layer }));
        worst.transpose()
    }

    /// Graphs in more bits of the one in `file`, which one in 8 bits should be no slower than, with the names of their
    /// gates; written to `scratch`.
    ///
    /// # Errors
    /// A graph cannot be converted or written.
    pub(crate) fn rivals(&self, file: &Path, scratch: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
        let model = tileforge_graph::load(file)?;
        let outside = islands::touching(&model, &islands::outside_f16(&model, &self.recipe.statistics)?);
        let models = [
            ("speed_over_fp32", for_cpu(&model)?),
            ("speed_over_fp16", half::to_half(&model, DataType::F16, &outside)?),
        ];
        let paths = models.each_ref().map(|(name, _)| (*name, scratch.join(name).with_extension("onnx")));
        let pairs: Vec<(&Model, &Path)> =
            models.iter().zip(&paths).map(|((_, model), (_, path))| (model, path.as_path())).collect();
        tileforge_graph::save_sharing_weights(&pairs, &scratch.join("rivals.weights"))?;
        Ok(paths.to_vec())
    }
}

/// A precision together with what calibration found: makes the graph of any tile.
struct Recipe {
    precision: Precision,
    provider: Provider,
    range: RangeMethod,
    statistics: Statistics,
    /// Values that FP16 cannot hold.
    outside: BTreeSet<String>,
}

impl Recipe {
    /// The model with the named nodes in FP32, besides those whose values FP16 cannot hold; or with the named layers in
    /// 8 bits.
    fn apply(&self, model: &Model, names: &BTreeSet<String>) -> Result<Model> {
        let scheme = match (self.scheme(), self.precision, self.provider) {
            (Some(scheme), ..) => scheme,
            (None, Precision::Fp16, _) => {
                return half::to_half(model, DataType::F16, &(names | &islands::touching(model, &self.outside)));
            }
            (None, Precision::Bf16, _) => return half::to_half(model, DataType::Bf16, names),
            (None, _, Provider::Cpu) => return for_cpu(model),
            (None, ..) => return Ok(model.clone()),
        };
        let islands = islands::touching(model, &self.outside);
        let quantised = quantised::quantised(model, scheme, names, &islands, &self.statistics, self.range)?;
        match self.provider {
            Provider::Cpu => for_cpu(&quantised),
            // Whatever is not in 8 bits is in 16, which is what such a GPU is fast at. Of a layer whose input FP16
            // cannot hold, that input is now read by the QuantizeLinear before it.
            _ => {
                let islands = &islands | &islands::touching(&quantised, &self.outside);
                half::to_half(&quantised, DataType::F16, &islands)
            }
        }
    }

    /// How 8 bits are used, of the precisions that do.
    fn scheme(&self) -> Option<Scheme> {
        match (self.precision, self.provider) {
            (Precision::Int8, Provider::Cpu) => Some(Scheme::Cpu),
            (Precision::Int8, _) => Some(Scheme::TensorRt),
            (Precision::Fp8, _) => Some(Scheme::Fp8),
            (Precision::Fp32 | Precision::Fp16 | Precision::Bf16, _) => None,
        }
    }

    fn is_8_bits(&self) -> bool {
        self.scheme().is_some()
    }

    /// The layers that can be in the low precision; of 8 bits, those that are `chosen`.
    fn layers(&self, plain: &Model, chosen: &BTreeSet<String>) -> Vec<String> {
        rewrite::layers(plain).into_iter().filter(|layer| !self.is_8_bits() || chosen.contains(layer)).collect()
    }

    /// The model with these layers alone in the low precision.
    fn only(&self, plain: &Model, layers: &[String]) -> Result<Model> {
        let layers = layers.iter().cloned().collect();
        self.apply(plain, &if self.is_8_bits() { layers } else { rewrite::all_but(plain, &layers) })
    }

    /// The PSNR of [`Recipe::only`].
    fn measured(&self, plain: &Model, layers: &[String], trial: &Trial<'_>) -> Result<f64> {
        Ok(psnr_db(&trial.measure(&self.only(plain, layers)?)?))
    }
}

/// What computes in FP32 in the forms that ONNX Runtime's CPU kernels are fastest at; of other processors', none are
/// known to gain.
fn for_cpu(model: &Model) -> Result<Model> {
    let plain = rewrite::with_plain_weights(model)?;
    let faster = repeated::as_convolutions(&prelu::blocked(&plain)?)?;
    // Where nothing is gained, half-precision weights stay as they are stored.
    Ok(if faster.nodes == plain.nodes { model.clone() } else { faster })
}

/// Converts the graphs of an engine, the smallest first, which calibration runs on. `files` hold them as they were
/// exported.
///
/// In 8 bits, the layers that cost most quality fall back one after another until the profile's floor holds.
///
/// # Errors
/// There are no pictures to calibrate on, a graph cannot be converted, or ONNX Runtime refuses it.
pub(crate) fn convert(job: &Job<'_>, models: &[Model], files: &[PathBuf], scratch: &Path) -> Result<Converted> {
    let (Some(smallest), Some(file)) = (models.first(), files.first()) else {
        return Err(Error::input(scratch, "expected at least one graph"));
    };
    let mut recipe = Recipe {
        precision: job.precision,
        provider: job.provider,
        range: job.options.range,
        statistics: Statistics::new(),
        outside: BTreeSet::new(),
    };
    let (mut calibration, mut judged, mut ranking) = (None, Vec::new(), Vec::new());
    if job.precision == Precision::Fp32 {
        let models = models.iter().map(|model| recipe.apply(model, &BTreeSet::new())).collect::<Result<_>>()?;
        let (islands, chosen, smallest) = (Vec::new(), BTreeSet::new(), (smallest.clone(), file.clone()));
        return Ok(Converted { models, islands, calibration, judged, sensitivity: ranking, recipe, chosen, smallest });
    }
    if job.precision != Precision::Bf16 {
        let options = job.options;
        let samples =
            CalibrationSamples::draw(options.calibration.as_deref(), options.calibration_tiles, smallest, job.purpose)?;
        recipe.statistics = calibration::statistics(smallest, file, &samples)?;
        // Whatever the tiles show, pictures reach from black to white; and the codes of the whole range are the levels
        // of 8-bit pictures.
        if let Some(interface) = job.purpose.images() {
            recipe.statistics.entry(interface.input.clone()).or_default().add(&interface.range);
        }
        if job.precision == Precision::Fp16 || job.provider != Provider::Cpu {
            recipe.outside = islands::outside_f16(smallest, &recipe.statistics)?;
        }
        if options.calibration.is_some() {
            let count = samples.samples.len();
            judged =
                (0..count.min(JUDGED)).map(|part| samples.samples[part * count / count.min(JUDGED)].clone()).collect();
        }
        calibration = Some(Calibration {
            source: samples.source.into(),
            pictures: samples.pictures,
            tiles: samples.tiles,
            sha256: samples.sha256,
            range: (job.precision == Precision::Int8).then(|| job.options.range.to_string()),
        });
    }
    let mut chosen: BTreeSet<String> = match (recipe.scheme(), job.options.all_layers) {
        (None, _) => BTreeSet::new(),
        (Some(scheme), false) => quantised::default_layers(smallest, scheme)?.into_iter().collect(),
        (Some(_), true) => rewrite::layers(&rewrite::with_plain_weights(smallest)?).into_iter().collect(),
    };
    let trial = Trial::new(job, file, &judged, scratch)?;
    if recipe.is_8_bits() {
        if chosen.is_empty() {
            return Err(Error::input(file, format!("it has no inner layer that {} could be used for", job.precision)));
        }
        chosen = fallen_back(&recipe, smallest, &trial, chosen, job.floors, &mut ranking)?;
    }
    if job.options.sensitivity && ranking.is_empty() {
        ranking = sensitivity(&recipe, smallest, &trial, &chosen)?;
    }
    let models = models.iter().map(|model| recipe.apply(model, &chosen)).collect::<Result<_>>()?;
    let islands = if recipe.is_8_bits() {
        let layers = rewrite::layers(&rewrite::with_plain_weights(smallest)?);
        layers.into_iter().filter(|layer| !chosen.contains(layer)).collect()
    } else {
        let outside = islands::touching(smallest, &recipe.outside);
        smallest.nodes.iter().map(|node| node.name.clone()).filter(|name| outside.contains(name)).collect()
    };
    let smallest = (smallest.clone(), file.clone());
    Ok(Converted { models, islands, calibration, judged, sensitivity: ranking, recipe, chosen, smallest })
}

/// Writes the graph in a file in FP16 or BF16, with the nodes of `islands` in FP32; or with the weights of its layers
/// in INT8, but for those of `islands`, and activations as they are. Nothing more: it is neither calibrated nor
/// measured. Weights are converted while they are written, whatever their size; those that need no conversion are
/// linked.
///
/// # Errors
/// The file is no graph, it has no node of such a name, another precision is asked for, or a file cannot be written.
pub fn convert_graph(file: &Path, precision: Precision, islands: &BTreeSet<String>, output: &Path) -> Result<()> {
    let model = tileforge_graph::load(file)?;
    if let Some(unknown) = islands.iter().find(|name| !model.nodes.iter().any(|node| node.name == **name)) {
        return Err(Error::input(
            file,
            format!("it has no node `{unknown}`; nodes have the names that the graph's text or a viewer shows"),
        ));
    }
    let converted = match precision {
        Precision::Fp16 => half::to_half(&model, DataType::F16, islands)?,
        Precision::Bf16 => half::to_half(&model, DataType::Bf16, islands)?,
        Precision::Int8 => weights::weights_only(&model, islands)?,
        Precision::Fp32 | Precision::Fp8 => {
            return Err(Error::input(
                file,
                format!("expected fp16, bf16 or int8, found {precision}: build an engine of it, which is calibrated"),
            ));
        }
    };
    tileforge_graph::save(&converted, output, tileforge_graph::WeightStorage::Link)?;
    Ok(())
}

/// The largest choice of layers that reaches the floor, when the most sensitive ones are left out first.
fn fallen_back(
    recipe: &Recipe,
    model: &Model,
    trial: &Trial<'_>,
    chosen: BTreeSet<String>,
    floors: &Floors,
    ranking: &mut Vec<Sensitivity>,
) -> Result<BTreeSet<String>> {
    let reaches =
        |chosen: &BTreeSet<String>| Ok::<_, Error>(trial.measure(&recipe.apply(model, chosen)?)?.reaches(floors));
    if reaches(&chosen)? {
        return Ok(chosen);
    }
    *ranking = sensitivity(recipe, model, trial, &chosen)?;
    let without =
        |count: usize| -> BTreeSet<String> { ranking.iter().skip(count).map(|layer| layer.layer.clone()).collect() };
    // Leaving more out gives more quality, near enough; whether the end does is what the gate checks.
    let (mut fails, mut holds) = (0, ranking.len());
    while holds - fails > 1 {
        let middle = usize::midpoint(fails, holds);
        if reaches(&without(middle))? { holds = middle } else { fails = middle }
    }
    let left = without(holds);
    if left.is_empty() {
        let worst = ranking.first().map_or(String::new(), |layer| format!("; {layer}"));
        let Floors { psnr_db, cosine, .. } = floors;
        let found = format!(
            "  no layer can be in {} with a PSNR of at least {psnr_db:.2} dB and a cosine of {cosine}{worst}",
            recipe.precision
        );
        return Err(Error::Gate(found));
    }
    Ok(left)
}

/// Graphs that are held at a time, each of which describes the whole model.
const AT_ONCE: usize = 16;

/// Every layer alone in the low precision, the one that costs most first. Of 16 bits, `chosen` is not looked at.
fn sensitivity(
    recipe: &Recipe,
    model: &Model,
    trial: &Trial<'_>,
    chosen: &BTreeSet<String>,
) -> Result<Vec<Sensitivity>> {
    let plain = rewrite::with_plain_weights(model)?;
    let mut ranking = Vec::new();
    for layers in recipe.layers(&plain, chosen).chunks(AT_ONCE) {
        let models =
            layers.iter().map(|layer| recipe.only(&plain, std::slice::from_ref(layer))).collect::<Result<Vec<_>>>()?;
        let measured = trial.measure_all(&models)?;
        let one = |(layer, measured): (&String, &Measurement)| Sensitivity {
            layer: layer.clone(),
            psnr_db: psnr_db(measured),
        };
        ranking.extend(layers.iter().zip(&measured).map(one));
    }
    ranking.sort_by(|a, b| a.psnr_db.total_cmp(&b.psnr_db));
    Ok(ranking)
}
