//! The values of the network's conditions: texts, and numbers about the picture.

use tileforge_engine::{Roles, TextOutput};
use tileforge_image::Size;

use super::denoiser::Conditioned;
use super::embedded::Embedded;
use super::error::Error;
use super::interface::{Condition, Interface, On};
use super::settings::Settings;
use super::texts::{TextEncoder, embed};
use crate::error::{Error as RuntimeError, Result};
use crate::host::{Ticket, Values};

/// How many numbers about the picture a network with an aesthetic score takes: SDXL's refiner.
pub(super) const TIME_IDS_WITH_SCORE: usize = 5;

/// The sources of a request's conditions.
pub(super) struct Conditions<'c> {
    pub(super) settings: &'c Settings,
    pub(super) interface: &'c Interface,
    pub(super) encoders: &'c [TextEncoder],
    /// Pieces of each text.
    pub(super) pieces: usize,
    /// Whether there are also rows without the prompt.
    pub(super) is_guided: bool,
    /// Without a negative prompt, its embeddings are zeros.
    pub(super) zeros_without_negative: bool,
    /// Size of the result in pixels.
    pub(super) size: Size,
}

/// A text, or the zeros in place of an absent one.
struct Text<'t> {
    embedded: &'t Embedded,
    /// Its states and vectors are zeros.
    is_zero: bool,
    score: f64,
}

impl Conditions<'_> {
    /// The rows of the network: with guidance, first all pictures without the prompt; then all pictures with it.
    pub(super) fn rows(&self, ticket: &Ticket) -> Result<Vec<Conditioned>> {
        let settings = self.settings;
        let embedded =
            |text: &str| -> Result<Embedded> { embed(self.encoders, ticket, text, self.pieces, settings.reading()) };
        let prompt = embedded(&settings.prompt)?;
        let is_zero = settings.negative_prompt.is_none() && self.zeros_without_negative;
        let negative = || embedded(settings.negative_prompt.as_deref().unwrap_or_default());
        let negative = (self.is_guided && !is_zero).then(negative).transpose()?;
        let without = self.is_guided.then(|| {
            let (embedded, score) = (negative.as_ref().unwrap_or(&prompt), settings.negative_aesthetic_score);
            Text { embedded, is_zero, score }
        });
        let with = Text { embedded: &prompt, is_zero: false, score: settings.aesthetic_score };
        let rows = without.iter().chain([&with]).map(|text| self.row(text)).collect::<Result<Vec<_>>>()?;
        Ok(rows.into_iter().flat_map(|row| std::iter::repeat_n(row, settings.count)).collect())
    }

    fn row(&self, text: &Text<'_>) -> Result<Conditioned> {
        let given = |condition: &Condition| Ok((condition.input.clone(), self.values(condition, text)?));
        self.interface.conditions().map(given).collect()
    }

    fn values(&self, condition: &Condition, text: &Text<'_>) -> Result<Values> {
        let of_text = |values: Option<Vec<f32>>| {
            let mut values = known(values)?;
            if text.is_zero {
                values.fill(0.0);
            }
            Ok::<_, RuntimeError>(values)
        };
        let values = match &condition.on {
            On::States { outputs, .. } => of_text(text.embedded.states(outputs))?,
            On::Vector { outputs, .. } => of_text(text.embedded.vector(outputs))?,
            On::Mask { outputs, .. } => known(text.embedded.mask(outputs))?,
            On::Length { outputs } => vec![known(text.embedded.length(outputs))? as f32],
            On::TimeIds(count) => time_ids(*count, self.size, text.score),
            On::Guidance => vec![self.settings.guidance as f32],
            On::Residual => return Ok(Values::Zeros),
        };
        Ok(Values::of(values, condition.is_whole))
    }
}

/// What the check of the texts has promised.
fn known<T>(value: Option<T>) -> Result<T> {
    value.ok_or_else(|| RuntimeError::internal("conditions"))
}

/// SDXL's numbers about the picture: its height and width, the origin of the crop (0, 0), and either its height and
/// width again or its score.
fn time_ids(count: usize, size: Size, score: f64) -> Vec<f32> {
    let sides = [size.height as f32, size.width as f32];
    let last = if count == TIME_IDS_WITH_SCORE { vec![score as f32] } else { sides.to_vec() };
    [&sides[..], &[0.0, 0.0], &last].concat()
}

/// Checks that the text encoders have the outputs and the tokens that the network takes.
pub(super) fn check_texts(interface: &Interface, roles: &Roles, texts: &[TextEncoder]) -> Result<(), Error> {
    if texts.is_empty() {
        return Err(Error::NoPart { part: "a text encoder", purpose: "a prompt" });
    }
    let takes_text = |input: &String| {
        interface.conditions().any(|condition| condition.input == *input && condition.on.outputs().is_some())
    };
    if let Some(other) = roles.conditions.keys().find(|input| !takes_text(input)) {
        let expected = format!("an input `{}` that takes a text", other.escape_debug());
        return Err(Error::Mismatch { part: roles.denoiser.clone(), expected, found: "none".into() });
    }
    interface
        .conditions()
        .try_for_each(|condition| check_widths(&condition.on, texts).and(check_tokens(&condition.on, texts)))?;
    let in_pieces: Vec<&TextEncoder> = texts.iter().filter(|text| text.in_pieces()).collect();
    same_tokens(&in_pieces, None)
}

/// The error of encoders that do not fit the network.
fn mismatch<'t>(
    texts: impl IntoIterator<Item = &'t TextEncoder>,
    expected: String,
    found: String,
) -> Result<(), Error> {
    let part = texts.into_iter().map(|text| text.part.as_str()).collect::<Vec<_>>().join(", ");
    Err(Error::Mismatch { part, expected, found })
}

/// Checks that the outputs are there, and have the width that an input takes.
fn check_widths(on: &On, texts: &[TextEncoder]) -> Result<(), Error> {
    let (outputs, width, each_token) = match on {
        On::States { outputs, width, .. } => (outputs, *width, true),
        On::Vector { outputs, width } => (outputs, *width, false),
        _ => return Ok(()),
    };
    let what = if each_token { "states" } else { "a vector of the whole text" };
    let width_of = |output: &TextOutput| {
        let encoder = texts.iter().find(|text| text.part == output.part)?;
        encoder.width_of(&output.output, each_token)
    };
    match outputs.iter().map(width_of).sum::<Option<usize>>().filter(|_| !outputs.is_empty()) {
        Some(found) if found == width => Ok(()),
        Some(found) => mismatch(texts, format!("{what} of width {width}"), found.to_string()),
        None => mismatch(texts, format!("an encoder with {what}"), "none".into()),
    }
}

/// Checks that an input of states, a mask or a length can take the tokens of its encoders.
fn check_tokens(on: &On, texts: &[TextEncoder]) -> Result<(), Error> {
    let (outputs, fixed) = match on {
        On::States { outputs, tokens, .. } | On::Mask { outputs, tokens } => (outputs, *tokens),
        On::Length { outputs } => (outputs, None),
        _ => return Ok(()),
    };
    let its: Vec<&TextEncoder> =
        texts.iter().filter(|text| outputs.iter().any(|output| output.part == text.part)).collect();
    if its.is_empty() {
        return mismatch(texts, "an encoder whose tokens a mask or a length counts".into(), "none".into());
    }
    same_tokens(&its, fixed)?;
    // All pieces of a text are counted, or the only one.
    let in_pieces = its.iter().filter(|text| text.in_pieces()).count();
    let sound = match on {
        On::Length { .. } => in_pieces == 0 || in_pieces == its.len(),
        _ => in_pieces == if fixed.is_some() { 0 } else { its.len() },
    };
    if sound {
        return Ok(());
    }
    let [one, several] = ["one number of tokens", "any number of tokens"];
    let (expected, found) = if fixed.is_some() { (one, several) } else { (several, one) };
    mismatch(its, format!("encoders of texts of {expected}"), format!("also an input of {found}"))
}

/// Checks that the texts of all these encoders have the same number of tokens: this one, if there is one.
fn same_tokens(texts: &[&TextEncoder], fixed: Option<usize>) -> Result<(), Error> {
    let Some(wanted) = fixed.or_else(|| texts.first().map(|text| text.tokens())) else { return Ok(()) };
    match texts.iter().find(|text| text.tokens() != wanted) {
        Some(other) => mismatch(texts.iter().copied(), format!("texts of {wanted} tokens"), other.tokens().to_string()),
        None => Ok(()),
    }
}
