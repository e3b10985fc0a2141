//! How far a graph's outputs are from its reference.

use super::Job;
use crate::gate::{EXACT_DB, Measurement};
use crate::rtx;
use crate::samples::{self, Sample, views};
use crate::{Error, Result};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tileforge_contract::Provider;
use tileforge_graph::rewrite::rounding_to;
use tileforge_graph::{DataType, Model};
use tileforge_session::{Cancel, Environment, OptimisationLevel, Session, SessionOptions};

/// What one layer costs: the quality of the whole graph with this layer alone in the low precision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The layer's node.
    pub layer: String,
    /// Other layers that were in the low precision in the same run, because the calibration budget has no run for each.
    #[serde(skip_serializing_if = "is_none")]
    pub together_with: usize,
    /// Peak signal-to-noise ratio against the FP32 reference in dB; 0 if the output has an infinite value or NaN.
    pub psnr_db: f64,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// The PSNR of a measurement, as [`Sensitivity`] has it.
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

/// Samples with the outputs of a reference graph, for comparing other graphs.
pub(crate) struct Trial<'a> {
    environment: &'a Environment,
    provider: Provider,
    /// How the engine's graphs run.
    options: SessionOptions,
    scratch: &'a Path,
    /// The built-in sample, which the self-test uses as well.
    known: Judged,
    /// Calibration samples.
    others: Vec<Judged>,
}

/// A sample, and the reference's outputs for it.
struct Judged {
    sample: Sample,
    reference: Sample,
}

impl<'a> Trial<'a> {
    /// Runs the exported graph in `file`, operator by operator without any optimisation, on the built-in sample and on
    /// those of `others` that have its shapes.
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
        let plain = SessionOptions { optimisation: OptimisationLevel::Disabled, ..SessionOptions::default() };
        let mut session = Session::open(job.environment, file, &plain)?;
        let mut judged = |sample: Sample| {
            let reference = session.run(&views(&sample), &Cancel::new())?;
            ran();
            Ok::<_, Error>(Judged { sample, reference })
        };
        let known = judged(samples::sample(job.contract, &tileforge_graph::load(file)?, 0)?)?;
        let fit = |other: &&Sample| {
            known.sample.iter().map(|(_, values)| values.shape()).eq(other.iter().map(|(_, values)| values.shape()))
        };
        let others = others.iter().filter(fit).map(|other| judged(other.clone())).collect::<Result<_>>()?;
        let (environment, provider, options) = (job.environment, job.provider, job.session_options());
        Ok(Trial { environment, provider, options, scratch, known, others })
    }

    /// The built-in sample.
    pub(crate) fn sample(&self) -> &Sample {
        &self.known.sample
    }

    /// The reference's outputs for the built-in sample.
    pub(crate) fn reference(&self) -> &Sample {
        &self.known.reference
    }

    /// Measures the graph in a file on all samples. Of several outputs, the worst counts. Also returns the outputs for
    /// the built-in sample. `ran` is called after each run.
    pub(crate) fn measure_file(&self, file: &Path, ran: &dyn Fn()) -> Result<(Measurement, Sample)> {
        let mut session = Session::open(self.environment, file, &self.options)?;
        let judged: Vec<&Judged> = [&self.known].into_iter().chain(&self.others).collect();
        let run = |judged: &&Judged| {
            let outputs = session.run(&views(&judged.sample), &Cancel::new())?;
            ran();
            Ok(outputs)
        };
        let mut outputs = judged.iter().map(run).collect::<Result<Vec<Sample>>>()?;
        // The weights of a large network need the memory.
        drop(session);
        let mut worst: Option<Measurement> = None;
        for (position, (name, _)) in self.known.reference.iter().enumerate() {
            let mut pairs = Vec::with_capacity(judged.len());
            for (judged, outputs) in judged.iter().zip(&outputs) {
                let reference = &judged.reference[position].1;
                let found =
                    outputs.iter().find(|(output, values)| output == name && values.shape() == reference.shape());
                let missing = || Error::input(file, format!("it gives no output `{name}` of {:?}", reference.shape()));
                pairs.push((found.ok_or_else(missing)?.1.as_f32()?, reference.as_f32()?));
            }
            let measured = Measurement::of_all(&pairs);
            worst = Some(worst.map_or(measured, |worst| worst.or_worse(&measured)));
        }
        let worst = worst.ok_or_else(|| Error::input(file, "it gives no output"))?;
        Ok((worst, outputs.swap_remove(0)))
    }

    pub(super) fn measure(&self, model: &Model) -> Result<Measurement> {
        let measured = self.measure_all(std::slice::from_ref(model))?;
        measured.into_iter().next().ok_or_else(|| Error::input(self.scratch, "nothing was measured"))
    }

    /// Measures several graphs of one model, which share their weights on disk. A graph that has an [`emulation`] is
    /// measured by it.
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
        paths.iter().map(|path| Ok(self.measure_file(path, &|| {})?.0)).collect()
    }
}

/// An FP32 graph that rounds as `model` does on its target; `None` if running `model` here shows the same.
///
/// ONNX Runtime's CPU kernels do not compute in BF16. They run FP16 graphs in FP32 from end to end, without rounding
/// activations. An engine for CPUs does exactly that, an engine for GPUs does not.
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
    // A plan rounds where its form of the graph does.
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
        let (same, outputs) = trial.measure_file(&conversion.file(), &|| ()).unwrap();
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
    fn a_ratio_is_0_for_infinite_values_and_has_a_limit_for_equal_ones() {
        let psnr = |finite, psnr_db| super::psnr_db(&Measurement { finite, psnr_db, cosine: 1.0, maximum_error: 0.0 });
        assert_eq!([psnr(true, 40.0), psnr(true, f64::INFINITY), psnr(false, 40.0)], [40.0, EXACT_DB, 0.0]);
    }
}
