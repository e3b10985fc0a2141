//! What can go wrong between a checkpoint and a graph.

use crate::Task;
use crate::checkpoint::OtherFormat;
use std::fmt;
use std::path::{Path, PathBuf};
use tileforge_files::unfinished::relocated;
use tileforge_files::{bounded, bounded_to};
use tileforge_graph::DataType;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a checkpoint and a graph.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The operating system's message.
        source: std::io::Error,
    },
    /// A checkpoint cannot be read.
    #[error("{}: {reason}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What was expected, what was found, and what to do next.
        reason: String,
    },
    /// A file is not a checkpoint.
    #[error("{}: {found}", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: OtherFormat,
    },
    /// No architecture fits the checkpoint. [`Error::details`] has a line for each.
    #[error(
        "{}: no known architecture fits its {tensors} tensors\n  {}",
        path.display(), nearest(candidates)
    )]
    UnknownArchitecture {
        /// The file.
        path: PathBuf,
        /// How many tensors it has.
        tensors: usize,
        /// The architectures, nearest first.
        candidates: Vec<Candidate>,
        /// Names of some of its tensors.
        found: Vec<String>,
    },
    /// The architecture was found, but its hyperparameters cannot be determined.
    #[error("{}: {architecture}: {reason}", path.display())]
    Hyperparameters {
        /// The file.
        path: PathBuf,
        /// The architecture that was detected.
        architecture: &'static str,
        /// What was expected and what was found.
        reason: String,
        /// The hyperparameter whose value would settle it, if there is one.
        missing: Option<MissingHyperparameter>,
    },
    /// A hyperparameter was set that the architecture does not have, or that follows from the tensors.
    #[error("{architecture} has no hyperparameter `{name}` that can be set")]
    UnknownHyperparameter {
        /// The architecture that was detected.
        architecture: &'static str,
        /// The hyperparameter.
        name: String,
    },
    /// The hyperparameters have no JSON form: a defect of ours.
    #[error("{architecture}: the hyperparameters have no JSON form: {source}; please report this")]
    HyperparametersJson {
        /// The architecture.
        architecture: &'static str,
        /// The serialiser's message.
        source: serde_json::Error,
    },
    /// The architecture was found, but the tensors are not exactly the ones that it needs.
    #[error("{}: the tensors are not those of {architecture}\n{problems}\n\
        the file is damaged, or it is a variant that is not supported", path.display())]
    Tensors {
        /// The file.
        path: PathBuf,
        /// The architecture with what was detected.
        architecture: String,
        /// Each missing tensor, wrong shape and leftover, a line each.
        problems: String,
    },
    /// Several graphs can be made of a checkpoint, and none of them was chosen.
    #[error("{}: the graphs {} can be made of it", path.display(), names(tasks, " and "))]
    SeveralGraphs {
        /// The file.
        path: PathBuf,
        /// What the graphs do.
        tasks: Vec<Task>,
    },
    /// A pipeline does not have a component that was chosen.
    #[error("{}: no such component: expected one of {}, found `{name}`", path.display(), components.join(", "))]
    NoSuchComponent {
        /// The pipeline's folder or file.
        path: PathBuf,
        /// The name that was asked for.
        name: String,
        /// The components that it has.
        components: Vec<String>,
    },
    /// A pipeline has a component that no graph can be made of.
    #[error(
        "{}: the component `{component}` is a {class}, which is not supported; supported are {}. \
        The others can be exported without it", path.display(), supported.join(", ")
    )]
    UnsupportedComponent {
        /// The component's folder.
        path: PathBuf,
        /// The component's name.
        component: String,
        /// Its class.
        class: String,
        /// The supported classes.
        supported: Vec<&'static str>,
    },
    /// A pipeline in one file has tensors of no component that is supported.
    #[error(
        "{}: {count} tensors belong to no component that is supported, such as {}; \
        {} can be exported without them", path.display(), examples.join(", "), components.join(", ")
    )]
    ForeignTensors {
        /// The file.
        path: PathBuf,
        /// How many tensors.
        count: usize,
        /// The names of some of them.
        examples: Vec<String>,
        /// The components that can be exported.
        components: Vec<String>,
    },
    /// Several graphs were to be written to one file.
    #[error("{}: one file holds one graph, and the pipeline has {}", path.display(), components.join(", "))]
    OneGraphPerFile {
        /// The file.
        path: PathBuf,
        /// The components, each of which is a graph.
        components: Vec<String>,
    },
    /// A component's folder has no weights of the expected names.
    #[error("{}: expected weights named {}, found {}", path.display(), expected.join(" or "), list(found))]
    NoWeights {
        /// The folder.
        path: PathBuf,
        /// The names that were looked for.
        expected: Vec<String>,
        /// The files there that hold weights.
        found: Vec<String>,
    },
    /// A text is not a list of shapes.
    #[error("expected NAME:SIZExSIZE…, as in image:1x3x256x256, found `{found}`")]
    ShapeText {
        /// The part that is not a shape.
        found: String,
    },
    /// An input is given two shapes.
    #[error("the input `{input}` is given two shapes")]
    TwoShapes {
        /// The input.
        input: String,
    },
    /// A fixed shape is not one that the input can have.
    #[error("the input `{input}`: expected {expected}, found {found}{}", because(reason.as_deref()))]
    Shape {
        /// The input.
        input: String,
        /// The sizes that the network takes; dynamic ones have names.
        expected: String,
        /// The sizes that were asked for.
        found: String,
        /// Why these sizes do not fit, if that is not obvious.
        reason: Option<String>,
    },
    /// The network's graph depends on the size of an input, and none was asked for.
    #[error("this model's graph is of one size, since {reason}; the input `{input}` has no fixed shape")]
    NeedsFixedShape {
        /// The input.
        input: String,
        /// What makes the graph depend on the size.
        reason: &'static str,
        /// A shape that the network takes.
        example: Vec<usize>,
    },
    /// An image has fewer pixels than the network mirrors at its borders.
    #[error(
        "a height or width of {size} is too small to be extended to {extended} by reflection; \
        this model takes {least} and more"
    )]
    ImageTooSmall {
        /// The height or width.
        size: usize,
        /// The multiple of pixels that the network computes on.
        extended: usize,
        /// The smallest height and width.
        least: usize,
    },
    /// A shape was given for an input that the model does not have.
    #[error("the model has no input `{name}`; its inputs are {}", inputs.join(", "))]
    NoSuchInput {
        /// The name that a shape was given for.
        name: String,
        /// The model's inputs.
        inputs: Vec<String>,
    },
    /// Weights cannot be synthesised in this type.
    #[error("expected f32, f16 or bf16 weights, found {found}")]
    SynthesisedType {
        /// The type that was asked for.
        found: DataType,
    },
    /// A graph does not have the tensors that its architecture promises: a defect of ours.
    #[error("{architecture}: expected the {kind} {expected}, found {found}; please report this")]
    Promise {
        /// The architecture.
        architecture: String,
        /// "input" or "output".
        kind: &'static str,
        /// The contract's tensors.
        expected: String,
        /// The graph's tensors.
        found: String,
    },
    /// The contract breaks a rule: a hyperparameter is beyond what a network can have.
    #[error(transparent)]
    Contract(#[from] tileforge_contract::Error),
    /// The graph cannot be made or written.
    #[error(transparent)]
    Graph(#[from] tileforge_graph::Error),
}

/// An architecture that a checkpoint could have been of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub architecture: &'static str,
    /// How many names its signature has.
    pub names: usize,
    /// The names of the signature that the checkpoint lacks.
    pub missing: Vec<&'static str>,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Candidate { architecture, names, missing } = self;
        if missing.is_empty() {
            return write!(f, "{architecture}: all its {names} names are there, with other shapes");
        }
        let (count, missing) = (missing.len(), missing.join("`, `"));
        write!(f, "{architecture}: {count} of its {names} names are missing: `{missing}`")
    }
}

/// A hyperparameter that neither the tensors nor the notes beside them determine, so that the user must set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingHyperparameter {
    /// Its name.
    pub name: &'static str,
    /// Values that it can have: all of them, or examples.
    pub values: &'static [&'static str],
}

impl Error {
    /// Details that few readers need, one line for each fact.
    pub fn details(&self) -> Option<String> {
        let Error::UnknownArchitecture { candidates, found, .. } = self else { return None };
        let found: Vec<String> = found.iter().map(|name| bounded_to(name.clone(), 200)).collect();
        let mut lines: Vec<String> = candidates.iter().skip(1).map(|candidate| format!("  {candidate}")).collect();
        lines.push(format!("  found names such as {}", found.join(", ")));
        Some(lines.join("\n"))
    }

    /// The same error with paths in `to` instead of `from`, a folder that was removed or renamed.
    #[must_use]
    pub(crate) fn relocated(self, from: &Path, to: &Path) -> Self {
        match self {
            Error::File { path, action, source } => Error::File { path: relocated(&path, from, to), action, source },
            Error::Graph(error) => Error::Graph(error.relocated(from, to)),
            other => other,
        }
    }

    pub(crate) fn checkpoint(path: &Path, reason: impl Into<String>) -> Self {
        Error::Checkpoint { path: path.to_owned(), reason: bounded(reason.into()) }
    }
}

fn nearest(candidates: &[Candidate]) -> String {
    let near = candidates.first().filter(|candidate| candidate.missing.len() < candidate.names);
    near.map_or_else(|| "none has one of their names".into(), |candidate| format!("nearest is {candidate}"))
}

fn names(tasks: &[Task], separator: &str) -> String {
    tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}
