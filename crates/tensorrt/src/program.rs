//! What a plan runs: kernels, what was fused into each, and the bytes and products of each.
//!
//! A plan of release 1.7.1 holds its program as text, between its header and its kernels. The format is not documented,
//! and this is what that release writes, held by tests against graphs whose figures are counted by hand. Where a text
//! has another form, [`Error::ProgramNotKnown`] says so: nothing is guessed.
//!
//! | module | holds |
//! |---|---|
//! | `chunks` | where the texts stand in the file |
//! | `notation` | how they are written |
//! | `tensors` | sizes and types |
//! | `operations` | kernels, and the products in them |

mod chunks;
mod notation;
mod operations;
mod tensors;
#[cfg(test)]
mod tests;

use crate::{Error, Result};
use operations::Listing;
use serde::Serialize;
use std::fmt;
use std::io::{Read, Seek};

/// What a plan runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its kernels, in the order in which they run.
    pub operations: Vec<Operation>,
    /// Bytes of the GPU's memory for what is computed, beside inputs and outputs.
    pub activation_bytes: u64,
    /// Bytes of the weights, each once.
    pub weight_bytes: u64,
}

/// One kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// What it computes.
    pub kind: Kind,
    /// The builder's name for it: of a kernel that it made, what was fused, such as `CorrMulMax`.
    pub kernel: String,
    /// The graph's nodes that went into it.
    pub layers: Vec<String>,
    /// The type of what is multiplied, or else of its first input.
    pub element: Option<ElementType>,
    /// Bytes of its inputs, weights among them.
    pub read_bytes: u64,
    /// Bytes of its outputs.
    pub written_bytes: u64,
    /// Products that are added up, in convolutions, matrix products and attention; `None` where that is not known.
    pub multiply_adds: Option<u64>,
}

impl Operation {
    /// Bytes that it reads and writes.
    pub fn moved_bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }
}

/// What a kernel computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A convolution, with what was fused into it.
    Convolution,
    /// A transposed convolution.
    TransposedConvolution,
    /// A product of matrices.
    Product,
    /// Both products of attention and the softmax between them.
    Attention,
    /// What only moves values, or computes each from few: normalisation, activation, concatenation.
    Pass,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Convolution => "convolution",
            Kind::TransposedConvolution => "transposed convolution",
            Kind::Product => "product",
            Kind::Attention => "attention",
            Kind::Pass => "pass",
        })
    }
}

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ElementType {
    Float,
    Half,
    Bf16,
    Fp8,
    Int8,
    Uint8,
    Bool,
    Int32,
    Int64,
}

impl ElementType {
    const ALL: [(ElementType, &str, u64); 9] = [
        (ElementType::Float, "float", 32),
        (ElementType::Half, "half", 16),
        (ElementType::Bf16, "bf16", 16),
        (ElementType::Fp8, "fp8_e4m3", 8),
        (ElementType::Int8, "int8", 8),
        (ElementType::Uint8, "uint8", 8),
        (ElementType::Bool, "bool", 8),
        (ElementType::Int32, "int32", 32),
        (ElementType::Int64, "int64", 64),
    ];

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, own, _)| *own == name).map(|(element, ..)| element)
    }

    fn bits(self) -> u64 {
        Self::ALL.into_iter().find(|(element, ..)| *element == self).map_or(0, |(.., bits)| bits)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.into_iter().find(|(element, ..)| element == self).map_or("", |(_, name, _)| name))
    }
}

impl Program {
    /// Reads the program of a plan. Of the file, its texts alone are in memory.
    ///
    /// # Errors
    /// [`Error::ProgramNotKnown`].
    pub fn read(plan: &mut (impl Read + Seek)) -> Result<Self> {
        let texts = chunks::texts(plan)?;
        let texts: Vec<_> = texts.iter().map(|text| notation::read(text)).collect::<Result<_>>()?;
        // The texts of what was fused follow the program that calls them by their numbers. They are for any GPU.
        let accelerators = |text: &notation::Value<'_>| {
            text.get("header").map(|header| header.words_of("accelerators").concat()).unwrap_or_default()
        };
        let mut program = Program { operations: Vec::new(), activation_bytes: 0, weight_bytes: 0 };
        let mut rest = texts.as_slice();
        if rest.is_empty() {
            return Err(not_known("a plan without one".into()));
        }
        while let [main, others @ ..] = rest {
            let count = others.iter().take_while(|text| accelerators(text) == "*").count();
            if accelerators(main) == "*" {
                return Err(not_known("fused kernels in front of the program".into()));
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
            let size: u64 = size.ok_or_else(|| not_known("the size of the memory for activations".into()))?;
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

    /// Products that are added up, of the kernels of which that is known.
    pub fn multiply_adds(&self) -> u64 {
        self.operations.iter().filter_map(|operation| operation.multiply_adds).fold(0, u64::saturating_add)
    }
}

fn not_known(found: String) -> Error {
    Error::ProgramNotKnown { found }
}
