//! Weights and nodes of graphs that tests make.
#![allow(clippy::unwrap_used)] // a test's way to fail

use tileforge_contract::DataType;
use tileforge_graph::{Attribute, Node, Weight};

/// A weight whose values are around `first`.
pub(crate) fn weight(dims: &[usize], first: f32) -> Weight {
    let count: usize = dims.iter().product();
    let bytes = (0..count).flat_map(|place| (first + (place as f32 * 0.7).sin()).to_le_bytes()).collect::<Vec<u8>>();
    Weight::from_bytes(DataType::F32, dims.to_vec(), bytes).unwrap()
}

/// A node of an operator of this domain.
pub(crate) fn of(
    domain: &str,
    operator: &str,
    inputs: &[&str],
    output: &str,
    attributes: &[(&str, Attribute)],
) -> Node {
    Node {
        name: format!("make {output}"),
        operator: operator.into(),
        domain: domain.into(),
        inputs: inputs.iter().map(|&input| input.into()).collect(),
        outputs: vec![output.into()],
        attributes: attributes.iter().map(|(name, value)| ((*name).into(), value.clone())).collect(),
    }
}
