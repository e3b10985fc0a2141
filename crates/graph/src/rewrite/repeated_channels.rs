//! Repeated channels for ONNX Runtime's CPU kernels.
//!
//! Nearest-neighbour enlargement before DepthToSpace is a Gather of channels, which does not work on the blocked
//! layout of convolutions. A 1×1 convolution with a single 1 in each filter gives the same bits, and ONNX Runtime then
//! fuses the sum into the convolution that is the other summand.

use super::{Names, Patch, Readers, Rule, apply};
use crate::{Attribute, Model, Node, Result, Weight};

/// The model with a convolution for every Gather of channels whose only reader adds it to a convolution's output.
///
/// # Errors
/// Indices cannot be read, or the result breaks the operators' rules.
pub fn repeated_channels_as_convolutions(model: &Model) -> Result<Model> {
    apply(model, &mut RepeatedChannels { model, readers: Readers::new(&model.nodes) })
}

struct RepeatedChannels<'a> {
    /// The original model.
    model: &'a Model,
    readers: Readers<'a>,
}

impl Rule for RepeatedChannels<'_> {
    fn patch<'n>(&mut self, _: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        let Some(filters) = self.filters(node)? else { return Ok(None) };
        let mut patch = Patch::new(names);
        let filters = patch.weight(&format!("{}/filters", node.name), filters);
        let kernel = ("kernel_shape", Attribute::from(vec![1_i64, 1]));
        patch.substitute(node, "Conv", &[&node.inputs[0], &filters], [kernel]);
        Ok(Some(patch))
    }
}

impl RepeatedChannels<'_> {
    /// The filters `[filters, channels, 1, 1]` of the convolution that replaces a node, if the node is such a Gather.
    fn filters(&self, node: &Node) -> Result<Option<Weight>> {
        let (true, [image, indices], [output]) = (node.is("Gather"), node.inputs.as_slice(), node.outputs.as_slice())
        else {
            return Ok(None);
        };
        // Height and width may be dynamic.
        let channels = match self.model.type_of(image).map(|ty| ty.dims).as_deref() {
            Some([_, channels, _, _]) if node.int("axis") == Some(1) => channels.fixed(),
            _ => None,
        };
        let Some(channels) = channels else { return Ok(None) };
        let indices = match self.model.weights.get(indices) {
            Some(indices) if indices.dims().len() == 1 && self.is_added_to_a_convolution(output) => indices,
            _ => return Ok(None),
        };
        let mut filters = vec![0_f32; indices.elements() * channels];
        for (filter, index) in indices.to_i64s()?.into_iter().enumerate() {
            // Negative indices count from the end.
            let channel = usize::try_from(if index < 0 { index + channels as i64 } else { index });
            match channel.ok().filter(|channel| *channel < channels) {
                Some(channel) => filters[filter * channels + channel] = 1.0,
                None => return Ok(None),
            }
        }
        Ok(Some(Weight::from_f32s(vec![indices.elements(), channels, 1, 1], &filters)?))
    }

    fn is_added_to_a_convolution(&self, value: &str) -> bool {
        let convolution_makes =
            |name: &String| self.model.nodes.iter().any(|node| node.operator == "Conv" && node.outputs.contains(name));
        self.readers.only(value).is_some_and(|position| {
            let sum = &self.model.nodes[position];
            sum.operator == "Add" && sum.inputs.iter().any(convolution_makes)
        })
    }
}
