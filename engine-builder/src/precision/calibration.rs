//! Calibration data: tiles of pictures, or tensors, from a folder or built in.

use crate::samples::{self, Sample, normalise, read_sample, sample_files};
use crate::{Error, Result};
use ndarray::ArrayD;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use tileforge_contract::{ChannelOrder, Contract, Meaning};
use tileforge_engine::digest::hexadecimal;
use tileforge_exporter::Noise;
use tileforge_graph::Model;

use tileforge_image::Size;
use tileforge_image::{Format, ImageReader, Limits, Picture, RowSource};
use tileforge_session::Tensor;

/// A fixed seed: every build with the same pictures takes the same tiles.
const SEED: u64 = 0x7411_F0E6;

/// The samples that activations are measured on.
#[derive(Debug)]
pub(crate) struct CalibrationSamples {
    /// Their source, as the manifest names it.
    pub(crate) source: &'static str,
    /// The number of source files.
    pub(crate) pictures: usize,
    /// The number of tiles, or of sets of tensors. A graph with a batch takes several tiles in one sample.
    pub(crate) tiles: usize,
    pub(crate) samples: Vec<Sample>,
    /// SHA-256 of all values.
    pub(crate) sha256: String,
}

impl CalibrationSamples {
    /// Draws the samples for `model`, for at most `most` runs of it.
    ///
    /// A model of pictures gets `tiles` tiles of the pictures in `folder`, and more tiles to fill the last batch. A
    /// model of tensors gets at most `tiles` of the files in `folder`. Without a folder, they get `tiles` built-in
    /// pictures, or `tiles` sets of random tensors. There are never more than `most` samples; each is one run.
    ///
    /// # Errors
    /// The folder has no suitable file, or a file cannot be read.
    pub(crate) fn draw(
        folder: Option<&Path>,
        tiles: usize,
        most: usize,
        model: &Model,
        contract: &Contract,
    ) -> Result<Self> {
        let picture = samples::picture_input(contract);
        let count = tiles.min(most);
        let made = || (1..=count).map(|number| samples::sample(contract, model, number)).collect::<Result<Vec<_>>>();
        let (source, pictures, tiles, samples) = match (folder, picture) {
            (None, Some(_)) => ("built-in pictures", count, count, made()?),
            (None, None) => ("random tensors", 0, count, made()?),
            (Some(folder), Some(picture)) => {
                let shape =
                    model.inputs.iter().find(|port| port.name == picture.name).and_then(|port| port.ty.fixed_dims());
                let shape = shape.unwrap_or_default();
                let wanted = tiles.min(most.saturating_mul(shape.first().copied().unwrap_or(1)));
                let (pictures, batches) = tiles_of(folder, wanted, &shape, &picture.meaning)?;
                let drawn = batches.iter().map(|batch| batch.shape()[0]).sum();
                // All other inputs can be made without a picture.
                let others = |number: usize| {
                    let others = contract.inputs.iter().filter(|input| input.name != picture.name);
                    others.map(move |input| Ok((input.name.clone(), samples::values(contract, input, model, number)?)))
                };
                let sample = |(number, batch): (usize, ArrayD<f32>)| {
                    let picture = Ok((picture.name.clone(), Tensor::from(batch)));
                    [picture].into_iter().chain(others(number + 1)).collect::<Result<Sample>>()
                };
                ("folder", pictures, drawn, batches.into_iter().enumerate().map(sample).collect::<Result<Vec<_>>>()?)
            }
            (Some(folder), None) => {
                let paths = sample_files(folder, contract)?;
                let chosen = evenly(paths.len(), count, &mut Noise::new(SEED));
                let samples =
                    chosen.into_iter().map(|at| read_sample(&paths[at], model)).collect::<Result<Vec<_>>>()?;
                ("folder", samples.len(), samples.len(), samples)
            }
        };
        let mut hash = Sha256::new();
        samples.iter().flatten().for_each(|(_, values)| hash.update(values.to_bytes()));
        Ok(CalibrationSamples { source, pictures, tiles, samples, sha256: hexadecimal(&hash.finalize()) })
    }
}

/// The number of pictures that tiles were drawn from, and the tiles in batches `[batch, channels, height, width]`:
/// `count` tiles, and more tiles to fill the last batch.
fn tiles_of(folder: &Path, count: usize, shape: &[usize], pixels: &Meaning) -> Result<(usize, Vec<ArrayD<f32>>)> {
    let ([batch, channels, height, width], Meaning::Pixels { range, normalisation, order, .. }) = (shape, pixels)
    else {
        return Err(Error::input(folder, format!("expected an image input, found {shape:?}")));
    };
    let (batch, channels, height, width) = (*batch, *channels, *height, *width);
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
        // The pictures' numbers of tiles differ by at most one.
        let share = (count * (position + 1) / chosen.len()) - (count * position / chosen.len());
        for _ in 0..share {
            let (x, y) =
                (drawn(&mut noise, columns as usize - width + 1), drawn(&mut noise, rows as usize - height + 1));
            add_tile(&mut values, &picture, [x, y], [channels, height, width], *range, *order);
            if values.len() == shape.iter().product::<usize>() {
                if let Some(normalisation) = normalisation {
                    normalise(&mut values, *normalisation, height * width);
                }
                let filled = ArrayD::from_shape_vec(shape.to_vec(), std::mem::take(&mut values));
                batches.push(filled.map_err(|e| Error::Graph(tileforge_graph::Error::Graph(e.to_string())))?);
            }
        }
    }
    Ok((chosen.len(), batches))
}

/// Adds the tile `[channels, height, width]` of a picture with its top left corner at `[x, y]`. Black becomes `low`,
/// and white `high`.
fn add_tile(
    values: &mut Vec<f32>,
    picture: &Picture,
    [x, y]: [usize; 2],
    [channels, height, width]: [usize; 3],
    [low, high]: [f32; 2],
    order: ChannelOrder,
) {
    let columns = picture.size().width as usize;
    for channel in 0..channels {
        for row in 0..height {
            let pixels = picture.samples()[((y + row) * columns + x) * 3..][..width * 3].chunks_exact(3);
            values.extend(pixels.map(|pixel| {
                // A network for grey pictures gets the mean of the colours.
                let level = match order {
                    ChannelOrder::Grey => pixel.iter().map(|v| f32::from(*v)).sum::<f32>() / 3.0,
                    ChannelOrder::Rgb => f32::from(pixel[channel]),
                    ChannelOrder::Bgr => f32::from(pixel[2 - channel]),
                };
                low + level / 255.0 * (high - low)
            }));
        }
    }
}

/// A number below `count`, from `noise`.
fn drawn(noise: &mut Noise, count: usize) -> usize {
    // The noise is below 1, and the product below `count` for every picture that a reader opens.
    ((noise.next_signed() * 0.5 + 0.5) * count as f32) as usize
}

/// At most `most` numbers below `count`: all of them, or one from each of `most` equal parts.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tileforge_contract::{Axis, DataType, Extent, Normalisation, ReceptiveField, Task, TensorSpec};
    use tileforge_graph::{Port, TensorType};

    fn contract(normalisation: Option<Normalisation>) -> Contract {
        let side = Extent::multiple_of(1);
        let axes = [Axis::Batch, Axis::Channels(3), Axis::Height(side), Axis::Width(side)];
        let pixels = Meaning::Pixels { range: [0.0, 1.0], normalisation, order: ChannelOrder::Rgb, padding: None };
        Contract {
            task: Task::Depth,
            inputs: vec![TensorSpec::new("image", axes, pixels)],
            outputs: vec![TensorSpec::new("depth", axes, Meaning::Prediction)],
            receptive_field: ReceptiveField::Unbounded,
            safe_precisions: Vec::new(),
        }
    }

    /// `count` pictures of 12×10. All pixels of a picture have the value of its number.
    fn pictures(count: u8) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..count {
            write_png(&folder.path().join(format!("{number:03}.png")), [12, 10], number);
        }
        folder
    }

    fn write_png(path: &Path, [width, height]: [u32; 2], level: u8) {
        write_samples(path, [width, height], &vec![level; (width * height * 3) as usize]);
    }

    fn write_samples(path: &Path, [width, height]: [u32; 2], samples: &[u8]) {
        use tileforge_image::{Colour, Depth, Header, ImageWriter, RowSink};
        let header = Header::new(Size { width, height }, Colour::Rgb, Depth::Eight);
        let mut writer = ImageWriter::create(path, Format::Png, header).unwrap();
        writer.write_rows(samples).unwrap();
        Box::new(writer).finish().unwrap();
    }

    fn draw(folder: &Path, count: usize, batch: usize) -> CalibrationSamples {
        let port = Port { name: "image".into(), ty: TensorType::new(DataType::F32, [batch, 3, 8, 8]) };
        let model = Model { inputs: vec![port], ..Model::default() };
        CalibrationSamples::draw(Some(folder), count, usize::MAX, &model, &contract(None)).unwrap()
    }

    /// The level of each tile.
    fn levels(drawn: &CalibrationSamples) -> Vec<u8> {
        let tiles = drawn.samples.iter().flat_map(|sample| sample[0].1.as_f32().unwrap().outer_iter());
        tiles.map(|tile| (tile[[0, 0, 0]] * 255.0).round() as u8).collect()
    }

    #[test]
    fn as_many_tiles_as_asked_for_come_evenly_from_the_pictures() {
        let folder = pictures(20);
        // This picture is smaller than a tile.
        write_png(&folder.path().join("100.png"), [7, 30], 100);
        for count in [1, 3, 8, 20, 47] {
            let drawn = draw(folder.path(), count, 1);
            assert_eq!((drawn.tiles, drawn.samples.len(), drawn.pictures), (count, count, count.min(20)));
            assert_eq!(drawn.sha256, draw(folder.path(), count, 1).sha256);
            // Equal parts of the folder have equal shares, within one tile.
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
    fn every_number_is_drawn_as_often() {
        let (mut noise, mut often) = (Noise::new(1), [0; 7]);
        (0..7000).for_each(|_| often[drawn(&mut noise, 7)] += 1);
        assert!(often.iter().all(|often| (900..1100).contains(often)), "{often:?}");
    }

    #[test]
    fn each_image_of_a_batch_is_a_tile_of_its_own() {
        let folder = pictures(6);
        let drawn = draw(folder.path(), 5, 3);
        assert_eq!((drawn.tiles, drawn.samples.len(), levels(&drawn)), (6, 2, vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(drawn.samples[0][0].1.shape(), [3, 3, 8, 8]);
    }

    #[test]
    fn a_tile_is_a_part_of_its_picture_in_the_range_and_order_of_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        // Red encodes the position of a pixel; green and blue are other numbers.
        let [width, height, side] = [11, 9, 8];
        let pixels = (0..width * height).flat_map(|at| [at as u8, 100 + at as u8, 250 - at as u8]);
        let pixels: Vec<u8> = pixels.collect();
        write_samples(&folder.path().join("a.png"), [width as u32, height as u32], &pixels);
        for order in [ChannelOrder::Rgb, ChannelOrder::Bgr, ChannelOrder::Grey] {
            let channels = if order == ChannelOrder::Grey { 1 } else { 3 };
            let mut contract = contract(None);
            contract.inputs[0].meaning =
                Meaning::Pixels { range: [-1.0, 1.0], normalisation: None, order, padding: None };
            let port = Port { name: "image".into(), ty: TensorType::new(DataType::F32, [1, channels, side, side]) };
            let model = Model { inputs: vec![port], ..Model::default() };
            let drawn = CalibrationSamples::draw(Some(folder.path()), 300, 300, &model, &contract).unwrap();
            let expected = |x: usize, y: usize, channel: usize| {
                let pixel = &pixels[(y * width + x) * 3..][..3];
                let level = match order {
                    ChannelOrder::Rgb => f32::from(pixel[channel]),
                    ChannelOrder::Bgr => f32::from(pixel[2 - channel]),
                    ChannelOrder::Grey => pixel.iter().map(|value| f32::from(*value)).sum::<f32>() / 3.0,
                };
                level / 127.5 - 1.0
            };
            let mut corners = std::collections::BTreeSet::new();
            for sample in &drawn.samples {
                let tile = sample[0].1.as_f32().unwrap();
                let is_at = |x: usize, y: usize| {
                    tile.indexed_iter().all(|(at, value)| (value - expected(x + at[3], y + at[2], at[1])).abs() < 1e-5)
                };
                let places = (0..=width - side).flat_map(|x| (0..=height - side).map(move |y| (x, y)));
                corners.insert(places.into_iter().find(|(x, y)| is_at(*x, *y)).expect("a part of the picture"));
            }
            assert_eq!(corners.len(), (width - side + 1) * (height - side + 1), "every place is drawn");
        }
    }

    #[test]
    fn only_pictures_that_hold_a_tile_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, size) in [("low.png", [30, 7]), ("narrow.png", [7, 30])] {
            write_png(&at(name), size, 9);
        }
        std::fs::create_dir(at("folder.png")).unwrap();
        std::fs::write(at("notes.txt"), "no picture").unwrap();
        let port = Port { name: "image".into(), ty: TensorType::new(DataType::F32, [1, 3, 8, 8]) };
        let model = Model { inputs: vec![port], ..Model::default() };
        let refused = CalibrationSamples::draw(Some(folder.path()), 2, 2, &model, &contract(None)).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("low.png (30×7)") && refused.contains("narrow.png (7×30)"), "{refused}");
        write_png(&at("whole.png"), [8, 8], 5);
        assert_eq!(levels(&draw(folder.path(), 2, 1)), [5, 5]);
    }

    #[test]
    fn other_inputs_are_made_without_a_picture() {
        let folder = pictures(2);
        let mut contract = contract(None);
        contract.inputs.push(TensorSpec::new("timestep", [Axis::Batch], Meaning::Timestep { range: [0.0, 999.0] }));
        let port =
            |name: &str, dims: &[usize]| Port { name: name.into(), ty: TensorType::new(DataType::F32, dims.to_vec()) };
        let inputs = vec![port("image", &[1, 3, 8, 8]), port("timestep", &[1])];
        let model = Model { inputs, ..Model::default() };
        let drawn = CalibrationSamples::draw(Some(folder.path()), 2, 2, &model, &contract).unwrap();
        for (number, sample) in drawn.samples.iter().enumerate() {
            let names: Vec<&str> = sample.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["image", "timestep"]);
            let expected = samples::values(&contract, &contract.inputs[1], &model, number + 1).unwrap();
            assert_eq!(sample[1].1.as_f32().unwrap(), expected.as_f32().unwrap());
        }
    }

    #[test]
    fn numbers_are_drawn_anywhere_in_equal_parts() {
        let drawn = evenly(100, 10, &mut Noise::new(SEED));
        let places: Vec<usize> = drawn.iter().enumerate().map(|(part, number)| number - 10 * part).collect();
        assert!(places.iter().all(|place| *place < 10) && places.iter().any(|place| *place > 4), "{drawn:?}");
        assert_eq!(evenly(3, 3, &mut Noise::new(SEED)), [0, 1, 2]);
    }

    #[test]
    fn no_more_runs_are_made_than_the_budget_has() {
        let folder = pictures(6);
        let port = Port { name: "image".into(), ty: TensorType::new(DataType::F32, [2, 3, 8, 8]) };
        let model = Model { inputs: vec![port], ..Model::default() };
        let draw = |folder, most| CalibrationSamples::draw(folder, 6, most, &model, &contract(None)).unwrap();
        for (most, runs) in [(2, 2), (3, 3), (9, 3)] {
            let drawn = draw(Some(folder.path()), most);
            assert_eq!((drawn.tiles, drawn.samples.len()), (2 * runs, runs));
        }
        assert_eq!(draw(None, 4).samples.len(), 4);
    }

    #[test]
    fn pictures_are_normalised_as_the_contract_says() {
        let folder = pictures(2);
        let port = Port { name: "image".into(), ty: TensorType::new(DataType::F32, [1, 3, 8, 8]) };
        let model = Model { inputs: vec![port], ..Model::default() };
        let contract = contract(Some(Normalisation::IMAGENET));
        let Normalisation { mean, deviation } = Normalisation::IMAGENET;
        let drawn = CalibrationSamples::draw(Some(folder.path()), 2, 2, &model, &contract).unwrap();
        for (level, sample) in drawn.samples.iter().enumerate() {
            let values = sample[0].1.as_f32().unwrap();
            for channel in 0..3 {
                let expected = (level as f32 / 255.0 - mean[channel]) / deviation[channel];
                let plane = values.index_axis(ndarray::Axis(1), channel);
                assert!(plane.iter().all(|value| (value - expected).abs() < 1e-6));
            }
        }
    }
}
