//! The program of a plan: its kernels, what was fused into each kernel, and each kernel's bytes and products.
//!
//! A plan of release 1.7.1 holds its program as text, between its header and its kernels. The format is not
//! documented. This module reads what that release writes; tests compare the results with hand-counted figures of
//! graphs. A text in another form gives [`Error::ProgramNotKnown`]: nothing is guessed.
//!
//! | module | holds |
//! |---|---|
//! | `chunks` | where the texts stand in the file |
//! | `notation` | how they are written |
//! | `operation` | what is known of a kernel |
//! | `tensors` | sizes and types |
//! | `operations` | kernels, and the products in them |

mod chunks;
mod notation;
mod operation;
mod operations;
mod tensors;
#[cfg(test)]
mod tests;

use crate::{Error, Result};
use operations::Listing;
use serde::Serialize;
use std::io::Read;

pub use operation::{ElementType, Operation, OperationKind};

/// The program of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its kernels, in the order in which they run.
    pub operations: Vec<Operation>,
    /// Bytes of GPU memory for intermediate results, without inputs and outputs.
    pub activation_bytes: u64,
    /// Bytes of the weights, each once.
    pub weight_bytes: u64,
}

impl Program {
    /// Reads the program of a plan. Only the file's texts are held in memory.
    ///
    /// # Errors
    /// [`Error::ProgramNotKnown`].
    pub fn read(plan: &mut impl Read) -> Result<Self> {
        let texts = chunks::texts(plan)?;
        let texts: Vec<_> = texts.iter().map(|text| notation::read(text)).collect::<Result<_>>()?;
        // The texts of fused kernels follow the program, which calls them by number. They are for any GPU.
        let accelerators = |text: &notation::Value<'_>| {
            text.get("header").map(|header| header.words_of("accelerators").concat()).unwrap_or_default()
        };
        let mut program = Program { operations: Vec::new(), activation_bytes: 0, weight_bytes: 0 };
        let mut rest = texts.as_slice();
        if rest.is_empty() {
            return Err(Error::not_known("a plan without one".into()));
        }
        while let [main, others @ ..] = rest {
            let count = others.iter().take_while(|text| accelerators(text) == "*").count();
            if accelerators(main) == "*" {
                return Err(Error::not_known("fused kernels in front of the program".into()));
            }
            let fused: Vec<_> = others[..count].iter().map(Listing::of).collect::<Result<_>>()?;
            program.add(main, &fused)?;
            rest = &others[count..];
        }
        Ok(program)
    }

    fn add(&mut self, text: &notation::Value<'_>, fused: &[Listing<'_>]) -> Result<()> {
        let listing = Listing::of(text)?;
        let header = text.get("header").map_or(&[][..], notation::Value::entries);
        let devices = header.iter().filter(|entry| entry.key == Some("region"));
        let devices = devices.filter(|entry| entry.value.word_of("name") == Some("devmem"));
        for region in devices {
            let size = region.value.word_of("size").and_then(|size| size.parse().ok());
            let size: u64 = size.ok_or_else(|| Error::not_known("the size of the memory for activations".into()))?;
            self.activation_bytes = self.activation_bytes.saturating_add(size);
        }
        for tensor in listing.tensors.values() {
            self.weight_bytes = self.weight_bytes.saturating_add(tensor.weight_bytes);
        }
        self.operations.extend(operations::read(&listing, fused)?);
        Ok(())
    }

    /// Bytes that all kernels read and write.
    pub fn moved_bytes(&self) -> u64 {
        self.operations.iter().map(Operation::moved_bytes).fold(0, u64::saturating_add)
    }

    /// Multiply-adds of all kernels with a known number.
    pub fn multiply_adds(&self) -> u64 {
        self.operations.iter().filter_map(|operation| operation.multiply_adds).fold(0, u64::saturating_add)
    }
}
