//! Samples for measuring a graph: a value for each input, made according to its meaning in the contract.

use crate::test_image::{discs, test_image};
use crate::{Error, Result};
use ndarray::ArrayD;
use safetensors::tensor::{Dtype, SafeTensors};
use std::path::{Path, PathBuf};
use tileforge_contract::{Axis, Contract, DataType, Meaning, Normalisation, TensorSpec};
use tileforge_exporter::Noise;
use tileforge_graph::{Model, Port, Weight};
use tileforge_session::{Named, Tensor};

/// A value for each input of a graph.
pub(crate) type Sample = Named;

/// A sample in the form that a session needs.
pub(crate) fn views(sample: &Sample) -> Vec<(&str, &Tensor)> {
    sample.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect()
}

/// The one input that takes pictures, if every other input can be made without a picture.
pub(crate) fn picture_input(contract: &Contract) -> Option<&TensorSpec> {
    let mut pictures = contract.inputs.iter().filter(|tensor| matches!(tensor.meaning, Meaning::Pixels { .. }));
    let picture = pictures.next().filter(|_| pictures.next().is_none())?;
    let made = |tensor: &TensorSpec| {
        matches!(tensor.meaning, Meaning::Timestep { .. } | Meaning::Carried { .. } | Meaning::Mask)
    };
    let others = contract.inputs.iter().filter(|tensor| tensor.name != picture.name);
    let flat = matches!(*picture.axes, [Axis::Batch, Axis::Channels(_), Axis::Height(_), Axis::Width(_)]);
    (flat && others.into_iter().all(made)).then_some(picture)
}

/// Sample `number` for a graph of fixed shapes; the same number always gives the same sample. Pictures are generated.
/// Latent pictures and embeddings are noise with a standard deviation of 1, as in pipelines.
///
/// # Errors
/// The size of an input is not fixed.
pub(crate) fn sample(contract: &Contract, model: &Model, number: usize) -> Result<Sample> {
    contract.inputs.iter().map(|spec| Ok((spec.name.clone(), values(contract, spec, model, number)?))).collect()
}

/// The value of one input in sample `number`.
///
/// # Errors
/// As [`sample`].
pub(crate) fn values(contract: &Contract, spec: &TensorSpec, model: &Model, number: usize) -> Result<Tensor> {
    let port = model.inputs.iter().find(|port| port.name == spec.name);
    let dims = port.and_then(|port| port.ty.fixed_dims()).ok_or_else(|| {
        let found = port.map_or("no such input".into(), |port| port.ty.to_string());
        tileforge_graph::Error::Graph(format!("the input `{}`: expected fixed sizes, found {found}", spec.name))
    })?;
    let mut noise = Noise::new(number as u64);
    // A carried input has the meaning of the output that it is copied from.
    let meaning = match &spec.meaning {
        Meaning::Carried { from } => contract.output(from).map_or(&Meaning::Cache, |output| &output.meaning),
        meaning => meaning,
    };
    let count = dims.iter().product();
    let values: Vec<f32> = match meaning {
        Meaning::Tokens { vocabulary } => {
            let tokens = ArrayD::from_shape_vec(dims, tokens(*vocabulary, &mut noise, count));
            return Ok(tokens.map_err(|e| tileforge_graph::Error::Graph(e.to_string()))?.into());
        }
        Meaning::Pixels { range, normalisation, .. } => {
            let mut pixels = pictures(&dims, *range, number);
            if let Some(normalisation) = normalisation {
                normalise(&mut pixels, *normalisation, dims.iter().skip(2).product());
            }
            pixels
        }
        Meaning::Mask => mask(&dims, number),
        Meaning::Depth { .. } => pictures(&dims, [0.0, 1.0], number),
        Meaning::Timestep { range: [low, high] } | Meaning::Guidance { range: [low, high] } => {
            // A value between the least and the largest, different for each sample.
            let phase = ((number * 5 % 8) as f32 + 0.5) / 4.0 - 1.0;
            vec![low + (0.5 + 0.5 * phase) * (high - low); count]
        }
        Meaning::TextMask => {
            let length = text_length(dims.last().copied().unwrap_or(0));
            let row = dims.last().copied().unwrap_or(1).max(1);
            (0..count).map(|at| if at % row < length { 1.0 } else { 0.0 }).collect()
        }
        Meaning::TextLength => {
            let has_tokens = |axis: &Axis| matches!(axis, Axis::Tokens(_));
            let row = contract.inputs.iter().find_map(|input| {
                let port = model.inputs.iter().find(|port| port.name == input.name)?;
                port.ty.fixed_dims()?.get(input.axes.iter().position(has_tokens)?).copied()
            });
            vec![text_length(row.unwrap_or(usize::MAX)) as f32; count]
        }
        // Size of the original, position of the crop, requested size. The refiner's last number is a score.
        Meaning::TimeIds => [1024.0, 1024.0, 0.0, 0.0, 1024.0, 1024.0].into_iter().cycle().take(count).collect(),
        Meaning::Latent { .. }
        | Meaning::LatentDistribution { .. }
        | Meaning::NoisyLatent { .. }
        | Meaning::Prediction
        | Meaning::Embedding { .. }
        | Meaning::Residual
        | Meaning::Carried { .. }
        | Meaning::Cache => normal(&mut noise, count),
        // Integers are mostly labels or positions, and most of them allow 0.
        Meaning::Values if spec.data_type == DataType::I64 => vec![0.0; count],
        Meaning::Values => normal(&mut noise, count),
    };
    let values = ArrayD::from_shape_vec(dims, values).map_err(|e| tileforge_graph::Error::Graph(e.to_string()))?;
    Ok(if spec.data_type == DataType::I64 { values.mapv(|value| value as i64).into() } else { values.into() })
}

/// Values with a standard deviation of 1.
fn normal(noise: &mut Noise, count: usize) -> Vec<f32> {
    // Values of −1 … 1 have a variance of 1/3, so half the sum of twelve has a deviation of 1.
    (0..count).map(|_| (0..12).map(|_| noise.next_signed()).sum::<f32>() / 2.0).collect()
}

/// Pictures for a tensor of pixels: `[batch, channels, height, width]`, or with frames after the channels.
fn pictures(dims: &[usize], range: [f32; 2], number: usize) -> Vec<f32> {
    // Sample 0 is the image of self-tests. Every other sample is a different picture.
    let image = |size: [usize; 3], number: usize| match number {
        0 => test_image(size, range),
        number => discs(size, range, number as u64),
    };
    match *dims {
        // The pictures of a batch differ, so that a graph that mixes them up is found.
        [batch, channels, height, width] => {
            (0..batch).flat_map(|picture| image([channels, height, width], number + picture)).collect()
        }
        [batch, channels, frames, height, width] => {
            let plane = height * width;
            let clip = |number: usize| {
                let images: Vec<_> =
                    (0..frames).map(|frame| image([channels, height, width], number + frame)).collect();
                let planes = (0..channels).flat_map(|channel| (0..frames).map(move |frame| (channel, frame)));
                let values = planes.flat_map(|(channel, frame)| images[frame][channel * plane..][..plane].to_vec());
                values.collect::<Vec<f32>>()
            };
            (0..batch).flat_map(|picture| clip(number + picture)).collect()
        }
        _ => {
            let count: usize = dims.iter().product();
            (0..count).map(|at| range[0] + (range[1] - range[0]) * (at as f32 / count as f32)).collect()
        }
    }
}

/// Masks, `[batch, 1, height, width]`: each has a disc and a bar, which cover about a sixth of the picture.
fn mask(dims: &[usize], number: usize) -> Vec<f32> {
    let [batch, _, height, width] = *dims else { return vec![0.0; dims.iter().product()] };
    let covered = |picture: usize, y: usize, x: usize| {
        // Different for each picture, and never only at the edge.
        let turn = (number + picture) as f32 * 0.7;
        let (across, down) = (x as f32 / width as f32 - 0.5, y as f32 / height as f32 - 0.5);
        let (right, below) = (across - 0.25 * turn.cos(), down - 0.25 * turn.sin());
        let in_disc = right * right + below * below < 0.035;
        let in_bar = (across * turn.sin() + down * turn.cos()).abs() < 0.03;
        f32::from(u8::from(in_disc || in_bar))
    };
    (0..batch)
        .flat_map(|picture| (0..height).flat_map(move |y| (0..width).map(move |x| (picture, y, x))))
        .map(|(picture, y, x)| covered(picture, y, x))
        .collect()
}

/// Normalises pixels of three channels, of `plane` values each.
pub(crate) fn normalise(pixels: &mut [f32], Normalisation { mean, deviation }: Normalisation, plane: usize) {
    for (at, pixel) in pixels.iter_mut().enumerate() {
        let channel = at / plane.max(1) % mean.len();
        *pixel = (*pixel - mean[channel]) / deviation[channel];
    }
}

/// The number of tokens of a text with its start and end tokens, in a row of `row` tokens.
fn text_length(row: usize) -> usize {
    row.min(22)
}

/// Tokens of a text: the start token, words, and end tokens up to the full length.
fn tokens(vocabulary: usize, noise: &mut Noise, count: usize) -> Vec<i64> {
    // The last two tokens of CLIP's vocabulary are start and end.
    let [start, end] = [vocabulary.saturating_sub(2), vocabulary.saturating_sub(1)].map(|token| token as i64);
    let words = text_length(count).saturating_sub(2);
    let mut word = || ((noise.next_signed() * 0.5 + 0.5) * start as f32).floor() as i64;
    let token = |at: usize| match at {
        0 => start,
        at if at <= words => word(),
        _ => end,
    };
    (0..count).map(token).collect()
}

/// The safetensors files in a folder, sorted by name.
///
/// # Errors
/// The folder has no such file.
pub(crate) fn sample_files(folder: &Path, contract: &Contract) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in folder.read_dir().map_err(|e| Error::file(folder, "list", e))? {
        paths.push(entry.map_err(|e| Error::file(folder, "list", e))?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    paths.sort();
    if paths.is_empty() {
        let names = contract.inputs.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Error::input(folder, format!("expected .safetensors files with the tensors {names}, found none")));
    }
    Ok(paths)
}

/// Larger samples are refused, because they are held in memory.
const SAMPLE_MAXIMUM_BYTES: u64 = 1 << 30;

/// The sample in a safetensors file that has a tensor for each input, under the input's name.
///
/// # Errors
/// The file lacks an input, or has it in another shape or type.
pub(crate) fn read_sample(path: &Path, model: &Model) -> Result<Sample> {
    let bytes = tileforge_files::read(path, SAMPLE_MAXIMUM_BYTES).map_err(|e| Error::file(path, "read", e))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| Error::input(path, format!("not a safetensors file: {e}")))?;
    model.inputs.iter().map(|port| Ok((port.name.clone(), read_tensor(path, &file, port)?))).collect()
}

fn read_tensor(path: &Path, file: &SafeTensors<'_>, port: &Port) -> Result<Tensor> {
    let expected = port.ty.fixed_dims().unwrap_or_default();
    let tensor = file
        .tensor(&port.name)
        .map_err(|_| Error::input(path, format!("expected a tensor `{}`, found none", port.name)))?;
    if tensor.shape() != expected {
        return Err(Error::input(
            path,
            format!("`{}`: expected the shape {expected:?}, found {:?}", port.name, tensor.shape()),
        ));
    }
    let wrong = |expected: &str| {
        Error::input(path, format!("`{}`: expected {expected}, found {:?}", port.name, tensor.dtype()))
    };
    let of = |data_type: DataType| {
        Ok::<_, Error>(Weight::from_bytes(data_type, expected.clone(), tensor.data().to_vec())?.cast(DataType::F32)?)
    };
    let floats = match (port.ty.data_type, tensor.dtype()) {
        (DataType::I64, Dtype::I64) => {
            return Tensor::from_bytes(DataType::I64, &expected, tensor.data()).ok_or_else(|| wrong("I64"));
        }
        (DataType::I64, _) => return Err(wrong("I64")),
        (_, Dtype::F32) => of(DataType::F32)?,
        (_, Dtype::F16) => of(DataType::F16)?,
        (_, Dtype::BF16) => of(DataType::Bf16)?,
        _ => return Err(wrong("F32, F16 or BF16")),
    };
    let floats = floats.to_f32s()?;
    if let Some(at) = floats.iter().position(|value| !value.is_finite()) {
        return Err(Error::input(
            path,
            format!("`{}`: expected finite numbers, found {} at position {at}", port.name, floats[at]),
        ));
    }
    let values = ArrayD::from_shape_vec(expected, floats);
    Ok(values.map_err(|e| Error::input(path, e.to_string()))?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileforge_contract::{ChannelOrder, Extent, ReceptiveField, Task};
    use tileforge_graph::TensorType;

    /// A contract with these inputs, and a graph with these shapes.
    fn model(inputs: Vec<(TensorSpec, Vec<usize>)>) -> (Contract, Model) {
        let port = |(spec, dims): &(TensorSpec, Vec<usize>)| Port {
            name: spec.name.clone(),
            ty: TensorType::new(spec.data_type, dims.iter().copied()),
        };
        let model = Model { inputs: inputs.iter().map(port).collect(), ..Model::default() };
        let contract = Contract {
            task: Task::Depth,
            inputs: inputs.into_iter().map(|(spec, _)| spec).collect(),
            outputs: vec![TensorSpec::new("frame", [Axis::Batch, Axis::Channels(3)], pixels(None))],
            receptive_field: ReceptiveField::Unbounded,
            safe_precisions: Vec::new(),
        };
        (contract, model)
    }

    fn pixels(normalisation: Option<Normalisation>) -> Meaning {
        Meaning::Pixels { range: [0.0, 1.0], normalisation, order: ChannelOrder::Rgb, padding: None }
    }

    fn image(name: &str, meaning: Meaning) -> (TensorSpec, Vec<usize>) {
        let side = Extent::multiple_of(1);
        let axes = [Axis::Batch, Axis::Channels(3), Axis::Height(side), Axis::Width(side)];
        (TensorSpec::new(name, axes, meaning), vec![2, 3, 16, 24])
    }

    #[test]
    fn pixels_are_normalised_channel_by_channel() {
        let (contract, model) =
            model(vec![image("plain", pixels(None)), image("n", pixels(Some(Normalisation::IMAGENET)))]);
        let Normalisation { mean, deviation } = Normalisation::IMAGENET;
        for number in [0, 3] {
            let sample = sample(&contract, &model, number).unwrap();
            let [plain, normalised] = [0, 1].map(|at| sample[at].1.as_f32().unwrap());
            for ((at, plain), normalised) in plain.indexed_iter().zip(normalised) {
                let expected = (plain - mean[at[1]]) / deviation[at[1]];
                assert!((expected - normalised).abs() < 1e-6, "{at:?}");
            }
        }
    }

    #[test]
    fn each_meaning_has_values_of_its_own() {
        let timestep = TensorSpec::new("timestep", [], Meaning::Timestep { range: [0.0, 100.0] });
        let tokens = Meaning::Tokens { vocabulary: 40 };
        let tokens = TensorSpec::new("ids", [Axis::Batch, Axis::Tokens(None)], tokens).of_type(DataType::I64);
        let previous = image("previous", Meaning::Carried { from: "frame".into() });
        let noise = image("noise", Meaning::NoisyLatent { latent: 3, condition: 0, mask: 0, masked_image: 0 });
        let mask = TensorSpec::new("mask", [Axis::Batch, Axis::Tokens(None)], Meaning::TextMask);
        let length = TensorSpec::new("length", [Axis::Batch], Meaning::TextLength).of_type(DataType::I64);
        let guidance = TensorSpec::new("guidance", [Axis::Batch], Meaning::Guidance { range: [1.0, 15.0] });
        let texts = [(mask, vec![2, 30]), (length, vec![2]), (guidance, vec![2])];
        let specs = [vec![(timestep, vec![]), (tokens, vec![1, 9]), previous, noise], texts.into()].concat();
        let (contract, model) = model(specs);
        for number in 0..9 {
            let sample = sample(&contract, &model, number).unwrap();
            let floats = |at: usize| sample[at].1.as_f32().unwrap();
            assert!((0.0..=100.0).contains(&floats(0)[[]]));
            let Tensor::I64(ids) = &sample[1].1 else { panic!("tokens are whole numbers") };
            assert_eq!((ids[[0, 0]], ids[[0, 8]]), (38, 39));
            assert!(ids.iter().all(|id| (0..40).contains(id)));
            assert!(floats(2).iter().all(|pixel| (0.0..=1.0).contains(pixel)), "a frame that was shown is a frame");
            let variance = floats(3).iter().map(|value| value * value).sum::<f32>() / floats(3).len() as f32;
            assert!((0.9..1.1).contains(&variance), "{variance}");
            let row = [vec![1.0; 22], vec![0.0; 8]].concat();
            assert_eq!(floats(4).iter().copied().collect::<Vec<_>>(), row.repeat(2));
            assert!(floats(6).iter().all(|scale| (1.0..=15.0).contains(scale)));
        }
    }

    #[test]
    fn the_length_of_a_text_is_that_of_its_mask() {
        let mask = TensorSpec::new("mask", [Axis::Batch, Axis::Tokens(None)], Meaning::TextMask).of_type(DataType::I64);
        let length = TensorSpec::new("length", [Axis::Batch], Meaning::TextLength).of_type(DataType::I64);
        for (row, expected) in [(30, 22), (9, 9)] {
            let (contract, model) = model(vec![(length.clone(), vec![2]), (mask.clone(), vec![2, row])]);
            let sample = sample(&contract, &model, 1).unwrap();
            let [Tensor::I64(length), Tensor::I64(mask)] = [0, 1].map(|at| sample[at].1.clone()) else {
                panic!("whole numbers")
            };
            assert_eq!(length.iter().copied().collect::<Vec<_>>(), [expected; 2]);
            assert_eq!(mask.sum(), 2 * expected);
        }
    }

    #[test]
    fn pictures_calibrate_whatever_takes_one() {
        let other = |meaning| {
            let (contract, _) = model(vec![image("a", pixels(None)), image("b", meaning)]);
            picture_input(&contract).map(|input| input.name.clone())
        };
        assert_eq!(other(Meaning::Carried { from: "frame".into() }), Some("a".into()));
        assert_eq!(other(Meaning::Cache), None);
        assert_eq!(other(pixels(None)), None);
    }
}
