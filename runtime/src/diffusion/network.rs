//! The network that takes noise away, in one step.

use std::collections::BTreeMap;
use std::ops::Range;

use tileforge_contract::{Axis, Contract, Embedding, Meaning, TensorSpec};
use tileforge_engine::Engine;
use tileforge_image::Size;
use tileforge_session::{Bound, Buffer, Cancel, Environment, Placement, Session};

use super::error::Error;
use crate::error::{Error as RuntimeError, Result};
use crate::sessions::{Sessions, Worker};

/// The network, and which of its tensors is what.
pub(super) struct Network {
    pub(super) sessions: Sessions,
    sample: String,
    timestep: String,
    context: String,
    /// The vector of the whole text with its width, and the numbers about the picture with their count.
    added: Option<((String, usize), (String, usize))>,
    output: String,
    /// Channels of the noisy latent, of the mask, and of the masked picture's latent.
    pub(super) channels: [usize; 3],
    /// The width of a text's states.
    pub(super) width: usize,
}

/// What the network is conditioned on, for one picture.
#[derive(Clone)]
pub(super) struct Condition {
    /// `[tokens, width]`.
    pub(super) states: Vec<f32>,
    pub(super) pooled: Vec<f32>,
    pub(super) time_ids: Vec<f32>,
}

/// A graph of the network for pictures of one size.
#[derive(Clone, Copy, Debug)]
struct Fitting {
    graph: usize,
    batch: usize,
}

impl Network {
    pub(super) fn new(environment: &Environment, engine: &Engine, placement: &Placement) -> Result<Self> {
        let contract = &engine.manifest().contract;
        let unknown = || Error::Mismatch {
            part: "unet".into(),
            expected: "a network that takes a noisy latent, a timestep and a text, and gives a prediction".into(),
            found: contract.task.to_string(),
        };
        let find = |wanted: &dyn Fn(&Meaning) -> bool| contract.inputs.iter().find(|input| wanted(&input.meaning));
        let name = |spec: &TensorSpec| spec.name.clone();
        let sample = find(&|meaning| matches!(meaning, Meaning::NoisyLatent { .. })).ok_or_else(unknown)?;
        let Meaning::NoisyLatent { latent, mask, masked_image } = sample.meaning else { return Err(unknown().into()) };
        let timestep = find(&|meaning| matches!(meaning, Meaning::Timestep { .. })).ok_or_else(unknown)?;
        let embedding = |meaning: &Meaning| match meaning {
            Meaning::Embedding { from } => Some(*from),
            _ => None,
        };
        let is = |wanted: Embedding| move |meaning: &Meaning| embedding(meaning) == Some(wanted);
        let context = find(&is(Embedding::Context)).ok_or_else(unknown)?;
        let width = context.channels().ok_or_else(unknown)?;
        let output = contract.outputs.iter().find(|output| matches!(output.meaning, Meaning::Prediction));
        let output = output.ok_or_else(unknown)?;
        let pooled = find(&is(Embedding::Projected)).map(|spec| (name(spec), spec.channels().unwrap_or(0)));
        let count = |spec: &TensorSpec| {
            let fixed = |axis: &Axis| if let Axis::Fixed(count) = axis { Some(*count) } else { None };
            spec.axes.iter().find_map(fixed).unwrap_or(0)
        };
        let numbers = find(&|meaning| matches!(meaning, Meaning::TimeIds)).map(|spec| (name(spec), count(spec)));
        let added = match (pooled, numbers) {
            (Some(pooled), Some(numbers)) => Some((pooled, numbers)),
            (None, None) => None,
            _ => return Err(unknown().into()),
        };
        Ok(Self {
            sample: name(sample),
            timestep: name(timestep),
            context: name(context),
            added,
            output: name(output),
            channels: [latent, mask, masked_image],
            width,
            sessions: Sessions::new(environment, engine, placement.clone())?,
        })
    }

    /// How many numbers about the picture it takes; none for Stable Diffusion 1 and 2.
    pub(super) fn time_ids(&self) -> Option<usize> {
        self.added.as_ref().map(|(_, (_, count))| *count)
    }

    /// The width of the vector of the whole text.
    pub(super) fn pooled_width(&self) -> Option<usize> {
        self.added.as_ref().map(|((_, width), _)| *width)
    }

    /// Whether it is made to fill a masked part.
    pub(super) fn inpaints(&self) -> bool {
        self.channels[1] > 0
    }

    /// Width and height of the latent of one graph.
    fn latent_of(&self, graph: usize) -> Option<Size> {
        let shape = self.sessions.graphs().get(graph)?.0.inputs.get(&self.sample)?;
        let [_, _, height, width] = *shape.as_slice() else { return None };
        Some(Size { width: u32::try_from(width).ok()?, height: u32::try_from(height).ok()? })
    }

    /// The sizes of latents that it takes, the smallest first.
    pub(super) fn latents(&self) -> Vec<Size> {
        let mut sizes: Vec<Size> =
            (0..self.sessions.graphs().len()).filter_map(|graph| self.latent_of(graph)).collect();
        sizes.sort_by_key(|size| (size.pixels(), size.width));
        sizes.dedup();
        sizes
    }

    /// The graphs for a latent and texts of this many tokens, the largest batch first.
    fn fitting(&self, latent: Size, tokens: usize) -> Result<Vec<Fitting>, Error> {
        let all: Vec<(Fitting, usize)> = self
            .sessions
            .graphs()
            .iter()
            .enumerate()
            .filter(|(graph, _)| self.latent_of(*graph) == Some(latent))
            .map(|(graph, (_, sizes))| (Fitting { graph, batch: sizes.batch }, sizes.tokens))
            .collect();
        let mut fitting: Vec<Fitting> =
            all.iter().filter(|(_, length)| *length == tokens).map(|(fitting, _)| *fitting).collect();
        if fitting.is_empty() {
            let mut known: Vec<usize> = all.into_iter().map(|(_, tokens)| tokens).collect();
            known.sort_unstable();
            known.dedup();
            return Err(Error::NoSuchText { wanted: tokens, known });
        }
        fitting.sort_by_key(|fitting| std::cmp::Reverse(fitting.batch));
        Ok(fitting)
    }

    /// Checks that there is a graph for a latent and texts of this many tokens.
    pub(super) fn check(&self, latent: Size, tokens: usize) -> Result<(), Error> {
        self.fitting(latent, tokens).map(|_| ())
    }

    /// Begins the steps of some pictures: one row of the network's batch for each of `conditions`.
    pub(super) fn begin<'n>(&'n self, latent: Size, tokens: usize, conditions: Vec<Condition>) -> Result<Steps<'n>> {
        let fitting = self.fitting(latent, tokens)?;
        let mut pieces = Vec::new();
        let mut start = 0;
        while start < conditions.len() {
            let left = conditions.len() - start;
            // What is left over runs in the next smaller graph, or in the smallest one with repeated rows.
            let chosen = fitting.iter().find(|fitting| fitting.batch <= left).or(fitting.last());
            let Fitting { graph, batch } = *chosen.ok_or_else(|| RuntimeError::internal("unet"))?;
            let end = (start + batch).min(conditions.len());
            pieces.push(Piece { graph, rows: start..end });
            start = end;
        }
        Ok(Steps { network: self, conditions, pieces, open: BTreeMap::new() })
    }
}

/// Rows that run together.
struct Piece {
    graph: usize,
    rows: Range<usize>,
}

/// The steps of some pictures.
pub(super) struct Steps<'n> {
    network: &'n Network,
    conditions: Vec<Condition>,
    pieces: Vec<Piece>,
    /// The bound tensors of each graph.
    open: BTreeMap<usize, Tensors>,
}

/// Tensors of a session on its device, and those through which values come and go.
struct Tensors {
    bound: Bound,
    sample: Buffer,
    timestep: Buffer,
    output: Buffer,
    /// The piece whose texts are on the device.
    holds: Option<usize>,
}

impl Tensors {
    fn new(session: &Session, contract: &Contract, network: &Network) -> Result<Self> {
        let bound = session.bind_contract(contract)?;
        Ok(Self {
            sample: session.buffer(&network.sample)?,
            timestep: session.buffer(&network.timestep)?,
            output: session.buffer(&network.output)?,
            bound,
            holds: None,
        })
    }
}

impl Steps<'_> {
    /// The prediction for each row: `rows` gives the values of a row's sample.
    pub(super) fn run<'r>(
        &mut self,
        worker: &mut Worker<'_>,
        timestep: f32,
        rows: impl Fn(usize) -> Vec<&'r [f32]>,
        cancel: &Cancel,
    ) -> Result<Vec<Vec<f32>>> {
        let network = self.network;
        let mut predictions = Vec::with_capacity(self.conditions.len());
        for (number, Piece { graph, rows: range }) in self.pieces.iter().enumerate() {
            let session = worker.session(*graph)?;
            let tensors = match self.open.entry(*graph) {
                std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(Tensors::new(session, network.sessions.contract(), network)?)
                }
            };
            // The last row is repeated where the graph's batch is larger.
            let row_of = |at: usize| (range.start + at).min(range.end - 1);
            if tensors.holds != Some(number) {
                let conditions = &self.conditions;
                write_rows(session, &mut tensors.bound, &network.context, |at| &conditions[row_of(at)].states)?;
                if let Some(((pooled, _), (numbers, _))) = &network.added {
                    write_rows(session, &mut tensors.bound, pooled, |at| &conditions[row_of(at)].pooled)?;
                    write_rows(session, &mut tensors.bound, numbers, |at| &conditions[row_of(at)].time_ids)?;
                }
                tensors.holds = Some(number);
            }
            let batch = tensors.sample.shape().first().copied().unwrap_or(1);
            let values = tensors.sample.as_mut_slice::<f32>()?;
            let length = values.len() / batch.max(1);
            for (at, place) in values.chunks_exact_mut(length.max(1)).enumerate() {
                let mut start = 0;
                for part in rows(row_of(at)) {
                    place[start..start + part.len()].copy_from_slice(part);
                    start += part.len();
                }
            }
            tensors.timestep.as_mut_slice::<f32>()?.fill(timestep);
            tensors.bound.write(&network.sample, &tensors.sample)?;
            tensors.bound.write(&network.timestep, &tensors.timestep)?;
            tensors.bound.run(cancel)?;
            tensors.bound.read(&network.output, &mut tensors.output)?;
            let output = tensors.output.as_slice::<f32>()?;
            let length = output.len() / batch.max(1);
            predictions.extend(output.chunks_exact(length.max(1)).take(range.len()).map(<[f32]>::to_vec));
        }
        Ok(predictions)
    }

    /// How many runs a step takes.
    pub(super) fn runs(&self) -> usize {
        self.pieces.len()
    }
}

/// Copies the same tensor of each row of a batch to the device.
fn write_rows<'r>(session: &Session, bound: &mut Bound, name: &str, row: impl Fn(usize) -> &'r Vec<f32>) -> Result<()> {
    let mut buffer = session.buffer(name)?;
    let batch = buffer.shape().first().copied().unwrap_or(1);
    let values = buffer.as_mut_slice::<f32>()?;
    let length = values.len() / batch.max(1);
    for (at, place) in values.chunks_exact_mut(length.max(1)).enumerate() {
        let row = row(at);
        if row.len() != place.len() {
            return Err(RuntimeError::internal("unet"));
        }
        place.copy_from_slice(row);
    }
    Ok(bound.write(name, &buffer)?)
}
