//! A graph of another program with the meaning of its tensors.

use super::fold::Folding;
use tileforge_contract::{Contract, Precision};
use tileforge_exporter::foreign::ForeignGraph;
use tileforge_graph::Model;

/// A graph of another program with the meaning of its tensors.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// The graph in the form that the contract states.
    pub(crate) model: Model,
    pub(crate) contract: Contract,
    /// If the graph computes shapes: completes it for each size.
    pub(crate) folding: Option<Folding>,
}

/// The precisions that the file's author has used.
pub(super) fn safe_precisions(graph: &ForeignGraph) -> Vec<Precision> {
    if graph.file.half { vec![Precision::Fp32, Precision::Fp16] } else { vec![Precision::Fp32] }
}
