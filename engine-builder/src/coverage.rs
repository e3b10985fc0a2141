//! Which sizes of an engine's graphs are run while it is built.
//!
//! A graph for several pictures computes for each of them what the graph for one does, byte for byte; a test compares
//! both for every network (tests/tests/whole/batches.rs). So each tile is run with its smallest batch, and each batch
//! in its smallest tile. Without this, most of the time of a build with many batches would go into running the largest
//! ones. Clips are different: ONNX Runtime rounds their convolutions otherwise in a batch, so all of their graphs are
//! run.

use crate::Result;
use std::collections::BTreeSet;
use tileforge_contract::{Contract, Shapes, Sizes};
use tileforge_graph::Model;

/// For each graph, the smallest first, whether it is run.
///
/// # Errors
/// The inputs of a graph break the contract.
pub(crate) fn are_run(contract: &Contract, models: &[Model]) -> Result<Vec<bool>> {
    if contract.inputs.iter().any(|input| input.frames().is_some()) {
        return Ok(vec![true; models.len()]);
    }
    let sizes = models.iter().map(|model| {
        let inputs: Option<Shapes> =
            model.inputs.iter().map(|port| Some((port.name.clone(), port.ty.fixed_dims()?))).collect();
        let inputs = inputs.ok_or_else(|| tileforge_graph::Error::Graph("expected inputs of fixed shapes".into()))?;
        Ok(contract.sizes(&inputs)?)
    });
    Ok(first_of_each(&sizes.collect::<Result<Vec<_>>>()?))
}

/// Whether each is the first of its tile or of its batch.
fn first_of_each(sizes: &[Sizes]) -> Vec<bool> {
    let (mut tiles, mut batches) = (BTreeSet::new(), BTreeSet::new());
    let is_first = |Sizes { batch, height, width, frames, tokens }: &Sizes| {
        let first_of_tile = tiles.insert([*height, *width, *frames, *tokens]);
        let first_of_batch = batches.insert(*batch);
        first_of_tile || first_of_batch
    };
    sizes.iter().map(is_first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tile_and_each_batch_is_run_once() {
        let sizes = |batch, side| Sizes { batch, height: side, width: side, ..Sizes::default() };
        let graphs = [(1, 64), (2, 64), (8, 64), (1, 256), (2, 256), (4, 256), (1, 512)];
        let graphs = graphs.map(|(batch, side)| sizes(batch, side));
        // A batch that the smallest tile lacks is run in the next one.
        assert_eq!(first_of_each(&graphs), [true, true, true, true, false, true, true]);
        assert_eq!(first_of_each(&[sizes(2, 64)]), [true]);
    }
}
