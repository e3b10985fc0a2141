//! The error of a graph's outputs against its reference.

use super::Job;
use crate::gate::{EXACT_DB, Measurement};
use crate::rtx;
use crate::samples::{self, Sample, views};
use crate::{Error, Result};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tileforge_contract::Provider;
use tileforge_exporter::Noise;
use tileforge_graph::rewrite::rounding_to;
use tileforge_graph::{DataType, Model};
use tileforge_session::{Cancel, Environment, OptimisationLevel, Session, SessionOptions, Tensor};

/// The quality cost of one layer: the quality of the whole graph with only this layer in the low precision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The layer's node.
    pub layer: String,
    /// The number of other layers in the low precision in the same run: the calibration budget has no run for each
    /// layer.
    #[serde(skip_serializing_if = "is_none")]
    pub together_with: usize,
    /// Peak signal-to-noise ratio against the FP32 reference in dB; 0 if the output has an infinite value or NaN.
    pub psnr_db: f64,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// The PSNR of a measurement in the form that [`Sensitivity`] uses.
pub(super) fn psnr_db(measured: &Measurement) -> f64 {
    if measured.finite { measured.psnr_db.min(EXACT_DB) } else { 0.0 }
}

impl fmt::Display for Sensitivity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.together_with {
            0 => write!(formatter, "{} alone gives {:.2} dB", self.layer, self.psnr_db),
            others => write!(formatter, "{} with {others} others gives {:.2} dB", self.layer, self.psnr_db),
        }
    }
}

/// Samples with the outputs of a reference graph, to compare other graphs with.
pub(crate) struct Trial<'a> {
    environment: &'a Environment,
    provider: Provider,
    /// The session options for the engine's graphs.
    options: SessionOptions,
    scratch: &'a Path,
    /// Whether the reference makes choices by comparing values. Then rounding may change its choices.
    pub(crate) chooses: bool,
    /// The built-in sample, which the self-test uses as well.
    known: Judged,
    /// Calibration samples.
    others: Vec<Judged>,
}

/// A sample with the reference's outputs.
struct Judged {
    sample: Sample,
    reference: Sample,
}

/// The results of runs of a graph.
pub(crate) struct Ran {
    pub(crate) measurement: Measurement,
    /// The outputs for the built-in sample.
    pub(crate) outputs: Sample,
    /// Memory that the runs took, where ONNX Runtime reports it.
    pub(crate) peak_bytes: Option<u64>,
    /// What our kernels hold beside that.
    pub(crate) kernels_bytes: u64,
}

impl<'a> Trial<'a> {
    /// Runs the exported graph in `file`, operator by operator without any optimisation, on the built-in sample and on
    /// the samples in `others` of the same shapes.
    pub(crate) fn new(job: &Job<'a>, file: &Path, others: &[Sample], scratch: &'a Path) -> Result<Self> {
        Self::with_progress(job, file, others, scratch, &|| {})
    }

    /// As [`Trial::new`]; `ran` is called after each run.
    pub(crate) fn with_progress(
        job: &Job<'a>,
        file: &Path,
        others: &[Sample],
        scratch: &'a Path,
        ran: &dyn Fn(),
    ) -> Result<Self> {
        let mut session = Session::open(job.environment, file, &reference_options())?;
        let mut judged = |sample: Sample| {
            let reference = session.run(&views(&sample), &Cancel::new())?;
            ran();
            Ok::<_, Error>(Judged { sample, reference })
        };
        let model = tileforge_graph::load(file)?;
        let known = judged(samples::sample(job.contract, &model, 0)?)?;
        let fit = |other: &&Sample| {
            known.sample.iter().map(|(_, values)| values.shape()).eq(other.iter().map(|(_, values)| values.shape()))
        };
        let others = others.iter().filter(fit).map(|other| judged(other.clone())).collect::<Result<_>>()?;
        let (environment, provider, options) = (job.environment, job.provider, job.session_options());
        Ok(Trial { environment, provider, options, scratch, chooses: chooses(&model), known, others })
    }

    /// The built-in sample.
    pub(crate) fn sample(&self) -> &Sample {
        &self.known.sample
    }

    /// The reference's outputs for the built-in sample.
    pub(crate) fn reference(&self) -> &Sample {
        &self.known.reference
    }

    /// Measures the graph in a file on all samples. For several outputs, the worst figures count. `ran` is called
    /// after each run.
    pub(crate) fn measure_file(&self, file: &Path, ran: &dyn Fn()) -> Result<Ran> {
        let mut session = Session::open(self.environment, file, &self.options)?;
        let judged: Vec<&Judged> = [&self.known].into_iter().chain(&self.others).collect();
        let run = |judged: &&Judged| {
            let outputs = session.run(&views(&judged.sample), &Cancel::new())?;
            ran();
            Ok(outputs)
        };
        let mut outputs = judged.iter().map(run).collect::<Result<Vec<Sample>>>()?;
        let (peak_bytes, kernels_bytes) = (session.peak_bytes(), session.kernels_bytes());
        // The session is closed first: the weights of a large network need the memory.
        drop(session);
        let measurement = self.compared(file, &judged, &outputs)?;
        Ok(Ran { measurement, outputs: outputs.swap_remove(0), peak_bytes, kernels_bytes })
    }

    /// Compares the reference in `file` with itself after each number of the built-in sample moves to the next number
    /// up or down. The worst of `samples` such changes counts. `None` if the sample has no FP32 numbers.
    ///
    /// A network that makes choices, for example the most similar of several categories, has near ties, which rounding
    /// decides. Other networks amplify rounding from layer to layer. No graph for another processor can be closer than
    /// this.
    pub(crate) fn amplification(&self, file: &Path, samples: u64) -> Result<Option<Measurement>> {
        if !self.known.sample.iter().any(|(_, tensor)| matches!(tensor, Tensor::F32(_))) {
            return Ok(None);
        }
        let mut session = Session::open(self.environment, file, &reference_options())?;
        let each = (1..=samples).map(|seed| {
            let outputs = session.run(&views(&nudged(&self.known.sample, seed)), &Cancel::new())?;
            self.compared(file, &[&self.known], &[outputs])
        });
        Ok(Measurement::worst(each.collect::<Result<Vec<_>>>()?))
    }

    /// Compares the outputs of the graph in `file` for these samples with the reference's outputs. For several
    /// outputs, the worst figures count.
    fn compared(&self, file: &Path, judged: &[&Judged], outputs: &[Sample]) -> Result<Measurement> {
        let mut measured = Vec::new();
        for (position, (name, _)) in self.known.reference.iter().enumerate() {
            let mut pairs = Vec::with_capacity(judged.len());
            for (judged, outputs) in judged.iter().zip(outputs) {
                let reference = &judged.reference[position].1;
                let found =
                    outputs.iter().find(|(output, values)| output == name && values.shape() == reference.shape());
                let missing = || Error::input(file, format!("it gives no output `{name}` of {:?}", reference.shape()));
                pairs.push((found.ok_or_else(missing)?.1.as_f32()?, reference.as_f32()?));
            }
            measured.push(Measurement::of_all(&pairs));
        }
        Measurement::worst(measured).ok_or_else(|| Error::input(file, "it gives no output"))
    }

    pub(super) fn measure(&self, model: &Model) -> Result<Measurement> {
        let measured = self.measure_all(std::slice::from_ref(model))?;
        measured.into_iter().next().ok_or_else(|| Error::input(self.scratch, "nothing was measured"))
    }

    /// Measures several graphs of one model, which share their weights on disk. If a graph has an [`emulation`], the
    /// emulation is measured instead.
    pub(super) fn measure_all(&self, models: &[Model]) -> Result<Vec<Measurement>> {
        let folder = tempfile::Builder::new()
            .prefix("trial-")
            .tempdir_in(self.scratch)
            .map_err(|e| Error::file(self.scratch, "write to", e))?;
        let models = models
            .iter()
            .map(|model| Ok(emulation(model, self.provider)?.unwrap_or_else(|| model.clone())))
            .collect::<Result<Vec<_>>>()?;
        let paths: Vec<PathBuf> =
            (0..models.len()).map(|number| folder.path().join(format!("{number}.onnx"))).collect();
        let pairs: Vec<(&Model, &Path)> = models.iter().zip(paths.iter().map(PathBuf::as_path)).collect();
        tileforge_graph::save_sharing_weights(&pairs, &folder.path().join("weights"))?;
        paths.iter().map(|path| Ok(self.measure_file(path, &|| {})?.measurement)).collect()
    }
}

/// The session options of a reference: operator by operator, without any optimisation.
fn reference_options() -> SessionOptions {
    SessionOptions { optimisation: OptimisationLevel::Disabled, ..SessionOptions::default() }
}

/// The sample with each FP32 number one unit in its last place higher or lower.
fn nudged(sample: &Sample, seed: u64) -> Sample {
    let mut noise = Noise::new(seed);
    let mut nudge = |value: f32| if noise.next_signed() < 0.0 { value.next_down() } else { value.next_up() };
    let each = sample.iter().map(|(name, tensor)| {
        let tensor = match tensor {
            Tensor::F32(values) => Tensor::F32(values.mapv(&mut nudge)),
            other => other.clone(),
        };
        (name.clone(), tensor)
    });
    each.collect()
}

fn chooses(model: &Model) -> bool {
    model.nodes.iter().any(|node| matches!(node.operator.as_str(), "ArgMax" | "ArgMin" | "TopK"))
}

/// An FP32 graph that rounds as `model` does on its target; `None` if `model` itself rounds in the same way here.
///
/// ONNX Runtime's CPU kernels do not compute in BF16. They run FP16 graphs in FP32 from end to end, without rounding
/// activations. This is correct for CPU engines, but not for GPU engines.
pub(crate) fn emulation(model: &Model, provider: Provider) -> Result<Option<Model>> {
    let holds = |data_type| model.types.values().any(|ty| ty.data_type == data_type);
    let half = match (holds(DataType::Bf16), holds(DataType::F16) && !provider.is_on_processor()) {
        (true, _) => DataType::Bf16,
        (_, true) => DataType::F16,
        _ => return Ok(None),
    };
    if provider != Provider::TensorRtRtx {
        return Ok(Some(rounding_to(model, half)?));
    }
    // A plan rounds where the plan's form of the graph rounds.
    let mut form = model.clone();
    rtx::prepare(&mut form)?;
    Ok(Some(rounding_to(&form, half)?))
}

#[cfg(test)]
mod tests {
    use super::super::convert::tests::Conversion;
    use super::*;
    use tileforge_contract::Precision;
    use tileforge_graph::{TensorType, Trace, WeightStorage};

    #[test]
    fn a_sensitivity_says_with_how_many_others_it_was_measured() {
        let alone = Sensitivity { layer: "grow/Conv".into(), together_with: 0, psnr_db: 31.256 };
        assert_eq!(alone.to_string(), "grow/Conv alone gives 31.26 dB");
        assert_eq!(serde_json::to_value(&alone).unwrap().get("together_with"), None);
        let shared = Sensitivity { together_with: 3, ..alone };
        assert_eq!(shared.to_string(), "grow/Conv with 3 others gives 31.26 dB");
        assert_eq!(serde_json::to_value(&shared).unwrap()["together_with"], 3);
    }

    #[test]
    fn a_trial_compares_outputs_of_the_same_name_and_shape() {
        let conversion = Conversion::new();
        let job = conversion.job(Precision::Fp32, Provider::Cpu);
        let trial = Trial::new(&job, &conversion.file(), &[], conversion.folder.path()).unwrap();
        assert_eq!((trial.sample()[0].0.as_str(), trial.reference()[0].0.as_str()), ("image", "upscaled"));
        let Ran { measurement: same, outputs, .. } = trial.measure_file(&conversion.file(), &|| ()).unwrap();
        assert!(same.finite && same.psnr_db > 100.0, "{same:?}");
        assert_eq!(outputs[0].1.shape(), trial.reference()[0].1.shape());

        let shape: Vec<usize> = outputs[0].1.shape().to_vec();
        let other = |output: &str, flat: bool| {
            let trace = Trace::new("other", 9, 20);
            let image = trace.input("image", TensorType::new(DataType::F32, shape.iter().copied()));
            let made = image.relu();
            trace.output(output, &if flat { made.reshape(&[-1]) } else { made });
            let path = conversion.folder.path().join("other.onnx");
            tileforge_graph::save(&trace.finish().unwrap(), &path, WeightStorage::Inline).unwrap();
            trial.measure_file(&path, &|| ()).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(other("upscaled", false), Ok(()));
        for error in [other("smaller", false), other("upscaled", true)] {
            let error = error.unwrap_err();
            assert!(error.contains(&format!("it gives no output `upscaled` of {shape:?}")), "{error}");
        }
    }

    #[test]
    fn the_amplification_is_what_a_changed_last_place_does() {
        let conversion = Conversion::new();
        let job = conversion.job(Precision::Fp32, Provider::Cpu);
        let path = conversion.folder.path().join("amplifies.onnx");
        let amplified = |factor: f32| {
            let trace = Trace::new("amplifies", 9, 20);
            let image = trace.input("image", TensorType::new(DataType::F32, [1, 3, 8, 8]));
            trace.output("upscaled", &trace.node("Sin", &[&image.scale(factor)], []));
            let model = trace.finish().unwrap();
            assert!(!chooses(&model));
            tileforge_graph::save(&model, &path, WeightStorage::Inline).unwrap();
            let trial = Trial::new(&job, &path, &[], conversion.folder.path()).unwrap();
            trial.amplification(&path, 4).unwrap().unwrap()
        };
        let (smooth, steep) = (amplified(1.0), amplified(1e7));
        assert!(smooth.psnr_db > 120.0 && smooth.psnr_db < EXACT_DB, "{smooth:?}");
        assert!(steep.finite && steep.psnr_db < 30.0, "{steep:?}");
    }

    #[test]
    fn the_greatest_of_several_is_a_choice() {
        let trace = Trace::new("chooses", 9, 20);
        let image = trace.input("image", TensorType::new(DataType::F32, [1, 3, 8, 8]));
        trace.output("upscaled", &image.arg_max(1).cast(DataType::F32));
        assert!(chooses(&trace.finish().unwrap()));
    }

    #[test]
    fn a_ratio_is_0_for_infinite_values_and_has_a_limit_for_equal_ones() {
        let psnr = |finite, psnr_db| super::psnr_db(&Measurement { finite, psnr_db, cosine: 1.0, maximum_error: 0.0 });
        assert_eq!([psnr(true, 40.0), psnr(true, f64::INFINITY), psnr(false, 40.0)], [40.0, EXACT_DB, 0.0]);
    }
}
