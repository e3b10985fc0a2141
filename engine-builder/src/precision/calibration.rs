//! What activations look like: tiles or tensors from a folder, and statistics of every value that a pass asks about.

use super::histogram::Histogram;
use super::segments::{kept_bytes, segments};
use crate::samples::{Purpose, Sample, read_sample, sample_files};
use crate::{Error, Result};
use ndarray::ArrayD;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_exporter::Noise;
use tileforge_graph::Model;
use tileforge_runtime::compiled::user_cache;
use tileforge_runtime::digest::{hexadecimal, sha256_file};
use tileforge_runtime::engine::manifest::Interface;
use tileforge_runtime::image::{Format, ImageReader, Limits, Picture, RowSource};
use tileforge_runtime::onnxruntime;
use tileforge_runtime::session::{Session, SessionOptions};
use tileforge_runtime::tile::Size;

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
    /// Number of tiles, of which a graph with a batch takes several in one sample; or of sets of tensors.
    pub(crate) tiles: usize,
    pub(crate) samples: Vec<Sample>,
    /// Of all values.
    pub(crate) sha256: String,
}

impl CalibrationSamples {
    /// `count` tiles of the pictures of `folder` for `model`, and as many more as fill its batch; or what at most
    /// `count` of its files hold. Without a folder, `count` parts of the built-in test image, or sets of tensors of the
    /// kinds that the model takes.
    ///
    /// # Errors
    /// The folder has nothing that fits, or a file cannot be read.
    pub(crate) fn draw(folder: Option<&Path>, count: usize, model: &Model, purpose: &Purpose) -> Result<Self> {
        let made = || (1..=count).map(|number| purpose.sample(model, number)).collect::<Result<Vec<_>>>();
        let (source, pictures, tiles, samples) = match (folder, purpose) {
            (None, Purpose::Images(_)) => ("built-in test image", 1, count, made()?),
            (None, Purpose::Tensors(_)) => ("random tensors", 0, count, made()?),
            (Some(folder), Purpose::Images(interface)) => {
                let shape =
                    model.inputs.iter().find(|port| port.name == interface.input).and_then(|port| port.ty.fixed_dims());
                let (pictures, batches) = tiles_of(folder, count, &shape.unwrap_or_default(), interface)?;
                let tiles = batches.iter().map(|batch| batch.shape()[0]).sum();
                (
                    "folder",
                    pictures,
                    tiles,
                    batches.into_iter().map(|batch| vec![(interface.input.clone(), batch)]).collect(),
                )
            }
            (Some(folder), Purpose::Tensors(_)) => {
                let paths = sample_files(folder, model)?;
                let chosen = evenly(paths.len(), count, &mut Noise::new(SEED));
                let samples =
                    chosen.into_iter().map(|at| read_sample(&paths[at], model)).collect::<Result<Vec<_>>>()?;
                ("folder", samples.len(), samples.len(), samples)
            }
        };
        let mut hash = Sha256::new();
        samples.iter().flatten().flat_map(|(_, values)| values).for_each(|value| hash.update(value.to_le_bytes()));
        Ok(CalibrationSamples { source, pictures, tiles, samples, sha256: hexadecimal(&hash.finalize()) })
    }
}

/// How many pictures of a folder were drawn from, and batches `[batch, channels, height, width]` of tiles: `count` of
/// them, or as many more as fill the last batch.
fn tiles_of(folder: &Path, count: usize, shape: &[usize], interface: &Interface) -> Result<(usize, Vec<ArrayD<f32>>)> {
    let [batch, channels, height, width] = *shape else {
        return Err(Error::input(folder, format!("expected an image input, found {shape:?}")));
    };
    let count = count.next_multiple_of(batch.max(1));
    let mut noise = Noise::new(SEED);
    let limits = Limits::default();
    let (mut large, mut smaller) = (Vec::new(), Vec::new());
    for path in pictures_of(folder)? {
        let Size { width: columns, height: rows } = ImageReader::open(&path, &limits)?.header().size;
        if (columns as usize) < width || (rows as usize) < height {
            smaller.push(format!("{} ({columns}×{rows})", path.display()));
        } else {
            large.push(path);
        }
    }
    if large.is_empty() {
        let found = if smaller.is_empty() { "none".into() } else { smaller.join(", ") };
        let expected =
            format!("expected pictures (.png, .jpg, .jpeg, .webp, .tif, .tiff) of at least {width}×{height}");
        return Err(Error::input(folder, format!("{expected}, found {found}")));
    }
    let chosen = evenly(large.len(), count, &mut noise);
    let (mut batches, mut values) = (Vec::with_capacity(count / batch.max(1)), Vec::new());
    for (position, at) in chosen.iter().enumerate() {
        let picture = Picture::read(&large[*at], &limits)?;
        let Size { width: columns, height: rows } = picture.size();
        // Each has its share of the tiles; of pictures chosen among more, that is one.
        let share = (count * (position + 1) / chosen.len()) - (count * position / chosen.len());
        for _ in 0..share {
            let (x, y) =
                (drawn(&mut noise, columns as usize - width + 1), drawn(&mut noise, rows as usize - height + 1));
            add_tile(&mut values, &picture, [x, y], [channels, height, width], interface.range);
            if values.len() == shape.iter().product::<usize>() {
                let filled = ArrayD::from_shape_vec(shape.to_vec(), std::mem::take(&mut values));
                batches.push(filled.map_err(|e| Error::Graph(tileforge_graph::Error::Graph(e.to_string())))?);
            }
        }
    }
    Ok((chosen.len(), batches))
}

/// Adds the tile of `[channels, height, width]` whose top left corner is at `[x, y]`, in the values of black and white.
fn add_tile(
    values: &mut Vec<f32>,
    picture: &Picture,
    [x, y]: [usize; 2],
    [channels, height, width]: [usize; 3],
    [low, high]: [f32; 2],
) {
    let columns = picture.size().width as usize;
    for channel in 0..channels {
        for row in 0..height {
            let pixels = picture.samples()[((y + row) * columns + x) * 3..][..width * 3].chunks_exact(3);
            values.extend(pixels.map(|pixel| {
                // A network for grey pictures sees the mean of the colours.
                let level = if channels == 1 {
                    pixel.iter().map(|v| f32::from(*v)).sum::<f32>() / 3.0
                } else {
                    f32::from(pixel[channel])
                };
                low + level / 255.0 * (high - low)
            }));
        }
    }
}

/// A number below `count`, from `noise`.
fn drawn(noise: &mut Noise, count: usize) -> usize {
    ((noise.next_signed() * 0.5 + 0.5) * count as f32).floor().min(count as f32 - 1.0) as usize
}

/// At most `most` of the numbers below `count`: all of them, or one of each equal part.
fn evenly(count: usize, most: usize, noise: &mut Noise) -> Vec<usize> {
    if count <= most {
        return (0..count).collect();
    }
    let start = |part: usize| part * count / most;
    (0..most).map(|part| start(part) + drawn(noise, start(part + 1) - start(part))).collect()
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

/// Statistics of every FP32 value of `model`, the inputs included, on `calibration`. What was measured before is taken
/// from the user's cache.
///
/// `file` holds the model, and stands in a folder that it has to itself and its weight file.
///
/// # Errors
/// A file cannot be read or written, or ONNX Runtime refuses the graph.
pub(crate) fn statistics(model: &Model, file: &Path, calibration: &CalibrationSamples) -> Result<Statistics> {
    let place = |cache: PathBuf| {
        Ok::<_, Error>(cache.join("calibration").join(format!("{}.json", cache_key(file, calibration)?)))
    };
    let cached = user_cache().map(place).transpose()?;
    let known =
        cached.as_ref().and_then(|path| fs::read(path).ok()).and_then(|bytes| serde_json::from_slice(&bytes).ok());
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
    let scratch = tempfile::Builder::new()
        .prefix("calibration-")
        .tempdir_in(folder)
        .map_err(|e| Error::file(folder, "write to", e))?;
    let segments = segments(model, bytes);
    let paths: Vec<PathBuf> =
        (0..segments.len()).map(|number| scratch.path().join(format!("segment-{number}.onnx"))).collect();
    let pairs: Vec<(&Model, &Path)> =
        segments.iter().map(|segment| &segment.model).zip(paths.iter().map(PathBuf::as_path)).collect();
    tileforge_graph::save_sharing_weights(&pairs, &scratch.path().join("weights"))?;
    let mut statistics = Statistics::new();
    samples.iter().flatten().for_each(|(name, values)| add(&mut statistics, name, values));
    // As many samples side by side as what is kept of them between two segments allows.
    for samples in samples.chunks((KEPT_BYTES / kept_bytes(model, &segments).max(1)).max(1)) {
        let mut kept: Vec<HashMap<String, ArrayD<f32>>> =
            samples.iter().map(|sample| sample.iter().cloned().collect()).collect();
        for (segment, path) in segments.iter().zip(&paths) {
            let mut session = Session::open(path, &SessionOptions::default())?;
            for values in &mut kept {
                let ports = segment.model.inputs.iter();
                let inputs: Vec<_> =
                    ports.filter_map(|port| Some((port.name.as_str(), values.get(&port.name)?.view()))).collect();
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

/// What the statistics depend on: the graph, its weights, the tiles, what runs them, and this code.
fn cache_key(file: &Path, calibration: &CalibrationSamples) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(CACHE_VERSION);
    hash.update(onnxruntime::load(None)?.version());
    // A version's length varies; what follows are digests.
    hash.update([0]);
    hash.update(&calibration.sha256);
    hash.update(sha256_file(file)?.sha256);
    let weights = file.with_file_name(crate::build::WEIGHTS_FILE);
    if weights.exists() {
        hash.update(sha256_file(&weights)?.sha256);
    }
    Ok(hexadecimal(&hash.finalize()))
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
    use tileforge_graph::{Attribute, DataType, Port, TensorType, Trace, Weight, WeightStorage};
    use tileforge_runtime::engine::manifest::{Padding, Task};

    /// Values that skip over others, a shape that is computed, and an integer input.
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

    #[test]
    fn segments_see_what_the_whole_sees() {
        let model = model();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.onnx");
        tileforge_graph::save(&model, &file, WeightStorage::Inline).unwrap();
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

    fn interface() -> Interface {
        Interface {
            task: Task::Upscale,
            input: "image".into(),
            output: "upscaled".into(),
            scale: 1,
            channels: 3,
            range: [0.0, 1.0],
            size_multiple: 1,
            size_minimum: 1,
            padding: Padding::Reflect,
            receptive_field: None,
            safe_precisions: Vec::new(),
        }
    }

    /// `count` pictures of 12×10, all pixels of each of its number's level.
    fn pictures(count: u8) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..count {
            write_png(&folder.path().join(format!("{number:03}.png")), [12, 10], number);
        }
        folder
    }

    fn write_png(path: &Path, [width, height]: [u32; 2], level: u8) {
        use tileforge_runtime::image::{Colour, Depth, Header, ImageWriter, RowSink};
        let header =
            Header { size: Size { width, height }, colour: Colour::Rgb, depth: Depth::Eight, icc_profile: None };
        let mut writer = ImageWriter::create(path, Format::Png, header).unwrap();
        writer.write_rows(&vec![level; (width * height * 3) as usize]).unwrap();
        Box::new(writer).finish().unwrap();
    }

    fn draw(folder: &Path, count: usize, batch: usize) -> CalibrationSamples {
        let port = Port { name: "image".into(), ty: TensorType::new(DataType::F32, [batch, 3, 8, 8]) };
        let model = Model { inputs: vec![port], ..Model::default() };
        CalibrationSamples::draw(Some(folder), count, &model, &Purpose::Images(interface())).unwrap()
    }

    /// The level of each tile.
    fn levels(drawn: &CalibrationSamples) -> Vec<u8> {
        let tiles = drawn.samples.iter().flat_map(|sample| sample[0].1.outer_iter());
        tiles.map(|tile| (tile[[0, 0, 0]] * 255.0).round() as u8).collect()
    }

    #[test]
    fn as_many_tiles_as_asked_for_come_evenly_from_the_pictures() {
        let folder = pictures(20);
        // Too small for a tile.
        write_png(&folder.path().join("100.png"), [7, 30], 100);
        for count in [1, 3, 8, 20, 47] {
            let drawn = draw(folder.path(), count, 1);
            assert_eq!((drawn.tiles, drawn.samples.len(), drawn.pictures), (count, count, count.min(20)));
            assert_eq!(drawn.sha256, draw(folder.path(), count, 1).sha256);
            // Equal parts of the folder have equal shares, but for one.
            let levels = levels(&drawn);
            let parts = count.min(20);
            let mut shares = vec![0; parts];
            levels.iter().for_each(|level| shares[(usize::from(*level) * parts + parts - 1) / 20] += 1);
            assert!(
                shares.iter().all(|share| (count / parts..=count.div_ceil(parts)).contains(share)),
                "{count}: {levels:?}"
            );
        }
    }

    #[test]
    fn each_image_of_a_batch_is_a_tile_of_its_own() {
        let folder = pictures(6);
        let drawn = draw(folder.path(), 5, 3);
        assert_eq!((drawn.tiles, drawn.samples.len(), levels(&drawn)), (6, 2, vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(drawn.samples[0][0].1.shape(), [3, 3, 8, 8]);
    }
}
