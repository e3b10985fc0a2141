//! Convolutions of concatenated features as sums, where that moves fewer bytes.
//!
//! In a dense block, every convolution reads all earlier features. TensorRT copies these features into one tensor
//! again for each convolution: in RRDBNet, this is half of all bytes that move. A convolution of a concatenation is
//! the sum of convolutions of its parts, and TensorRT fuses the sum into the convolution's write. So this rewrite
//! keeps a few concatenations, each for several convolutions, and reads the other features where they are. It makes
//! the choice that moves the fewest bytes.
//!
//! The sums between the parts are rounded to the type of the graph.

use super::{Names, Patch, Readers, Rule, apply};
use crate::{DataType, Model, Node, Result, TensorType};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// The bytes that a GPU moves while a kernel starts (about two microseconds). One more kernel must save at least this
/// many bytes.
const BYTES_OF_A_START: u64 = 2_000_000;

/// The maximum number of features of a block: the time for the choice grows fast with it.
const MOST_FEATURES: usize = 24;

/// Replaces convolutions of concatenated features with sums of convolutions where that moves fewer bytes, and returns
/// their number. It applies to convolutions with one group, in FP32 or FP16, of features with fixed sizes.
///
/// # Errors
/// Filters cannot be read, or the result breaks the operators' rules.
pub fn concatenated_convolutions_as_sums(model: &mut Model) -> Result<usize> {
    // Concatenations that the graph already has are used.
    let readers = Readers::new(&model.nodes);
    let given = model.nodes.iter().filter(|node| features(model, &readers, node).is_some());
    let concatenated = given.map(|node| (node.inputs.clone(), node.outputs[0].clone())).collect();
    let mut rule = Sums { model: &*model, of: HashMap::new(), concatenated };
    for block in blocks(model, &readers) {
        let kept = block.fewest_bytes();
        for convolution in &block.convolutions {
            let (_, parts) = convolution.parts(&block.features, &kept);
            // With one part, the convolution stays.
            if parts.len() > 1 {
                let parts =
                    parts.into_iter().map(|part| block.features[part].iter().map(|it| it.name.clone()).collect());
                rule.of.insert(convolution.position, parts.collect());
            }
        }
    }
    let count = rule.of.len();
    if count > 0 {
        *model = apply(model, &mut rule)?;
    }
    Ok(count)
}

/// A value that is concatenated with others.
#[derive(Debug, Clone, PartialEq)]
struct Feature {
    name: String,
    bytes: u64,
    /// The bytes that move to copy it into a concatenation. Where nothing else reads it, its maker writes it there.
    copied: u64,
}

/// A convolution that reads the first features of a block.
#[derive(Debug, Clone, PartialEq)]
struct Convolution {
    position: usize,
    reads: usize,
    /// Bytes of its output.
    bytes: u64,
}

/// Features, and the convolutions that each read a prefix of them.
#[derive(Debug, Clone, PartialEq)]
struct Block {
    features: Vec<Feature>,
    convolutions: Vec<Convolution>,
}

/// The ranges of features that are concatenated: first and end.
type Kept = BTreeSet<(usize, usize)>;

impl Convolution {
    /// The bytes that move for this convolution, and the parts in which it is computed.
    fn parts(&self, features: &[Feature], kept: &Kept) -> (u64, Vec<Range<usize>>) {
        // The fewest bytes for each number of features.
        let mut best: Vec<Option<(u64, usize)>> = vec![Some((0, 0))];
        for end in 1..=self.reads {
            let ways = (0..end).filter(|&start| end - start == 1 || kept.contains(&(start, end))).filter_map(|start| {
                let read: u64 = features[start..end].iter().map(|feature| feature.bytes).sum();
                // Each part but the first adds to the output of the part before.
                let sum = if start > 0 { self.bytes } else { 0 };
                best[start].map(|(before, _)| (before + read + sum + self.bytes + BYTES_OF_A_START, start))
            });
            let least = ways.min();
            best.push(least);
        }
        let mut parts = Vec::new();
        let mut end = self.reads;
        while let Some((_, start)) = best[end].filter(|_| end > 0) {
            parts.push(start..end);
            end = start;
        }
        parts.reverse();
        (best[self.reads].map_or(0, |(bytes, _)| bytes), parts)
    }
}

impl Block {
    /// The bytes that move if these ranges are concatenated.
    fn bytes(&self, kept: &Kept) -> u64 {
        let copied = kept.iter().map(|&(start, end)| {
            self.features[start..end].iter().map(|feature| feature.copied).sum::<u64>() + BYTES_OF_A_START
        });
        let read = self.convolutions.iter().map(|convolution| convolution.parts(&self.features, kept).0);
        copied.sum::<u64>() + read.sum::<u64>()
    }

    /// The concatenations with which the fewest bytes move. A local search starts from the graph's concatenations, and
    /// from none; it adds or removes one as long as that is better.
    fn fewest_bytes(&self) -> Kept {
        let given: Kept = self.convolutions.iter().map(|convolution| (0, convolution.reads)).collect();
        let count = self.features.len();
        let all: Vec<(usize, usize)> =
            (0..count).flat_map(|start| (start + 2..=count).map(move |end| (start, end))).collect();
        let improved = |mut kept: Kept| {
            let mut bytes = self.bytes(&kept);
            loop {
                let changed = all.iter().map(|one| {
                    let mut other = kept.clone();
                    if !other.remove(one) {
                        other.insert(*one);
                    }
                    (self.bytes(&other), other)
                });
                match changed.min() {
                    Some((fewer, other)) if fewer < bytes => (bytes, kept) = (fewer, other),
                    _ => return (bytes, kept),
                }
            }
        };
        let as_it_is = self.bytes(&given);
        let (bytes, kept) = improved(Kept::new()).min(improved(given.clone()));
        if bytes < as_it_is { kept } else { given }
    }
}

/// The blocks of a model. A concatenation with other readers is computed anyway, so its convolutions stay.
fn blocks(model: &Model, readers: &Readers<'_>) -> Vec<Block> {
    let is_output = |name: &str| model.outputs.iter().any(|port| port.name == name);
    let mut found: Vec<Block> = Vec::new();
    for node in &model.nodes {
        let [output] = node.outputs.as_slice() else { continue };
        let Some(features) = features(model, readers, node) else { continue };
        let read_by = readers.all(output).iter().map(|&position| convolution(model, position, output, features.len()));
        let convolutions: Option<Vec<Convolution>> = read_by.collect();
        let Some(convolutions) = convolutions.filter(|all| !all.is_empty() && !is_output(output)) else { continue };
        // Longer lists of a block come after shorter ones, because each adds a feature that was made in between.
        match found.iter_mut().find(|block| features.starts_with(&block.features)) {
            Some(block) => {
                block.features = features;
                block.convolutions.extend(convolutions);
            }
            None => found.push(Block { features, convolutions }),
        }
    }
    found
}

/// The features that a node concatenates along the channel axis.
fn features(model: &Model, readers: &Readers<'_>, node: &Node) -> Option<Vec<Feature>> {
    let is_by_channels = node.is("Concat") && node.int("axis") == Some(1);
    // A feature that is concatenated twice has one name for two places.
    let names: BTreeSet<&String> = node.inputs.iter().collect();
    if !is_by_channels || !(2..=MOST_FEATURES).contains(&names.len()) || names.len() != node.inputs.len() {
        return None;
    }
    let feature = |name: &String| {
        let ty = sized(model, name)?;
        let bytes = ty.byte_length()?;
        let is_given = model.inputs.iter().any(|port| port.name == *name);
        let copied = if readers.only(name).is_some() && !is_given { 0 } else { 2 * bytes };
        Some(Feature { name: name.clone(), bytes, copied })
    };
    node.inputs.iter().map(feature).collect()
}

/// The convolution at `position`, if it can be a sum.
fn convolution(model: &Model, position: usize, input: &str, reads: usize) -> Option<Convolution> {
    let node = &model.nodes[position];
    let filters = model.weights.get(node.inputs.get(1)?)?;
    let is_sum = node.is("Conv") && node.inputs[0] == input && node.int("group").unwrap_or(1) == 1;
    let ty = sized(model, node.outputs.first()?)?;
    (is_sum && filters.dims().len() >= 3 && filters.data_type() == ty.data_type).then_some(Convolution {
        position,
        reads,
        bytes: ty.byte_length()?,
    })
}

/// The type of a value of fixed size in FP32 or FP16. BF16 has too few bits for rounded sums.
fn sized(model: &Model, name: &str) -> Option<TensorType> {
    let ty = model.type_of(name)?;
    (ty.fixed_dims().is_some() && matches!(ty.data_type, DataType::F32 | DataType::F16)).then_some(ty)
}

struct Sums<'a> {
    /// The original model.
    model: &'a Model,
    /// For each convolution that becomes a sum, the features of its parts.
    of: HashMap<usize, Vec<Vec<String>>>,
    /// The values of concatenations, by what they concatenate.
    concatenated: HashMap<Vec<String>, String>,
}

impl Rule for Sums<'_> {
    fn patch<'n>(&mut self, position: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let Some(parts) = self.of.remove(&position) else { return Ok(None) };
        let mut patch = Patch::new(names);
        let filters = &self.model.weights[&node.inputs[1]];
        let channels_of =
            |name: &String| self.model.type_of(name).and_then(|ty| ty.fixed_dims()).map_or(0, |dims| dims[1]);
        let (mut first, mut sum): (usize, Option<String>) = (0, None);
        let last = parts.len() - 1;
        for (number, features) in parts.into_iter().enumerate() {
            let channels: usize = features.iter().map(channels_of).sum();
            let part = patch.weight(&format!("{}/part", node.inputs[1]), filters.part(1, first, channels)?);
            first += channels;
            let value = match features.as_slice() {
                [only] => only.clone(),
                _ => match self.concatenated.get(&features) {
                    Some(value) => value.clone(),
                    None => {
                        let inputs: Vec<&str> = features.iter().map(String::as_str).collect();
                        let value =
                            patch.node(&format!("{}/Concat", node.name), "Concat", &inputs, [("axis", 1.into())]);
                        self.concatenated.insert(features, value.clone());
                        value
                    }
                },
            };
            // The bias is added once.
            let bias = node.inputs.get(2).filter(|bias| number == last && !bias.is_empty());
            let mut convolution = node.clone();
            convolution.inputs = [value, part].into_iter().chain(bias.cloned()).collect();
            convolution.name = patch.name(&format!("{}/part", node.name));
            convolution.outputs = vec![convolution.name.clone()];
            let made = convolution.name.clone();
            patch.push(convolution);
            sum = match sum {
                None => Some(made),
                Some(before) if number < last => {
                    Some(patch.node(&format!("{}/sum", node.name), "Add", &[&made, &before], []))
                }
                Some(before) => {
                    patch.substitute(node, "Add", &[&made, &before], []);
                    None
                }
            };
        }
        Ok(Some(patch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Opset, Port, Weight};

    /// A dense block of images with `side`² pixels.
    fn dense_block(data_type: DataType, side: usize, input: usize, growth: usize, convolutions: usize) -> Model {
        let port = |name: &str, channels| Port {
            name: name.into(),
            ty: TensorType::new(data_type, [1, channels, side, side]),
        };
        let mut model = Model {
            opsets: vec![Opset { domain: String::new(), version: 22 }],
            inputs: vec![port("x0", input)],
            ..Model::default()
        };
        let node = |name: String, operator: &str, inputs: Vec<String>, attributes: Vec<(&str, Attribute)>| Node {
            outputs: vec![name.clone()],
            name,
            operator: operator.into(),
            domain: String::new(),
            inputs,
            attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        };
        for number in 0..convolutions {
            let all: Vec<String> = (0..=number).map(|feature| format!("x{feature}")).collect();
            let read = if number == 0 { "x0".to_owned() } else { format!("all{number}") };
            if number > 0 {
                model.nodes.push(node(read.clone(), "Concat", all, vec![("axis", 1.into())]));
            }
            let channels = input + number * growth;
            let made = if number + 1 == convolutions { input } else { growth };
            let (filters, bias) = (format!("w{number}"), format!("b{number}"));
            let output = format!("x{}", number + 1);
            model.weights.insert(filters.clone(), Weight::zeros(data_type, vec![made, channels, 3, 3]).unwrap());
            model.weights.insert(bias.clone(), Weight::zeros(data_type, vec![made]).unwrap());
            let pads = vec![("pads", Attribute::from(vec![1_i64; 4]))];
            model.nodes.push(node(output, "Conv", vec![read, filters, bias], pads));
        }
        model.outputs = vec![port(&format!("x{convolutions}"), input)];
        model.infer_types().unwrap();
        model
    }

    /// Bytes of all inputs and outputs of nodes, without filters. A sum counts as part of the convolution that it
    /// adds.
    fn moved(model: &Model) -> u64 {
        let of = |name: &String| sized(model, name).filter(|_| !model.weights.contains_key(name));
        let bytes = |name: &String| of(name).and_then(|ty| ty.byte_length()).unwrap_or(0);
        let each = model.nodes.iter().map(|node| match node.operator.as_str() {
            "Add" => bytes(&node.inputs[1]),
            _ => node.inputs.iter().chain(&node.outputs).map(bytes).sum(),
        });
        each.sum()
    }

    #[test]
    fn the_dense_block_of_rrdbnet_moves_three_quarters_of_its_bytes() {
        let mut model = dense_block(DataType::F16, 256, 64, 32, 5);
        let before = moved(&model);
        let outputs = model.outputs.clone();
        assert_eq!(concatenated_convolutions_as_sums(&mut model).unwrap(), 3);
        let share = moved(&model) as f64 / before as f64;
        assert!(share < 0.76, "{share}");
        assert_eq!(model.outputs, outputs);
        let convolutions = model.nodes.iter().filter(|node| node.is("Conv"));
        let biased = convolutions.clone().filter(|node| node.inputs.len() == 3).count();
        assert!(biased == 5 && convolutions.count() > 5);
    }

    #[test]
    fn what_would_not_gain_or_round_too_much_stays() {
        // Small images: more kernels would take longer than the copies.
        let mut small = dense_block(DataType::F16, 16, 64, 32, 5);
        let kernels = |model: &Model| model.nodes.iter().filter(|node| !node.is("Add")).count();
        let before = kernels(&small);
        concatenated_convolutions_as_sums(&mut small).unwrap();
        assert_eq!(kernels(&small), before);
        let mut bf16 = dense_block(DataType::Bf16, 256, 64, 32, 5);
        assert_eq!(concatenated_convolutions_as_sums(&mut bf16).unwrap(), 0);
        let mut read_elsewhere = dense_block(DataType::F16, 256, 64, 32, 2);
        read_elsewhere.outputs.push(Port { name: "all1".into(), ty: read_elsewhere.type_of("all1").unwrap() });
        assert_eq!(concatenated_convolutions_as_sums(&mut read_elsewhere).unwrap(), 0);
        let mut grouped = dense_block(DataType::F16, 256, 64, 32, 2);
        let convolution = grouped.nodes.last_mut().unwrap();
        convolution.attributes.insert("group".into(), 2.into());
        grouped.weights.insert("w1".into(), Weight::zeros(DataType::F16, vec![64, 48, 3, 3]).unwrap());
        grouped.infer_types().unwrap();
        assert_eq!(concatenated_convolutions_as_sums(&mut grouped).unwrap(), 0);
    }
}
