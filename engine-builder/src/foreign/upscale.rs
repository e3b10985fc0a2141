//! Networks from picture to picture.

use super::fold::{Folding, check_memory};
use super::opened::{Foreign, safe_precisions};
use super::probe::{Found, Probe};
use super::wrap::{Form, Wrapping, with_plain_names};
use crate::{Error, Progress, Result};
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_contract::{ChannelOrder, Padding, ReceptiveField, Upscale};
use tileforge_engine::manifest::ForeignRecipe;
use tileforge_exporter::foreign::{ForeignGraph, Layout, Picture, receptive_field};
use tileforge_graph::{DataType, Dim, Model, Reach};

/// The least sides of the pictures that the receptive field is measured on.
const SIDES: [usize; 3] = [64, 96, 128];

pub(super) fn open(
    path: &Path,
    graph: ForeignGraph,
    said: &ForeignRecipe,
    folding: Folding,
    progress: &dyn Progress,
) -> Result<Foreign> {
    let safe_precisions = safe_precisions(&graph);
    let model = with_plain_names(graph.model);
    let picture = picture_of(path, &model, &folding)?;
    let range = said.input_range.unwrap_or_else(|| default_range(&model));
    let mut model = in_one_form(path, &model, &picture, said, range)?;
    let picture = Picture {
        input: tileforge_exporter::foreign::PictureTensor { layout: Layout::Nchw, ..picture.input },
        output: tileforge_exporter::foreign::PictureTensor { layout: Layout::Nchw, ..picture.output },
        ..picture
    };
    check_memory(&model)?;
    let mut probe = Probe::open(path, folding.environment(), &model, picture.channels, range)?;
    let [batch, rows, columns] = picture.input.dims.each_ref().map(Dim::fixed);
    let multiple = said.size_multiple.map(|multiple| multiple as usize);
    let found = match (rows, columns) {
        (Some(rows), Some(columns)) => probe.fixed(batch.unwrap_or(1), [rows, columns])?,
        (None, None) => probe.free(multiple, batch)?,
        _ => return Err(Error::input(path, "expected that both sides of the picture are free, or both fixed")),
    };
    if batch.is_none() && !found.batches {
        if rows.is_none() {
            progress.note("  it takes one picture in a run: in a batch, pictures would change each other");
        }
        fix_batch(&mut model)?;
    }
    let seen = seen(&model, &picture, &found, &folding);
    let (receptive_field, found) = match seen {
        Ok(Reach { radius, period }) => {
            let multiple = if rows.is_some() { period } else { least_common_multiple(found.multiple, period) };
            let radius = u32::try_from(radius).unwrap_or(u32::MAX);
            (ReceptiveField::Radius(radius), Found { multiple, ..found })
        }
        Err(reason) => {
            progress.note(&format!("  its receptive field is not bounded, so tiles are approximate: {reason}"));
            (ReceptiveField::Unbounded, found)
        }
    };
    let contract = Upscale {
        input: picture.input.name.clone(),
        output: picture.output.name.clone(),
        scale: found.scale,
        channels: picture.channels,
        range,
        size_multiple: found.multiple,
        size_minimum: found.minimum.next_multiple_of(found.multiple),
        only_size: None,
        padding: Padding::Reflect,
        receptive_field,
        safe_precisions,
    }
    .contract();
    contract.validate()?;
    progress.note(&summary(&contract, &found, rows.zip(columns)));
    if Folding::is_complete(&model) {
        return Ok(Foreign { model, contract, folding: None });
    }
    if let (Some(rows), Some(columns)) = (rows, columns) {
        let model = at_size(&model, &picture, [rows, columns], &folding)?;
        return Ok(Foreign { model, contract, folding: None });
    }
    Ok(Foreign { model, contract, folding: Some(folding) })
}

fn summary(contract: &tileforge_contract::Contract, found: &Found, fixed: Option<(usize, usize)>) -> String {
    let sizes = match fixed {
        Some((rows, columns)) => format!("pictures of {columns}×{rows} alone"),
        None if found.multiple == 1 && found.minimum == 1 => "pictures of any size".to_owned(),
        None => format!("sides that are multiples of {} from {} on", found.multiple, found.minimum),
    };
    let field = match contract.receptive_field {
        ReceptiveField::Radius(1) => ", a receptive field of 1 pixel in each direction".to_owned(),
        ReceptiveField::Radius(radius) => format!(", a receptive field of {radius} pixels in each direction"),
        ReceptiveField::Unbounded => String::new(),
    };
    format!("  found: ×{}, {sizes}{field}", found.scale)
}

/// The picture tensors of a graph. Where our shape inference does not find the output's axes, ONNX Runtime's does.
fn picture_of(path: &Path, model: &Model, folding: &Folding) -> Result<Picture> {
    let wrong = |reason: String| {
        Error::input(path, format!("{reason}; for other networks, give a contract or the task tensors"))
    };
    let found = Picture::of(model);
    let output_is_known = model.outputs.iter().all(|port| model.types.contains_key(&port.name));
    if output_is_known || model.inputs.len() != 1 || model.outputs.len() != 1 {
        return found.map_err(wrong);
    }
    let Some(port) = model.inputs.first() else { return found.map_err(wrong) };
    let length = |dim: &Dim| dim.fixed().unwrap_or(64);
    // The batch is not a side.
    let dims = port
        .ty
        .dims
        .iter()
        .enumerate()
        .map(|(axis, dim)| if axis == 0 { dim.fixed().unwrap_or(1) } else { length(dim) });
    let fixed = folding.of_shapes(model, &BTreeMap::from([(port.name.clone(), dims.collect())]))?;
    let folded = Picture::of(&fixed).map_err(wrong)?;
    let mut with_output = model.clone();
    with_output.outputs.clone_from(&fixed.outputs);
    let mut picture = Picture::of(&with_output).map_err(wrong)?;
    picture.output = folded.output;
    Ok(picture)
}

/// 0 to 255 for bytes, 0 to 1 for all others.
fn default_range(model: &Model) -> [f32; 2] {
    let is_bytes = model.inputs.first().is_some_and(|port| port.ty.data_type == DataType::U8);
    [0.0, if is_bytes { 255.0 } else { 1.0 }]
}

/// The graph with a picture `[batch, channels, height, width]` of FP32 at both ends, red first.
fn in_one_form(path: &Path, model: &Model, picture: &Picture, said: &ForeignRecipe, range: [f32; 2]) -> Result<Model> {
    let refuse = |reason: &str| Err(Error::input(path, reason));
    let reversed = match said.channel_order {
        Some(ChannelOrder::Bgr) if picture.channels != 3 => {
            return refuse("a picture of one channel has no order of them");
        }
        Some(ChannelOrder::Grey) if picture.channels != 1 => return refuse("expected one channel for grey, found 3"),
        order => order == Some(ChannelOrder::Bgr),
    };
    let normalisation = match (said.mean, said.deviation) {
        (None, None) => None,
        _ if picture.channels != 3 => return refuse("mean and deviation are for three channels"),
        (mean, deviation) => Some((mean.unwrap_or([0.0; 3]), deviation.unwrap_or([1.0; 3]))),
    };
    let is_sound = |(mean, deviation): &([f32; 3], [f32; 3])| {
        mean.iter().all(|value| value.is_finite()) && deviation.iter().all(|value| value.is_finite() && *value > 0.0)
    };
    if normalisation.as_ref().is_some_and(|given| !is_sound(given)) {
        return refuse("expected numbers as mean, and numbers above 0 as deviation");
    }
    let form = |layout: Layout, data_type: DataType, is_input: bool| {
        let axes = (layout == Layout::Nhwc).then_some([0, 2, 3, 1]);
        let bounds = match data_type {
            DataType::U8 if is_input => Some([range[0].max(0.0), range[1].min(255.0)]),
            _ => None,
        };
        let allowed = matches!(data_type, DataType::F32 | DataType::F64 | DataType::U8);
        let data_type = (data_type != DataType::F32).then_some(DataType::F32);
        allowed.then_some(Form { axes, reversed, normalisation, bounds, data_type })
    };
    let type_of = |ports: &[tileforge_graph::Port]| ports.first().map_or(DataType::F32, |port| port.ty.data_type);
    let types = [type_of(&model.inputs), type_of(&model.outputs)];
    let (Some(before), Some(behind)) =
        (form(picture.input.layout, types[0], true), form(picture.output.layout, types[1], false))
    else {
        return Err(Error::input(
            path,
            format!("expected pictures of floats or bytes, found {} and {}", types[0], types[1]),
        ));
    };
    let mut wrapping = Wrapping::new(model.clone());
    wrapping.output(&picture.output.name, &behind)?;
    wrapping.input(&picture.input.name, &before)?;
    wrapping.finish()
}

fn fix_batch(model: &mut Model) -> Result<()> {
    if let Some(dim) = model.inputs.first_mut().and_then(|port| port.ty.dims.first_mut()) {
        *dim = Dim::Fixed(1);
    }
    Ok(model.infer_types()?)
}

/// The receptive field: for free sizes, measured in two sizes.
fn seen(model: &Model, picture: &Picture, found: &Found, folding: &Folding) -> Result<Reach, String> {
    let [_, rows, columns] = picture.input.dims.each_ref().map(Dim::fixed);
    let sizes = match rows.zip(columns) {
        Some((rows, columns)) => vec![[rows, columns]],
        None => {
            // Multiples that suit strides and windows.
            let unit = least_common_multiple(found.multiple, 32);
            let [small, middle, large] = SIDES.map(|side| side.max(found.minimum).next_multiple_of(unit));
            vec![[small, middle.max(small + unit)], [large.max(small + 2 * unit), small]]
        }
    };
    let at = |size: [usize; 2]| at_size(model, picture, size, folding).map_err(|error| error.to_string());
    let models = sizes.into_iter().map(at).collect::<Result<Vec<_>, _>>()?;
    receptive_field(&models, picture, found.scale)
}

fn at_size(model: &Model, picture: &Picture, [rows, columns]: [usize; 2], folding: &Folding) -> Result<Model> {
    let batch = model.inputs.first().and_then(|port| port.ty.dims.first()?.fixed()).unwrap_or(1);
    let shape = vec![batch, picture.channels, rows, columns];
    folding.of_shapes(model, &BTreeMap::from([(picture.input.name.clone(), shape)]))
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let multiple = (1..).map(|times| a * times).find(|multiple| multiple.is_multiple_of(b.max(1)));
    multiple.unwrap_or(a)
}
