//! Layers in 8 bits: activations and weights.

use super::super::layers::layer_weight;
use super::super::prelu::{Prelu, Stage};
use super::super::{Names, Patch, Readers, Rule, apply};
use super::weights::{channel_axis, channel_scales, dequantised_by_one_scale, dequantised_weight, stored_scale};
use super::{ChannelScales, Quantisation, Scheme};
use crate::{Attribute, DataType, Error, Model, Node, Result, Weight};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The model with the layers `chosen` in 8 bits. Layers that are also in `in_fp32` read FP32 in the finished graph.
///
/// `range` gives the range `[low, high]` of a value that will be quantised; it includes 0. The model has no Cast of a
/// weight ([`fold_weight_casts`](crate::rewrite::fold_weight_casts)).
///
/// # Errors
/// A range is unknown, a weight has values that are infinite or NaN, or the result breaks the operators' rules.
pub fn quantise_layers(
    model: &Model,
    scheme: Scheme,
    channel_scales: ChannelScales,
    chosen: &BTreeSet<String>,
    in_fp32: &BTreeSet<String>,
    range: &dyn Fn(&str) -> Option<[f64; 2]>,
) -> Result<Model> {
    let layers = model.nodes.iter().filter(|node| chosen.contains(&node.name));
    let mut rule = QuantiseLayers {
        model,
        scheme,
        channel_scales,
        chosen,
        in_fp32,
        range,
        readers: Readers::new(&model.nodes),
        layer_outputs: layers.flat_map(|layer| &layer.outputs).map(String::as_str).collect(),
        wanted: wanted(model, chosen),
        quantised: HashMap::new(),
        constants: HashMap::new(),
    };
    apply(model, &mut rule)
}

/// The largest factor of a channel behind a convolution.
const FACTOR_MAXIMUM: f32 = 256.0;

/// A convolution whose weight has one scale for all channels, with a Mul behind it that scales each channel, and an Add
/// of its bias.
fn scaled_behind(
    patch: &mut Patch<'_>,
    node: &Node,
    weight: &Weight,
    (scales, data_type): (&[f32], DataType),
    input: String,
    model: &Model,
) -> Result<()> {
    // With the smallest scale, values before the Mul are at most as large as those behind it (without the bias), which
    // FP16 holds. A channel of weights near 0, whose values are small, must not make the others too small for FP16.
    let [least, most] = [f32::min, f32::max].map(|of| scales.iter().copied().reduce(of).unwrap_or(1.0));
    let scale = stored_scale(least.max(most / FACTOR_MAXIMUM), DataType::F16);
    let factors: Vec<f32> = scales.iter().map(|own| stored_scale(own / scale, DataType::F16)).collect();
    let name = &node.inputs[1];
    let weight_name = dequantised_by_one_scale(patch, name, weight, channel_axis(node), (scale, &factors), data_type)?;
    // One number for each channel, along the axis of channels.
    let mut dims = vec![1; weight.dims().len()];
    dims[1] = factors.len();
    let factors = patch.weight(&format!("{name}/factors"), Weight::from_f32s(dims.clone(), &factors)?);
    let bias = node.inputs.get(2).and_then(|name| Some((name, model.weights.get(name)?)));
    let (output, base) = (node.outputs[0].clone(), node.name.clone());
    let convolved = patch.name(&format!("{base}/convolved"));
    let mut node = node.clone();
    (node.inputs[0], node.inputs[1]) = (input, weight_name);
    node.outputs = vec![convolved.clone()];
    if bias.is_some() {
        node.inputs.truncate(2);
    }
    patch.push(node);
    let Some((name, bias)) = bias else {
        patch.node_for(&output, &format!("{base}/Mul"), "Mul", &[&convolved, &factors], []);
        return Ok(());
    };
    let scaled = patch.node(&format!("{base}/Mul"), "Mul", &[&convolved, &factors], []);
    let bias = patch.weight(&format!("{name}/channels"), bias.reshaped(dims)?);
    patch.node_for(&output, &format!("{base}/Add"), "Add", &[&scaled, &bias], []);
    Ok(())
}

/// Whether ONNX Runtime has an 8-bit kernel for a node that is not a layer.
fn has_8_bit_kernel(model: &Model, node: &Node) -> bool {
    let no_weights = node.inputs.iter().all(|input| !model.weights.contains_key(input));
    match node.operator.as_str() {
        "Add" | "Concat" => no_weights,
        "LeakyRelu" => true,
        "Mul" => factor(model, node).is_some(),
        _ => false,
    }
}

/// The positive constant by which a Mul multiplies its other input, and that input.
fn factor<'a>(model: &Model, node: &'a Node) -> Option<(f32, &'a String)> {
    let [a, b] = node.inputs.as_slice() else { return None };
    let (constant, other) = if model.weights.contains_key(a) { (a, b) } else { (b, a) };
    let weight = model.weights.get(constant).filter(|weight| weight.elements() == 1 && weight.dims().len() <= 1)?;
    let value = *weight.to_f32s().ok()?.first()?;
    (value > 0.0 && value.is_finite() && !model.weights.contains_key(other)).then_some((value, other))
}

/// The largest quantised value of a bias in 32 bits: half of the range, which leaves room for the products that are
/// added to it.
const BIAS_MAXIMUM: f64 = (1_u64 << 30) as f64;

/// Raises the weight's scale in each channel whose bias would not fit.
///
/// The scale of a bias is the input's scale times the weight's scale. In a channel of weights near 0, this product is
/// far too small. A larger scale rounds such weights more coarsely, which is negligible beside the bias.
fn make_room_for_bias(scales: &mut [f32], bias: &Weight, input_scale: f32) -> Result<()> {
    for (scale, magnitude) in scales.iter_mut().zip(bias.channel_maxima(0)?) {
        let least = f64::from(magnitude) / (BIAS_MAXIMUM * f64::from(input_scale));
        *scale = scale.max((least as f32).min(f32::MAX));
    }
    Ok(())
}

/// The values that a chosen layer reads, directly or through nodes with 8-bit kernels. Only for these values 8 bits
/// pay off.
fn wanted<'m>(model: &'m Model, chosen: &BTreeSet<String>) -> HashSet<&'m str> {
    let mut wanted: HashSet<&str> = HashSet::new();
    for node in model.nodes.iter().rev() {
        let reads_8_bits = chosen.contains(&node.name)
            || (has_8_bit_kernel(model, node) && node.outputs.iter().any(|name| wanted.contains(name.as_str())));
        if reads_8_bits {
            wanted.extend(node.inputs.iter().map(String::as_str));
        }
    }
    wanted
}

struct QuantiseLayers<'a> {
    /// The original model.
    model: &'a Model,
    scheme: Scheme,
    channel_scales: ChannelScales,
    chosen: &'a BTreeSet<String>,
    in_fp32: &'a BTreeSet<String>,
    range: &'a dyn Fn(&str) -> Option<[f64; 2]>,
    readers: Readers<'a>,
    /// The outputs of chosen layers.
    layer_outputs: HashSet<&'a str>,
    wanted: HashSet<&'a str>,
    /// The values that were quantised and dequantised, by their names in the original model.
    quantised: HashMap<String, Quantised>,
    /// Scales and zero points. Equal ones share one weight.
    constants: HashMap<Weight, String>,
}

/// A value that was quantised and dequantised.
#[derive(Clone)]
struct Quantised {
    /// Its name in 8 bits.
    name: String,
    by: Quantisation,
    /// Its name after dequantising.
    dequantised: String,
}

impl Rule for QuantiseLayers<'_> {
    fn patch<'n>(&mut self, _: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let mut patch = Patch::new(names);
        match layer_weight(self.model, node).filter(|_| self.chosen.contains(&node.name)) {
            Some(weight) => self.layer(&mut patch, node, weight)?,
            None if self.scheme == Scheme::Unsigned && self.continues_in_8_bits(node) => {
                self.between(&mut patch, node)?;
            }
            None if self.scheme != Scheme::Unsigned && node.operator == "Add" => self.sum(&mut patch, node)?,
            None => return Ok(None),
        }
        Ok(Some(patch))
    }
}

impl QuantiseLayers<'_> {
    fn layer(&mut self, patch: &mut Patch<'_>, node: &Node, weight: &Weight) -> Result<()> {
        let is_unsigned = self.scheme == Scheme::Unsigned;
        let padding = self.missing_channels(node, weight);
        let input = self.dequantised(patch, &node.inputs[0], padding)?;
        let output = &node.outputs[0];
        let reader = self.only_reader(output);
        let prelu = if is_unsigned { Prelu::after(self.model, node, reader)? } else { None };
        let mut weight = weight.clone();
        if padding > 0 {
            let mut dims = weight.dims().to_vec();
            dims[1] = padding;
            weight = Weight::concatenated(&[weight, Weight::zeros(DataType::F32, dims)?], 1)?;
        }
        let axis = channel_axis(node);
        let (data_type, most) = self.scheme.weights();
        // Weights that scale down values beyond FP16's range are very small, so their scales stay FP32.
        let scale_type = if self.in_fp32.contains(&node.name) { DataType::F32 } else { self.scheme.scale_type() };
        let mut scales = channel_scales(&node.inputs[1], &weight, axis, most, scale_type)?;
        let is_behind = self.channel_scales == ChannelScales::BehindLayers && scale_type == DataType::F16;
        // A bias that another node computes stays in the convolution.
        let bias_is_constant = node.inputs.get(2).is_none_or(|name| self.model.weights.contains_key(name));
        if is_behind && node.operator == "Conv" && !is_unsigned && bias_is_constant {
            return scaled_behind(patch, node, &weight, (&scales, data_type), input.dequantised, self.model);
        }
        let bias = node.inputs.get(2).and_then(|name| self.model.weights.get(name)).filter(|_| is_unsigned);
        if let Some(bias) = bias {
            make_room_for_bias(&mut scales, bias, input.by.scale)?;
        }
        let mut node = node.clone();
        node.inputs[0] = input.dequantised;
        node.inputs[1] = dequantised_weight(patch, &node.inputs[1], &weight, axis, &scales, data_type)?;
        if let Some(bias) = bias {
            let scales: Vec<f32> = scales.iter().map(|scale| (scale * input.by.scale).max(f32::MIN_POSITIVE)).collect();
            node.inputs[2] = dequantised_weight(patch, &node.inputs[2], bias, 0, &scales, DataType::I32)?;
        }
        if !is_unsigned || node.operator != "Conv" {
            // TensorRT needs no pair after a layer, and ONNX Runtime's matrix products output floats as fast as 8
            // bits.
            patch.push(node);
            return Ok(());
        }
        if let Some(prelu) = prelu {
            return self.prelu(patch, node, &prelu);
        }
        if let Some(position) = reader.filter(|position| self.model.nodes[*position].operator == "Relu") {
            patch.push(node);
            patch.absorb(position);
            return self.quantise_output(patch, self.model.nodes[position].clone());
        }
        self.quantise_output(patch, node)
    }

    /// The number of zero channels to add to an image before a convolution. ONNX Runtime's fast 8-bit kernels take
    /// four channels at a time; pictures of three channels would run on its slow kernels.
    fn missing_channels(&self, node: &Node, weight: &Weight) -> usize {
        let is_image = self.scheme == Scheme::Unsigned && self.is_input(&node.inputs[0]);
        let grouped = node.int("group").is_some_and(|groups| groups != 1);
        match weight.dims() {
            [_, channels, _, _] if is_image && !grouped => channels.next_multiple_of(4) - channels,
            _ => 0,
        }
    }

    fn is_input(&self, value: &str) -> bool {
        self.model.inputs.iter().any(|port| port.name == value)
    }

    /// The only node that reads a value, if the value is not an output.
    fn only_reader(&self, value: &str) -> Option<usize> {
        let is_output = self.model.outputs.iter().any(|port| port.name == value);
        self.readers.only(value).filter(|_| !is_output)
    }

    /// PReLU in 8 bits: x and its products share scale and zero point, for the range of x and the result together.
    fn prelu(&mut self, patch: &mut Patch<'_>, mut convolution: Node, prelu: &Prelu) -> Result<()> {
        let node = self.model.nodes[prelu.position].clone();
        patch.absorb(prelu.position);
        let by = self.quantisation(&[&convolution.outputs[0], &node.outputs[0]])?;
        let exact = patch.name(&format!("{}/exact", convolution.name));
        convolution.outputs = vec![exact.clone()];
        patch.push(convolution);
        let mut quantised = self.quantise(patch, &exact, &node.name, by)?;
        for stage in Stage::of(&prelu.slopes) {
            let channels = stage.factors.len();
            let weight = Weight::from_f32s(vec![channels, 1, 1, 1], &stage.factors)?;
            let (data_type, most) = self.scheme.weights();
            let scales: Vec<f32> =
                stage.factors.iter().map(|factor| (factor.abs() / most).max(f32::MIN_POSITIVE)).collect();
            let base = format!("{}/{}", node.name, stage.operator);
            let weight = dequantised_weight(patch, &format!("{base}/factors"), &weight, 0, &scales, data_type)?;
            let (scale, zero_point) = self.parameters(patch, &node.name, by)?;
            let inputs = [quantised.as_str(), &scale, &zero_point];
            let x = patch.node(&format!("{base}/DequantizeLinear"), "DequantizeLinear", &inputs, []);
            let attributes =
                [("group", Attribute::from(channels as i64)), ("kernel_shape", Attribute::from(vec![1_i64, 1]))];
            let product = patch.node(&format!("{base}/Conv"), "Conv", &[&x, &weight], attributes);
            let product = self.quantise(patch, &product, &base, by)?;
            quantised = patch.node(&base, stage.operator, &[&quantised, &product], []);
        }
        self.dequantise_as(patch, quantised, by, &node.outputs[0])
    }

    /// Whether a node between layers reads 8 bits, and a later node continues in 8 bits.
    fn continues_in_8_bits(&self, node: &Node) -> bool {
        let is_known = |input: &String| self.model.weights.contains_key(input) || (self.range)(input).is_some();
        has_8_bit_kernel(self.model, node)
            && node.inputs.iter().any(|input| self.quantised.contains_key(input))
            && self.wanted.contains(node.outputs[0].as_str())
            && node.inputs.iter().all(is_known)
    }

    /// A node between layers, in 8 bits.
    fn between(&mut self, patch: &mut Patch<'_>, node: &Node) -> Result<()> {
        if let Some((factor, input)) = factor(self.model, node)
            && let Some(Quantised { name, by, .. }) = self.quantised.get(input).cloned()
        {
            // Same quantised values, other scale.
            let by = Quantisation { scale: (by.scale * factor).max(f32::MIN_POSITIVE), ..by };
            return self.dequantise_as(patch, name, by, &node.outputs[0]);
        }
        let mut node = node.clone();
        for input in &mut node.inputs {
            *input = self.dequantised(patch, input, 0)?.dequantised;
        }
        self.quantise_output(patch, node)
    }

    /// The other summand of an Add that reads a layer.
    fn sum(&mut self, patch: &mut Patch<'_>, node: &Node) -> Result<()> {
        let mut node = node.clone();
        let others: Vec<usize> =
            (0..node.inputs.len()).filter(|at| !self.layer_outputs.contains(node.inputs[*at].as_str())).collect();
        if let [other] = others.as_slice()
            && node.inputs.len() == 2
            && !self.model.weights.contains_key(&node.inputs[*other])
        {
            node.inputs[*other] = self.dequantised(patch, &node.inputs[*other], 0)?.dequantised;
        }
        patch.push(node);
        Ok(())
    }

    /// Adds a node, and quantises and dequantises its output, which keeps its name.
    fn quantise_output(&mut self, patch: &mut Patch<'_>, mut node: Node) -> Result<()> {
        let output = node.outputs[0].clone();
        let by = self.quantisation(&[&output])?;
        let exact = patch.name(&format!("{output}/exact"));
        node.outputs = vec![exact.clone()];
        patch.push(node);
        let quantised = self.quantise(patch, &exact, &output, by)?;
        self.dequantise_as(patch, quantised, by, &output)
    }

    /// A value after quantising and dequantising, with `padding` zero channels appended. Each value is quantised once.
    fn dequantised(&mut self, patch: &mut Patch<'_>, value: &str, padding: usize) -> Result<Quantised> {
        let key = if padding == 0 { value.to_owned() } else { format!("{value}/Pad") };
        if let Some(known) = self.quantised.get(&key) {
            return Ok(known.clone());
        }
        let by = self.quantisation(&[value])?;
        let mut from = value.to_owned();
        if padding > 0 {
            // The padding before each of the four dimensions, then the padding after each.
            let bytes: Vec<u8> =
                [0, 0, 0, 0, 0, padding as i64, 0, 0].iter().flat_map(|pad: &i64| pad.to_le_bytes()).collect();
            let pads = patch.weight(&format!("{key}/pads"), Weight::from_bytes(DataType::I64, vec![8], bytes)?);
            from = patch.node(&key, "Pad", &[value, &pads], []);
        }
        let name = self.quantise(patch, &from, &key, by)?;
        let (scale, zero_point) = self.parameters(patch, &key, by)?;
        let inputs = [name.as_str(), &scale, &zero_point];
        let dequantised = patch.node(&format!("{key}/DequantizeLinear"), "DequantizeLinear", &inputs, []);
        let quantised = Quantised { name, by, dequantised };
        self.quantised.insert(key, quantised.clone());
        Ok(quantised)
    }

    /// The shared quantisation of several values, for their common range.
    fn quantisation(&self, values: &[&str]) -> Result<Quantisation> {
        let [mut low, mut high] = [0.0_f64; 2];
        for value in values {
            let unknown = || Error::Graph(format!("expected the range of `{value}`, which is quantised; found none"));
            let found = (self.range)(value).ok_or_else(unknown)?;
            (low, high) = (low.min(found[0]), high.max(found[1]));
        }
        Ok(self.scheme.quantisation([low, high]))
    }

    fn quantise(&mut self, patch: &mut Patch<'_>, value: &str, base: &str, by: Quantisation) -> Result<String> {
        let (scale, zero_point) = self.parameters(patch, base, by)?;
        Ok(patch.node(&format!("{base}/QuantizeLinear"), "QuantizeLinear", &[value, &scale, &zero_point], []))
    }

    /// Dequantises to a value of the original model.
    fn dequantise_as(&mut self, patch: &mut Patch<'_>, name: String, by: Quantisation, value: &str) -> Result<()> {
        let (scale, zero_point) = self.parameters(patch, value, by)?;
        let inputs = [name.as_str(), &scale, &zero_point];
        patch.node_for(value, &format!("{value}/DequantizeLinear"), "DequantizeLinear", &inputs, []);
        self.quantised.insert(value.to_owned(), Quantised { name, by, dequantised: value.to_owned() });
        Ok(())
    }

    /// The names of scale and zero point.
    fn parameters(&mut self, patch: &mut Patch<'_>, base: &str, by: Quantisation) -> Result<(String, String)> {
        let scale = Weight::from_f32s(vec![], &[by.scale])?;
        let zero_point = Weight::from_bytes(by.data_type, vec![], vec![by.zero_point])?;
        let mut placed = |kind: &str, weight: Weight| match self.constants.get(&weight) {
            Some(known) => known.clone(),
            None => {
                let name = patch.weight(&format!("{base}/{kind}"), weight.clone());
                self.constants.insert(weight, name.clone());
                name
            }
        };
        Ok((placed("scale", scale), placed("zero_point", zero_point)))
    }
}
