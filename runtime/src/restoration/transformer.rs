//! The transformer, with its fixed text.

use std::sync::Arc;

use tileforge_engine::{Engine, Pipeline};
use tileforge_image::Size;
use tileforge_session::{Assigned, Location, Placement};

use super::interface::{Input, Interface, Shape};
use crate::autoencoder::Latent;
use crate::error::{Error, Result};
use crate::host::{Group, Host, Network, Ticket, Values};
use crate::tensor_file::{Contents, read_safetensors};

/// The transformer of a pipeline.
pub(super) struct Transformer {
    network: Network,
    interface: Interface,
    text: Vec<f32>,
    /// The graphs for one clip, by their latent shapes.
    graphs: Vec<(Shape, Arc<Group>)>,
}

impl Transformer {
    pub(super) fn new(
        host: &Host,
        pipeline: &Pipeline,
        engine: &Engine,
        interface: Interface,
        placement: &Placement,
    ) -> Result<Self> {
        let (text, tokens) = text_of(pipeline, &interface)?;
        let network = Network::new(host, engine, placement.clone())?;
        let mut graphs = Vec::new();
        for (number, (graph, _)) in network.graphs().iter().enumerate() {
            let Some((shape, of_graph)) = interface.shape_of(graph) else { continue };
            if of_graph != tokens {
                let expected = format!("{of_graph} tokens of the text, as its graphs take them");
                return Err(Error::Tensor { tensor: interface.text, expected, found: tokens.to_string() });
            }
            graphs.push((shape, network.group(number, |output| output.name == interface.output)?));
        }
        Ok(Self { network, interface, text, graphs })
    }

    /// Channels of a latent frame.
    pub(super) fn channels(&self) -> usize {
        self.interface.widths.latent
    }

    /// The numbers of latent frames that go through it together, for latents of a size; the least first.
    pub(super) fn frames(&self, size: Size) -> Vec<usize> {
        let mut frames: Vec<usize> =
            self.graphs.iter().filter(|(shape, _)| shape.size == size).map(|(shape, _)| shape.frames).collect();
        frames.sort_unstable();
        frames
    }

    pub(super) fn location(&self) -> Location<'_> {
        self.network.location()
    }

    pub(super) fn assigned(&self) -> Vec<Assigned> {
        self.network.assigned()
    }

    /// The restored latent clip: the end of the one step from `noise`, `[channels, frames, height, width]`.
    pub(super) fn restore(&self, ticket: &Ticket, latent: Latent, noise: &[f32]) -> Result<Latent> {
        let internal = || Error::internal("restore");
        let shape = Shape { size: latent.size, frames: latent.frames.unwrap_or(1) };
        let (_, group) = self.graphs.iter().find(|(known, _)| *known == shape).ok_or_else(internal)?;
        let ones = vec![1.0; latent.values.len() / self.channels().max(1)];
        let input = |input: &Input| {
            Values::F32(match input {
                Input::Sample => [noise, &latent.values, &ones].concat(),
                Input::Timestep => vec![self.interface.timestep],
                Input::Text => self.text.clone(),
            })
        };
        let sample = self.interface.inputs.iter().map(input).collect();
        let made = self.network.run(ticket, group, vec![sample])?.pop().ok_or_else(internal)?;
        let velocity = made.outputs.into_iter().next().ok_or_else(internal)?.into_f32()?;
        if velocity.iter().any(|value| !value.is_finite()) {
            return Err(Error::Tensor {
                tensor: self.interface.output.clone(),
                expected: "numbers".into(),
                found: "NaN or infinity; where values do not fit a smaller precision, a larger one helps".into(),
            });
        }
        // At the timestep of pure noise, the step along the velocity ends there.
        let values = noise.iter().zip(&velocity).map(|(noise, velocity)| noise - velocity).collect();
        Ok(Latent { values, ..latent })
    }
}

/// The states of the text, and the number of its tokens.
fn text_of(pipeline: &Pipeline, interface: &Interface) -> Result<(Vec<f32>, usize)> {
    let Some(restoration) = &pipeline.manifest().restoration else {
        return Err(Error::NoRestoration { engine: pipeline.manifest().name.clone() });
    };
    let name = &restoration.text;
    let states = text_states(pipeline.file(name)?, interface.widths.text);
    states.map_err(|problem| Error::tensor_file(&pipeline.path_of(name), problem))
}

/// The states of a text in the bytes of a safetensors file, and the number of its tokens.
///
/// # Errors
/// What is wrong: the bytes are no safetensors file, or do not hold exactly one float tensor `[tokens, width]`.
pub fn text_states(file: &[u8], width: usize) -> Result<(Vec<f32>, usize), String> {
    let expected = format!("expected one tensor [tokens, {width}] of f32, f16 or bf16: the states of a text");
    let Contents::Named { tensors, .. } = read_safetensors(file)? else { return Err(expected) };
    let mut found = tensors.into_values();
    let (Some(states), None) = (found.next(), found.next()) else {
        return Err(format!("{expected}; found another number of tensors"));
    };
    let wrong = || format!("{expected}; found {states}");
    let [tokens, found] = *states.shape.as_slice() else { return Err(wrong()) };
    let values = states.floats().filter(|_| found == width && tokens > 0).ok_or_else(wrong)?;
    if values.iter().any(|value| !value.is_finite()) {
        return Err(format!("{expected}; found NaN or infinity among them"));
    }
    Ok((values, tokens))
}
