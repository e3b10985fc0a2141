//! Shapes and sizes of graphs whose shapes are fixed.

use tileforge_contract::{Contract, Shapes, Sizes};
use tileforge_graph::{Model, Port};

use crate::Result;

/// The shapes of ports.
pub(crate) fn fixed_shapes(ports: &[Port]) -> Result<Shapes> {
    let shape = |port: &Port| {
        let problem = || tileforge_graph::Error::Graph(format!("expected that `{}` has a fixed shape", port.name));
        Ok((port.name.clone(), port.ty.fixed_dims().ok_or_else(problem)?))
    };
    ports.iter().map(shape).collect()
}

/// The sizes of a graph whose shapes are fixed.
pub(crate) fn fixed_sizes(contract: &Contract, model: &Model) -> Result<Sizes> {
    Ok(contract.sizes(&fixed_shapes(&model.inputs)?)?)
}
