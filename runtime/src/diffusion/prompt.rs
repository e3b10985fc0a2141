//! Prompt weights: how much each part of a text counts, in the syntax of AUTOMATIC1111's web UI.
//!
//! | written | counts |
//! |---|---|
//! | `(red)` | 1.1 times; `((red))` 1.21 times |
//! | `(red:1.4)` | 1.4 times |
//! | `[red]` | 1 ⁄ 1.1 times |
//! | `\(`, `\)`, `\[`, `\]`, `\\` | the character itself |
//!
//! Unclosed brackets end with the text. Closing brackets without an opening one are literal. Reference:
//! `parse_prompt_attention` of AUTOMATIC1111 1.10. It also drops a lone backslash, which is literal here.

use std::ops::Range;

use super::quote::quoted;

/// What round brackets multiply by, and square ones divide by.
const EMPHASIS: f64 = 1.1;
/// The largest weight. Pictures are noise far below it.
const MOST_WEIGHT: f64 = 100.0;
/// The most nested brackets of one kind: with more, every weight is too large or too small.
const MOST_DEPTH: usize = 64;
/// Tags that name weights of other files.
const TAGS: [&str; 3] = ["lora", "lyco", "hypernet"];

/// A result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A weight that is not a number, or out of range.
    #[error("the weight of {found:?} is no number from −{MOST_WEIGHT} to {MOST_WEIGHT}")]
    Weight {
        /// The part of the text.
        found: String,
    },
    /// Too many brackets.
    #[error("the text has more than {MOST_DEPTH} open brackets at {found:?}")]
    Depth {
        /// Where.
        found: String,
    },
    /// A text that changes from step to step.
    #[error("{found:?} is a text that changes between the steps, which is not supported")]
    Changing {
        /// The part of the text.
        found: String,
    },
    /// A tag that names a file of weights.
    #[error("{found:?} names weights that are not in the engine: they are built into it, not named in the prompt")]
    Tag {
        /// The tag.
        found: String,
    },
    /// The weights make the states of the text cancel each other.
    #[error("the weights of the text cancel each other, so that nothing of it is left")]
    Cancelled,
}

/// A part of a text, and how much it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The text, without brackets.
    pub text: String,
    /// Its weight; 1 without brackets.
    pub weight: f64,
}

impl Part {
    fn new(text: impl Into<String>, weight: f64) -> Self {
        Self { text: text.into(), weight }
    }
}

/// A text with literal brackets: one part of weight 1.
pub fn literal(text: &str) -> Vec<Part> {
    vec![Part::new(text, 1.0)]
}

/// The parts of a text. Neighbours of the same weight are one part, so a text without brackets is one part of weight 1.
///
/// # Errors
/// A weight beyond ±100, more than 64 open brackets, or syntax of other programs that is not supported here: texts
/// that change between the steps (`[red:blue:0.5]`, `[red|blue]`) and tags of files (`<lora:name:1>`).
pub fn parse(text: &str) -> Result<Vec<Part>> {
    refuse_tags(text)?;
    let mut parser = Parser { text, parts: Vec::new(), round: Vec::new(), square: Vec::new() };
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        rest = parser.take(character, rest)?;
    }
    parser.finish()
}

/// A bracket that is open.
#[derive(Clone, Copy)]
struct Bracket {
    /// Its place in the text.
    at: usize,
    /// The first part behind it.
    part: usize,
}

struct Parser<'t> {
    text: &'t str,
    parts: Vec<Part>,
    round: Vec<Bracket>,
    square: Vec<Bracket>,
}

impl<'t> Parser<'t> {
    /// Parses the element that begins with this character, and returns the text after it.
    fn take(&mut self, character: char, rest: &'t str) -> Result<&'t str> {
        let at = self.text.len() - rest.len();
        let behind = &rest[character.len_utf8()..];
        let bracket = Bracket { at, part: self.parts.len() };
        match character {
            '\\' => {
                let escaped = behind.chars().next().filter(|next| matches!(next, '(' | ')' | '[' | ']' | '\\'));
                self.push(&escaped.unwrap_or('\\').to_string());
                return Ok(&behind[escaped.map_or(0, char::len_utf8)..]);
            }
            '(' => self.round.push(bracket),
            '[' => self.square.push(bracket),
            ')' if !self.round.is_empty() => self.close_round(EMPHASIS, at + 1)?,
            ']' if !self.square.is_empty() => self.close_square(at)?,
            ':' if !self.round.is_empty() => {
                if let Some((number, length)) = weight(rest) {
                    let end = at + length;
                    let found = || Error::Weight { found: self.shown(at..end) };
                    let weight = number.parse().map_err(|_| found())?;
                    self.close_round(weight, end)?;
                    return Ok(&self.text[end..]);
                }
                self.push(":");
            }
            ')' | ']' | ':' => self.push(&rest[..1]),
            _ => {
                let end = rest.find(['\\', '(', ')', '[', ']', ':']).unwrap_or(rest.len());
                self.push(&rest[..end]);
                return Ok(&rest[end..]);
            }
        }
        if self.round.len().max(self.square.len()) > MOST_DEPTH {
            return Err(Error::Depth { found: self.shown(at..self.text.len()) });
        }
        Ok(behind)
    }

    fn push(&mut self, text: &str) {
        // The text after an opening bracket starts a new part.
        let begins = [&self.round, &self.square]
            .iter()
            .any(|open| open.last().is_some_and(|open| open.part == self.parts.len()));
        match self.parts.last_mut() {
            Some(last) if last.weight == 1.0 && !begins => last.text.push_str(text),
            _ => self.parts.push(Part::new(text, 1.0)),
        }
    }

    fn close_round(&mut self, factor: f64, end: usize) -> Result<()> {
        let Some(bracket) = self.round.pop() else { return Ok(()) };
        self.multiply(bracket, factor, end)
    }

    fn close_square(&mut self, at: usize) -> Result<()> {
        let Some(bracket) = self.square.pop() else { return Ok(()) };
        let inner = &self.text[bracket.at + 1..at];
        // `[from:to:when]` and `[one|other]`.
        let scheduled = inner.rsplit_once(':').is_some_and(|(_, when)| is_number(when.trim()));
        if scheduled || inner.contains('|') {
            return Err(Error::Changing { found: self.shown(bracket.at..at + 1) });
        }
        self.multiply(bracket, 1.0 / EMPHASIS, at + 1)
    }

    /// Multiplies the weights of all parts behind a bracket, which ends before `end`.
    fn multiply(&mut self, bracket: Bracket, factor: f64, end: usize) -> Result<()> {
        for part in self.parts.iter_mut().skip(bracket.part) {
            part.weight *= factor;
        }
        let within = |part: &Part| (-MOST_WEIGHT..=MOST_WEIGHT).contains(&part.weight);
        if self.parts.iter().skip(bracket.part).all(within) && (-MOST_WEIGHT..=MOST_WEIGHT).contains(&factor) {
            return Ok(());
        }
        Err(Error::Weight { found: self.shown(bracket.at..end) })
    }

    fn finish(mut self) -> Result<Vec<Part>> {
        let end = self.text.len();
        while let Some(bracket) = self.round.pop() {
            self.multiply(bracket, EMPHASIS, end)?;
        }
        while let Some(bracket) = self.square.pop() {
            self.multiply(bracket, 1.0 / EMPHASIS, end)?;
        }
        let mut merged: Vec<Part> = Vec::new();
        for part in self.parts {
            match merged.last_mut() {
                Some(last) if last.weight == part.weight => last.text.push_str(&part.text),
                _ => merged.push(part),
            }
        }
        Ok(if merged.is_empty() { literal("") } else { merged })
    }

    fn shown(&self, range: Range<usize>) -> String {
        quoted(&self.text[range])
    }
}

/// A weight with its bracket, as in `: 1.4)`: the number, and the length of the whole.
fn weight(text: &str) -> Option<(&str, usize)> {
    let behind = text.strip_prefix(':')?;
    let number = behind.trim_start();
    let signs = number.len() - number.strip_prefix(['+', '-']).unwrap_or(number).len();
    let digits = number[signs..].find(|digit: char| !digit.is_ascii_digit() && digit != '.')?;
    let after = number[signs + digits..].trim_start().strip_prefix(')')?;
    (digits > 0).then(|| (&number[..signs + digits], text.len() - after.len()))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | '+' | '-'))
}

fn refuse_tags(text: &str) -> Result<()> {
    for (at, _) in text.match_indices('<') {
        let rest = &text[at + 1..];
        let named = TAGS.iter().any(|tag| {
            rest.get(..tag.len()).is_some_and(|name| name.eq_ignore_ascii_case(tag))
                && rest[tag.len()..].starts_with(':')
        });
        if named {
            let Some(end) = rest.find('>') else { return Ok(()) };
            return Err(Error::Tag { found: quoted(&text[at..at + end + 2]) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
