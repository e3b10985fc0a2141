//! What a graph is run on to measure it: test images, tiles of pictures, and tensors for the components of larger
//! systems.

use crate::test_image::test_image;
use crate::{Error, Result};
use ndarray::{ArrayD, ArrayViewD};
use safetensors::tensor::{Dtype, SafeTensors};
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_exporter::Noise;
use tileforge_graph::{DataType, Model, Port};
use tileforge_runtime::engine::manifest::{Component, Interface, Task};

/// A value for each input of a graph. Whole numbers, such as tokens, are floats here, as
/// [`tileforge_runtime::session::Session::run`] takes them.
pub(crate) type Sample = Vec<(String, ArrayD<f32>)>;

/// A sample as a session takes it.
pub(crate) fn views(sample: &Sample) -> Vec<(&str, ArrayViewD<'_, f32>)> {
    sample.iter().map(|(name, values)| (name.as_str(), values.view())).collect()
}

/// What a model's inputs are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Purpose {
    /// A picture.
    Images(Interface),
    /// Tensors of the kinds that a task has.
    Tensors(Component),
}

/// Steps of the noise that UNets are trained on.
const TIMESTEPS: f32 = 1000.0;
/// ImageNet's mean and deviation, by which depth networks have their pixels normalised.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

impl Purpose {
    /// The task.
    pub(crate) fn task(&self) -> Task {
        match self {
            Purpose::Images(interface) => interface.task,
            Purpose::Tensors(component) => component.task,
        }
    }

    /// The picture's interface, if a picture is what the model takes.
    pub(crate) fn images(&self) -> Option<&Interface> {
        match self {
            Purpose::Images(interface) => Some(interface),
            Purpose::Tensors(_) => None,
        }
    }

    /// The sample of a number for a graph of fixed shapes, always the same. Pictures are test images; latent images and
    /// what texts become are noise of deviation 1, as systems make them.
    ///
    /// # Errors
    /// An input has a size that is not fixed.
    pub(crate) fn sample(&self, model: &Model, number: usize) -> Result<Sample> {
        model.inputs.iter().map(|port| Ok((port.name.clone(), self.values(model, port, number)?))).collect()
    }

    fn values(&self, model: &Model, port: &Port, number: usize) -> Result<ArrayD<f32>> {
        let open =
            || tileforge_graph::Error::Graph(format!("the input `{}` is {}: expected fixed sizes", port.name, port.ty));
        let dims = port.ty.fixed_dims().ok_or_else(open)?;
        let count = dims.iter().product();
        let mut noise = Noise::new(number as u64);
        // From -1 to 1, a step for each sample.
        let phase = ((number * 5 % 8) as f32 + 0.5) / 4.0 - 1.0;
        let image = |range: [f32; 2]| match *dims.as_slice() {
            // Each sample is another part of a larger image; one alone is the whole.
            [batch, channels, height, width] if number == 0 => test_image(channels, height, width, range).repeat(batch),
            [batch, channels, height, width] => {
                part_of_test_image([channels, height, width], range, number as u64).repeat(batch)
            }
            _ => (0..count).map(|at| range[0] + (range[1] - range[0]) * (at as f32 / count as f32)).collect(),
        };
        let values: Vec<f32> = match (self, port.name.as_str()) {
            (Purpose::Images(interface), _) => image(interface.range),
            (Purpose::Tensors(component), name) => match (component.task, name) {
                (_, "timestep") => vec![(0.5 + 0.5 * phase) * TIMESTEPS; count],
                // The size of the original, where it was cut, and the size that is asked for; the refiner's last one is
                // a score.
                (_, "time_ids") => [1024.0, 1024.0, 0.0, 0.0, 1024.0, 1024.0].into_iter().cycle().take(count).collect(),
                (Task::TextEncoder, _) => tokens(model, port, &mut noise, count),
                (Task::VaeEncoder, "sample") => image([-1.0, 1.0]),
                (Task::Realtime, "frame" | "previous_frame") | (Task::Depth, "inverse_depth") => image([0.0, 1.0]),
                (Task::Depth, "pixel_values") => {
                    let mut pixels = image([0.0, 1.0]);
                    if component.facts.get("input.pixel_values").is_some_and(|fact| fact.contains("ImageNet")) {
                        let plane = count / (dims[0] * MEAN.len()).max(1);
                        for (at, pixel) in pixels.iter_mut().enumerate() {
                            let channel = at / plane.max(1) % MEAN.len();
                            *pixel = (*pixel - MEAN[channel]) / DEVIATION[channel];
                        }
                    }
                    pixels
                }
                // The sum of twelve has a deviation of 1 after halving: those of -1 … 1 have a variance of 1/3.
                _ => (0..count).map(|_| (0..12).map(|_| noise.next_signed()).sum::<f32>() / 2.0).collect(),
            },
        };
        Ok(ArrayD::from_shape_vec(dims, values).map_err(|e| tileforge_graph::Error::Graph(e.to_string()))?)
    }
}

/// `[channels, height, width]` of a test image with twice the height and width.
fn part_of_test_image([channels, height, width]: [usize; 3], range: [f32; 2], seed: u64) -> Vec<f32> {
    let (rows, columns) = (height * 2, width * 2);
    let image = test_image(channels, rows, columns, range);
    let mut noise = Noise::new(seed);
    let mut draw =
        |length: usize| ((noise.next_signed() * 0.5 + 0.5) * (length + 1) as f32).floor().min(length as f32) as usize;
    let (x, y) = (draw(columns - width), draw(rows - height));
    let rows_of = |c: usize| (0..height).map(move |row| ((c * rows) + y + row) * columns + x);
    (0..channels).flat_map(rows_of).flat_map(|at| &image[at..at + width]).copied().collect()
}

/// Tokens of a text: its first one and its last one, as CLIP's vocabulary has them at its end, and words between them.
fn tokens(model: &Model, port: &Port, noise: &mut Noise, count: usize) -> Vec<f32> {
    // The table that they are looked up in has a row for each.
    let lookup = model.nodes.iter().find(|node| node.operator == "Gather" && node.inputs.get(1) == Some(&port.name));
    let table = lookup.and_then(|node| model.type_of(&node.inputs[0])).and_then(|ty| ty.fixed_dims());
    let vocabulary = table.and_then(|dims| dims.first().copied()).unwrap_or(1);
    let [first, last] = [vocabulary.saturating_sub(2), vocabulary.saturating_sub(1)].map(|token| token as f32);
    let words = count.saturating_sub(2).min(20);
    let mut word = || ((noise.next_signed() * 0.5 + 0.5) * first).floor();
    (0..count)
        .map(|at| {
            if at == 0 {
                first
            } else if at <= words {
                word()
            } else {
                last
            }
        })
        .collect()
}

/// The safetensors files in a folder, sorted by name.
///
/// # Errors
/// There are none.
pub(crate) fn sample_files(folder: &Path, model: &Model) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in folder.read_dir().map_err(|e| Error::file(folder, "list", e))? {
        paths.push(entry.map_err(|e| Error::file(folder, "list", e))?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    paths.sort();
    if paths.is_empty() {
        let names = model.inputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Error::input(folder, format!("expected .safetensors files with the tensors {names}, found none")));
    }
    Ok(paths)
}

/// The sample in a safetensors file, which has a tensor for each input, under its name.
///
/// # Errors
/// It lacks an input, or has it in another shape or type.
pub(crate) fn read_sample(path: &Path, model: &Model) -> Result<Sample> {
    let bytes = fs::read(path).map_err(|e| Error::file(path, "read", e))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| Error::input(path, format!("not a safetensors file: {e}")))?;
    let read = |port: &Port| {
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
        let of = |data_type: DataType| {
            Ok::<_, Error>(tileforge_graph::Weight::from_bytes(data_type, expected.clone(), tensor.data().to_vec())?)
        };
        let values = match tensor.dtype() {
            Dtype::F32 => of(DataType::F32)?.to_f32s()?,
            Dtype::F16 => of(DataType::F16)?.cast(DataType::F32)?.to_f32s()?,
            Dtype::BF16 => of(DataType::Bf16)?.cast(DataType::F32)?.to_f32s()?,
            Dtype::I64 => of(DataType::I64)?.to_i64s()?.into_iter().map(|value| value as f32).collect(),
            other => {
                return Err(Error::input(
                    path,
                    format!("`{}`: expected F32, F16, BF16 or I64, found {other:?}", port.name),
                ));
            }
        };
        let values = ArrayD::from_shape_vec(expected, values).map_err(|e| Error::input(path, e.to_string()))?;
        Ok((port.name.clone(), values))
    };
    model.inputs.iter().map(read).collect()
}
