//! The interface between [`Session`](crate::Session) and the libraries that run graphs.
//!
//! A backend is one graph, loaded and compiled for one provider. It reads and writes [`Buffer`]s, which ONNX Runtime
//! allocates on every provider: in plain memory, pinned, or on the GPU.

use crate::assigned::Assigned;
use crate::buffer::{Buffer, Buffers};
use crate::cancel::Cancel;
use crate::error::Result;
use crate::tensor::{Named, Tensor, TensorInfo};

/// Where buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In this machine's memory, pinned if a GPU copies it.
    Host,
    /// Where the graph runs.
    Device,
}

/// A loaded graph.
pub(super) trait Backend: Send + Sync {
    /// The inputs and the outputs, in the graph's order.
    fn tensors(&self) -> [Vec<TensorInfo>; 2];

    /// The providers that took the graph's nodes, the one with most nodes first.
    fn assigned(&self) -> Result<Vec<Assigned>>;

    /// Makes buffers for this graph.
    fn buffers(&self, place: Place) -> Result<Buffers>;

    /// Whether the addresses of bound tensors must stay the same between runs.
    fn replays(&self) -> bool;

    /// Whether the library copies an input when it is bound, and not when the graph runs: another value must be bound
    /// again.
    fn copies_bound_inputs(&self) -> bool {
        false
    }

    /// The bytes that our own kernels hold while the graph is open, and the scratch memory of one thread.
    fn kernels_bytes(&self) -> u64 {
        0
    }

    /// The most bytes that opening or runs took at one time, beyond what the graph holds while nothing runs; `None` if
    /// the library does not report it.
    fn peak_bytes(&self) -> Option<u64> {
        None
    }

    /// Runs the graph on values. Returns all outputs, in the graph's order.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::Error::Cancelled); [`Error::Session`](crate::Error::Session).
    fn run(&self, inputs: &[(&str, &Tensor)], cancel: &Cancel) -> Result<Named>;

    /// A new set of bound tensors. A backend can have many.
    fn binding(&self) -> Result<Box<dyn Binding>>;
}

/// Tensors that a graph reads and writes in place.
pub(super) trait Binding: Send {
    /// Binds an input until another one is bound. The buffer stays alive and in its place until then.
    fn bind_input(&mut self, name: &str, buffer: &Buffer) -> Result<()>;

    /// Binds an output, in the same way.
    fn bind_output(&mut self, name: &str, buffer: &mut Buffer) -> Result<()>;

    /// Runs the graph on the bound tensors. Afterwards the outputs are complete.
    ///
    /// # Errors
    /// As [`Backend::run`].
    fn run(&mut self, cancel: &Cancel) -> Result<()>;
}
