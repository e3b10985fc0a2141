//! Texts to what conditions the network.

use std::sync::Arc;

use tileforge_contract::{Contract, Embedding, Meaning, TensorSpec};
use tileforge_engine::{Engine, TextRole};
use tileforge_session::{Placed, Placement};

use super::error::Error;
use super::prompt;
use super::tokenizer::{Row, Tokenizer};
use crate::error::{Error as RuntimeError, Result};
use crate::host::{Group, Host, Network, Ticket, Values};

/// More than any text encoder takes; CLIP's take 77.
const MOST_TOKENS: usize = 1 << 16;

/// What a text becomes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Embedded {
    /// `[tokens, width]`.
    pub(super) states: Vec<f32>,
    pub(super) tokens: usize,
    pub(super) width: usize,
    /// The vector of the whole text, for networks that take one.
    pub(super) pooled: Option<Vec<f32>>,
}

impl Embedded {
    /// The same shape with zeros.
    pub(super) fn zeros(&self) -> Self {
        let zeros = |values: &Vec<f32>| vec![0.0; values.len()];
        Self { states: zeros(&self.states), pooled: self.pooled.as_ref().map(zeros), ..*self }
    }
}

/// One text encoder with its tokenizer.
pub(super) struct TextEncoder {
    /// The name of its part.
    pub(super) part: String,
    network: Network,
    /// The graphs for the longest texts.
    group: Arc<Group>,
    tokenizer: Tokenizer,
    tokens: usize,
    /// The output with a state for each token, and the width of a state.
    states: (String, usize),
    /// The output for the whole text.
    pooled: Option<String>,
}

/// The states of one row of tokens, and the vector of the whole row.
type Encoded = (Vec<f32>, Option<Vec<f32>>);

/// Which states of an encoder a network takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum States {
    /// Those after the last layer and its normalisation: Stable Diffusion 1 and 2.
    Last,
    /// Those before the last layer, and the projected vector of the whole text: SDXL.
    Penultimate,
}

impl TextEncoder {
    pub(super) fn new(
        host: &Host,
        engine: &Engine,
        placement: &Placement,
        role: &TextRole,
        tokenizer: Tokenizer,
        states: States,
    ) -> Result<Self> {
        let contract = &engine.manifest().contract;
        let mismatch = |expected: &str, found: String| Error::Mismatch {
            part: role.part.clone(),
            expected: expected.into(),
            found,
        };
        let input = contract.inputs.iter().find_map(|input| match input.meaning {
            Meaning::Tokens { vocabulary } => Some(vocabulary),
            _ => None,
        });
        let vocabulary = input.ok_or_else(|| mismatch("a text encoder", contract.task.to_string()))?;
        if tokenizer.vocabulary() != vocabulary {
            let (expected, found) =
                (format!("a vocabulary of {vocabulary} tokens"), tokenizer.vocabulary().to_string());
            return Err(Error::Mismatch { part: role.tokenizer.clone(), expected, found }.into());
        }
        let network = Network::new(host, engine, placement.clone())?;
        let lengths = network.graphs().iter().map(|(_, sizes)| sizes.tokens);
        let longest = lengths.max().unwrap_or_default();
        if !(3..=MOST_TOKENS).contains(&longest) {
            return Err(mismatch("a graph for a text of 3 to 65536 tokens", longest.to_string()).into());
        }
        let tokens = longest;
        let chosen = match states {
            States::Last => embedding(contract, |from| from == Embedding::Last),
            States::Penultimate => {
                let last = contract.outputs.iter().filter_map(|output| layer(&output.meaning)).max();
                let wanted = last.and_then(|last| last.checked_sub(1));
                embedding(contract, |from| matches!(from, Embedding::Layer(layer) if Some(layer) == wanted))
            }
        };
        let chosen = chosen.ok_or_else(|| mismatch("an output with a state for each token", "none".into()))?;
        let width = contract.output(&chosen).and_then(TensorSpec::channels);
        let width = width.ok_or_else(|| mismatch("states of a fixed width", "another width".into()))?;
        let pooled = embedding(contract, |from| from == Embedding::Projected).filter(|_| states == States::Penultimate);
        let graph = network.graphs().iter().position(|(_, sizes)| sizes.tokens == tokens);
        let graph = graph.ok_or_else(|| RuntimeError::internal("text encoder"))?;
        let wanted = |output: &TensorSpec| output.name == chosen || Some(&output.name) == pooled.as_ref();
        let group = network.group(graph, wanted)?;
        Ok(Self { part: role.part.clone(), network, group, tokenizer, tokens, states: (chosen, width), pooled })
    }

    /// Where it runs.
    pub(super) fn placed(&self) -> Placed<'_> {
        self.network.placed()
    }

    /// Closes its sessions, until they are needed again.
    pub(super) fn close_sessions(&self) {
        self.network.close_sessions();
    }

    /// The width of a state.
    pub(super) fn width(&self) -> usize {
        self.states.1
    }

    /// Whether it gives a vector for the whole text.
    pub(super) fn pools(&self) -> bool {
        self.pooled.is_some()
    }

    /// Tokens of one text.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// The token rows of a text: one, cut off where it is too long, or as many as it needs.
    fn rows(&self, text: &str, reading: Reading) -> Result<(Vec<Row>, Option<String>), Error> {
        let failed = |source| Error::Text(source);
        self.tokenizer.check_length(text).map_err(failed)?;
        let parts = if reading.literal { prompt::literal(text) } else { prompt::parse(text)? };
        self.tokenizer.rows(&parts, self.tokens, reading.long).map_err(failed)
    }

    /// Runs the encoder on rows of tokens. Weights change the states, but not the vector of the whole text.
    fn run(&self, ticket: &Ticket, rows: &[Row]) -> Result<Vec<Encoded>> {
        let samples = rows.iter().map(|row| vec![Values::I64(row.ids.clone())]).collect();
        let made = self.network.run(ticket, &self.group, samples)?;
        let outputs = self.group.output_names();
        let result = |(made, row): (crate::host::Made, &Row)| {
            let mut values = outputs.iter().zip(made.outputs).collect::<Vec<_>>();
            let mut take = |name: &str| -> Result<Vec<f32>> {
                let place = values.iter().position(|(output, _)| **output == name);
                let place = place.ok_or_else(|| RuntimeError::internal("text encoder"))?;
                values.swap_remove(place).1.into_f32()
            };
            let mut states = take(&self.states.0)?;
            let pooled = self.pooled.as_deref().map(&mut take).transpose()?;
            if let Some(weights) = &row.weights {
                emphasise(&mut states, weights, self.width()).map_err(Error::Prompt)?;
            }
            Ok((states, pooled))
        };
        made.into_iter().zip(rows).map(result).collect()
    }
}

fn layer(meaning: &Meaning) -> Option<usize> {
    match meaning {
        Meaning::Embedding { from: Embedding::Layer(layer) } => Some(*layer),
        _ => None,
    }
}

/// The name of the output with such an embedding.
fn embedding(contract: &Contract, wanted: impl Fn(Embedding) -> bool) -> Option<String> {
    let fits = |meaning: &Meaning| matches!(meaning, Meaning::Embedding { from } if wanted(*from));
    contract.outputs.iter().find(|output| fits(&output.meaning)).map(|output| output.name.clone())
}

/// How a text is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// A text that is too long is taken in pieces, instead of being cut off.
    pub(super) long: bool,
    /// Brackets are a part of the text.
    pub(super) literal: bool,
}

/// Multiplies each state by its token's weight, and then all by the number that gives them the mean that they had:
/// AUTOMATIC1111's "Original" emphasis.
fn emphasise(states: &mut [f32], weights: &[f32], width: usize) -> Result<(), prompt::Error> {
    let mean = |states: &[f32]| states.iter().copied().map(f64::from).sum::<f64>() / states.len() as f64;
    let before = mean(states);
    for (state, weight) in states.chunks_exact_mut(width).zip(weights) {
        state.iter_mut().for_each(|value| *value *= weight);
    }
    let factor = (before / mean(states)) as f32;
    states.iter_mut().for_each(|value| *value *= factor);
    if states.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(prompt::Error::Cancelled) }
}

/// How many pieces a text needs, and none of it is cut off; 1 where long texts are cut off.
pub(super) fn pieces(encoders: &[TextEncoder], text: &str, reading: Reading) -> Result<usize> {
    let counts = encoders.iter().map(|encoder| Ok(encoder.rows(text, reading)?.0.len()));
    counts.collect::<Result<Vec<_>>>().map(|counts| counts.into_iter().max().unwrap_or(1))
}

/// The part of a text that no encoder sees.
pub(super) fn cut_off(encoders: &[TextEncoder], text: &str, reading: Reading) -> Result<Option<String>> {
    for encoder in encoders {
        if let (_, Some(rest)) = encoder.rows(text, reading)? {
            return Ok(Some(rest));
        }
    }
    Ok(None)
}

/// What the encoders make of a text together, in this many pieces: their states side by side, pieces one after the
/// other. A text with fewer pieces gets empty ones behind it. The vector of the whole text is that of the first piece.
pub(super) fn embed(
    encoders: &[TextEncoder],
    ticket: &Ticket,
    text: &str,
    pieces: usize,
    reading: Reading,
) -> Result<Embedded> {
    let width = encoders.iter().map(TextEncoder::width).sum();
    let tokens = encoders.first().map_or(0, TextEncoder::tokens);
    let mut states = vec![0.0; pieces * tokens * width];
    let (mut pooled, mut column) = (None, 0);
    for encoder in encoders {
        let mut rows = encoder.rows(text, reading)?.0;
        let empty = encoder.rows("", reading)?.0;
        rows.extend(empty.iter().cycle().take(pieces.saturating_sub(rows.len())).cloned());
        for (number, (made, whole)) in encoder.run(ticket, &rows)?.into_iter().enumerate() {
            let places = states[number * tokens * width..].chunks_exact_mut(width);
            for (place, state) in places.zip(made.chunks_exact(encoder.width())) {
                place[column..column + encoder.width()].copy_from_slice(state);
            }
            pooled = pooled.or(whole);
        }
        column += encoder.width();
    }
    Ok(Embedded { states, tokens: pieces * tokens, width, pooled })
}

#[cfg(test)]
mod tests {
    use super::emphasise;
    use crate::diffusion::prompt::Error;

    #[test]
    fn weighted_states_keep_their_mean() {
        // 2 · [1, 3], [1, 2], ½ · [4, 2]: the sum is 14 in place of 13.
        let mut states = [1.0, 3.0, 1.0, 2.0, 4.0, 2.0];
        emphasise(&mut states, &[2.0, 1.0, 0.5], 2).unwrap();
        let factor = 13.0 / 14.0;
        for (found, expected) in states.iter().zip([2.0, 6.0, 1.0, 2.0, 2.0, 1.0]) {
            assert!((found - expected * factor).abs() < 1e-6, "{states:?}");
        }
    }

    #[test]
    fn states_that_cancel_each_other_are_refused() {
        assert_eq!(emphasise(&mut [1.0, 1.0], &[1.0, -1.0], 1), Err(Error::Cancelled));
        assert_eq!(emphasise(&mut [1.0, 1.0], &[0.0, 0.0], 1), Err(Error::Cancelled));
    }
}
