//! What the network is conditioned on: texts, and numbers about the picture.

use tileforge_image::Size;

use super::denoiser::{Condition, Denoiser, On};
use super::error::Error;
use super::settings::Settings;
use super::texts::{Embedded, TextEncoder, embed};
use crate::error::Result;
use crate::host::Ticket;

/// How many numbers about the picture a network takes that is asked for a score: SDXL's refiner.
pub(super) const TIME_IDS_WITH_SCORE: usize = 5;

/// What the conditions of a request are made of.
pub(super) struct Conditions<'c> {
    pub(super) settings: &'c Settings,
    pub(super) encoders: &'c [TextEncoder],
    /// Pieces of each text.
    pub(super) pieces: usize,
    /// Without a negative prompt, its embeddings are zeros.
    pub(super) zeros_without_negative: bool,
    /// How many numbers about the picture the network takes.
    pub(super) time_ids: Option<usize>,
    /// Of the result, in pixels.
    pub(super) size: Size,
}

impl Conditions<'_> {
    /// The rows of the network: all pictures without the prompt, if there is guidance, and then all with it.
    pub(super) fn rows(&self, ticket: &Ticket) -> Result<Vec<Condition>> {
        let settings = self.settings;
        let embedded =
            |text: &str| -> Result<Embedded> { embed(self.encoders, ticket, text, self.pieces, settings.reading()) };
        let prompt = embedded(&settings.prompt)?;
        let negative = match &settings.negative_prompt {
            _ if !settings.is_guided() => None,
            None if self.zeros_without_negative => Some(prompt.zeros()),
            negative => Some(embedded(negative.as_deref().unwrap_or_default())?),
        };
        let negative = negative.map(|embedded| self.condition(embedded, settings.negative_aesthetic_score));
        let each = negative.into_iter().chain([self.condition(prompt, settings.aesthetic_score)]);
        Ok(each.flat_map(|condition| std::iter::repeat_n(condition, settings.count)).collect())
    }

    fn condition(&self, embedded: Embedded, score: f64) -> Condition {
        let mut condition = Condition::from([(On::States, embedded.states)]);
        condition.extend(embedded.pooled.map(|pooled| (On::Pooled, pooled)));
        condition.extend(self.time_ids.map(|count| (On::TimeIds, time_ids(count, self.size, score))));
        condition
    }
}

/// SDXL's numbers about the picture: its height and width, where it is cut (nowhere), and either its height and width
/// again or its score.
fn time_ids(count: usize, size: Size, score: f64) -> Vec<f32> {
    let sides = [size.height as f32, size.width as f32];
    let last = if count == TIME_IDS_WITH_SCORE { vec![score as f32] } else { sides.to_vec() };
    [&sides[..], &[0.0, 0.0], &last].concat()
}

/// Checks that the text encoders give what the network takes.
pub(super) fn check_texts(denoiser: &Denoiser, texts: &[TextEncoder]) -> Result<(), Error> {
    let mismatch = |expected: String, found: String| {
        let part = texts.iter().map(|text| text.part.as_str()).collect::<Vec<_>>().join(", ");
        Err(Error::Mismatch { part, expected, found })
    };
    let width: usize = texts.iter().map(TextEncoder::width).sum();
    if texts.is_empty() {
        return Err(Error::NoPart { part: "a text encoder", purpose: "a prompt" });
    }
    if width != denoiser.width() {
        return mismatch(format!("states of width {}", denoiser.width()), width.to_string());
    }
    if denoiser.pooled_width().is_some() && !texts.iter().any(TextEncoder::pools) {
        return mismatch("an encoder with a projected vector of the whole text".into(), "none".into());
    }
    match texts {
        [one, other] if one.tokens() != other.tokens() => {
            mismatch(format!("texts of {} tokens", one.tokens()), other.tokens().to_string())
        }
        _ => Ok(()),
    }
}
