//! Convolutions of enlarged images for ONNX Runtime's CPU kernels.
//!
//! After a nearest-neighbour enlargement by 2, the nine taps of a 3×3 convolution meet only four different pixels:
//! which of them meet the same one depends on whether the output's row and column are even or odd. So each of the four
//! phases is a 2×2 convolution of the small image, whose filters are sums of the given ones, and DepthToSpace
//! interleaves the phases. That computes 16 products in the place of 36.

use super::{Names, Patch, Rule, apply};
use crate::{Attribute, DataType, Model, Node, Result, Weight};
use std::collections::HashMap;

/// The model with four small convolutions in place of every FP32 3×3 convolution of an image that was enlarged by 2.
///
/// The image must have at least `least_channels` channels: with fewer, interleaving the phases takes as long as the
/// saved products.
///
/// # Errors
/// Filters cannot be read, or the result breaks the operators' rules.
pub fn upsampled_convolutions_as_phases(model: &Model, least_channels: usize) -> Result<Model> {
    let makers = model.nodes.iter().flat_map(|node| node.outputs.iter().map(move |output| (output.as_str(), node)));
    apply(model, &mut UpsampledConvolutions { model, least_channels, makers: makers.collect() })
}

struct UpsampledConvolutions<'a> {
    /// The original model.
    model: &'a Model,
    least_channels: usize,
    /// The node that makes each value.
    makers: HashMap<&'a str, &'a Node>,
}

impl Rule for UpsampledConvolutions<'_> {
    fn patch<'n>(&mut self, _: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let Some((image, filters)) = self.enlarged(node)? else { return Ok(None) };
        let (dims, values) = (filters.dims().to_vec(), filters.to_f32s()?);
        let mut patch = Patch::new(names);
        let mut phases = Vec::with_capacity(4);
        for (row, column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let bytes = phase(&values, row, column).into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
            let filters = Weight::from_bytes(DataType::F32, vec![dims[0], dims[1], 2, 2], bytes)?;
            let filters = patch.weight(&format!("{}/phase", node.inputs[1]), filters);
            let inputs: Vec<&str> =
                [image, &filters].into_iter().chain(node.inputs.get(2).map(String::as_str)).collect();
            let (row, column) = (row as i64, column as i64);
            let attributes = [
                ("kernel_shape", Attribute::from(vec![2_i64, 2])),
                ("pads", Attribute::from(vec![1 - row, 1 - column, row, column])),
            ];
            phases.push(patch.node(&format!("{}/phase", node.name), "Conv", &inputs, attributes));
        }
        let phases: Vec<&str> = phases.iter().map(String::as_str).collect();
        let phases = patch.node(&format!("{}/phases", node.name), "Concat", &phases, [("axis", 1.into())]);
        patch.substitute(node, "DepthToSpace", &[&phases], [("blocksize", 2.into()), ("mode", "DCR".into())]);
        Ok(Some(patch))
    }
}

impl<'a> UpsampledConvolutions<'a> {
    /// The small image and the filters of a convolution of an enlarged image.
    fn enlarged(&self, node: &Node) -> Result<Option<(&'a str, &'a Weight)>> {
        let is_plain = node.is("Conv")
            && node.attributes.iter().all(|(name, value)| match (name.as_str(), value) {
                ("kernel_shape", Attribute::Ints(sides)) => sides == &[3, 3],
                ("strides" | "dilations", Attribute::Ints(steps)) => steps == &[1, 1],
                ("pads", Attribute::Ints(pads)) => pads == &[1; 4],
                ("group", Attribute::Int(groups)) => *groups == 1,
                _ => false,
            })
            && node.attributes.contains_key("pads");
        let filters = node.inputs.get(1).and_then(|name| self.model.weights.get(name));
        let filters = filters.filter(|filters| {
            is_plain
                && filters.data_type() == DataType::F32
                && matches!(filters.dims(), [_, channels, 3, 3] if *channels >= self.least_channels)
        });
        let Some((filters, enlargement)) = filters.zip(self.makers.get(node.inputs[0].as_str())) else {
            return Ok(None);
        };
        Ok(self.is_twice(enlargement)?.then(|| (enlargement.inputs[0].as_str(), filters)))
    }

    /// Whether a node replaces each pixel with 2×2 equal pixels.
    fn is_twice(&self, node: &Node) -> Result<bool> {
        let expected =
            [("mode", "nearest"), ("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "floor")];
        let is_nearest = node.is("Resize")
            && node.inputs.len() == 3
            && node.attributes.len() == expected.len()
            && expected.iter().all(|(name, value)| node.text(name) == Some(*value));
        let scales = node.inputs.get(2).and_then(|name| self.model.weights.get(name)).filter(|_| is_nearest);
        Ok(match scales {
            Some(scales) => scales.to_f32s()? == [1.0, 1.0, 2.0, 2.0],
            None => false,
        })
    }
}

/// The 2×2 filters of a phase: `row` and `column` are 0 for the even ones of the output, 1 for the odd ones.
fn phase(filters: &[f32], row: usize, column: usize) -> Vec<f32> {
    /// The pixel that each tap of three meets, by the phase.
    const MEETS: [[usize; 3]; 2] = [[0, 1, 1], [0, 0, 1]];
    let mut sums = vec![0.0; filters.len() / 9 * 4];
    for (sums, filter) in sums.chunks_exact_mut(4).zip(filters.chunks_exact(9)) {
        for (tap, value) in filter.iter().enumerate() {
            sums[2 * MEETS[row][tap / 3] + MEETS[column][tap % 3]] += value;
        }
    }
    sums
}
