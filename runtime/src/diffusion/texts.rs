//! Encodes texts to the conditions of the network.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tileforge_contract::{Axis, DataType, Meaning, TensorSpec};
use tileforge_engine::{Engine, Roles, TextRole};
use tileforge_session::{Location, Placement};

use super::embedded::{Embedded, Encoded};
use super::error::Error;
use super::interface::Interface;
use super::prompt;
use super::tokenizer::{Row, Tokenizer, mask};
use crate::error::{Error as RuntimeError, Result};
use crate::host::{Group, Host, Network, Ticket, Values};

/// More than any text encoder takes; CLIP's take 77.
const MOST_TOKENS: usize = 1 << 16;

/// An output of a text encoder.
#[derive(Clone, Debug)]
struct Output {
    name: String,
    width: usize,
    /// Whether it has a state for each token.
    each_token: bool,
}

/// An input of a text encoder.
#[derive(Clone, Copy, Debug)]
enum Input {
    Tokens,
    Mask { is_whole: bool },
    Length { is_whole: bool },
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
    /// Whether a long text can have several pieces: the denoiser takes any number of its states.
    in_pieces: bool,
    /// In the contract's order.
    inputs: Vec<Input>,
    /// The outputs that the denoiser is conditioned on, in the network's order.
    outputs: Vec<Output>,
}

impl TextEncoder {
    pub(super) fn new(
        host: &Host,
        engine: &Engine,
        placement: &Placement,
        (roles, interface): (&Roles, &Interface),
        role: &TextRole,
        tokenizer: Tokenizer,
    ) -> Result<Self> {
        let contract = &engine.manifest().contract;
        let mismatch = |expected: &str, found: String| Error::Mismatch {
            part: role.part.clone(),
            expected: expected.into(),
            found,
        };
        let (mut vocabulary, mut ids) = (None, String::new());
        let mut input = |spec: &TensorSpec| {
            let is_whole = spec.data_type == DataType::I64;
            match spec.meaning {
                Meaning::Tokens { vocabulary: tokens } => {
                    ids.clone_from(&spec.name);
                    vocabulary.replace(tokens).is_none().then_some(Input::Tokens)
                }
                Meaning::TextMask => Some(Input::Mask { is_whole }),
                Meaning::TextLength => Some(Input::Length { is_whole }),
                _ => None,
            }
        };
        let inputs = contract.inputs.iter().map(&mut input).collect::<Option<Vec<_>>>();
        let (inputs, vocabulary) =
            inputs.zip(vocabulary).ok_or_else(|| mismatch("a text encoder", contract.task.to_string()))?;
        if tokenizer.vocabulary() != vocabulary {
            let (expected, found) =
                (format!("a vocabulary of {vocabulary} tokens"), tokenizer.vocabulary().to_string());
            return Err(Error::Mismatch { part: role.tokenizer.clone(), expected, found }.into());
        }
        let network = Network::new(host, engine, placement.clone())?;
        let lengths = network.graphs().iter().enumerate().filter_map(|(graph, (record, _))| {
            let [_, tokens] = *record.inputs.get(&ids)?.as_slice() else { return None };
            Some((tokens, graph))
        });
        // Of the texts that the denoiser takes, else of the longest, and of these the first.
        let wanted = interface.tokens_of(&role.part).flatten().next();
        let chosen = lengths.max_by_key(|(tokens, graph)| (Some(*tokens) == wanted, *tokens, Reverse(*graph)));
        let (tokens, graph) = chosen.unwrap_or_default();
        if !(3..=MOST_TOKENS).contains(&tokens) {
            return Err(mismatch("a graph for a text of 3 to 65536 tokens", tokens.to_string()).into());
        }
        let own = roles.conditions.values().flatten().filter(|output| output.part == role.part);
        let names: BTreeSet<&str> = own.map(|output| output.output.as_str()).collect();
        if let Some(other) = names.iter().find(|name| contract.output(name).is_none()) {
            return Err(mismatch(&format!("an output `{}`", other.escape_debug()), "none".into()).into());
        }
        let wanted = |name: &str| names.contains(name);
        let output = |spec: &TensorSpec| {
            let each_token = matches!(spec.axes.get(1), Some(Axis::Tokens(_) | Axis::Fixed(_)));
            let width = spec.channels().ok_or_else(|| mismatch("states of a fixed width", "another width".into()))?;
            Ok::<_, Error>(Output { name: spec.name.clone(), width, each_token })
        };
        let outputs = contract.outputs.iter().filter(|spec| wanted(&spec.name)).map(output);
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        if outputs.is_empty() {
            return Err(mismatch("an input of the denoiser that takes what it makes", "none".into()).into());
        }
        let group = network.group(graph, |output| wanted(&output.name))?;
        let in_pieces = interface.tokens_of(&role.part).any(|tokens| tokens.is_none());
        Ok(Self { part: role.part.clone(), network, group, tokenizer, tokens, in_pieces, inputs, outputs })
    }

    /// Where it runs.
    pub(super) fn location(&self) -> Location<'_> {
        self.network.location()
    }

    /// Closes its sessions, until they are needed again.
    pub(super) fn close_sessions(&self) {
        self.network.close_sessions();
    }

    /// The width of an output; `None` if there is no such output, or if it has a vector of the whole text where
    /// `each_token` asks for a state for each token, or the reverse.
    pub(super) fn width_of(&self, output: &str, each_token: bool) -> Option<usize> {
        let found = self.outputs.iter().find(|known| known.name == output && known.each_token == each_token);
        found.map(|output| output.width)
    }

    /// Tokens of one text, or of one piece of it.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Whether a long text can have several pieces.
    pub(super) fn in_pieces(&self) -> bool {
        self.in_pieces
    }

    /// The token rows of a text: one row, cut off if the text is too long, or as many as it needs.
    fn rows(&self, text: &str, reading: Reading) -> Result<(Vec<Row>, Option<String>), Error> {
        let failed = |source| Error::Text(source);
        self.tokenizer.check_length(text).map_err(failed)?;
        let parts = if reading.literal { prompt::literal(text) } else { prompt::parse(text)? };
        self.tokenizer.rows(&parts, self.tokens, reading.long && self.in_pieces).map_err(failed)
    }

    /// Runs the encoder on rows of tokens. Returns the values of each output for each row. Weights change the states,
    /// but not the vector of the whole text.
    fn run(&self, ticket: &Ticket, rows: &[Row]) -> Result<Vec<Vec<Vec<f32>>>> {
        let sample = |row: &Row| {
            let input = |input: &Input| match *input {
                Input::Tokens => Values::I64(row.ids.clone()),
                Input::Mask { is_whole } => Values::of(mask(row.length, self.tokens).collect(), is_whole),
                Input::Length { is_whole } => Values::of(vec![row.length as f32], is_whole),
            };
            self.inputs.iter().map(input).collect()
        };
        let made = self.network.run(ticket, &self.group, rows.iter().map(sample).collect())?;
        let names = self.group.output_names();
        let result = |(made, row): (crate::host::Made, &Row)| {
            let mut values: BTreeMap<&str, Values> = names.iter().map(|name| &**name).zip(made.outputs).collect();
            let value = |output: &Output| {
                let values = values.remove(&*output.name).ok_or_else(|| RuntimeError::internal("text encoder"))?;
                let mut values = values.into_f32()?;
                if let Some(weights) = row.weights.as_ref().filter(|_| output.each_token) {
                    emphasise(&mut values, weights, output.width).map_err(Error::Prompt)?;
                }
                Ok(values)
            };
            self.outputs.iter().map(value).collect()
        };
        made.into_iter().zip(rows).map(result).collect()
    }
}

/// How a text is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// A long text is encoded in pieces instead of being cut off.
    pub(super) long: bool,
    /// Brackets are literal.
    pub(super) literal: bool,
}

/// Multiplies each state by its token's weight, then scales all states so that their mean is as before:
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

/// How many pieces a text needs if nothing is cut off; 1 if long texts are cut off.
pub(super) fn pieces(encoders: &[TextEncoder], text: &str, reading: Reading) -> Result<usize> {
    let counts = encoders.iter().map(|encoder| Ok(encoder.rows(text, reading)?.0.len()));
    counts.collect::<Result<Vec<_>>>().map(|counts| counts.into_iter().max().unwrap_or(1))
}

/// The part of a text that no encoder sees.
pub(super) fn cut_off(encoders: &[TextEncoder], text: &str, reading: Reading) -> Result<Option<String>> {
    let rests = encoders.iter().map(|encoder| Ok(encoder.rows(text, reading)?.1)).collect::<Result<Vec<_>>>()?;
    // The encoder that sees the most says what none sees.
    Ok(rests.into_iter().min_by_key(|rest| rest.as_ref().map_or(0, String::len)).flatten())
}

/// Tokens of a text of this many pieces, as the denoiser's graphs count them; `None` if it takes no number but its own.
pub(super) fn tokens(encoders: &[TextEncoder], pieces: usize) -> Option<usize> {
    encoders.iter().find(|encoder| encoder.in_pieces).map(|encoder| pieces * encoder.tokens)
}

/// Encodes a text with all encoders: with those that can, in `pieces` pieces. A shorter text is filled up with empty
/// pieces.
pub(super) fn embed(
    encoders: &[TextEncoder],
    ticket: &Ticket,
    text: &str,
    pieces: usize,
    reading: Reading,
) -> Result<Embedded> {
    let encode = |encoder: &TextEncoder| {
        let mut rows = encoder.rows(text, reading)?.0;
        let empty = encoder.rows("", reading)?.0;
        let pieces = if encoder.in_pieces { pieces } else { 1 };
        rows.extend(empty.iter().cycle().take(pieces.saturating_sub(rows.len())).cloned());
        let mut outputs = BTreeMap::<String, Vec<Vec<f32>>>::new();
        for values in encoder.run(ticket, &rows)? {
            for (output, values) in encoder.outputs.iter().zip(values) {
                outputs.entry(output.name.clone()).or_default().push(values);
            }
        }
        let lengths = rows.iter().map(|row| row.length).collect();
        Ok((encoder.part.clone(), Encoded { outputs, lengths, tokens: encoder.tokens }))
    };
    Ok(Embedded { encoders: encoders.iter().map(encode).collect::<Result<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
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
