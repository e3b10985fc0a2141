//! How far a graph is from its reference.

use super::Job;
use super::half::emulated;
use crate::gate::{EXACT_DB, Measurement};
use crate::test_image::test_image;
use crate::{Error, Result};
use graph::{DataType, Model};
use ndarray::{ArrayD, ArrayViewD};
use runtime::engine::manifest::Interface;
use runtime::provider::Provider;
use runtime::session::{OptimisationLevel, Session, SessionOptions};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What one layer costs: the quality of the whole graph with this layer alone in the low precision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The layer's node.
    pub layer: String,
    /// Peak signal-to-noise ratio against the FP32 reference in dB; 0 where the output is no number.
    pub psnr_db: f64,
}

impl Sensitivity {
    pub(super) fn new(layer: String, measured: &Measurement) -> Self {
        let psnr_db = if measured.finite { measured.psnr_db.min(EXACT_DB) } else { 0.0 };
        Sensitivity { layer, psnr_db }
    }
}

impl fmt::Display for Sensitivity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} alone gives {:.2} dB", self.layer, self.psnr_db)
    }
}

/// A graph's reference output on the test image, to which others are compared.
pub(crate) struct Trial<'a> {
    interface: &'a Interface,
    provider: Provider,
    scratch: &'a Path,
    image: ArrayD<f32>,
    reference: ArrayD<f32>,
}

impl<'a> Trial<'a> {
    /// Runs the graph in `file`, operator by operator without any optimisation, as it was exported.
    pub(crate) fn new(job: &Job<'a>, file: &Path, scratch: &'a Path) -> Result<Self> {
        let (interface, provider) = (job.interface, job.provider);
        let plain = SessionOptions { optimisation: OptimisationLevel::Disabled, ..SessionOptions::default() };
        let mut session = Session::open(file, &plain)?;
        let shape = session.inputs().iter().find(|input| input.name == interface.input).map(|input| input.shape.clone());
        let shape: Vec<usize> = shape.unwrap_or_default().into_iter().flatten().collect();
        let [_, channels, height, width] = *shape.as_slice() else {
            return Err(Error::input(file, format!("expected an image input of fixed shape, found {shape:?}")));
        };
        let image = test_image(channels, height, width, interface.range);
        let image = ArrayD::from_shape_vec(shape, image).map_err(|e| graph::Error::Graph(e.to_string()))?;
        let reference = output(&mut session, interface, file, &image)?;
        Ok(Trial { interface, provider, scratch, image, reference })
    }

    /// The image.
    pub(crate) fn image(&self) -> &ArrayD<f32> {
        &self.image
    }

    /// What the reference makes of it.
    pub(crate) fn reference(&self) -> &ArrayD<f32> {
        &self.reference
    }

    /// What the graph in a file makes of it.
    pub(crate) fn output_of(&self, file: &Path) -> Result<ArrayD<f32>> {
        output(&mut Session::open(file, &SessionOptions::default())?, self.interface, file, &self.image)
    }

    /// Measures the graph in a file.
    pub(crate) fn measure_file(&self, file: &Path) -> Result<Measurement> {
        Ok(Measurement::of(&self.output_of(file)?, &self.reference))
    }

    pub(super) fn measure(&self, model: &Model) -> Result<Measurement> {
        let measured = self.measure_all(std::slice::from_ref(model))?;
        measured.into_iter().next().ok_or_else(|| Error::input(self.scratch, "nothing was measured"))
    }

    /// Measures several graphs of one model, which share their weights on disk: each, or its [`emulation`].
    pub(super) fn measure_all(&self, models: &[Model]) -> Result<Vec<Measurement>> {
        let folder =
            tempfile::Builder::new().prefix("trial-").tempdir_in(self.scratch).map_err(|e| Error::file(self.scratch, "write to", e))?;
        let models =
            models.iter().map(|model| Ok(emulation(model, self.provider)?.unwrap_or_else(|| model.clone()))).collect::<Result<Vec<_>>>()?;
        let paths: Vec<PathBuf> = (0..models.len()).map(|number| folder.path().join(format!("{number}.onnx"))).collect();
        let pairs: Vec<(&Model, &Path)> = models.iter().zip(paths.iter().map(PathBuf::as_path)).collect();
        graph::save_sharing_weights(&pairs, &folder.path().join("weights"))?;
        paths.iter().map(|path| self.measure_file(path)).collect()
    }
}

/// A graph in FP32 that rounds as `model` does, where running `model` here would not show what it computes on its target.
///
/// ONNX Runtime's CPU kernels do not compute BF16 at all. FP16 graphs they run in FP32 from end to end, without rounding a single activation:
/// that is what an engine for CPUs does, and tells nothing of one for GPUs.
pub(crate) fn emulation(model: &Model, provider: Provider) -> Result<Option<Model>> {
    let holds = |data_type| model.types.values().any(|ty| ty.data_type == data_type);
    match (holds(DataType::Bf16), holds(DataType::F16) && provider != Provider::Cpu) {
        (true, _) => emulated(model, DataType::Bf16).map(Some),
        (_, true) => emulated(model, DataType::F16).map(Some),
        _ => Ok(None),
    }
}

fn output(session: &mut Session, interface: &Interface, file: &Path, image: &ArrayD<f32>) -> Result<ArrayD<f32>> {
    let outputs = session.run(&[(&interface.input, image.view())])?;
    let output = outputs.into_iter().find(|(name, _)| *name == interface.output).map(|(_, output)| output);
    output.ok_or_else(|| Error::input(file, format!("the graph gives no output `{}`", interface.output)))
}

/// Runs that are timed of each graph.
const TIMED_RUNS: usize = 9;

/// How long a session's threads go on looking for work after a run, at most: nobody else's run may meet that.
const SETTLING: Duration = Duration::from_millis(30);

/// How many times as fast as each of the graphs in `others` the one in `file` is here: the fastest of runs that take
/// turns, after one each to warm up, since whatever else the machine does only makes a run slower.
pub(crate) fn speed_ratios(others: &[&Path], file: &Path, inputs: &[(&str, ArrayViewD<'_, f32>)]) -> Result<Vec<f64>> {
    let paths = [file].into_iter().chain(others.iter().copied());
    let mut sessions = paths.map(|path| Ok(Session::open(path, &SessionOptions::default())?)).collect::<Result<Vec<_>>>()?;
    let mut fastest = vec![Duration::MAX; sessions.len()];
    for run in 0..=TIMED_RUNS {
        for (session, fastest) in sessions.iter_mut().zip(&mut fastest) {
            std::thread::sleep(SETTLING);
            let started = Instant::now();
            session.run(inputs)?;
            if run > 0 {
                *fastest = (*fastest).min(started.elapsed());
            }
        }
    }
    let seconds: Vec<f64> = fastest.iter().map(|time| time.as_secs_f64().max(f64::MIN_POSITIVE)).collect();
    Ok(seconds.iter().skip(1).map(|other| other / seconds[0]).collect())
}
