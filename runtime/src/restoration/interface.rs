//! The roles of a contract's tensors.

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

/// The widths that an autoencoder and a text must share with a transformer that restores latent clips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Channels of a latent frame.
    pub latent: usize,
    /// Width of a state of the text.
    pub text: usize,
}

impl Widths {
    /// Reads a contract; `None` for another network.
    pub fn of(contract: &Contract) -> Option<Self> {
        Interface::of(contract).map(|interface| interface.widths)
    }
}

/// The tensors of a transformer that restores latent clips.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    /// In the contract's order.
    pub(super) inputs: Vec<Input>,
    sample: String,
    /// The states of the text.
    pub(super) text: String,
    pub(super) output: String,
    pub(super) widths: Widths,
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
        let (((sample, latent), (text, text_width)), timestep) = (sample.zip(text)?, timestep?);
        let of_sample = contract.input(&sample)?;
        let is_prediction = |output: &&TensorSpec| {
            let sizes = |tensor: &TensorSpec| [tensor.frames(), tensor.height(), tensor.width()];
            output.meaning == Meaning::Prediction
                && output.channels() == Some(latent)
                && sizes(output) == sizes(of_sample)
        };
        let output = contract.outputs.iter().find(is_prediction)?;
        let widths = Widths { latent, text: text_width };
        Some(Self { inputs, sample, text, output: output.name.clone(), widths, timestep })
    }

    /// The latent clips that a graph takes, and the number of its text's tokens.
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
    let parts = pipeline.parts();
    let found: Vec<_> =
        parts.filter_map(|(name, part)| Some((name, part, Interface::of(&part.manifest().contract)?))).collect();
    if let [(_, engine, interface)] = found.as_slice() {
        return Ok((engine, interface.clone()));
    }
    Err(Error::NoPart {
        path: pipeline.directory().to_owned(),
        wanted: "transformer that restores latent clips",
        found: found.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        parts: pipeline.parts().map(|(name, _)| name.to_owned()).collect(),
    })
}
