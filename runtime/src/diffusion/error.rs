//! Errors of a diffusion pipeline, or of a request to it.

use tileforge_image::Size;

use super::{prompt, schedulers, tokenizer};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine holds no diffusion pipeline.
    #[error("the engine {engine:?} is not a diffusion pipeline: it lacks the part `{part}`")]
    NoPipeline {
        /// The engine's name.
        engine: String,
        /// A part that every pipeline has.
        part: String,
    },
    /// A part is missing that the request needs.
    #[error("{purpose} needs {part}, and the engine has none")]
    NoPart {
        /// What the part does: "a text encoder".
        part: &'static str,
        /// What needs it.
        purpose: &'static str,
    },
    /// A file is missing.
    #[error("the engine lacks the file {file}, which every pipeline has")]
    NoFile {
        /// Its name in the engine.
        file: &'static str,
    },
    /// The parts do not fit together.
    #[error("{part}: expected {expected}, found {found}; the part belongs to another pipeline")]
    Mismatch {
        /// The part, or the file.
        part: String,
        /// What the other parts need.
        expected: String,
        /// What it has.
        found: String,
    },
    /// The scheduler's configuration or the steps.
    #[error(transparent)]
    Scheduler(#[from] schedulers::Error),
    /// A tokenizer.
    #[error("{name}")]
    Tokenizer {
        /// Which tokenizer.
        name: String,
        /// What is wrong.
        source: tokenizer::Error,
    },
    /// A text.
    #[error("the text cannot be read")]
    Text(#[source] tokenizer::Error),
    /// How much the parts of a text count.
    #[error(transparent)]
    Prompt(#[from] prompt::Error),
    /// A number outside of its range.
    #[error("{name} is {found}; expected {expected}")]
    Range {
        /// What it is.
        name: &'static str,
        /// The number.
        found: f64,
        /// The range.
        expected: &'static str,
    },
    /// The picture's sides do not divide into latent pixels.
    #[error("cannot make a picture of {found}: expected sides that are multiples of {multiple}")]
    SizeMultiple {
        /// The size that was asked for.
        found: Size,
        /// Pixels for each latent pixel.
        multiple: usize,
    },
    /// The engine has no graph for this size.
    #[error("the engine makes no pictures of {wanted}, only of \
        {}", known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoSuchSize {
        /// The size that was asked for.
        wanted: Size,
        /// The engine's sizes.
        known: Vec<Size>,
    },
    /// The engine has no graph for texts of this length.
    #[error("the engine takes no text of {wanted} tokens at this size, only \
        {}", known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoSuchText {
        /// The tokens that were asked for.
        wanted: usize,
        /// The numbers of tokens that it takes.
        known: Vec<usize>,
    },
    /// Picture and mask differ in size.
    #[error("expected a mask of the picture's size {picture}, found {mask}")]
    MaskSize {
        /// The picture's size.
        picture: Size,
        /// The mask's.
        mask: Size,
    },
    /// What was given does not go together.
    #[error("{problem}")]
    Inputs {
        /// What is missing or too much.
        problem: &'static str,
    },
    /// A latent is not what the network works on.
    #[error("{what}: expected a latent of {expected}, found {found}")]
    Latent {
        /// Where it comes from.
        what: &'static str,
        /// Channels and size.
        expected: String,
        /// Channels and size.
        found: String,
    },
    /// The network gave NaN or infinity.
    #[error("the network gave NaN or infinite values in step {step}")]
    NotFinite {
        /// The step, from 1.
        step: usize,
    },
}
