//! INT8 and FP8 by explicit QuantizeLinear and DequantizeLinear, placed where the target fuses them.

use super::calibration::Statistics;
use super::prelu::Prelu;
use super::range::{RangeMethod, range};
use super::rewrite::{Rewrite, is_layer, layers, only_reader, readers, with_plain_weights};
use super::weights::{channel_axis, channel_scales, dequantised_weight, stored_scale};
use crate::Result;
use std::collections::{BTreeSet, HashMap, HashSet};
use tileforge_graph::{Attribute, DataType, Model, Node, Weight};

/// How numbers of 8 bits stand for activations, and where they begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// ONNX Runtime's CPU kernels: unsigned with a zero point, which AVX-512 VNNI multiplies by signed weights. A layer
    /// is fused with the Q/DQ on both of its sides (QLinearConv), and so are sums and joints in between.
    Cpu,
    /// TensorRT: signed, zero point 0. Q/DQ stand before layers, and before the other summand of a sum that a layer
    /// ends in; TensorRT moves them from there ("Explicit Quantization" in its developer's guide).
    TensorRt,
    /// As TensorRT, in E4M3.
    Fp8,
}

/// The largest number of E4M3.
const F8_MAXIMUM: f64 = 448.0;

/// One activation's scale, zero point and type.
#[derive(Debug, Clone, Copy)]
struct Code {
    scale: f32,
    zero_point: u8,
    data_type: DataType,
}

impl Scheme {
    /// The code of values that share one: its range is that of all of them together.
    fn code(self, statistics: &Statistics, values: &[&str], method: RangeMethod) -> Result<Code> {
        // Floats keep their precision however far they reach: nothing is gained by cutting.
        let method = if self == Scheme::Fp8 { RangeMethod::MinMax } else { method };
        let [mut low, mut high] = [0.0_f64; 2];
        for value in values {
            let missing = || tileforge_graph::Error::Graph(format!("calibration saw nothing of `{value}`"));
            let found = range(statistics.get(*value).ok_or_else(missing)?, method, self != Scheme::Cpu);
            (low, high) = (low.min(found[0]), high.max(found[1]));
        }
        let scale = |width: f64, steps: f64| stored_scale((width / steps) as f32, self.scales());
        Ok(match self {
            Scheme::Cpu => {
                let scale = scale(high - low, 255.0);
                let zero_point = (-low / f64::from(scale)).round_ties_even().clamp(0.0, 255.0) as u8;
                Code { scale, zero_point, data_type: DataType::U8 }
            }
            Scheme::TensorRt => Code { scale: scale(high, 127.0), zero_point: 0, data_type: DataType::I8 },
            Scheme::Fp8 => Code { scale: scale(high, F8_MAXIMUM), zero_point: 0, data_type: DataType::F8E4M3 },
        })
    }

    /// The type that the finished graph has its scales in: for GPUs, what is not in 8 bits is in FP16, and scales are
    /// of the type that DequantizeLinear gives.
    fn scales(self) -> DataType {
        match self {
            Scheme::Cpu => DataType::F32,
            Scheme::TensorRt | Scheme::Fp8 => DataType::F16,
        }
    }

    fn weights(self) -> (DataType, f32) {
        match self {
            Scheme::Cpu | Scheme::TensorRt => (DataType::I8, 127.0),
            Scheme::Fp8 => (DataType::F8E4M3, F8_MAXIMUM as f32),
        }
    }
}

/// The layers that are quantised unless all are asked for: not the last one, of whose pixels 8 bits would leave 256
/// levels, and bands in smooth skies. In unsigned codes it is quantised, too, where it makes a residual, which is added
/// to pixels in FP32. In signed ones the first one is not either, since pixels of 8 bits have no sign; unsigned codes
/// of the whole range are those very pixels.
pub(crate) fn default_layers(model: &Model, scheme: Scheme) -> Result<Vec<String>> {
    let model = with_plain_weights(model)?;
    let layers = layers(&model);
    let is_residual = |layer: &String| {
        let makes = |node: &&Node| node.name == *layer;
        let outputs = model.nodes.iter().find(makes).map_or(&[][..], |node| node.outputs.as_slice());
        let mut readers =
            model.nodes.iter().filter(|node| outputs.iter().any(|output| node.inputs.contains(output))).peekable();
        readers.peek().is_some() && readers.all(|node| node.operator == "Add")
    };
    Ok(match (layers.as_slice(), scheme) {
        ([.., last], Scheme::Cpu) if is_residual(last) => layers,
        ([but_last @ .., _], Scheme::Cpu) | ([_, but_last @ .., _], _) => but_last.to_vec(),
        _ => Vec::new(),
    })
}

/// The model with the layers `chosen` in 8 bits, of which those of `islands` read FP32 in the finished graph.
///
/// # Errors
/// Calibration saw nothing of a layer's input, a weight is no number, or the result does not fit the operators' rules.
pub(crate) fn quantised(
    model: &Model,
    scheme: Scheme,
    chosen: &BTreeSet<String>,
    islands: &BTreeSet<String>,
    statistics: &Statistics,
    method: RangeMethod,
) -> Result<Model> {
    let model = with_plain_weights(model)?;
    let (rewrite, nodes) = Rewrite::of(&model);
    let mut pass = Pass {
        rewrite,
        scheme,
        islands,
        statistics,
        method,
        model: &model,
        readers: readers(&model.nodes),
        wanted: wanted(&model, chosen),
        codes: HashMap::new(),
        constants: HashMap::new(),
        done: HashSet::new(),
    };
    for (position, node) in nodes.into_iter().enumerate() {
        if pass.done.contains(&position) {
            continue;
        }
        if chosen.contains(&node.name) && is_layer(&model, &node) {
            pass.layer(node)?;
        } else if scheme == Scheme::Cpu && fuses(&model, &node) {
            pass.between(node)?;
        } else if scheme != Scheme::Cpu && node.operator == "Add" {
            pass.sum(node, chosen)?;
        } else {
            pass.rewrite.model.nodes.push(node);
        }
    }
    pass.rewrite.finish()
}

/// Operators that ONNX Runtime has 8-bit kernels for, besides the layers.
fn fuses(model: &Model, node: &Node) -> bool {
    let no_weights = node.inputs.iter().all(|input| !model.weights.contains_key(input));
    match node.operator.as_str() {
        "Add" | "Concat" => no_weights,
        "LeakyRelu" => true,
        "Mul" => factor(model, node).is_some(),
        _ => false,
    }
}

/// The positive constant that a Mul multiplies its one other input by, and that input.
fn factor<'a>(model: &Model, node: &'a Node) -> Option<(f32, &'a String)> {
    let [a, b] = node.inputs.as_slice() else { return None };
    let (constant, other) = if model.weights.contains_key(a) { (a, b) } else { (b, a) };
    let weight = model.weights.get(constant).filter(|weight| weight.elements() == 1 && weight.dims().len() <= 1)?;
    let value = *weight.to_f32s().ok()?.first()?;
    (value > 0.0 && value.is_finite() && !model.weights.contains_key(other)).then_some((value, other))
}

/// The largest code of a bias in 32 bits: half of what they hold, so that there is room for the products that are added
/// to it.
const LARGEST_BIAS: f64 = (1_u64 << 30) as f64;

/// Raises the weight's scale of each channel whose bias would not fit: a bias has the scale of input and weight
/// together, and in a channel of weights near 0 that is far too small for it. What coarser codes lose of such weights
/// is nothing beside the bias.
fn make_room_for_bias(scales: &mut [f32], bias: &Weight, input_scale: f32) -> Result<()> {
    for (scale, magnitude) in scales.iter_mut().zip(bias.channel_maxima(0)?) {
        let least = f64::from(magnitude) / (LARGEST_BIAS * f64::from(input_scale));
        *scale = scale.max((least as f32).min(f32::MAX));
    }
    Ok(())
}

/// The values that a chosen layer reads, at once or after operators that fuse: only those are worth 8 bits.
fn wanted(model: &Model, chosen: &BTreeSet<String>) -> HashSet<String> {
    let mut wanted = HashSet::new();
    for node in model.nodes.iter().rev() {
        let reads_codes = chosen.contains(&node.name)
            || (fuses(model, node) && node.outputs.iter().any(|name| wanted.contains(name)));
        if reads_codes {
            wanted.extend(node.inputs.iter().cloned());
        }
    }
    wanted
}

struct Pass<'a> {
    rewrite: Rewrite,
    scheme: Scheme,
    islands: &'a BTreeSet<String>,
    statistics: &'a Statistics,
    method: RangeMethod,
    /// The model before.
    model: &'a Model,
    readers: HashMap<&'a str, Vec<usize>>,
    wanted: HashSet<String>,
    /// For a value that went through 8 bits: its codes, what they mean, and the value after dequantising.
    codes: HashMap<String, (String, Code, String)>,
    /// Scales and zero points: equal ones are one weight.
    constants: HashMap<Weight, String>,
    /// Nodes that were added together with an earlier one.
    done: HashSet<usize>,
}

impl Pass<'_> {
    fn layer(&mut self, mut node: Node) -> Result<()> {
        let padding = self.missing_channels(&node);
        node.inputs[0] = self.dequantised_with(&node.inputs[0].clone(), padding)?;
        let input_scale =
            self.codes.values().find(|(.., value)| *value == node.inputs[0]).map(|(_, code, _)| code.scale);
        let prelu = match self.scheme {
            Scheme::Cpu => Prelu::behind(self.model, &node, self.only_reader(&node.outputs[0]))?,
            _ => None,
        };
        let plain = |name: &str| self.model.weights.get(name).cloned();
        let Some(mut weight) = plain(&node.inputs[1]) else {
            self.rewrite.model.nodes.push(node);
            return Ok(());
        };
        if padding > 0 {
            let dims =
                weight.dims().iter().enumerate().map(|(axis, size)| if axis == 1 { padding } else { *size }).collect();
            weight = Weight::concatenated(&[weight, Weight::zeros(DataType::F32, dims)?], 1)?;
        }
        let bias = node.inputs.get(2).and_then(|name| plain(name));
        let axis = channel_axis(&node);
        let (data_type, most) = self.scheme.weights();
        // What takes values beyond FP16 back has weights that are as small as those are large.
        let stored_as = if self.islands.contains(&node.name) { DataType::F32 } else { self.scheme.scales() };
        let mut scales = channel_scales(&node.inputs[1], &weight, axis, most, stored_as)?;
        let bias = bias.zip(input_scale).filter(|_| self.scheme == Scheme::Cpu);
        if let Some((bias, input_scale)) = &bias {
            make_room_for_bias(&mut scales, bias, *input_scale)?;
        }
        node.inputs[1] = dequantised_weight(&mut self.rewrite, &node.inputs[1], &weight, axis, &scales, data_type)?;
        if let Some((bias, input_scale)) = bias {
            let scales: Vec<f32> = scales.iter().map(|scale| (scale * input_scale).max(f32::MIN_POSITIVE)).collect();
            node.inputs[2] = dequantised_weight(&mut self.rewrite, &node.inputs[2], &bias, 0, &scales, DataType::I32)?;
        }
        let output = node.outputs[0].clone();
        if self.scheme != Scheme::Cpu || node.operator != "Conv" {
            // TensorRT needs no Q/DQ behind a layer, and ONNX Runtime's matrix products give floats as fast as codes.
            self.rewrite.model.nodes.push(node);
            return Ok(());
        }
        if let Some(prelu) = prelu {
            return self.prelu(node, &prelu);
        }
        if let Some(position) =
            self.only_reader(&output).filter(|position| self.model.nodes[*position].operator == "Relu")
        {
            self.rewrite.model.nodes.push(node);
            self.done.insert(position);
            return self.quantise_output(self.model.nodes[position].clone());
        }
        self.quantise_output(node)
    }

    /// Channels of zeros that an image is given before a convolution: ONNX Runtime's fast 8-bit kernels take four
    /// channels at a time, and leave pictures of 3 to slow ones.
    fn missing_channels(&self, node: &Node) -> usize {
        let is_image = self.scheme == Scheme::Cpu && self.is_input(&node.inputs[0]);
        let grouped = node.attributes.get("group").is_some_and(|groups| *groups != Attribute::Int(1));
        match self.model.weights.get(&node.inputs[1]).map(Weight::dims) {
            Some([_, channels, _, _]) if is_image && !grouped => channels.next_multiple_of(4) - channels,
            _ => 0,
        }
    }

    fn is_input(&self, value: &str) -> bool {
        self.model.inputs.iter().any(|port| port.name == value)
    }

    /// The one node that reads a value which is no output.
    fn only_reader(&self, value: &str) -> Option<usize> {
        let is_output = self.model.outputs.iter().any(|port| port.name == value);
        only_reader(&self.readers, value).filter(|_| !is_output)
    }

    /// PReLU in 8 bits: x and its products share a code, whose range is that of x and of the result together.
    fn prelu(&mut self, mut convolution: Node, prelu: &Prelu) -> Result<()> {
        let node = self.model.nodes[prelu.position].clone();
        self.done.insert(prelu.position);
        let code = self.scheme.code(self.statistics, &[&convolution.outputs[0], &node.outputs[0]], self.method)?;
        let exact = self.rewrite.name(&format!("{}/exact", convolution.name));
        convolution.outputs = vec![exact.clone()];
        self.rewrite.model.nodes.push(convolution);
        let mut codes = self.quantise(&exact, &node.name, code)?;
        for stage in prelu.stages() {
            let factors: Vec<u8> = stage.factors.iter().flat_map(|factor| factor.to_le_bytes()).collect();
            let channels = stage.factors.len();
            let weight = Weight::from_bytes(DataType::F32, vec![channels, 1, 1, 1], factors)?;
            let (data_type, most) = self.scheme.weights();
            let scales: Vec<f32> =
                stage.factors.iter().map(|factor| (factor.abs() / most).max(f32::MIN_POSITIVE)).collect();
            let base = format!("{}/{}", node.name, stage.operator);
            let weight =
                dequantised_weight(&mut self.rewrite, &format!("{base}/factors"), &weight, 0, &scales, data_type)?;
            let (scale, zero_point) = self.parameters(&node.name, code)?;
            let x = self.rewrite.node(
                &format!("{base}/DequantizeLinear"),
                "DequantizeLinear",
                &[&codes, &scale, &zero_point],
                &[],
            );
            let attributes =
                [("group", Attribute::from(channels as i64)), ("kernel_shape", Attribute::from(vec![1_i64, 1]))];
            let product = self.rewrite.node(&format!("{base}/Conv"), "Conv", &[&x, &weight], &attributes);
            let product = self.quantise(&product, &base, code)?;
            codes = self.rewrite.node(&base, stage.operator, &[&codes, &product], &[]);
        }
        self.dequantise_as(&codes, code, &node.outputs[0])
    }

    /// An operator between layers: in 8 bits if it continues from codes, and something behind it goes on with them.
    fn between(&mut self, node: Node) -> Result<()> {
        let output = node.outputs[0].clone();
        let continues = node.inputs.iter().any(|input| self.codes.contains_key(input));
        let known = node
            .inputs
            .iter()
            .all(|input| self.statistics.contains_key(input) || self.model.weights.contains_key(input));
        if !continues || !known || !self.wanted.contains(&output) {
            self.rewrite.model.nodes.push(node);
            return Ok(());
        }
        if let Some((factor, input)) = factor(self.model, &node)
            && let Some((codes, code, _)) = self.codes.get(input).cloned()
        {
            // The same codes with another scale.
            return self.dequantise_as(
                &codes,
                Code { scale: (code.scale * factor).max(f32::MIN_POSITIVE), ..code },
                &output,
            );
        }
        let mut node = node;
        for input in &mut node.inputs {
            *input = self.dequantised(&input.clone())?;
        }
        self.quantise_output(node)
    }

    /// The other summand of a sum that a layer ends in.
    fn sum(&mut self, mut node: Node, chosen: &BTreeSet<String>) -> Result<()> {
        let ends = |input: &String| {
            self.model.nodes.iter().any(|layer| chosen.contains(&layer.name) && layer.outputs.contains(input))
        };
        let of_layers: Vec<bool> = node.inputs.iter().map(ends).collect();
        if let Some(other) = (of_layers.iter().filter(|of_layer| **of_layer).count() == 1)
            .then(|| of_layers.iter().position(|of_layer| !of_layer))
            .flatten()
            && !self.model.weights.contains_key(&node.inputs[other])
        {
            node.inputs[other] = self.dequantised(&node.inputs[other].clone())?;
        }
        self.rewrite.model.nodes.push(node);
        Ok(())
    }

    /// Adds a node whose output goes through 8 bits and keeps its name.
    fn quantise_output(&mut self, mut node: Node) -> Result<()> {
        let output = node.outputs[0].clone();
        let code = self.scheme.code(self.statistics, &[&output], self.method)?;
        let exact = self.rewrite.name(&format!("{output}/exact"));
        node.outputs = vec![exact.clone()];
        self.rewrite.model.nodes.push(node);
        let codes = self.quantise(&exact, &output, code)?;
        self.dequantise_as(&codes, code, &output)
    }

    /// A value after 8 bits; each goes through them once.
    fn dequantised(&mut self, value: &str) -> Result<String> {
        self.dequantised_with(value, 0)
    }

    /// A value after 8 bits, with a number of channels of zeros behind its own.
    fn dequantised_with(&mut self, value: &str, padding: usize) -> Result<String> {
        let key = if padding == 0 { value.to_owned() } else { format!("{value}/Pad") };
        if let Some((.., dequantised)) = self.codes.get(&key) {
            return Ok(dequantised.clone());
        }
        // What the model is given has its range from the interface: nothing of that may be cut.
        let method = if self.is_input(value) { RangeMethod::MinMax } else { self.method };
        let code = self.scheme.code(self.statistics, &[value], method)?;
        let mut from = value.to_owned();
        if padding > 0 {
            // Nothing before each of the four dimensions, and channels behind.
            let bytes: Vec<u8> =
                [0, 0, 0, 0, 0, padding as i64, 0, 0].iter().flat_map(|pad: &i64| pad.to_le_bytes()).collect();
            let pads = self.rewrite.weight(&format!("{key}/pads"), Weight::from_bytes(DataType::I64, vec![8], bytes)?);
            from = self.rewrite.node(&key, "Pad", &[value, &pads], &[]);
        }
        let codes = self.quantise(&from, &key, code)?;
        let (scale, zero_point) = self.parameters(&key, code)?;
        let dequantised = self.rewrite.node(
            &format!("{key}/DequantizeLinear"),
            "DequantizeLinear",
            &[&codes, &scale, &zero_point],
            &[],
        );
        self.codes.insert(key, (codes, code, dequantised.clone()));
        Ok(dequantised)
    }

    fn quantise(&mut self, value: &str, base: &str, code: Code) -> Result<String> {
        let (scale, zero_point) = self.parameters(base, code)?;
        Ok(self.rewrite.node(&format!("{base}/QuantizeLinear"), "QuantizeLinear", &[value, &scale, &zero_point], &[]))
    }

    fn dequantise_as(&mut self, codes: &str, code: Code, value: &str) -> Result<()> {
        let (scale, zero_point) = self.parameters(value, code)?;
        let name = self.rewrite.name(&format!("{value}/DequantizeLinear"));
        let outputs = [value.to_owned()];
        self.rewrite.node_with_outputs(&name, "DequantizeLinear", &[codes, &scale, &zero_point], &[], &outputs);
        self.codes.insert(value.to_owned(), (codes.to_owned(), code, value.to_owned()));
        Ok(())
    }

    fn parameters(&mut self, base: &str, code: Code) -> Result<(String, String)> {
        let scale = Weight::from_bytes(DataType::F32, vec![], code.scale.to_le_bytes().to_vec())?;
        let zero_point = Weight::from_bytes(code.data_type, vec![], vec![code.zero_point])?;
        let mut placed = |kind: &str, weight: Weight| match self.constants.get(&weight) {
            Some(known) => known.clone(),
            None => {
                let name = self.rewrite.weight(&format!("{base}/{kind}"), weight.clone());
                self.constants.insert(weight, name.clone());
                name
            }
        };
        Ok((placed("scale", scale), placed("zero_point", zero_point)))
    }
}
