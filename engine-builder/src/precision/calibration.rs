//! What activations look like: tiles or tensors from a folder, and statistics of every value that a pass asks about.

use super::histogram::Histogram;
use super::segments::{kept_bytes, segments};
use crate::samples::{Purpose, Sample, read_samples};
use crate::{Error, Result};
use exporter::Noise;
use graph::Model;
use ndarray::ArrayD;
use runtime::digest::sha256_file;
use runtime::engine::manifest::Interface;
use runtime::image::{Format, Limits, Picture};
use runtime::session::{Session, SessionOptions};
use runtime::tile::Size;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// Tiles come from the same places in every build of the same images.
const SEED: u64 = 0x7411_F0E6;
/// Values of one run that are held at a time.
const BYTES_AT_ONCE: usize = 128 << 20;
/// Values that are held between runs, of all samples.
const KEPT_BYTES: usize = 512 << 20;
/// Changes whenever the statistics do, so that what an older version kept is not used.
const CACHE_VERSION: &str = "3";

/// What activations are measured on.
#[derive(Debug)]
pub(crate) struct CalibrationSamples {
    /// Where they come from, as manifests say it.
    pub(crate) source: &'static str,
    /// Number of files that they were read or drawn from.
    pub(crate) pictures: usize,
    pub(crate) samples: Vec<Sample>,
    /// Of all values.
    pub(crate) sha256: String,
}

impl CalibrationSamples {
    /// `count` samples for `model`: tiles of the pictures of `folder`, or what its files hold; without a folder, parts of the built-in test
    /// image, or tensors of the kinds that the model takes.
    ///
    /// # Errors
    /// The folder has nothing that fits, or a file cannot be read.
    pub(crate) fn draw(folder: Option<&Path>, count: usize, model: &Model, purpose: &Purpose) -> Result<Self> {
        let made = || (1..=count).map(|number| purpose.sample(model, number)).collect::<Result<Vec<_>>>();
        let (source, pictures, samples) = match (folder, purpose) {
            (None, Purpose::Images(_)) => ("built-in test image", 1, made()?),
            (None, Purpose::Tensors(_)) => ("random tensors", 0, made()?),
            (Some(folder), Purpose::Images(interface)) => {
                let shape = model.inputs.iter().find(|port| port.name == interface.input).and_then(|port| port.ty.fixed_dims());
                let (pictures, tiles) = tiles_of(folder, count, &shape.unwrap_or_default(), interface)?;
                ("folder", pictures, tiles.into_iter().map(|tile| vec![(interface.input.clone(), tile)]).collect())
            }
            (Some(folder), Purpose::Tensors(_)) => {
                let samples = read_samples(folder, model)?;
                ("folder", samples.len(), samples)
            }
        };
        let mut hash = Sha256::new();
        samples.iter().flatten().flat_map(|(_, values)| values).for_each(|value| hash.update(value.to_le_bytes()));
        Ok(CalibrationSamples { source, pictures, samples, sha256: hexadecimal(&hash.finalize()) })
    }
}

/// How many pictures of a folder are large enough, and about `count` tiles `[1, channels, height, width]` of them.
fn tiles_of(folder: &Path, count: usize, shape: &[usize], interface: &Interface) -> Result<(usize, Vec<ArrayD<f32>>)> {
    let [_, channels, height, width] = *shape else {
        return Err(Error::input(folder, format!("expected an image input, found {shape:?}")));
    };
    let [low, high] = interface.range;
    let mut noise = Noise::new(SEED);
    let mut draw = |length: usize| ((noise.next_signed() * 0.5 + 0.5) * (length + 1) as f32).floor().min(length as f32) as usize;
    let array =
        |values: Vec<f32>| ArrayD::from_shape_vec(shape.to_vec(), values).map_err(|e| Error::Graph(graph::Error::Graph(e.to_string())));
    let paths = pictures_of(folder)?;
    let limits = Limits::default();
    let (mut used, mut tiles, mut smaller) = (0, Vec::with_capacity(count), Vec::new());
    for (position, path) in paths.iter().enumerate() {
        let picture = Picture::read(path, &limits)?;
        let Size { width: columns, height: rows } = picture.size();
        let (columns, rows) = (columns as usize, rows as usize);
        let share = (count * (position + 1) / paths.len()) - (count * position / paths.len());
        if columns < width || rows < height {
            smaller.push(format!("{} ({columns}×{rows})", path.display()));
            continue;
        }
        used += 1;
        for _ in 0..share.max(1) {
            let (x, y) = (draw(columns - width), draw(rows - height));
            let sample = |c: usize, row: usize, column: usize| {
                let pixel = &picture.samples()[((y + row) * columns + x + column) * 3..][..3];
                // A network for grey pictures sees the mean of the colours.
                let level = if channels == 1 { pixel.iter().map(|v| f32::from(*v)).sum::<f32>() / 3.0 } else { f32::from(pixel[c]) };
                low + level / 255.0 * (high - low)
            };
            let values = (0..channels)
                .flat_map(|c| (0..height).flat_map(move |row| (0..width).map(move |column| (c, row, column))))
                .map(|(c, row, column)| sample(c, row, column));
            tiles.push(array(values.collect())?);
        }
    }
    if tiles.is_empty() {
        let found = if smaller.is_empty() { "none".into() } else { smaller.join(", ") };
        let expected = format!("expected pictures (.png, .jpg, .jpeg, .webp) of at least {width}×{height}");
        return Err(Error::input(folder, format!("{expected}, found {found}")));
    }
    Ok((used, tiles))
}

fn pictures_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in folder.read_dir().map_err(|e| Error::file(folder, "list", e))? {
        paths.push(entry.map_err(|e| Error::file(folder, "list", e))?.path());
    }
    paths.retain(|path| path.is_file() && Format::of_name(path).is_ok());
    paths.sort();
    Ok(paths)
}

/// Histograms by the values' names.
pub(crate) type Statistics = BTreeMap<String, Histogram>;

/// Statistics of every FP32 value of `model`, the inputs included, on `calibration`. What was measured before is taken from the user's cache.
///
/// `file` holds the model, and stands in a folder that it has to itself and its weight file.
///
/// # Errors
/// A file cannot be read or written, or ONNX Runtime refuses the graph.
pub(crate) fn statistics(model: &Model, file: &Path, calibration: &CalibrationSamples) -> Result<Statistics> {
    let cached = cache_folder().map(|folder| Ok::<_, Error>(folder.join(format!("{}.json", cache_key(file, calibration)?)))).transpose()?;
    let known = cached.as_ref().and_then(|path| fs::read(path).ok()).and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if let Some(known) = known {
        return Ok(known);
    }
    let statistics = measure(model, file, &calibration.samples, BYTES_AT_ONCE)?;
    if let Some(path) = cached {
        // A cache that cannot be written costs time, and nothing else.
        let _ = keep(&path, &statistics);
    }
    Ok(statistics)
}

/// Runs the model in segments, of which each makes about `bytes` of values, and computes every value once.
fn measure(model: &Model, file: &Path, samples: &[Sample], bytes: usize) -> Result<Statistics> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let scratch = tempfile::Builder::new().prefix("calibration-").tempdir_in(folder).map_err(|e| Error::file(folder, "write to", e))?;
    let segments = segments(model, bytes);
    let paths: Vec<PathBuf> = (0..segments.len()).map(|number| scratch.path().join(format!("segment-{number}.onnx"))).collect();
    let pairs: Vec<(&Model, &Path)> = segments.iter().map(|segment| &segment.model).zip(paths.iter().map(PathBuf::as_path)).collect();
    graph::save_sharing_weights(&pairs, &scratch.path().join("weights"))?;
    let mut statistics = Statistics::new();
    samples.iter().flatten().for_each(|(name, values)| add(&mut statistics, name, values));
    // As many samples side by side as what is kept of them between two segments allows.
    for samples in samples.chunks((KEPT_BYTES / kept_bytes(model, &segments).max(1)).max(1)) {
        let mut kept: Vec<HashMap<String, ArrayD<f32>>> = samples.iter().map(|sample| sample.iter().cloned().collect()).collect();
        for (segment, path) in segments.iter().zip(&paths) {
            let mut session = Session::open(path, &SessionOptions::default())?;
            for values in &mut kept {
                let ports = segment.model.inputs.iter();
                let inputs: Vec<_> = ports.filter_map(|port| Some((port.name.as_str(), values.get(&port.name)?.view()))).collect();
                for (name, made) in session.run(&inputs)? {
                    add(&mut statistics, &name, &made);
                    if segment.kept.contains(&name) {
                        values.insert(name, made);
                    }
                }
                values.retain(|name, _| segment.kept.contains(name));
            }
        }
    }
    Ok(statistics)
}

fn add(statistics: &mut Statistics, name: &str, values: &ArrayD<f32>) {
    let histogram = statistics.entry(name.to_owned()).or_default();
    match values.as_slice() {
        Some(values) => histogram.add(values),
        None => histogram.add(&values.iter().copied().collect::<Vec<_>>()),
    }
}

/// What the statistics depend on: the graph, its weights, the tiles, and this code.
fn cache_key(file: &Path, calibration: &CalibrationSamples) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(CACHE_VERSION);
    hash.update(&calibration.sha256);
    hash.update(sha256_file(file)?.sha256);
    let weights = file.with_file_name(crate::build::WEIGHTS_FILE);
    if weights.exists() {
        hash.update(sha256_file(&weights)?.sha256);
    }
    Ok(hexadecimal(&hash.finalize()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `tileforge/calibration` in the user's cache folder (<https://specifications.freedesktop.org/basedir-spec/latest/>), if there is one.
fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("tileforge").join("calibration"))
}

fn keep(path: &Path, statistics: &Statistics) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, statistics)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Sample;
    use graph::{Attribute, DataType, TensorType, Trace, Weight, WeightStorage};

    /// Values that skip over others, a shape that is computed, and an integer input.
    fn model() -> Model {
        let trace = Trace::new("test", 8, 17);
        let float = |dims: &[usize]| TensorType::new(DataType::F32, dims.iter().copied());
        let x = trace.input("x", float(&[1, 2, 3, 4]));
        let row = trace.input("row", TensorType::new(DataType::I64, [1_usize]));
        let values: Vec<u8> = [0.5_f32, -1.0, 2.0, 3.0, -4.0, 1.5, 0.25, 8.0].iter().flat_map(|value| value.to_le_bytes()).collect();
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

    #[test]
    fn segments_see_what_the_whole_sees() {
        let model = model();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.onnx");
        graph::save(&model, &file, WeightStorage::Inline).unwrap();
        let sample = |seed: f32| -> Sample {
            let x = ArrayD::from_shape_fn(vec![1, 2, 3, 4], |at| (at[1] * 12 + at[2] * 4 + at[3]) as f32 * 0.3 - seed);
            vec![("x".into(), x), ("row".into(), ArrayD::from_elem(vec![1], 1.0))]
        };
        let samples = [sample(2.0), sample(4.5)];
        let whole = measure(&model, &file, &samples, usize::MAX).unwrap();
        assert!(whole.len() >= 8, "{:?}", whole.keys());
        for bytes in [1, 200, 300] {
            assert!(segments(&model, bytes).len() > 2);
            assert_eq!(measure(&model, &file, &samples, bytes).unwrap(), whole);
        }
    }
}
