//! Tensors that stay bound to a session from run to run.

use std::collections::BTreeMap;

use crate::buffer::Buffer;
use crate::cancel::Cancel;
use crate::error::{Error, ONNX_RUNTIME, Result};

use super::backend::Binding;
use super::loaded::Loaded;

/// The inputs and outputs of a session, bound once: on the GPU if the session runs on one, otherwise in this machine's
/// memory.
///
/// A carried output becomes an input of the next run without leaving the device: caches, previous frames, latents.
/// Made by [`Session::bind`](crate::Session::bind). It runs only the graph of that session.
pub struct Bound {
    binding: Box<dyn Binding>,
    inputs: BTreeMap<String, Buffer>,
    outputs: BTreeMap<String, Buffer>,
    /// Names of inputs, with the names of the outputs that become them.
    carried: Vec<(String, String)>,
    /// Whether addresses must stay the same, because a CUDA graph replays the addresses that it was recorded with.
    replays: bool,
    /// Dropped after the binding.
    graph: Loaded,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Bound")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

impl Bound {
    /// Binds these tensors to a graph.
    pub(super) fn new(
        graph: &Loaded,
        inputs: BTreeMap<String, Buffer>,
        mut outputs: BTreeMap<String, Buffer>,
        carried: Vec<(String, String)>,
    ) -> Result<Self> {
        let mut binding = graph.backend.binding()?;
        inputs.iter().try_for_each(|(name, buffer)| binding.bind_input(name, buffer))?;
        outputs.iter_mut().try_for_each(|(name, buffer)| binding.bind_output(name, buffer))?;
        let replays = graph.backend.replays();
        Ok(Self { binding, inputs, outputs, carried, replays, graph: graph.clone() })
    }

    /// Runs the graph on the bound tensors. Afterwards, carried outputs are inputs; after an error they are not.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; [`Error::Session`] for a failure within the run.
    pub fn run(&mut self, cancel: &Cancel) -> Result<()> {
        self.binding.run(cancel)?;
        self.carry()
    }

    /// Copies a value to an input.
    ///
    /// # Errors
    /// [`Error::Tensor`]: there is no such input, or it has another shape or type; [`Error::Session`]: it cannot be
    /// copied.
    pub fn write(&mut self, name: &str, value: &Buffer) -> Result<()> {
        match self.inputs.get_mut(name) {
            Some(input) => give(&self.graph, &mut *self.binding, name, value, input),
            None => Err(Problem::NoSuch("input", names(&self.inputs)).of(&self.graph.path, name)),
        }
    }

    /// Copies an output of the last run.
    ///
    /// # Errors
    /// As [`Bound::write`], for outputs.
    pub fn read(&self, name: &str, value: &mut Buffer) -> Result<()> {
        // A carried output has become the input of the next run.
        let carried = self.carried.iter().find(|(_, output)| output == name).filter(|_| !self.replays);
        let from = carried.map_or_else(|| self.outputs.get(name), |(input, _)| self.inputs.get(input));
        match from {
            Some(output) => copy(output, value).map_err(|problem| problem.of(&self.graph.path, name)),
            None => Err(Problem::NoSuch("output", names(&self.outputs)).of(&self.graph.path, name)),
        }
    }

    /// Copies the carried tensors of another graph of the same network: each carried input becomes a copy of the other
    /// graph's output with the name that the input is carried from. Nothing leaves the device.
    ///
    /// # Errors
    /// [`Error::Tensor`]: the other graph has no such output, or one of another shape or type; [`Error::Session`]: it
    /// cannot be copied.
    pub fn receive(&mut self, from: &Self) -> Result<()> {
        for (input, output) in &self.carried {
            let Some(to) = self.inputs.get_mut(input) else { continue };
            match from.outputs.get(output) {
                Some(kept) => give(&self.graph, &mut *self.binding, input, kept, to)?,
                None => return Err(Problem::NoSuch("output", names(&from.outputs)).of(&from.graph.path, output)),
            }
        }
        Ok(())
    }

    /// Makes the carried outputs the inputs of the next run.
    fn carry(&mut self) -> Result<()> {
        for (input, output) in &self.carried {
            let (Some(to), Some(from)) = (self.inputs.get_mut(input), self.outputs.get_mut(output)) else { continue };
            if self.replays {
                give(&self.graph, &mut *self.binding, input, from, to)?;
            } else {
                std::mem::swap(from, to);
                self.binding.bind_input(input, to)?;
                self.binding.bind_output(output, from)?;
            }
        }
        Ok(())
    }
}

/// Copies a value to a bound input, and binds it again if the library copies inputs when they are bound.
fn give(graph: &Loaded, binding: &mut dyn Binding, name: &str, value: &Buffer, input: &mut Buffer) -> Result<()> {
    copy(value, input).map_err(|problem| problem.of(&graph.path, name))?;
    if graph.backend.copies_bound_inputs() { binding.bind_input(name, input) } else { Ok(()) }
}

/// Why a tensor was not copied.
enum Problem {
    NoSuch(&'static str, String),
    Differs(String, String),
    Failed(String),
}

impl Problem {
    fn of(self, path: &std::path::Path, tensor: &str) -> Error {
        let (path, tensor) = (path.to_owned(), tensor.to_owned());
        match self {
            Self::NoSuch(kind, names) => {
                Error::Tensor { path, tensor, expected: format!("one of the {kind}s {names}"), found: "no such".into() }
            }
            Self::Differs(expected, found) => Error::Tensor { path, tensor, expected, found },
            Self::Failed(message) => {
                Error::Session { library: ONNX_RUNTIME, path, action: "copy a tensor of", message }
            }
        }
    }
}

fn copy(from: &Buffer, to: &mut Buffer) -> Result<(), Problem> {
    let text = |buffer: &Buffer| format!("{} {:?}", buffer.data_type(), buffer.shape());
    if (from.data_type(), from.shape()) != (to.data_type(), to.shape()) {
        return Err(Problem::Differs(text(to), text(from)));
    }
    to.copy_from(from).map_err(Problem::Failed)
}

fn names(tensors: &BTreeMap<String, Buffer>) -> String {
    tensors.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}
