//! Which tensors of a contract are what.

use tileforge_contract::{Contract, Embedding, Meaning, TensorSpec};
use tileforge_engine::{Engine, Graph, Pipeline};
use tileforge_image::Size;

use crate::error::{Error, Result};

/// What an input of the transformer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Noise, the latent clip that is restored, and a mask of ones.
    Sample,
    Timestep,
    /// The states of the text.
    Text,
}

/// The tensors of a transformer that restores latent clips.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    /// In the contract's order.
    pub(super) inputs: Vec<Input>,
    sample: String,
    /// The states of the text, and their width.
    pub(super) text: String,
    pub(super) text_width: usize,
    pub(super) output: String,
    /// Of a latent frame.
    pub(super) channels: usize,
    /// The timestep of pure noise, where the only step begins.
    pub(super) timestep: f32,
}

/// The latent clips of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) size: Size,
    pub(super) frames: usize,
}

impl Interface {
    /// The tensors of a transformer; `None` for another network.
    pub(super) fn of(contract: &Contract) -> Option<Self> {
        let (mut inputs, mut sample, mut text, mut timestep) = (Vec::new(), None, None, None);
        for spec in &contract.inputs {
            let input = match spec.meaning {
                Meaning::NoisyLatent { latent, condition, mask: 1, masked_image: 0 } if latent == condition => {
                    sample = spec.frames().map(|_| (spec.name.clone(), latent));
                    Input::Sample
                }
                Meaning::Timestep { range: [_, last] } => {
                    timestep = Some(last);
                    Input::Timestep
                }
                Meaning::Embedding { from: Embedding::Context } => {
                    text = spec.channels().map(|width| (spec.name.clone(), width));
                    Input::Text
                }
                _ => return None,
            };
            if inputs.contains(&input) {
                return None;
            }
            inputs.push(input);
        }
        let (((sample, channels), (text, text_width)), timestep) = (sample.zip(text)?, timestep?);
        let of_sample = contract.input(&sample)?;
        let is_prediction = |output: &&TensorSpec| {
            let sizes = |tensor: &TensorSpec| [tensor.frames(), tensor.height(), tensor.width()];
            output.meaning == Meaning::Prediction
                && output.channels() == Some(channels)
                && sizes(output) == sizes(of_sample)
        };
        let output = contract.outputs.iter().find(is_prediction)?;
        Some(Self { inputs, sample, text, text_width, output: output.name.clone(), channels, timestep })
    }

    /// What a graph takes, and the tokens of its text.
    pub(super) fn shape_of(&self, graph: &Graph) -> Option<(Shape, usize)> {
        let [1, _, frames, height, width] = *graph.inputs.get(&self.sample)?.as_slice() else { return None };
        let [_, tokens, _] = *graph.inputs.get(&self.text)?.as_slice() else { return None };
        let size = Size { width: u32::try_from(width).ok()?, height: u32::try_from(height).ok()? };
        Some((Shape { size, frames }, tokens))
    }
}

/// The transformer among the parts of an engine.
///
/// # Errors
/// [`Error::NoPart`]: there is none, or there are several.
pub(super) fn transformer_of(pipeline: &Pipeline) -> Result<(&Engine, Interface)> {
    let fitting = |(name, part): (_, _)| {
        let part: &Engine = part;
        Some((name, part, Interface::of(&part.manifest().contract)?))
    };
    let mut found: Vec<_> = pipeline.parts().filter_map(fitting).collect();
    match (found.pop(), found.is_empty()) {
        (Some((_, engine, interface)), true) => Ok((engine, interface)),
        (last, _) => Err(Error::NoPart {
            path: pipeline.directory().to_owned(),
            wanted: "transformer that restores latent clips",
            found: found.iter().chain(&last).map(|(name, ..)| (*name).to_owned()).collect(),
            parts: pipeline.parts().map(|(name, _)| name.to_owned()).collect(),
        }),
    }
}
