//! The part of its inputs that each operator sees.

use super::field::Field;
use super::graph::Graph;
use super::ratio::Ratio;
use crate::Node;

/// Operators that work on each element, with broadcasting.
const ELEMENTWISE: [&str; 54] = [
    "Abs",
    "Acos",
    "Add",
    "And",
    "Asin",
    "Atan",
    "Cast",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tanh",
];

const OVERFLOW: &str = "its sizes overflow";

/// The fields of a node's outputs. At least one of its inputs has a field.
pub(super) fn outputs(graph: &Graph<'_>, node: &Node) -> Result<Vec<Field>, String> {
    if !node.domain.is_empty() {
        return Err("it is not one of ONNX's own operators".into());
    }
    let operator = node.operator.as_str();
    let one = match operator {
        _ if ELEMENTWISE.contains(&operator) || matches!(operator, "Where" | "ThresholdedRelu" | "Tan") => {
            elementwise(graph, node)?
        }
        // Scales and statistics have one value, or one for each channel.
        "BatchNormalization" | "QuantizeLinear" | "DequantizeLinear" => of_first(graph, node)?,
        "Conv" => convolution(graph, node)?,
        "ConvTranspose" => transposed_convolution(graph, node)?,
        "MaxPool" | "AveragePool" | "LpPool" => pooling(graph, node)?,
        "GlobalAveragePool" | "GlobalMaxPool" => {
            let rank = graph.dims(node, 0)?.len();
            along(of_first(graph, node)?, graph.dims(node, 0)?, 2..rank, Field::reduced)?
        }
        "InstanceNormalization" => {
            let rank = graph.dims(node, 0)?.len();
            along(of_first(graph, node)?, graph.dims(node, 0)?, 2..rank, Field::whole_axis)?
        }
        "GroupNormalization" => {
            let rank = graph.dims(node, 0)?.len();
            along(of_first(graph, node)?, graph.dims(node, 0)?, 1..rank, Field::whole_axis)?
        }
        "LayerNormalization" => {
            let dims = graph.dims(node, 0)?;
            let from = axis(node.int("axis").unwrap_or(-1), dims.len())?;
            along(of_first(graph, node)?, dims, from..dims.len(), Field::whole_axis)?
        }
        "Softmax" | "LogSoftmax" | "Hardmax" | "LpNormalization" | "CumSum" => {
            let dims = graph.dims(node, 0)?;
            let given = match operator {
                "CumSum" => graph.integers(node, 1)?.and_then(|axes| axes.first().copied()),
                _ => node.int("axis"),
            };
            let at = axis(given.unwrap_or(-1), dims.len())?;
            along(of_first(graph, node)?, dims, at..at.saturating_add(1), Field::whole_axis)?
        }
        "ArgMax" | "ArgMin" => {
            let rank = graph.dims(node, 0)?.len();
            reduction(graph, node, vec![axis(node.int("axis").unwrap_or(0), rank)?])?
        }
        _ if operator.starts_with("Reduce") => {
            let rank = graph.dims(node, 0)?.len();
            let axes = match node.ints("axes") {
                Some(axes) => Some(axes.to_vec()),
                None => graph.integers(node, 1)?,
            };
            let axes = axes.filter(|axes| !axes.is_empty());
            match axes {
                None if node.int("noop_with_empty_axes").unwrap_or(0) != 0 => of_first(graph, node)?,
                None => reduction(graph, node, (0..rank).collect())?,
                Some(axes) => {
                    let axes = axes.into_iter().map(|at| axis(at, rank)).collect::<Result<_, _>>()?;
                    reduction(graph, node, axes)?
                }
            }
        }
        "MatMul" => product(graph, node, [false, false])?,
        "Gemm" => {
            let turned = ["transA", "transB"].map(|name| node.int(name).unwrap_or(0) != 0);
            product(graph, node, turned)?
        }
        "DepthToSpace" => depth_to_space(graph, node)?,
        "SpaceToDepth" => space_to_depth(graph, node)?,
        "Resize" => resize(graph, node)?,
        "Concat" => concat(graph, node)?,
        "Split" => return split(graph, node),
        "Slice" => slice(graph, node)?,
        "Pad" => pad(graph, node)?,
        "Transpose" => {
            let field = of_first(graph, node)?;
            let reversed: Vec<i64> = (0..field.steps.len() as i64).rev().collect();
            let order = node.ints("perm").unwrap_or(&reversed);
            let steps = order.iter().map(|at| field.step(usize::try_from(*at).ok()?)).collect::<Option<_>>();
            Field { steps: steps.ok_or("its axes are not those of its input")?, ..field }
        }
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => {
            let (from, to) = (graph.dims(node, 0)?, graph.output_dims(node)?);
            of_first(graph, node)?.reshaped(from, to).ok_or(OVERFLOW)?
        }
        "Expand" => {
            let (from, to) = (graph.dims(node, 0)?, graph.output_dims(node)?);
            of_first(graph, node)?.broadcast(from, to).ok_or(OVERFLOW)?
        }
        "Tile" => {
            let field = of_first(graph, node)?;
            let repeats = graph.integers(node, 1)?.unwrap_or_default();
            let mut repeated = repeats.iter().enumerate().filter(|(_, times)| **times != 1);
            if repeated.any(|(at, _)| field.moves_along(at)) {
                return Err("it repeats the picture".into());
            }
            field
        }
        "Gather" => gather(graph, node)?,
        "ScatterND" => scatter(graph, node)?,
        "GridSample" | "DeformConv" => return Err("where it reads depends on the picture".into()),
        "Attention" => return Err("each place attends to all others".into()),
        _ => return Err("its receptive field is not known".into()),
    };
    Ok(vec![one; node.outputs.len().max(1)])
}

fn of_first(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    if (1..node.inputs.len()).any(|index| graph.field(node, index).is_some()) {
        return Err("what it does depends on the picture".into());
    }
    graph.field(node, 0).cloned().ok_or_else(|| "what it does depends on the picture".into())
}

fn axis(at: i64, rank: usize) -> Result<usize, String> {
    let at = if at < 0 { at.saturating_add(i64::try_from(rank).unwrap_or(0)) } else { at };
    usize::try_from(at).ok().filter(|at| *at < rank).ok_or_else(|| "its axis is not one of its input".into())
}

fn along(
    field: Field,
    dims: &[usize],
    mut axes: impl Iterator<Item = usize>,
    widen: impl Fn(Field, usize, usize) -> Option<Field>,
) -> Result<Field, String> {
    axes.try_fold(field, |field, at| widen(field, at, *dims.get(at)?)).ok_or_else(|| OVERFLOW.into())
}

/// The union over all inputs, each broadcast to the output.
fn elementwise(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    let made = graph.output_dims(node)?;
    let mut union: Option<Field> = None;
    for index in (0..node.inputs.len()).filter(|index| !node.inputs.get(*index).is_some_and(String::is_empty)) {
        let Some(field) = graph.field(node, index) else { continue };
        let field = field.clone().broadcast(graph.dims(node, index)?, made).ok_or(OVERFLOW)?;
        union = Some(match union {
            None => field,
            Some(union) => union.union(field, made).ok_or(OVERFLOW)?,
        });
    }
    let union = union.ok_or(OVERFLOW)?;
    for index in (0..node.inputs.len()).filter(|index| graph.field(node, *index).is_none()) {
        if node.inputs.get(index).is_some_and(|name| !name.is_empty()) {
            is_same_everywhere(&union, made, graph.dims(node, index)?)?;
        }
    }
    Ok(union)
}

/// Checks that a constant of these lengths, broadcast to the shape `made`, does not differ from place to place.
fn is_same_everywhere(field: &Field, made: &[usize], constant: &[usize]) -> Result<(), String> {
    let more = made.len().checked_sub(constant.len()).ok_or(OVERFLOW)?;
    let mut long = constant.iter().enumerate().filter(|(_, length)| **length != 1);
    match long.any(|(at, _)| field.moves_along(at.saturating_add(more))) {
        true => Err("it has a constant for each place of the picture".into()),
        false => Ok(()),
    }
}

fn whole(value: usize) -> Result<Ratio, String> {
    Ratio::whole(value).ok_or_else(|| OVERFLOW.into())
}

/// How windows move along one axis.
struct Windows {
    stride: Ratio,
    /// From the position of the window's first element to that of the last.
    first: Ratio,
    last: Ratio,
}

/// The windows of a node along its spatial axes, with a kernel of these sides.
fn windows(graph: &Graph<'_>, node: &Node, kernel: &[usize]) -> Result<Vec<Windows>, String> {
    let spatial = kernel.len();
    let list = |name: &str, length: usize, default: i64| {
        let values = node.ints(name).map_or_else(|| vec![default; length], <[i64]>::to_vec);
        if values.len() == length { Ok(values) } else { Err(format!("attribute `{name}` does not fit its input")) }
    };
    let (pads, strides) = (list("pads", spatial.saturating_mul(2), 0)?, list("strides", spatial, 1)?);
    let dilations = list("dilations", spatial, 1)?;
    let (dims, made) = (graph.dims(node, 0)?, graph.output_dims(node)?);
    let mut all = Vec::with_capacity(spatial);
    for (at, side) in kernel.iter().enumerate() {
        let number = |list: &[i64]| list.get(at).copied().unwrap_or(0);
        let (stride, dilation) = (number(&strides), number(&dilations));
        let span = i64::try_from(*side).ok().and_then(|side| side.checked_sub(1)?.checked_mul(dilation));
        let span = span.ok_or(OVERFLOW)?;
        let begin = match node.text("auto_pad") {
            Some(mode @ ("SAME_UPPER" | "SAME_LOWER")) => {
                let length = |dims: &[usize]| i64::try_from(dims.get(at.saturating_add(2)).copied().unwrap_or(0)).ok();
                let total = length(made)
                    .zip(length(dims))
                    .and_then(|(made, own)| {
                        made.checked_sub(1)?.checked_mul(stride)?.checked_add(span)?.checked_add(1)?.checked_sub(own)
                    })
                    .ok_or(OVERFLOW)?
                    .max(0);
                if mode == "SAME_UPPER" { total.div_euclid(2) } else { total.saturating_sub(total.div_euclid(2)) }
            }
            Some("VALID") => 0,
            _ => number(&pads),
        };
        let ratio = |value: i64| Ratio::new(value, 1).ok_or_else(|| OVERFLOW.to_owned());
        let first = begin.checked_neg().ok_or(OVERFLOW)?;
        all.push(Windows {
            stride: ratio(stride)?,
            first: ratio(first)?,
            last: ratio(first.checked_add(span).ok_or(OVERFLOW)?)?,
        });
    }
    Ok(all)
}

fn convolution(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    let dims = graph.dims(node, 0)?;
    let kernel = graph.dims(node, 1)?.get(2..).ok_or("its weight has no kernel")?;
    let mut field = of_first(graph, node)?.reduced(1, dims.get(1).copied().unwrap_or(1)).ok_or(OVERFLOW)?;
    for (at, window) in windows(graph, node, kernel)?.into_iter().enumerate() {
        field = field.window(at.saturating_add(2), window.stride, window.first, window.last).ok_or(OVERFLOW)?;
    }
    Ok(field)
}

fn transposed_convolution(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    if node.text("auto_pad").is_some_and(|mode| mode != "NOTSET") || node.ints("output_shape").is_some() {
        return Err("its padding depends on the picture's size".into());
    }
    let dims = graph.dims(node, 0)?;
    let kernel = graph.dims(node, 1)?.get(2..).ok_or("its weight has no kernel")?;
    let mut field = of_first(graph, node)?.reduced(1, dims.get(1).copied().unwrap_or(1)).ok_or(OVERFLOW)?;
    for (at, Windows { stride, first, last }) in windows(graph, node, kernel)?.into_iter().enumerate() {
        // Element i reaches outputs i · stride + first … i · stride + last.
        let over = |value: Ratio| Ratio::ZERO.minus(value)?.over(stride.numerator);
        let (low, high) = (over(last).ok_or(OVERFLOW)?, over(first).ok_or(OVERFLOW)?);
        let scale = Ratio::new(1, stride.numerator).ok_or(OVERFLOW)?;
        field = field.window(at.saturating_add(2), scale, low, high).ok_or(OVERFLOW)?;
    }
    Ok(field)
}

fn pooling(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    let kernel = node.ints("kernel_shape").unwrap_or_default();
    let kernel =
        kernel.iter().map(|side| usize::try_from(*side)).collect::<Result<Vec<_>, _>>().map_err(|_| OVERFLOW)?;
    let mut field = of_first(graph, node)?;
    for (at, window) in windows(graph, node, &kernel)?.into_iter().enumerate() {
        field = field.window(at.saturating_add(2), window.stride, window.first, window.last).ok_or(OVERFLOW)?;
    }
    Ok(field)
}

fn reduction(graph: &Graph<'_>, node: &Node, mut axes: Vec<usize>) -> Result<Field, String> {
    let dims = graph.dims(node, 0)?;
    let mut field = of_first(graph, node)?;
    axes.sort_unstable();
    axes.dedup();
    for at in axes.into_iter().rev() {
        let length = dims.get(at).copied().ok_or(OVERFLOW)?;
        field = match node.int("keepdims").unwrap_or(1) {
            0 => field.without(at, length),
            _ => field.reduced(at, length),
        }
        .ok_or(OVERFLOW)?;
    }
    Ok(field)
}

/// Matrix products where one or both sides have a field.
fn product(graph: &Graph<'_>, node: &Node, turned: [bool; 2]) -> Result<Field, String> {
    let made = graph.output_dims(node)?;
    let mut union: Option<Field> = None;
    for index in 0..node.inputs.len() {
        let Some(field) = graph.field(node, index).cloned() else { continue };
        let dims = graph.dims(node, index)?;
        if index == 2 {
            let field = field.broadcast(dims, made).ok_or(OVERFLOW)?;
            union = Some(match union {
                None => field,
                Some(union) => union.union(field, made).ok_or(OVERFLOW)?,
            });
            continue;
        }
        let rank = dims.len();
        if rank < 2 || made.len() < 2 {
            return Err("it multiplies a vector".into());
        }
        // The inner axis is summed over; the outer axis is an axis of the result.
        let is_turned = turned.get(index).copied().unwrap_or(false);
        let (inner, outer) = match (index == 0) != is_turned {
            true => (rank.saturating_sub(1), rank.saturating_sub(2)),
            false => (rank.saturating_sub(2), rank.saturating_sub(1)),
        };
        let field = field.reduced(inner, dims.get(inner).copied().unwrap_or(1)).ok_or(OVERFLOW)?;
        let step = field.step(outer).ok_or(OVERFLOW)?;
        let mut steps: Vec<_> = field.steps.iter().take(rank.saturating_sub(2)).copied().collect();
        let none = [Ratio::ZERO; 2];
        steps.extend(if index == 0 { [step, none] } else { [none, step] });
        let lengths: Vec<usize> =
            dims.iter().take(rank.saturating_sub(2)).copied().chain(made.iter().rev().take(2).rev().copied()).collect();
        let field = Field { steps, ..field }.broadcast(&lengths, made).ok_or(OVERFLOW)?;
        union = Some(match union {
            None => field,
            Some(union) => union.union(field, made).ok_or(OVERFLOW)?,
        });
    }
    let union = union.ok_or(OVERFLOW)?;
    for index in (0..node.inputs.len()).filter(|index| graph.field(node, *index).is_none()) {
        let dims = graph.dims(node, index)?;
        let stack = if index == 2 { dims } else { dims.get(..dims.len().saturating_sub(2)).unwrap_or_default() };
        let places = if index == 2 { made } else { made.get(..made.len().saturating_sub(2)).unwrap_or_default() };
        is_same_everywhere(&union, places, stack)?;
    }
    Ok(union)
}

fn block(node: &Node) -> Result<i64, String> {
    node.int("blocksize")
        .filter(|block| *block > 0)
        .ok_or_else(|| "attribute `blocksize` is not a positive number".into())
}

fn depth_to_space(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    let (block, dims) = (block(node)?, graph.dims(node, 0)?);
    let mut field = of_first(graph, node)?.reduced(1, dims.get(1).copied().unwrap_or(1)).ok_or(OVERFLOW)?;
    // ⌊i / block⌋
    let (scale, rest) = (Ratio::new(1, block), Ratio::new(1_i64.saturating_sub(block), block));
    for at in [2, 3] {
        field = field.window(at, scale.ok_or(OVERFLOW)?, rest.ok_or(OVERFLOW)?, Ratio::ZERO).ok_or(OVERFLOW)?;
    }
    Ok(field)
}

fn space_to_depth(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    let (block, dims) = (block(node)?, graph.dims(node, 0)?);
    let mut field = of_first(graph, node)?.reduced(1, dims.get(1).copied().unwrap_or(1)).ok_or(OVERFLOW)?;
    let (scale, last) = (Ratio::new(block, 1), Ratio::new(block.saturating_sub(1), 1));
    for at in [2, 3] {
        field = field.window(at, scale.ok_or(OVERFLOW)?, Ratio::ZERO, last.ok_or(OVERFLOW)?).ok_or(OVERFLOW)?;
    }
    Ok(field)
}

fn resize(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    if node.ints("axes").is_some() || node.text("coordinate_transformation_mode") == Some("tf_crop_and_resize") {
        return Err("its receptive field is not known".into());
    }
    let (from, to) = (graph.dims(node, 0)?, graph.output_dims(node)?);
    let scales = node.inputs.get(2).filter(|name| !name.is_empty()).and_then(|name| graph.model.weights.get(name));
    let scales = scales.filter(|weight| weight.elements() == from.len()).and_then(|weight| weight.to_f32s().ok());
    let mut field = Field { ..graph.field(node, 0).cloned().ok_or("what it does depends on the picture")? };
    for (at, (own, made)) in from.iter().zip(to).enumerate() {
        if own == made {
            continue;
        }
        // The number of output elements for each input element.
        let exact = scales.as_ref().and_then(|scales| fraction(*scales.get(at)?));
        let length = |size: usize| i64::try_from(size).map_err(|_| OVERFLOW.to_owned());
        let scale = match exact {
            Some(scale) => scale,
            None => Ratio::new(length(*made)?, length(*own)?).ok_or(OVERFLOW)?,
        };
        let inverse = Ratio::new(scale.denominator, scale.numerator).ok_or(OVERFLOW)?;
        let mode = node.text("mode").unwrap_or("nearest");
        let coordinates = node.text("coordinate_transformation_mode").unwrap_or("half_pixel");
        let is_whole = scale.denominator == 1;
        let floors = coordinates == "asymmetric" && node.text("nearest_mode") == Some("floor");
        field = if mode == "nearest" && is_whole && (floors || coordinates == "half_pixel") {
            // ⌊i / scale⌋: with half pixels, no position lies in the middle between two.
            let rest = Ratio::new(1_i64.saturating_sub(scale.numerator), scale.numerator).ok_or(OVERFLOW)?;
            field.window(at, inverse, rest, Ratio::ZERO)
        } else {
            let (step, start) = match coordinates {
                "align_corners" => {
                    let [own, made] = [length(*own)?, length(*made)?].map(|size| size.saturating_sub(1));
                    (Ratio::new(own, made.max(1)), Some(Ratio::ZERO))
                }
                "asymmetric" => (Some(inverse), Some(Ratio::ZERO)),
                // (i + ½) / scale − ½
                _ => (Some(inverse), inverse.minus(Ratio::ONE).and_then(|twice| twice.over(2))),
            };
            let reach = whole(if mode == "cubic" { 2 } else { 1 })?;
            // Filters against aliasing are as many times wider.
            let wide = if node.int("antialias").unwrap_or(0) != 0 { inverse.max(Ratio::ONE) } else { Ratio::ONE };
            let reach = reach.times(wide).ok_or(OVERFLOW)?;
            let (step, start) = (step.ok_or(OVERFLOW)?, start.ok_or(OVERFLOW)?);
            field.window(at, step, start.minus(reach).ok_or(OVERFLOW)?, start.plus(reach).ok_or(OVERFLOW)?)
        }
        .ok_or(OVERFLOW)?;
    }
    Ok(field)
}

/// The scale as a fraction with a small denominator.
fn fraction(scale: f32) -> Option<Ratio> {
    (1..=16_i64).find_map(|denominator| {
        let numerator = f64::from(scale) * denominator as f64;
        let is_whole = (numerator - numerator.round()).abs() < 1e-5 && (1.0..1e6).contains(&numerator.round());
        is_whole.then(|| Ratio::new(numerator.round() as i64, denominator))?
    })
}

fn concat(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    let made = graph.output_dims(node)?;
    let at = axis(node.int("axis").unwrap_or(0), made.len())?;
    let (mut union, mut offset): (Option<Field>, usize) = (None, 0);
    for index in 0..node.inputs.len() {
        let length = graph.dims(node, index)?.get(at).copied().ok_or(OVERFLOW)?;
        if let Some(field) = graph.field(node, index) {
            let back = Ratio::ZERO.minus(whole(offset)?).ok_or(OVERFLOW)?;
            let field = field.clone().window(at, Ratio::ONE, back, back).ok_or(OVERFLOW)?;
            union = Some(match union {
                None => field,
                Some(union) => union.union(field, made).ok_or(OVERFLOW)?,
            });
        }
        offset = offset.checked_add(length).ok_or(OVERFLOW)?;
    }
    let union = union.ok_or(OVERFLOW)?;
    for index in (0..node.inputs.len()).filter(|index| graph.field(node, *index).is_none()) {
        if union.moves_along(at) {
            return Err("it puts a constant beside the picture".into());
        }
        is_same_everywhere(&union, made, graph.dims(node, index)?)?;
    }
    Ok(union)
}

fn split(graph: &Graph<'_>, node: &Node) -> Result<Vec<Field>, String> {
    let dims = graph.dims(node, 0)?;
    let at = axis(node.int("axis").unwrap_or(0), dims.len())?;
    let field = of_first(graph, node)?;
    let mut start = 0_usize;
    let part = |output: &String| {
        let first = whole(start)?;
        let length = graph.dims.get(output.as_str()).and_then(|dims| dims.get(at)).copied();
        start = start.checked_add(length.ok_or("the sizes of its outputs are not known")?).ok_or(OVERFLOW)?;
        field.clone().window(at, Ratio::ONE, first, first).ok_or_else(|| OVERFLOW.to_owned())
    };
    node.outputs.iter().map(part).collect()
}

fn slice(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    let dims = graph.dims(node, 0)?;
    let starts = graph.integers(node, 1)?.ok_or("its input 1 is missing")?;
    let axes = graph.integers(node, 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = graph.integers(node, 4)?.unwrap_or_else(|| vec![1; starts.len()]);
    let mut field = of_first(graph, node)?;
    for ((start, at), step) in starts.iter().zip(axes).zip(steps) {
        let at = axis(at, dims.len())?;
        let length = dims.get(at).and_then(|length| i64::try_from(*length).ok()).ok_or(OVERFLOW)?;
        let from = if *start < 0 { start.saturating_add(length) } else { *start };
        let from = from.clamp(0, if step < 0 { length.saturating_sub(1) } else { length });
        let (from, step) = (Ratio::new(from, 1).ok_or(OVERFLOW)?, Ratio::new(step, 1).ok_or(OVERFLOW)?);
        field = field.window(at, step, from, from).ok_or(OVERFLOW)?;
    }
    Ok(field)
}

/// At the picture's edge, reflected pixels are as far inside as the padding is outside, so no further than an element
/// sees.
fn pad(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    if node.text("mode") == Some("wrap") {
        return Err("it continues the picture with its other side".into());
    }
    let rank = graph.dims(node, 0)?.len();
    let pads = graph.integers(node, 1)?.ok_or("its input 1 is missing")?;
    let axes = graph.integers(node, 3)?.unwrap_or_else(|| (0..rank as i64).collect());
    let mut field = of_first(graph, node)?;
    for (begin, at) in pads.iter().zip(axes) {
        let back = begin.checked_neg().and_then(|begin| Ratio::new(begin, 1)).ok_or(OVERFLOW)?;
        field = field.window(axis(at, rank)?, Ratio::ONE, back, back).ok_or(OVERFLOW)?;
    }
    Ok(field)
}

fn gather(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    let (dims, places) = (graph.dims(node, 0)?, graph.dims(node, 1)?);
    let at = axis(node.int("axis").unwrap_or(0), dims.len())?;
    let mut field = of_first(graph, node)?;
    let rank = places.len();
    if !field.moves_along(at) {
        field.steps.splice(at..at.saturating_add(1), std::iter::repeat_n([Ratio::ZERO; 2], rank));
        return Ok(field);
    }
    let length = dims.get(at).and_then(|length| i64::try_from(*length).ok()).ok_or(OVERFLOW)?;
    let indices = graph.integers(node, 1)?.unwrap_or_default();
    let indices: Vec<i64> = indices.into_iter().map(|i| if i < 0 { i.saturating_add(length) } else { i }).collect();
    let first = indices.first().copied().ok_or(OVERFLOW)?;
    let step = indices.get(1).map_or(1, |second| second.saturating_sub(first));
    let is_slice = indices.iter().zip(indices.iter().skip(1)).all(|(one, next)| next.saturating_sub(*one) == step);
    let from = Ratio::new(first, 1).ok_or(OVERFLOW)?;
    match rank {
        0 => {
            field = field.window(at, Ratio::ZERO, from, from).ok_or(OVERFLOW)?;
            field.steps.remove(at);
            Ok(field)
        }
        1 if is_slice => {
            let step = Ratio::new(step, 1).ok_or(OVERFLOW)?;
            field.window(at, step, from, from).ok_or_else(|| OVERFLOW.into())
        }
        _ => Err("it reads the picture in an order of its own".into()),
    }
}

/// Replaces parts of `data` at constant places.
fn scatter(graph: &Graph<'_>, node: &Node) -> Result<Field, String> {
    if graph.field(node, 1).is_some() {
        return Err("where it writes depends on the picture".into());
    }
    let (dims, places, given) = (graph.dims(node, 0)?, graph.dims(node, 1)?, graph.dims(node, 2)?);
    let (deep, lists) = places.split_last().ok_or(OVERFLOW)?;
    let data = graph.field(node, 0).cloned();
    let updates = match graph.field(node, 2).cloned() {
        None => None,
        Some(mut field) => {
            for at in (0..lists.len()).rev() {
                field = field.without(at, given.get(at).copied().unwrap_or(1)).ok_or(OVERFLOW)?;
            }
            field.steps.splice(0..0, std::iter::repeat_n([Ratio::ZERO; 2], *deep));
            Some(field)
        }
    };
    let places_in_picture = |field: &Field| (0..*deep).any(|at| field.moves_along(at));
    match (data, updates) {
        (Some(data), _) if places_in_picture(&data) => Err("it writes at places of the picture".into()),
        (Some(data), Some(updates)) => data.union(updates, dims).ok_or_else(|| OVERFLOW.into()),
        (Some(field), None) => {
            let kept = given.get(lists.len()..).unwrap_or_default();
            let inner = Field { steps: field.steps.get(*deep..).unwrap_or_default().to_vec(), ..field.clone() };
            is_same_everywhere(&inner, kept, kept)?;
            Ok(field)
        }
        (None, Some(field)) => {
            is_same_everywhere(&field, dims, dims)?;
            Ok(field)
        }
        (None, None) => Err(OVERFLOW.into()),
    }
}
