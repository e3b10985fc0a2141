//! The distribution of a graph's values on calibration samples.

use super::calibration::CalibrationSamples;
use super::histogram::Histogram;
use super::job::Job;
use crate::Progress;
use crate::samples::Sample;
use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_engine::WEIGHTS_FILE;
use tileforge_engine::digest::{hexadecimal, sha256_file};
use tileforge_files::{TEXT_MAXIMUM_BYTES, unfinished};
use tileforge_graph::WeightStorage;
use tileforge_graph::rewrite::{kept_bytes, segments};
use tileforge_session::{Cancel, Environment, Session, SessionOptions, Tensor};

/// Bytes of the values that one run computes.
const BYTES_AT_ONCE: usize = 128 << 20;
/// Bytes of the values that are kept between runs, for all samples that run together.
const KEPT_BYTES: usize = 512 << 20;
/// To be changed when this code computes other statistics, so that an older version's cache entries are not used.
const CACHE_VERSION: &str = "4";

/// Histograms by the values' names.
pub(crate) type Histograms = BTreeMap<String, Histogram>;

/// Statistics of every FP32 activation of a model, inputs included, on the calibration samples. Statistics that were
/// measured before come from the environment's cache.
///
/// `file` holds a model, in a folder of its own, with its weight file beside it.
///
/// # Errors
/// A file cannot be read or written, or ONNX Runtime refuses the graph.
pub(crate) fn statistics(job: &Job<'_>, file: &Path, calibration: &CalibrationSamples) -> Result<Histograms> {
    let environment = job.environment;
    let place = |cache: &Path| {
        Ok::<_, Error>(cache.join("calibration").join(format!("{}.json", cache_key(environment, file, calibration)?)))
    };
    let cached = environment.cache().map(place).transpose()?;
    let known = cached
        .as_ref()
        .and_then(|path| tileforge_files::read(path, TEXT_MAXIMUM_BYTES).ok())
        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if let Some(known) = known {
        return Ok(known);
    }
    let statistics = measure(environment, job.progress, file, &calibration.samples, BYTES_AT_ONCE)?;
    if let Some(path) = cached {
        // A missing cache only makes the next build slower.
        let _ = keep(&path, &statistics);
    }
    Ok(statistics)
}

/// Runs the model in segments, each of which makes about `bytes` of values. Every value is computed once.
fn measure(
    environment: &Environment,
    progress: &dyn Progress,
    file: &Path,
    samples: &[Sample],
    bytes: usize,
) -> Result<Histograms> {
    let model = tileforge_graph::load(file)?;
    let segments = segments(&model, bytes);
    // The files are beside the model, so that they point into its weights, which may have gigabytes.
    let paths: Vec<PathBuf> =
        (0..segments.len()).map(|number| file.with_extension(format!("segment-{number}.onnx"))).collect();
    for (segment, path) in segments.iter().zip(&paths) {
        tileforge_graph::save(&segment.model, path, WeightStorage::LinkUndigested)?;
    }
    let mut statistics = Histograms::new();
    samples.iter().flatten().for_each(|(name, values)| add(&mut statistics, name, values));
    progress.begin("measuring activations", samples.len() * segments.len());
    // As many samples together as memory allows, with the values that are kept between two segments.
    for samples in samples.chunks((KEPT_BYTES / kept_bytes(&model, &segments).max(1)).max(1)) {
        let mut kept: Vec<HashMap<String, Tensor>> =
            samples.iter().map(|sample| sample.iter().cloned().collect()).collect();
        for (segment, path) in segments.iter().zip(&paths) {
            let mut session = Session::open(environment, path, &SessionOptions::default())?;
            for values in &mut kept {
                let ports = segment.model.inputs.iter();
                let inputs: Vec<_> =
                    ports.filter_map(|port| Some((port.name.as_str(), values.get(&port.name)?))).collect();
                for (name, made) in session.run(&inputs, &Cancel::new())? {
                    add(&mut statistics, &name, &made);
                    if segment.kept.contains(&name) {
                        values.insert(name, made);
                    }
                }
                values.retain(|name, _| segment.kept.contains(name));
                progress.step();
            }
        }
    }
    Ok(statistics)
}

/// Integers have no histogram.
fn add(statistics: &mut Histograms, name: &str, values: &Tensor) {
    let Tensor::F32(values) = values else { return };
    let histogram = statistics.entry(name.to_owned()).or_default();
    match values.as_slice() {
        Some(values) => histogram.add(values),
        None => histogram.add(&values.iter().copied().collect::<Vec<_>>()),
    }
}

/// A digest of everything that the statistics depend on: the graph, its weights, the samples, ONNX Runtime's version
/// and this code's version.
fn cache_key(environment: &Environment, file: &Path, calibration: &CalibrationSamples) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(CACHE_VERSION);
    hash.update(environment.library().version());
    // A separator ends the version, because its length varies. The following digests have a fixed length.
    hash.update([0]);
    hash.update(&calibration.sha256);
    hash.update(sha256_file(file)?.sha256);
    let weights = file.with_file_name(WEIGHTS_FILE);
    if weights.exists() {
        hash.update(sha256_file(&weights)?.sha256);
    }
    Ok(hexadecimal(&hash.finalize()))
}

fn keep(path: &Path, statistics: &Histograms) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    unfinished::write(path, &serde_json::to_vec(statistics)?)
}

#[cfg(test)]
mod tests {
    use super::super::convert::tests::Conversion;
    use super::*;
    use ndarray::ArrayD;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tileforge_contract::{Precision, Provider};
    use tileforge_graph::{Attribute, DataType, Model, TensorType, Trace, Weight};

    /// A graph with values that skip segments, a computed shape, and an integer input.
    fn model() -> Model {
        let trace = Trace::new("test", 8, 17);
        let float = |dims: &[usize]| TensorType::new(DataType::F32, dims.iter().copied());
        let x = trace.input("x", float(&[1, 2, 3, 4]));
        let row = trace.input("row", TensorType::new(DataType::I64, [1_usize]));
        let values: Vec<u8> =
            [0.5_f32, -1.0, 2.0, 3.0, -4.0, 1.5, 0.25, 8.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let table = trace.weight("table", Weight::from_bytes(DataType::F32, vec![2, 4], values).unwrap());
        let shape = trace.node("Shape", &[&x], []);
        let first = x.relu();
        let second = first.scale_channels(3.0).sin();
        let picked = trace.node("Gather", &[&table, &row], [("axis", Attribute::Int(0))]);
        let third = second + picked + &first;
        let flat = third.reshape(&[1, 24]);
        let back = trace.node("Reshape", &[&flat, &shape], []);
        trace.output("y", &(back + &x));
        trace.finish().unwrap()
    }

    /// The number of announced steps, and of finished steps.
    #[derive(Default)]
    struct Steps([AtomicUsize; 2]);

    impl Progress for Steps {
        fn begin(&self, _: &str, steps: usize) {
            self.0[0].fetch_add(steps, Ordering::Relaxed);
        }

        fn step(&self) {
            self.0[1].fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn segments_give_the_statistics_of_the_whole_model() {
        let model = model();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.onnx");
        tileforge_graph::save(&model, &file, WeightStorage::Inline).unwrap();
        let sample = |seed: f32| -> Sample {
            let x = ArrayD::from_shape_fn(vec![1, 2, 3, 4], |at| (at[1] * 12 + at[2] * 4 + at[3]) as f32 * 0.3 - seed);
            vec![("x".into(), x.into()), ("row".into(), ArrayD::from_elem(vec![1], 1_i64).into())]
        };
        let samples = [sample(2.0), sample(4.5)];
        let environment = crate::tests::environment();
        let measure = |bytes| {
            let steps = Steps::default();
            let measured = measure(&environment, &steps, &file, &samples, bytes).unwrap();
            let [announced, made] = steps.0.map(AtomicUsize::into_inner);
            assert_eq!(announced, made);
            measured
        };
        let whole = measure(usize::MAX);
        assert!(whole.len() >= 8, "{:?}", whole.keys());
        for bytes in [1, 200, 300] {
            assert!(segments(&model, bytes).len() > 2);
            assert_eq!(measure(bytes), whole);
        }
    }

    #[test]
    fn what_was_measured_comes_from_the_cache_until_something_changes() {
        let conversion = Conversion::new().with_cache();
        let (job, file) = (conversion.job(Precision::Int8, Provider::Cpu), conversion.file());
        let kept = || {
            let mut names: Vec<PathBuf> = conversion
                .folder
                .path()
                .join("cache/calibration")
                .read_dir()
                .map_or_else(|_| Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect());
            names.sort();
            names
        };
        let draw = |tiles| CalibrationSamples::draw(None, tiles, tiles, &conversion.model, job.contract).unwrap();
        let measured = statistics(&job, &file, &draw(2)).unwrap();
        let [place] = &kept()[..] else { panic!("{:?}", kept()) };
        assert_eq!(statistics(&job, &file, &draw(2)).unwrap(), measured);

        // An entry in the cache is trusted; an entry that this code cannot use is measured again.
        let mut other = measured.clone();
        other.remove("image");
        keep(place, &other).unwrap();
        assert_eq!(statistics(&job, &file, &draw(2)).unwrap(), other);
        fs::write(place, "{").unwrap();
        assert_eq!(statistics(&job, &file, &draw(2)).unwrap(), measured);
        assert_eq!(kept().len(), 1);

        // Other samples, another graph, and other weights beside the graph.
        statistics(&job, &file, &draw(3)).unwrap();
        assert_eq!(kept().len(), 2);
        let mut model = conversion.model.clone();
        model.name = "other".into();
        tileforge_graph::save(&model, &file, WeightStorage::Inline).unwrap();
        statistics(&job, &file, &draw(2)).unwrap();
        assert_eq!(kept().len(), 3);
        fs::write(file.with_file_name(WEIGHTS_FILE), "weights").unwrap();
        statistics(&job, &file, &draw(2)).unwrap();
        assert_eq!(kept().len(), 4);
    }
}
