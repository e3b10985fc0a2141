//! Which provider runs which nodes.

use serde::Serialize;
use tileforge_contract::Provider;

/// Nodes that one execution provider took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assigned {
    /// ONNX Runtime's name, such as "CUDAExecutionProvider".
    pub provider: String,
    /// Number of nodes.
    pub nodes: usize,
}

impl Assigned {
    /// The provider that took most nodes, for a list of [`Session::assigned`](crate::Session::assigned).
    pub fn most(assigned: &[Self]) -> Option<Provider> {
        Provider::from_onnxruntime_name(&assigned.first()?.provider)
    }
}
