//! ONNX files of other programs: turns a short description of their meaning into a graph with a contract.
//!
//! | module | holds |
//! |---|---|
//! | `upscale` | networks from picture to picture: channels, scale and sizes are found, and what the runtime would not know becomes part of the graph |
//! | `opened` | such a graph with its contract |
//! | `wrap` | nodes in front of a graph and behind it: casts, order of axes and of channels, normalisation |
//! | `probe` | runs on the CPU, which show scale, sizes and batches |
//! | `fold` | ONNX Runtime's shape inference and constants, for graphs that compute shapes |
//! | `tensors` | networks whose tensors mean nothing to anybody else, and contracts that the user wrote |

mod fold;
mod opened;
mod probe;
mod tensors;
mod upscale;
mod wrap;

use crate::request::RequestError;
use crate::{Error, Progress, Result};
use std::path::Path;
use tileforge_contract::Task;
use tileforge_engine::manifest::ForeignRecipe;
use tileforge_exporter::foreign;
use tileforge_session::Environment;

pub(crate) use fold::Folding;
pub(crate) use opened::Foreign;

impl Foreign {
    /// Opens a file. Facts that are not given are found by running the graph on the CPU.
    ///
    /// # Errors
    /// The file cannot be used, its purpose is not given, or the given facts contradict the file.
    pub(crate) fn open(
        path: &Path,
        said: &ForeignRecipe,
        environment: &Environment,
        progress: &dyn Progress,
    ) -> Result<Self> {
        check(path, said)?;
        let graph = foreign::open(path)?;
        if graph.file.half {
            progress.note("  its half precision was lifted to FP32; --precision says what the engine computes in");
        }
        let folding = Folding::new(path, environment);
        let in_file = |error: Error| match error {
            Error::Graph(error) => Error::Graph(error.in_file(path)),
            other => other,
        };
        let found = match (&said.contract, said.task) {
            (Some(contract), _) => tensors::with_contract(path, graph, contract, folding),
            (None, Some(Task::Upscale)) => upscale::open(path, graph, said, folding, progress),
            (None, Some(Task::Tensors)) => tensors::open(path, graph, folding),
            (None, Some(task)) => return Err(RequestError::NeedsContract { task }.into()),
            (None, None) => return Err(RequestError::NoMeaning { path: path.to_owned() }.into()),
        };
        found.map_err(in_file)
    }
}

/// Checks that the given facts fit together.
fn check(path: &Path, said: &ForeignRecipe) -> Result<()> {
    let ForeignRecipe { task, contract, .. } = said;
    let of_pictures = ForeignRecipe { task: None, contract: None, ..said.clone() };
    let has_more = !of_pictures.is_empty();
    match contract {
        Some(contract) if has_more || task.is_some_and(|task| task != contract.task) => {
            Err(Error::input(path, "a contract says everything: expected nothing beside it but its own task"))
        }
        None if has_more && *task != Some(Task::Upscale) => {
            Err(Error::input(path, "range, order of channels, normalisation and multiples are for the task upscale"))
        }
        _ => Ok(()),
    }
}
