//! INT8 and FP8 by explicit QuantizeLinear and DequantizeLinear, placed where the target fuses them.

use super::calibration::Statistics;
use super::range::{RangeMethod, range};
use super::rewrite::{Rewrite, is_layer, layers, readers, with_plain_weights};
use crate::{Error, Result};
use graph::{Attribute, DataType, Model, Node, Weight};
use std::collections::{BTreeSet, HashMap, HashSet};

/// How numbers of 8 bits stand for activations, and where they begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// ONNX Runtime's CPU kernels: unsigned with a zero point, which AVX-512 VNNI multiplies by signed weights. A layer is fused with the
    /// Q/DQ on both of its sides (QLinearConv), and so are sums and joints in between.
    Cpu,
    /// TensorRT: signed, zero point 0. Q/DQ stand before layers, and before the other summand of a sum that a layer ends in; TensorRT moves
    /// them from there ("Explicit Quantization" in its developer's guide).
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
    fn code(self, statistics: &Statistics, value: &str, method: RangeMethod) -> Result<Code> {
        let missing = || graph::Error::Graph(format!("calibration saw nothing of `{value}`"));
        let histogram = statistics.get(value).ok_or_else(missing)?;
        // Scales are at least the smallest normal number, which is only reached by values that are 0 throughout.
        let scale = |width: f64, steps: f64| ((width / steps) as f32).max(f32::MIN_POSITIVE);
        Ok(match self {
            Scheme::Cpu => {
                let [low, high] = range(histogram, method, false);
                let scale = scale(high - low, 255.0);
                let zero_point = (-low / f64::from(scale)).round_ties_even().clamp(0.0, 255.0) as u8;
                Code { scale, zero_point, data_type: DataType::U8 }
            }
            Scheme::TensorRt => {
                let [_, high] = range(histogram, method, true);
                Code { scale: scale(high, 127.0), zero_point: 0, data_type: DataType::I8 }
            }
            // Floats keep their precision however far they reach: nothing is gained by cutting.
            Scheme::Fp8 => {
                let [_, high] = range(histogram, RangeMethod::MinMax, true);
                Code { scale: scale(high, F8_MAXIMUM), zero_point: 0, data_type: DataType::F8E4M3 }
            }
        })
    }

    fn weights(self) -> (DataType, f32) {
        match self {
            Scheme::Cpu | Scheme::TensorRt => (DataType::I8, 127.0),
            Scheme::Fp8 => (DataType::F8E4M3, F8_MAXIMUM as f32),
        }
    }
}

/// The layers that are quantised unless they are asked to stay: all but the first and the last, which see pixels.
pub(crate) fn default_layers(model: &Model) -> Result<Vec<String>> {
    let layers = layers(&with_plain_weights(model)?);
    Ok(match layers.as_slice() {
        [_, inner @ .., _] => inner.to_vec(),
        _ => Vec::new(),
    })
}

/// The model with the layers `chosen` in 8 bits.
///
/// # Errors
/// Calibration saw nothing of a layer's input, a weight is no number, or the result does not fit the operators' rules.
pub(crate) fn quantised(
    model: &Model,
    scheme: Scheme,
    chosen: &BTreeSet<String>,
    statistics: &Statistics,
    method: RangeMethod,
) -> Result<Model> {
    let model = with_plain_weights(model)?;
    let (rewrite, nodes) = Rewrite::of(&model);
    let mut pass = Pass {
        rewrite,
        scheme,
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

/// The values that a chosen layer reads, at once or after operators that fuse: only those are worth 8 bits.
fn wanted(model: &Model, chosen: &BTreeSet<String>) -> HashSet<String> {
    let mut wanted = HashSet::new();
    for node in model.nodes.iter().rev() {
        let reads_codes = chosen.contains(&node.name) || (fuses(model, node) && node.outputs.iter().any(|name| wanted.contains(name)));
        if reads_codes {
            wanted.extend(node.inputs.iter().cloned());
        }
    }
    wanted
}

struct Pass<'a> {
    rewrite: Rewrite,
    scheme: Scheme,
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
        node.inputs[0] = self.dequantised(&node.inputs[0].clone())?;
        let input_scale = self.codes.values().find(|(.., value)| *value == node.inputs[0]).map(|(_, code, _)| code.scale);
        let prelu = if self.scheme == Scheme::Cpu { self.prelu_behind(&node)? } else { None };
        let plain = |name: &str| self.model.weights.get(name).cloned();
        let Some(mut weight) = plain(&node.inputs[1]) else {
            self.rewrite.model.nodes.push(node);
            return Ok(());
        };
        let mut bias = node.inputs.get(2).and_then(|name| plain(name));
        let axis = match (node.operator.as_str(), node.attributes.get("transB")) {
            ("Conv", _) | ("Gemm", Some(Attribute::Int(1))) => 0,
            _ => 1,
        };
        if let Some((_, slopes)) = &prelu {
            // x, and below it the slope times x, of which the larger one is PReLU's result where no slope is above 1.
            weight = Weight::concatenated(&[weight.clone(), weight.rows_scaled(slopes)?], 0)?;
            bias = bias.map(|bias| Weight::concatenated(&[bias.clone(), bias.rows_scaled(slopes)?], 0)).transpose()?;
        }
        let (data_type, most) = self.scheme.weights();
        let maxima = weight.channel_maxima(axis)?;
        if maxima.iter().any(|maximum| !maximum.is_finite()) {
            return Err(Error::Graph(graph::Error::Graph(format!("the weight `{}` is not finite", node.inputs[1]))));
        }
        let scales: Vec<f32> = maxima.iter().map(|maximum| (maximum / most).max(f32::MIN_POSITIVE)).collect();
        node.inputs[1] = self.dequantised_weight(&node.inputs[1].clone(), &weight, axis, &scales, data_type)?;
        if let (Some(bias), Some(input_scale), Scheme::Cpu) = (bias, input_scale, self.scheme) {
            let scales: Vec<f32> = scales.iter().map(|scale| (scale * input_scale).max(f32::MIN_POSITIVE)).collect();
            node.inputs[2] = self.dequantised_weight(&node.inputs[2].clone(), &bias, 0, &scales, DataType::I32)?;
        }
        let output = node.outputs[0].clone();
        if self.scheme != Scheme::Cpu || node.operator != "Conv" {
            // TensorRT needs no Q/DQ behind a layer, and ONNX Runtime's matrix products give floats as fast as codes.
            self.rewrite.model.nodes.push(node);
            return Ok(());
        }
        if let Some((position, _)) = prelu {
            return self.doubled(node, position);
        }
        if let Some(position) = self.only_reader(&output).filter(|position| self.model.nodes[*position].operator == "Relu") {
            self.rewrite.model.nodes.push(node);
            self.done.insert(position);
            return self.quantise_output(self.model.nodes[position].clone());
        }
        self.quantise_output(node)
    }

    /// The one node that reads a value which is no output.
    fn only_reader(&self, value: &str) -> Option<usize> {
        let is_output = self.model.outputs.iter().any(|port| port.name == value);
        match self.readers.get(value).map(Vec::as_slice) {
            Some([position]) if !is_output => Some(*position),
            _ => None,
        }
    }

    /// The PRelu that alone reads a convolution, with its slopes, if none of them is above 1.
    fn prelu_behind(&self, node: &Node) -> Result<Option<(usize, Vec<f32>)>> {
        let Some(position) = self.only_reader(&node.outputs[0]).filter(|_| node.operator == "Conv") else { return Ok(None) };
        let reader = &self.model.nodes[position];
        let Some(slope) = self.model.weights.get(reader.inputs.get(1).map_or("", String::as_str)) else { return Ok(None) };
        let filters = self.model.weights.get(&node.inputs[1]).map_or(0, |weight| weight.dims()[0]);
        let grouped = node.attributes.get("group").is_some_and(|groups| *groups != Attribute::Int(1));
        let per_channel = slope.dims().first() == Some(&slope.elements()) && slope.dims().len() + 1 == 4;
        if reader.operator != "PRelu" || grouped || !per_channel || slope.elements() != filters {
            return Ok(None);
        }
        let slopes = slope.to_f32s()?;
        Ok(slopes.iter().all(|slope| *slope <= 1.0).then_some((position, slopes)))
    }

    /// PReLU as the larger of x and slope · x: ONNX Runtime has no 8-bit PReLU, and would go to floats and back. A maximum of codes is
    /// the code of the maximum, and both halves take the range of the result, so that this also rounds once instead of twice.
    fn doubled(&mut self, mut convolution: Node, position: usize) -> Result<()> {
        let prelu = self.model.nodes[position].clone();
        self.done.insert(position);
        let code = self.scheme.code(self.statistics, &prelu.outputs[0], self.method)?;
        let both = self.rewrite.name(&format!("{}/doubled", convolution.name));
        convolution.outputs = vec![both.clone()];
        self.rewrite.model.nodes.push(convolution);
        let codes = self.quantise(&both, &prelu.name, code)?;
        let split = self.rewrite.name(&format!("{}/Split", prelu.name));
        let halves = ["positive", "negative"].map(|half| self.rewrite.name(&format!("{}/{half}", prelu.name)));
        let attributes = [("axis", Attribute::from(1)), ("num_outputs", Attribute::from(2))];
        self.rewrite.node_with_outputs(&split, "Split", &[&codes], &attributes, &halves);
        let larger = self.rewrite.node(&format!("{}/Max", prelu.name), "Max", &[&halves[0], &halves[1]], &[]);
        self.dequantise_as(&larger, code, &prelu.outputs[0])
    }

    /// An operator between layers: in 8 bits if it continues from codes, and something behind it goes on with them.
    fn between(&mut self, node: Node) -> Result<()> {
        let output = node.outputs[0].clone();
        let continues = node.inputs.iter().any(|input| self.codes.contains_key(input));
        let known = node.inputs.iter().all(|input| self.statistics.contains_key(input) || self.model.weights.contains_key(input));
        if !continues || !known || !self.wanted.contains(&output) {
            self.rewrite.model.nodes.push(node);
            return Ok(());
        }
        if let Some((factor, input)) = factor(self.model, &node)
            && let Some((codes, code, _)) = self.codes.get(input).cloned()
        {
            // The same codes with another scale.
            return self.dequantise_as(&codes, Code { scale: (code.scale * factor).max(f32::MIN_POSITIVE), ..code }, &output);
        }
        let mut node = node;
        for input in &mut node.inputs {
            *input = self.dequantised(&input.clone())?;
        }
        self.quantise_output(node)
    }

    /// The other summand of a sum that a layer ends in.
    fn sum(&mut self, mut node: Node, chosen: &BTreeSet<String>) -> Result<()> {
        let ends = |input: &String| self.model.nodes.iter().any(|layer| chosen.contains(&layer.name) && layer.outputs.contains(input));
        let of_layers: Vec<bool> = node.inputs.iter().map(ends).collect();
        if let Some(other) =
            (of_layers.iter().filter(|of_layer| **of_layer).count() == 1).then(|| of_layers.iter().position(|of_layer| !of_layer)).flatten()
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
        let code = self.scheme.code(self.statistics, &output, self.method)?;
        let exact = self.rewrite.name(&format!("{output}/exact"));
        node.outputs = vec![exact.clone()];
        self.rewrite.model.nodes.push(node);
        let codes = self.quantise(&exact, &output, code)?;
        self.dequantise_as(&codes, code, &output)
    }

    /// A value after 8 bits; each goes through them once.
    fn dequantised(&mut self, value: &str) -> Result<String> {
        if let Some((.., dequantised)) = self.codes.get(value) {
            return Ok(dequantised.clone());
        }
        let code = self.scheme.code(self.statistics, value, self.method)?;
        let codes = self.quantise(value, value, code)?;
        let (scale, zero_point) = self.parameters(value, code)?;
        let dequantised = self.rewrite.node(&format!("{value}/DequantizeLinear"), "DequantizeLinear", &[&codes, &scale, &zero_point], &[]);
        self.codes.insert(value.to_owned(), (codes, code, dequantised.clone()));
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

    fn dequantised_weight(&mut self, name: &str, weight: &Weight, axis: usize, scales: &[f32], to: DataType) -> Result<String> {
        let codes = self.rewrite.weight(&format!("{name}/{to}"), weight.quantised(axis, scales, to)?);
        let bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        let scales = self.rewrite.weight(&format!("{name}/scales"), Weight::from_bytes(DataType::F32, vec![scales.len()], bytes)?);
        let zero_points = Weight::from_bytes(to, vec![weight.dims()[axis]], vec![0; weight.dims()[axis] * to.size()])?;
        let zero_points = self.rewrite.weight(&format!("{name}/zero_points"), zero_points);
        let attributes = [("axis", Attribute::from(axis as i64))];
        Ok(self.rewrite.node(&format!("{name}/DequantizeLinear"), "DequantizeLinear", &[&codes, &scales, &zero_points], &attributes))
    }
}
