//! Convolution, normalisation and resampling.

use super::call::{Call, Extent, Inferred, Problem, axis_index, size};
use crate::{Dim, TensorType};

/// The input `[batch, channels, spatial…]` of a convolution, and its weight: two sizes and the kernel's sides.
struct Operands<'a> {
    batch: &'a Dim,
    channels: &'a Dim,
    spatial: &'a [Dim],
    weight: [usize; 2],
    kernel: Vec<usize>,
}

fn operands<'a>(x: &'a TensorType, weight: &TensorType) -> Inferred<Operands<'a>> {
    if let ([batch, channels, spatial @ ..], Some(sizes)) = (x.dims.as_slice(), weight.fixed_dims())
        && let [first, second, kernel @ ..] = sizes.as_slice()
        && kernel.len() == spatial.len()
        && !spatial.is_empty()
    {
        return Ok(Operands { batch, channels, spatial, weight: [*first, *second], kernel: kernel.to_vec() });
    }
    Err(format!("the weight {weight} does not fit the input {x}").into())
}

/// How windows move along one spatial dimension.
struct Along {
    /// The padding at both ends together.
    pads: usize,
    stride: usize,
    dilation: usize,
}

/// The attributes for each of `spatial` dimensions.
fn along(call: &Call<'_>, spatial: usize) -> Inferred<Vec<Along>> {
    let (pads, strides) = (sizes(call, "pads", spatial.saturating_mul(2), 0)?, sizes(call, "strides", spatial, 1)?);
    let dilations = sizes(call, "dilations", spatial, 1)?;
    let (begins, ends) = (pads.iter().take(spatial), pads.iter().skip(spatial));
    let all = begins.zip(ends).zip(strides).zip(dilations);
    all.map(|(((begin, end), stride), dilation)| {
        let pads = begin.checked_add(*end).ok_or_else(|| Problem::Mismatch("a size overflows".into()))?;
        Ok(Along { pads, stride, dilation })
    })
    .collect()
}

/// `x` `[batch, channels, spatial…]`, `weight` `[filters, channels / groups, kernel…]`, optional `bias` `[filters]`.
pub(super) fn convolution(call: &Call<'_>) -> Inferred {
    let (x, weight) = (call.ty(0)?, call.ty(1)?);
    let Operands { batch, channels, spatial, weight: [filters, each], kernel } = operands(x, weight)?;
    let groups = usize::try_from(call.node.int("group").unwrap_or(1)).unwrap_or(0);
    // `checked_rem` gives `None` for zero groups.
    let divides = filters.checked_rem(groups) == Some(0);
    if x.data_type != weight.data_type || !divides || channels.fixed() != each.checked_mul(groups) {
        return Err(format!("the weight {weight} in {groups} groups does not fit the input {x}").into());
    }
    if let Some(bias) = call.optional(2)
        && *bias.ty != TensorType::new(x.data_type, [filters])
    {
        return Err(format!("expected a bias of [{filters}], found {}", bias.ty).into());
    }
    let mut dims = vec![batch.clone(), Dim::Fixed(filters)];
    for ((dim, kernel), along) in spatial.iter().zip(kernel).zip(along(call, spatial.len())?) {
        dims.push(windows(call, dim, kernel, &along)?);
    }
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// `x` `[batch, channels, spatial…]`, `scale` and `bias` `[channels]`.
pub(super) fn instance_normalization(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let channels = x.dims.get(1).filter(|_| x.dims.len() >= 3);
    let channels = channels.ok_or_else(|| format!("expected [batch, channels, spatial…], found {x}"))?;
    let expected = TensorType::new(x.data_type, [channels.clone()]);
    match (call.ty(1)?, call.ty(2)?) {
        (scale, bias) if *scale == expected && *bias == expected => Ok(vec![x.clone()]),
        (scale, bias) => Err(format!("expected a scale and a bias of {expected}, found {scale} and {bias}").into()),
    }
}

/// `x` `[batch, channels, spatial…]`, `weight` `[channels, filters / groups, kernel…]`, optional `bias` `[filters]`.
pub(super) fn transposed_convolution(call: &Call<'_>) -> Inferred {
    let (x, weight) = (call.ty(0)?, call.ty(1)?);
    let Operands { batch, channels, spatial, weight: [own, each], kernel } = operands(x, weight)?;
    let groups = call.node.int("group").and_then(|groups| usize::try_from(groups).ok()).unwrap_or(1);
    let filters = each.checked_mul(groups).ok_or_else(|| Problem::Mismatch("a size overflows".into()))?;
    if x.data_type != weight.data_type || channels.fixed() != Some(own) {
        return Err(format!("the weight {weight} does not fit the input {x}").into());
    }
    if let Some(bias) = call.optional(2)
        && *bias.ty != TensorType::new(x.data_type, [filters])
    {
        return Err(format!("expected a bias of [{filters}], found {}", bias.ty).into());
    }
    if call.node.text("auto_pad").is_some_and(|mode| mode != "NOTSET") || call.node.ints("output_shape").is_some() {
        return Err(Problem::NoRule);
    }
    let more = sizes(call, "output_padding", spatial.len(), 0)?;
    let mut dims = vec![batch.clone(), Dim::Fixed(filters)];
    for (((dim, kernel), along), more) in spatial.iter().zip(kernel).zip(along(call, spatial.len())?).zip(more) {
        // stride · (size − 1) + dilation · (kernel − 1) + 1 − pads + output padding
        let reach = kernel
            .checked_sub(1)
            .and_then(|k| k.checked_mul(along.dilation))
            .and_then(|reach| reach.checked_add(more)?.checked_add(1));
        let offset = reach.and_then(|reach| reach.checked_signed_diff(along.pads));
        let steps = dim.plus(-1).and_then(|steps| steps.times(along.stride));
        dims.push(size(steps.and_then(|steps| steps.plus(offset?)))?);
    }
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// `x` `[batch, channels, spatial…]`; sizes are rounded down.
pub(super) fn pooling(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let mismatch = || Problem::Mismatch(format!("attribute `kernel_shape` does not fit the input {x}"));
    let [batch, channels, spatial @ ..] = x.dims.as_slice() else { return Err(mismatch()) };
    let kernel = call.node.ints("kernel_shape").filter(|kernel| kernel.len() == spatial.len() && !kernel.is_empty());
    let kernel = kernel.ok_or_else(mismatch)?;
    if call.node.int("ceil_mode").unwrap_or(0) != 0 {
        return Err(Problem::NoRule);
    }
    let mut dims = vec![batch.clone(), channels.clone()];
    for ((dim, kernel), along) in spatial.iter().zip(kernel).zip(along(call, spatial.len())?) {
        let kernel =
            usize::try_from(*kernel).map_err(|_| Problem::Mismatch("attribute `kernel_shape` is negative".into()))?;
        dims.push(windows(call, dim, kernel, &along)?);
    }
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// `x` `[batch, channels, …]`; `scale`, `bias`, `mean` and `variance` `[channels]`.
pub(super) fn batch_normalization(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let channels = x.dims.get(1).ok_or_else(|| format!("expected [batch, channels, …], found {x}"))?;
    for index in 1..5 {
        let parameter = call.ty(index)?;
        if parameter.dims != [channels.clone()] {
            return Err(format!("expected parameters of [{channels}], found {parameter}").into());
        }
    }
    Ok(vec![x.clone()])
}

/// A list attribute of sizes.
fn sizes(call: &Call<'_>, name: &str, length: usize, default: usize) -> Inferred<Vec<usize>> {
    let given = call
        .node
        .ints(name)
        .map(|values| values.iter().map(|value| usize::try_from(*value).ok()).collect::<Option<Vec<_>>>());
    let values = given.unwrap_or_else(|| Some(vec![default; length])).filter(|values| values.len() == length);
    values.ok_or_else(|| format!("attribute `{name}` must be {length} integers of at least 0").into())
}

/// The number of windows along a dimension: ⌊(size + pads − dilation · (kernel − 1) − 1) / stride⌋ + 1. With `auto_pad`
/// SAME, ⌈size / stride⌉.
fn windows(call: &Call<'_>, dim: &Dim, kernel: usize, along: &Along) -> Inferred<Dim> {
    let without_pads = Along { pads: 0, ..*along };
    let along = match call.node.text("auto_pad") {
        None | Some("NOTSET") => along,
        Some("VALID") => &without_pads,
        Some(_) => {
            let more = along.stride.checked_sub(1).and_then(|more| isize::try_from(more).ok());
            return size(dim.plus(more.unwrap_or(0)).and_then(|dim| dim.divided_rounding_down(along.stride)));
        }
    };
    let reach = kernel.checked_sub(1).and_then(|k| k.checked_mul(along.dilation));
    let offset = reach.and_then(|reach| along.pads.checked_signed_diff(reach)).and_then(|o| o.checked_sub(1));
    let windows = offset.and_then(|offset| dim.plus(offset)).and_then(|d| d.divided_rounding_down(along.stride));
    size(windows.and_then(|d| d.plus(1)))
}

/// `[batch, channels, spatial…]` → `[batch, channels, 1…]`.
pub(super) fn global_average_pool(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    if x.dims.len() < 3 {
        return Err(format!("expected [batch, channels, spatial…], found {x}").into());
    }
    let dims =
        x.dims.iter().enumerate().map(|(axis, dim)| if axis < 2 { dim.clone() } else { Dim::Fixed(1) }).collect();
    Ok(vec![TensorType { data_type: x.data_type, dims }])
}

/// `x`, `scale` and an optional `bias` of the dimensions of `x` from `axis` on. Only the first output is inferred.
pub(super) fn layer_normalization(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    let axis = axis_index(call.node.int("axis").unwrap_or(-1), x.dims.len())?;
    let expected = TensorType::new(x.data_type, x.dims.iter().skip(axis).cloned());
    for parameter in [Some(call.ty(1)?), call.optional(2).map(|bias| bias.ty)].into_iter().flatten() {
        if *parameter != expected {
            if parameter.dims.len() != expected.dims.len() {
                // ONNX allows broadcasting here.
                return Err(Problem::NoRule);
            }
            return Err(format!("expected a scale and a bias of {expected}, found {parameter}").into());
        }
    }
    Ok(vec![x.clone()])
}

/// `x` `[batch, channels, height, width]` at the positions `grid` `[batch, new height, new width, 2]`.
pub(super) fn grid_sample(call: &Call<'_>) -> Inferred {
    if call.ty(0)?.dims.len() == 5 {
        return Err(Problem::NoRule);
    }
    let (x, [batch, channels, ..]) = call.image()?;
    let grid = call.ty(1)?;
    match grid.dims.as_slice() {
        [grid_batch, height, width, Dim::Fixed(2)] if grid_batch == batch && grid.data_type == x.data_type => {
            Ok(vec![TensorType::new(x.data_type, [batch.clone(), channels.clone(), height.clone(), width.clone()])])
        }
        _ => Err(format!("expected a grid [{batch}, height, width, 2] for {x}, found {grid}").into()),
    }
}

/// Inputs `x`, (region of interest), `scales` or `sizes`; only whole-number scales keep a symbolic size.
pub(super) fn resize(call: &Call<'_>) -> Inferred {
    let x = call.ty(0)?;
    if call.optional(3).is_some() {
        let sizes = call.extents(3)?;
        let dims = sizes.iter().map(Extent::dim).collect::<Option<Vec<_>>>();
        let dims = dims.filter(|dims| dims.len() == x.dims.len());
        return Ok(vec![TensorType {
            data_type: x.data_type,
            dims: dims.ok_or_else(|| format!("sizes {sizes:?} do not fit {x}"))?,
        }]);
    }
    let scales = call.operand(2)?.constant.ok_or(Problem::NoRule)?;
    let scales = scales.to_f32s().map_err(|e| Problem::Mismatch(e.to_string()))?;
    if scales.len() != x.dims.len() || scales.iter().any(|scale| !scale.is_finite() || *scale <= 0.0) {
        return Err(format!("scales {scales:?} do not fit {x}").into());
    }
    let scaled = |(dim, scale): (&Dim, &f32)| match dim {
        // ⌊size · scale⌋, computed in f32 as the operator's definition states.
        Dim::Fixed(size) => Ok(Dim::Fixed((*size as f32 * scale).floor() as usize)),
        symbol if scale.fract() == 0.0 => size(symbol.times(*scale as usize)),
        symbol => Ok(Dim::symbol(format!("floor(({symbol})*{scale})"))),
    };
    Ok(vec![TensorType {
        data_type: x.data_type,
        dims: x.dims.iter().zip(&scales).map(scaled).collect::<Inferred<_>>()?,
    }])
}
