//! From calibration to the finished graphs of an engine.

use super::calibration::CalibrationSamples;
use super::islands::{outside_f16, touching};
use super::job::Job;
use super::quality::{Sensitivity, Trial};
use super::recipe::{self, Recipe, half, in_fp32};
use super::search;
use super::speed::{self, Rival, SPEED_OVER_FP16, SPEED_OVER_FP32};
use super::statistics::{Histograms, statistics};
use crate::samples::Sample;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tileforge_contract::{Meaning, Normalisation, Precision};
use tileforge_engine::manifest::Calibration;
use tileforge_files::{Digests, outputs};
use tileforge_graph::rewrite::{self, fold_weight_casts};
use tileforge_graph::{DataType, Model, WeightStorage};

/// The engine's graphs in its precision.
pub(crate) struct Converted {
    pub(crate) models: Vec<Model>,
    /// For 16 bits, the names of the nodes in FP32 because FP16 cannot hold their values; for INT8 and FP8, the names
    /// of the layers that were not quantised.
    pub(crate) islands: Vec<String>,
    pub(crate) calibration: Option<Calibration>,
    /// Calibration samples for further quality measurements; empty if no calibration was given.
    pub(crate) judged: Vec<Sample>,
    /// The quality cost of each layer, the most sensitive layer first.
    pub(crate) sensitivity: Vec<Sensitivity>,
    /// How the models were made; `chosen` has the layers in 8 bits.
    recipe: Recipe,
    chosen: BTreeSet<String>,
    /// The smallest graph before the conversion, and its file.
    smallest: (Model, PathBuf),
}

impl Converted {
    /// The layer that costs most quality, if the precision loses any: the first of the ranking, if there is one. Also
    /// `None` if the calibration budget is too small for the search.
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
        let halving = search::Halving::new(&self.recipe, model, &self.chosen)?;
        if halving.runs() > job.coverage.search_runs {
            return Ok(None);
        }
        halving.worst(&Trial::new(job, file, &self.judged, scratch)?)
    }

    /// The graphs in higher precisions that the engine's graph must not be slower than. They are made from the
    /// exported graph in `file` and written to `scratch`.
    ///
    /// # Errors
    /// A graph cannot be converted or written.
    pub(crate) fn rivals(&self, file: &Path, scratch: &Path) -> Result<Vec<Rival>> {
        let model = tileforge_graph::load(file)?;
        let fp32 = in_fp32(&model, self.recipe.provider)?;
        let mut models = vec![(SPEED_OVER_FP32, Precision::Fp32, fp32)];
        if self.recipe.precision == Precision::Int8 {
            models.push((SPEED_OVER_FP16, Precision::Fp16, self.in_fp16(&model)?));
        }
        speed::write_rivals(models, scratch)
    }

    /// An exported graph in FP16, with its nodes in FP32 where FP16 cannot hold their values.
    ///
    /// # Errors
    /// The graph cannot be converted.
    pub(crate) fn in_fp16(&self, model: &Model) -> Result<Model> {
        let outside = touching(model, &outside_f16(model, &self.recipe.statistics)?);
        half(model, DataType::F16, &outside)
    }
}

/// Converts the graphs of an engine. Calibration runs `smallest`, a graph of fixed shapes of the same network; `file`
/// holds its exported form.
///
/// In 8 bits, the layers that cost most quality fall back one after another until the profile's floor holds.
///
/// # Errors
/// There is nothing to calibrate on, a graph cannot be converted, or ONNX Runtime refuses it.
pub(crate) fn convert(
    job: &Job<'_>,
    models: &[&Model],
    (smallest, file): (&Model, &Path),
    scratch: &Path,
) -> Result<Converted> {
    let mut recipe = Recipe {
        precision: job.precision,
        provider: job.provider,
        range: job.options.range,
        statistics: Histograms::new(),
        outside: BTreeSet::new(),
    };
    let (mut calibration, mut judged, mut ranking) = (None, Vec::new(), Vec::new());
    if job.precision == Precision::Fp32 {
        let models = models.iter().map(|model| recipe.apply(model, &BTreeSet::new())).collect::<Result<_>>()?;
        let (islands, chosen, smallest) = (Vec::new(), BTreeSet::new(), (smallest.clone(), file.to_owned()));
        return Ok(Converted { models, islands, calibration, judged, sensitivity: ranking, recipe, chosen, smallest });
    }
    if job.precision.is_calibrated() {
        let samples = calibrate(job, smallest, file, &mut recipe)?;
        if job.options.calibration.is_some() {
            judged = evenly_chosen(&samples.samples, job.coverage.judged);
        }
        calibration = Some(Calibration {
            source: samples.source.into(),
            pictures: samples.pictures,
            tiles: samples.tiles,
            sha256: samples.sha256,
            range: (job.precision == Precision::Int8).then(|| job.options.range.to_string()),
        });
    }
    let has_f16 = match job.precision {
        Precision::Fp16 | Precision::Fp16Weights => true,
        // There, layers that are not in 8 bits are in FP16.
        Precision::Int8 | Precision::Fp8 => !job.provider.is_on_processor(),
        Precision::Fp32 | Precision::Bf16 | Precision::Int8Weights => false,
    };
    if has_f16 {
        recipe.outside = outside_f16(smallest, &recipe.statistics)?;
    }
    let all_layers = rewrite::layers(&fold_weight_casts(smallest)?);
    let mut chosen: BTreeSet<String> = match (recipe.scheme(), job.options.all_layers) {
        (None, _) => BTreeSet::new(),
        (Some(scheme), false) => recipe::default_layers(smallest, scheme, job.provider)?.into_iter().collect(),
        (Some(_), true) => all_layers.iter().cloned().collect(),
    };
    if recipe.is_8_bits() {
        if chosen.is_empty() {
            return Err(Error::input(file, format!("it has no inner layer that {} could be used for", job.precision)));
        }
        // On request, every layer is tried alone, whatever the budget is.
        let most = if job.options.sensitivity { usize::MAX } else { job.coverage.search_runs };
        let trial = Trial::new(job, file, &judged, scratch)?;
        chosen = search::fallen_back(&recipe, smallest, &trial, chosen, job.floors, most, &mut ranking)?;
    }
    if job.options.sensitivity && ranking.is_empty() {
        let trial = Trial::new(job, file, &judged, scratch)?;
        ranking = search::sensitivity(&recipe, smallest, &trial, &chosen, usize::MAX)?;
    }
    let models = models.iter().map(|model| recipe.apply(model, &chosen)).collect::<Result<_>>()?;
    let islands = if recipe.is_8_bits() {
        all_layers.into_iter().filter(|layer| !chosen.contains(layer)).collect()
    } else {
        let outside = touching(smallest, &recipe.outside);
        smallest.nodes.iter().map(|node| node.name.clone()).filter(|name| outside.contains(name)).collect()
    };
    let smallest = (smallest.clone(), file.to_owned());
    Ok(Converted { models, islands, calibration, judged, sensitivity: ranking, recipe, chosen, smallest })
}

/// Measures the activations of the model in `file` for a recipe. Returns the facts about the samples.
fn calibrate(job: &Job<'_>, model: &Model, file: &Path, recipe: &mut Recipe) -> Result<CalibrationSamples> {
    let (folder, count) = (job.options.calibration.as_deref(), job.options.calibration_tiles);
    let samples = CalibrationSamples::draw(folder, count, job.coverage.calibration_runs, model, job.contract)?;
    recipe.statistics = statistics(job, file, &samples)?;
    // The range of a picture is always from black to white, whatever the tiles show. With that range, the quantised
    // values are the levels of 8-bit pictures.
    for input in &job.contract.inputs {
        if let Meaning::Pixels { range, normalisation, .. } = &input.meaning {
            recipe.statistics.entry(input.name.clone()).or_default().add(&black_and_white(*range, *normalisation));
        }
    }
    Ok(samples)
}

/// The values of black and white in a tensor, for each channel.
fn black_and_white([low, high]: [f32; 2], normalisation: Option<Normalisation>) -> Vec<f32> {
    let Some(Normalisation { mean, deviation }) = normalisation else { return vec![low, high] };
    let levels = |(mean, deviation): (&f32, &f32)| [(low - mean) / deviation, (high - mean) / deviation];
    mean.iter().zip(&deviation).flat_map(levels).collect()
}

/// At most `most` samples, chosen evenly.
fn evenly_chosen(samples: &[Sample], most: usize) -> Vec<Sample> {
    let count = samples.len().min(most);
    (0..count).map(|part| samples[part * samples.len() / count].clone()).collect()
}

/// Converts the graph in a file to FP16 or BF16, with the nodes of `islands` in FP32; or converts its weights to INT8,
/// except the weights of the layers `islands`, and leaves activations unchanged. The graph is neither calibrated nor
/// measured. Weights are converted while they are written, whatever their size. Weights that need no conversion are
/// linked.
///
/// # Errors
/// The file is no graph, it has no node of such a name, the precision is not one of these, or a file cannot be written.
pub fn convert_graph(file: &Path, precision: Precision, islands: &BTreeSet<String>, output: &Path) -> Result<()> {
    outputs::check(&[output], &[file]).map_err(Error::Output)?;
    let model = tileforge_graph::load(file)?;
    let digests = Digests::default();
    tileforge_graph::check_weight_files(file, &digests)?;
    if let Some(unknown) = islands.iter().find(|name| !model.nodes.iter().any(|node| node.name == **name)) {
        return Err(Error::input(
            file,
            format!("it has no node `{unknown}`; nodes have the names that the graph's text or a viewer shows"),
        ));
    }
    let converted = match precision {
        Precision::Fp16 => half(&model, DataType::F16, islands)?,
        Precision::Bf16 => half(&model, DataType::Bf16, islands)?,
        Precision::Int8 => rewrite::quantise_weights(&model, islands)?,
        Precision::Fp32 | Precision::Fp8 | Precision::Fp16Weights | Precision::Int8Weights => {
            return Err(Error::input(
                file,
                format!("expected fp16, bf16 or int8, found {precision}: build an engine of it, which is calibrated"),
            ));
        }
    };
    tileforge_graph::save_with_progress(&converted, output, WeightStorage::Link, &digests, &mut |_| {})?;
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::{LAYERS, chain, names};
    use super::*;
    use crate::coverage::Coverage;
    use crate::{Floors, PrecisionOptions, Silent};
    use ndarray::ArrayD;
    use tileforge_contract::{Contract, Provider, Upscale};
    use tileforge_engine::testing;
    use tileforge_session::Environment;

    const FLOORS: Floors = Floors { psnr_db: 0.0, cosine: 0.0, speed: 0.0 };

    /// The conversion of [`chain`], and the data for further calls.
    pub(in super::super) struct Conversion {
        environment: Environment,
        contract: Contract,
        coverage: Coverage,
        options: PrecisionOptions,
        floors: Floors,
        pub(in super::super) model: Model,
        pub(in super::super) folder: tempfile::TempDir,
    }

    impl Conversion {
        pub(in super::super) fn new() -> Self {
            let upscale = Upscale { input: "image".into(), output: "upscaled".into(), ..testing::upscale(1, 2) };
            let folder = tempfile::tempdir().unwrap();
            let model = chain([0.3, -0.7, 0.05, 0.9], [0.1, -0.2]);
            tileforge_graph::save(&model, &folder.path().join("model.onnx"), WeightStorage::Inline).unwrap();
            Self {
                environment: crate::tests::environment(),
                contract: upscale.contract(),
                coverage: Coverage {
                    is_run: vec![true],
                    calibration_runs: 4,
                    judged: 2,
                    search_runs: 100,
                    left_out: None,
                },
                options: PrecisionOptions::default(),
                floors: FLOORS,
                model,
                folder,
            }
        }

        pub(in super::super) fn job(&self, precision: Precision, provider: Provider) -> Job<'_> {
            let Self { environment, contract, coverage, options, floors, .. } = self;
            Job {
                environment,
                progress: &Silent,
                precision,
                provider,
                contract,
                floors,
                options,
                coverage,
                own_kernels: false,
            }
        }

        /// Keeps the measured statistics in a separate cache folder.
        pub(in super::super) fn with_cache(mut self) -> Self {
            self.environment = self.environment.with_cache(self.folder.path().join("cache"));
            self
        }

        pub(in super::super) fn file(&self) -> PathBuf {
            self.folder.path().join("model.onnx")
        }

        pub(in super::super) fn recipe(&self, precision: Precision, provider: Provider) -> Recipe {
            self.convert(precision, provider).unwrap().recipe
        }

        fn convert(&self, precision: Precision, provider: Provider) -> Result<Converted> {
            let job = self.job(precision, provider);
            convert(&job, &[&self.model], (&self.model, &self.file()), self.folder.path())
        }
    }

    fn layers(ranking: &[Sensitivity]) -> BTreeSet<String> {
        ranking.iter().map(|layer| layer.layer.clone()).collect()
    }

    #[test]
    fn every_precision_measures_what_it_needs() {
        let conversion = Conversion::new();
        for (precision, provider, tiles, range) in [
            (Precision::Fp32, Provider::Cpu, None, None),
            (Precision::Bf16, Provider::TensorRt, None, None),
            (Precision::Fp16, Provider::TensorRt, Some(4), None),
            (Precision::Int8, Provider::Cpu, Some(4), Some("mse")),
            (Precision::Fp8, Provider::TensorRt, Some(4), None),
        ] {
            let made = conversion.convert(precision, provider).unwrap();
            let calibration = made.calibration.as_ref();
            assert_eq!(calibration.map(|calibration| calibration.tiles), tiles, "{precision}");
            assert_eq!(calibration.and_then(|calibration| calibration.range.as_deref()), range, "{precision}");
            assert!(made.sensitivity.is_empty() && made.judged.is_empty());
            assert_eq!(made.models.len(), 1);
            assert_eq!(made.models[0].nodes == conversion.model.nodes, precision == Precision::Fp32);
            // The image has every level, whatever the tiles show.
            let image = made.recipe.statistics.get("image").map(|histogram| [histogram.low, histogram.high]);
            assert_eq!(image, tiles.map(|_| [0.0, 1.0]), "{precision}");
            let islands: BTreeSet<String> = made.islands.iter().cloned().collect();
            let expected = match precision {
                Precision::Int8 => names(["leave"]),
                Precision::Fp8 => names(["enter", "leave"]),
                _ => BTreeSet::new(),
            };
            assert_eq!(islands, expected, "{precision}");
        }
    }

    #[test]
    fn all_layers_are_in_8_bits_on_request() {
        let mut conversion = Conversion::new();
        conversion.options.all_layers = true;
        for (precision, provider) in [(Precision::Int8, Provider::Cpu), (Precision::Fp8, Provider::TensorRt)] {
            let made = conversion.convert(precision, provider).unwrap();
            assert_eq!((made.islands, made.chosen), (Vec::new(), names(LAYERS)));
        }
    }

    #[test]
    fn values_that_fp16_cannot_hold_matter_where_fp16_is() {
        let mut conversion = Conversion::new();
        conversion.model = chain([3e5, 0.1, 0.2, 0.3], [0.0; 2]);
        tileforge_graph::save(&conversion.model, &conversion.file(), WeightStorage::Inline).unwrap();
        for (precision, provider, outside) in [
            (Precision::Fp16, Provider::Cpu, true),
            (Precision::Fp16, Provider::TensorRt, true),
            (Precision::Int8, Provider::TensorRt, true),
            (Precision::Int8, Provider::Cpu, false),
        ] {
            let made = conversion.convert(precision, provider).unwrap();
            assert_eq!(made.recipe.outside.contains("grow.weight"), outside, "{precision} for {provider}");
            let is_island = made.islands.contains(&"grow/Conv".to_owned());
            assert_eq!(is_island, precision == Precision::Fp16, "{precision} for {provider}");
        }
    }

    #[test]
    fn layers_are_ranked_on_request_and_fall_back_until_the_floor_holds() {
        let mut conversion = Conversion::new();
        conversion.options.sensitivity = true;
        let eight = (Precision::Int8, Provider::Cpu);
        let made = conversion.convert(eight.0, eight.1).unwrap();
        let chosen = names(["enter", "grow", "shrink"]);
        assert_eq!((layers(&made.sensitivity), &made.chosen), (chosen.clone(), &chosen));
        assert!(made.sensitivity.is_sorted_by(|a, b| a.psnr_db < b.psnr_db), "{:?}", made.sensitivity);
        assert!(made.sensitivity.iter().all(|layer| layer.together_with == 0 && layer.psnr_db > 20.0));
        let job = conversion.job(eight.0, eight.1);
        let worst = made.worst_layer(&job, conversion.folder.path()).unwrap().unwrap();
        assert_eq!(worst.layer, made.sensitivity[0].layer);
        // In 16 bits, all layers are ranked.
        let half = conversion.convert(Precision::Fp16, Provider::TensorRt).unwrap();
        assert_eq!(layers(&half.sensitivity), names(LAYERS));

        // Only the best layer reaches this floor alone.
        let best = made.sensitivity.last().unwrap();
        conversion.options.sensitivity = false;
        conversion.floors.psnr_db = best.psnr_db - 1e-6;
        let fallen = conversion.convert(eight.0, eight.1).unwrap();
        assert_eq!(fallen.chosen, BTreeSet::from([best.layer.clone()]));
        assert_eq!(fallen.islands.len(), LAYERS.len() - 1);
        // No layer reaches this floor.
        conversion.floors.psnr_db = 190.0;
        let refused = conversion.convert(eight.0, eight.1).map(drop).unwrap_err().to_string();
        assert!(refused.contains("no layer can be in int8 with a PSNR of at least 190.00 dB"), "{refused}");
        assert!(refused.contains(&made.sensitivity[0].to_string()), "{refused}");
    }

    #[test]
    fn the_worst_layer_is_searched_for_within_the_budget() {
        let mut conversion = Conversion::new();
        conversion.options.sensitivity = true;
        let eight = (Precision::Int8, Provider::Cpu);
        let ranked = conversion.convert(eight.0, eight.1).unwrap().sensitivity;
        conversion.options.sensitivity = false;
        let made = conversion.convert(eight.0, eight.1).unwrap();
        let worst = |conversion: &Conversion, made: &Converted, precision| {
            made.worst_layer(&conversion.job(precision, eight.1), conversion.folder.path()).unwrap()
        };
        let found = worst(&conversion, &made, eight.0).unwrap();
        // Halving measures layers together, so it may find another layer than the worst single one.
        assert!(ranked.iter().any(|layer| (&layer.layer, layer.psnr_db) == (&found.layer, found.psnr_db)));
        // Three layers take 6 runs.
        for (runs, is_found) in [(5, false), (6, true)] {
            conversion.coverage.search_runs = runs;
            assert_eq!(worst(&conversion, &made, eight.0).is_some(), is_found);
        }
        let exact = conversion.convert(Precision::Fp32, eight.1).unwrap();
        assert!(worst(&conversion, &exact, Precision::Fp32).is_none());
    }

    #[test]
    fn rivals_are_the_graph_in_more_bits() {
        let conversion = Conversion::new();
        let made = conversion.convert(Precision::Int8, Provider::Cpu).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let rivals = made.rivals(&conversion.file(), scratch.path()).unwrap();
        let holds = |file: &Path, data_type| {
            tileforge_graph::load(file).unwrap().weights.values().any(|weight| weight.data_type() == data_type)
        };
        let found: Vec<_> = rivals
            .iter()
            .map(|Rival { gate, path, .. }| (*gate, holds(path, DataType::F16), holds(path, DataType::F32)))
            .collect();
        assert_eq!(found, [("speed_over_fp32", false, true), ("speed_over_fp16", true, false)]);
        let made = conversion.convert(Precision::Bf16, Provider::OpenVino).unwrap();
        let rivals = made.rivals(&conversion.file(), scratch.path()).unwrap();
        assert_eq!(rivals.iter().map(|rival| rival.gate).collect::<Vec<_>>(), ["speed_over_fp32"]);
    }

    #[test]
    fn a_graph_is_converted_without_being_measured() {
        let conversion = Conversion::new();
        let output = conversion.folder.path().join("half.onnx");
        let convert = |precision, island: &str| {
            let islands = BTreeSet::from([island.to_owned()]);
            convert_graph(&conversion.file(), precision, &islands, &output).map_err(|error| error.to_string())
        };
        assert!(convert(Precision::Fp16, "other").unwrap_err().contains("it has no node `other`"));
        assert!(convert(Precision::Fp8, "grow/Conv").unwrap_err().contains("expected fp16, bf16 or int8, found fp8"));
        assert!(!output.exists());
        for (precision, data_type) in
            [(Precision::Fp16, DataType::F16), (Precision::Bf16, DataType::Bf16), (Precision::Int8, DataType::I8)]
        {
            convert(precision, "grow/Conv").unwrap();
            let made = tileforge_graph::load(&output).unwrap();
            let types: BTreeSet<_> = made.weights.values().map(|weight| weight.data_type()).collect();
            assert!(types.contains(&data_type) && types.contains(&DataType::F32), "{precision}: {types:?}");
            std::fs::remove_file(&output).unwrap();
        }
    }

    #[test]
    fn black_and_white_are_what_the_network_sees() {
        assert_eq!(black_and_white([-1.0, 1.0], None), [-1.0, 1.0]);
        let normalisation = Normalisation { mean: [0.5, 0.25, 0.0], deviation: [0.5, 0.25, 2.0] };
        assert_eq!(black_and_white([0.0, 1.0], Some(normalisation)), [-1.0, 1.0, -1.0, 3.0, 0.0, 0.5]);
        assert_eq!(black_and_white([1.0, 2.0], Some(normalisation)), [1.0, 3.0, 3.0, 7.0, 0.5, 1.0]);
    }

    #[test]
    fn samples_are_chosen_evenly() {
        let sample = |number: usize| vec![("x".to_owned(), ArrayD::from_elem(vec![1], number as f32).into())];
        let samples: Vec<Sample> = (0..10).map(sample).collect();
        let chosen = |most: usize| -> Vec<f32> {
            let chosen = evenly_chosen(&samples, most);
            chosen.iter().map(|sample| sample[0].1.as_f32().unwrap()[[0]]).collect()
        };
        assert_eq!((chosen(0), chosen(4)), (vec![], vec![0.0, 2.0, 5.0, 7.0]));
        assert_eq!(chosen(20), (0..10).map(|number| number as f32).collect::<Vec<_>>());
    }
}
