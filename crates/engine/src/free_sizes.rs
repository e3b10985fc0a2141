//! Graphs whose sizes are free: what they take, and what they take of memory in other sizes.

use tileforge_contract::{Contract, Shapes, Sizes};

use crate::error::{Error, Result};
use crate::manifest::Graph;

impl Graph {
    /// The graph for inputs of these shapes: the same graph, or [`Graph::resized`]; `None` if it does not take these
    /// shapes.
    pub fn for_inputs(&self, contract: &Contract, inputs: &Shapes) -> Option<Self> {
        if self.inputs == *inputs {
            return Some(self.clone());
        }
        let resized = self.resized(contract, contract.sizes(inputs).ok()?).ok()?;
        (resized.inputs == *inputs).then_some(resized)
    }

    /// The lengths of one of its shapes, as text: `any` where they are free.
    pub fn lengths_text(&self, shape: &[usize]) -> Vec<String> {
        let is_free = |axis: usize| self.any_size && axis + 2 >= shape.len() || self.any_batch && axis == 0;
        let length =
            |(axis, length): (usize, &usize)| if is_free(axis) { "any".to_owned() } else { length.to_string() };
        shape.iter().enumerate().map(length).collect()
    }

    /// The shapes of its inputs, as text: `image [1, 3, 64, 64], timestep [1]`; with a free height and width,
    /// `image [1, 3, any, any] with at most 409600 pixels`; with a free number of samples,
    /// `image [any, 3, 64, 64], timestep [any] with at most 8 samples`.
    pub fn inputs_text(&self) -> String {
        let tensor = |(name, shape): (&String, &Vec<usize>)| {
            let most = if self.any_size { format!(" with at most {} pixels", pixels(shape)) } else { String::new() };
            format!("{name} [{}]{most}", self.lengths_text(shape).join(", "))
        };
        let text = self.inputs.iter().map(tensor).collect::<Vec<_>>().join(", ");
        match self.inputs.values().find_map(|shape| shape.first()) {
            Some(most) if self.any_batch => format!("{text} with at most {most} samples"),
            _ => text,
        }
    }

    /// The same graph with the height and width of `sizes` if these are free, or with their batch if that is free. Its
    /// other sizes stay.
    ///
    /// # Errors
    /// [`Error::FixedSize`]: nothing is free, or the height or width is another one and fixed;
    /// [`Error::TooManyPixels`] or [`Error::TooManySamples`]: the graph takes fewer; [`Error::Contract`]: the contract
    /// does not allow the sizes.
    pub fn resized(&self, contract: &Contract, Sizes { batch, height, width, .. }: Sizes) -> Result<Self> {
        let own = self.sizes(contract)?;
        if !self.any_size && (!self.any_batch || (height, width) != (own.height, own.width)) {
            return Err(Error::FixedSize { file: self.file.clone() });
        }
        let batch = if self.any_batch { batch } else { own.batch };
        if batch > own.batch {
            return Err(Error::TooManySamples { file: self.file.clone(), most: own.batch, found: batch });
        }
        let wanted = Sizes { batch, height, width, ..own };
        let (inputs, outputs) = (contract.input_shapes(&wanted)?, contract.output_shapes(&wanted)?);
        let [most, found] =
            [&self.inputs, &inputs].map(|shapes| shapes.values().map(|shape| pixels(shape)).max().unwrap_or(0));
        if found > most {
            return Err(Error::TooManyPixels { file: self.file.clone(), most, found });
        }
        let values_bytes = self.values_bytes_of(batch, own.batch).map(|bytes| scaled_bytes(bytes, most, found));
        Ok(Self { inputs, outputs, values_bytes, ..self.clone() })
    }

    /// Bytes beside the weights with `batch` of at most `most` samples: they grow evenly from one sample to the most.
    fn values_bytes_of(&self, batch: usize, most: usize) -> Option<u64> {
        let all = self.values_bytes?;
        let Some(one) = self.values_bytes_of_one.filter(|one| batch < most && *one < all) else { return Some(all) };
        Some(one + scaled_bytes(all - one, most - 1, batch.max(1) - 1))
    }
}

/// The bytes of a run's values in the size `wanted`, from the `bytes` of a run of the same graph in the size `known`:
/// they are proportional to the size. Both sizes are numbers of pixels, or numbers of elements of one value.
pub fn scaled_bytes(bytes: u64, known: usize, wanted: usize) -> u64 {
    let scaled = u128::from(bytes) * wanted as u128 / (known.max(1) as u128);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Height times width of a picture: the last two lengths of its tensor.
fn pixels(shape: &[usize]) -> usize {
    shape.iter().rev().take(2).fold(1, |all: usize, length| all.saturating_mul(*length))
}

#[cfg(test)]
mod tests {
    use tileforge_contract::{Axis, Meaning, TensorSpec};

    use super::*;
    use crate::manifest::Manifest;
    use crate::validate::tests::{contract, manifest, plan};

    #[test]
    fn a_graph_of_any_size_takes_fewer_pixels_in_any_form() {
        let manifest = manifest(&[(64, 64)]);
        let (fixed, contract) = (&manifest.graphs[0], &manifest.contract);
        let sizes = |height, width| Sizes { height, width, ..Sizes::default() };
        let error = fixed.resized(contract, sizes(32, 32)).unwrap_err().to_string();
        assert!(error.contains("its height and width are fixed"), "{error}");
        let free = Graph { any_size: true, ..fixed.clone() };
        let resized = free.resized(contract, sizes(32, 128)).unwrap();
        assert_eq!(
            (&resized.inputs["input"], &resized.outputs["output"]),
            (&vec![1, 3, 32, 128], &vec![1, 3, 128, 512])
        );
        let error = free.resized(contract, sizes(65, 64)).unwrap_err().to_string();
        assert!(error.contains("expected at most 4096 pixels, found 4160"), "{error}");
        assert!(free.resized(contract, sizes(0, 64)).is_err());
        // A caller's shapes are compared with the free lengths, not with the largest lengths.
        let inputs = |shape: &[usize]| [("input".to_owned(), shape.to_vec())].into();
        let found = free.for_inputs(contract, &inputs(&[1, 3, 32, 128])).unwrap();
        assert_eq!(found.outputs["output"], [1, 3, 128, 512]);
        for refused in [&[1, 3, 65, 64][..], &[2, 3, 32, 32], &[1, 1, 32, 32], &[1, 3, 32], &[1, 3, 0, 32], &[]] {
            assert!(free.for_inputs(contract, &inputs(refused)).is_none(), "{refused:?}");
        }
        assert!(free.for_inputs(contract, &inputs(&[1, 3, usize::MAX, usize::MAX])).is_none());
        assert!(fixed.for_inputs(contract, &inputs(&[1, 3, 64, 64])).is_some());
        assert!(fixed.for_inputs(contract, &inputs(&[1, 3, 32, 32])).is_none());
        assert_eq!(free.inputs_text(), "input [1, 3, any, any] with at most 4096 pixels");
        assert_eq!(fixed.inputs_text(), "input [1, 3, 64, 64]");

        let value = serde_json::to_value(Manifest { graphs: vec![free.clone()], ..manifest.clone() }).unwrap();
        assert!(Manifest::parse(value.to_string().as_bytes()).unwrap().graphs[0].any_size);

        let refused = |graph: &Graph, contract: &Contract| {
            let error = graph.validate(contract).unwrap_err().to_string();
            assert!(error.contains("any_size is for graphs from picture to picture without a plan"), "{error}");
        };
        let plan = serde_json::from_value(plan("tensorrt-rtx/x.plan", "8.9")).unwrap();
        refused(&Graph { plan: Some(plan), ..free.clone() }, contract);
        let mut vectors = contract.clone();
        for tensor in vectors.inputs.iter_mut().chain(&mut vectors.outputs) {
            tensor.axes = [Axis::Batch, Axis::Channels(3)].into();
        }
        let shape = |name: &str| [(name.to_owned(), vec![1, 3])].into();
        refused(&Graph { inputs: shape("input"), outputs: shape("output"), ..free }, &vectors);
    }

    #[test]
    fn a_graph_of_any_batch_takes_fewer_samples() {
        let contract = contract();
        let one = manifest(&[(64, 64)]).graphs[0].clone();
        let graph = |batch: usize| {
            let sizes = Sizes { batch, height: 64, width: 64, ..Sizes::default() };
            let (inputs, outputs) = (contract.input_shapes(&sizes).unwrap(), contract.output_shapes(&sizes).unwrap());
            Graph { inputs, outputs, values_bytes: Some(900), ..one.clone() }
        };
        let free = Graph { any_batch: true, values_bytes_of_one: Some(200), ..graph(8) };
        free.validate(&contract).unwrap();
        for (batch, bytes) in [(1, 200), (2, 300), (7, 800), (8, 900)] {
            let found = free.for_inputs(&contract, &graph(batch).inputs).unwrap();
            assert_eq!((&found.outputs, found.values_bytes), (&graph(batch).outputs, Some(bytes)), "{batch}");
        }
        // What one sample takes is not known, so fewer samples may take as much as the most.
        let unknown = Graph { values_bytes_of_one: None, ..free.clone() };
        assert_eq!(unknown.for_inputs(&contract, &graph(1).inputs).unwrap().values_bytes, Some(900));
        let sizes = |batch, height| Sizes { batch, height, width: 64, ..Sizes::default() };
        for (batch, height, expected) in [
            (9, 64, "expected at most 8 samples, found 9"),
            (1, 32, "its height and width are fixed"),
            (0, 64, "expected"),
        ] {
            let error = free.resized(&contract, sizes(batch, height)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(free.inputs_text(), "input [any, 3, 64, 64] with at most 8 samples");

        let plan = serde_json::from_value(plan("tensorrt-rtx/x.plan", "8.9")).unwrap();
        // The samples of a run share the timestep.
        let mut shared = contract.clone();
        shared.inputs.push(TensorSpec::new("timestep", [], Meaning::Timestep { range: [0.0, 999.0] }));
        let mut of_shared = free.clone();
        of_shared.inputs.insert("timestep".into(), Vec::new());
        let any = "any_batch is for graphs of one size without a plan, whose tensors all have a part for each sample";
        for (graph, contract, expected) in [
            (Graph { plan: Some(plan), ..free.clone() }, &contract, any),
            (Graph { any_size: true, ..free.clone() }, &contract, any),
            (of_shared, &shared, any),
            (Graph { any_batch: false, ..free }, &contract, "values_bytes_of_one is for graphs of any_batch"),
        ] {
            let error = graph.validate(contract).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
