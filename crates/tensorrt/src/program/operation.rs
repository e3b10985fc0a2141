//! The known properties of a kernel.

use serde::Serialize;
use std::fmt;

/// One kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// What it computes.
    pub kind: OperationKind,
    /// The builder's name for it. For a kernel that the builder made, the name lists what was fused, such as
    /// `CorrMulMax`.
    pub kernel: String,
    /// The graph's nodes that went into it.
    pub layers: Vec<String>,
    /// The type of the factors of its products, or else of its first input.
    pub element: Option<ElementType>,
    /// Bytes of its inputs, including weights.
    pub read_bytes: u64,
    /// Bytes of its outputs.
    pub written_bytes: u64,
    /// Multiply-adds in convolutions, matrix products and attention; `None` if the number is not known.
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
pub enum OperationKind {
    /// A convolution, with what was fused into it.
    Convolution,
    /// A transposed convolution.
    TransposedConvolution,
    /// A matrix product.
    Product,
    /// Both products of attention and the softmax between them.
    Attention,
    /// A kernel that only moves values, or computes each value from few: normalisation, activation, concatenation.
    Pass,
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            OperationKind::Convolution => "convolution",
            OperationKind::TransposedConvolution => "transposed convolution",
            OperationKind::Product => "product",
            OperationKind::Attention => "attention",
            OperationKind::Pass => "pass",
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

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, own, _)| *own == name).map(|(element, ..)| element)
    }

    pub(super) fn bits(self) -> u64 {
        Self::ALL.into_iter().find(|(element, ..)| *element == self).map_or(0, |(.., bits)| bits)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.into_iter().find(|(element, ..)| element == self).map_or("", |(_, name, _)| name))
    }
}
