//! The number of arithmetic operations of one run of a graph.

use crate::{Model, Node, TensorType};

impl Model {
    /// Multiplications and additions of one run, in convolutions, matrix products and attention. For other nodes, each
    /// output element counts as one operation. The number depends on the graph alone, so it can stand for time where
    /// the result must not depend on the machine. Values of unknown shape count as 0.
    pub fn operations(&self) -> u64 {
        self.nodes.iter().map(|node| self.operations_of(node)).fold(0, u64::saturating_add)
    }

    fn operations_of(&self, node: &Node) -> u64 {
        let input = |at: usize| node.inputs.get(at).and_then(|name| self.fixed_dims_of(name));
        let made = node.outputs.iter().filter_map(|name| self.fixed_dims_of(name)).map(|dims| elements(&dims));
        let made = made.fold(0, u64::saturating_add);
        // Multiplications, each with its addition, for one element of `of`.
        let products = |of: u64, each: Option<u64>| each.map(|each| of.saturating_mul(each).saturating_mul(2));
        let counted = match node.operator.as_str() {
            // Weights: [output channels, input channels of a group, …].
            "Conv" => products(made, input(1).and_then(|weights| Some(elements(weights.get(1..)?)))),
            // Weights: [input channels, output channels of a group, …].
            "ConvTranspose" => {
                let each = input(1).and_then(|weights| Some(elements(weights.get(1..)?)));
                products(input(0).map_or(0, |dims| elements(&dims)), each)
            }
            "MatMul" => products(made, input(0).and_then(|dims| dims.last().map(|length| *length as u64))),
            "Gemm" => {
                let inner = input(0).map(|dims| elements(&dims));
                let rows = node.outputs.first().and_then(|name| self.fixed_dims_of(name));
                let rows = rows.and_then(|dims| dims.first().map(|rows| *rows as u64));
                products(made, inner.zip(rows).map(|(inner, rows)| inner / rows.max(1)))
            }
            // Every query with every key, and the attention weights with the values. Tensors are [batch, tokens,
            // width] or [batch, heads, tokens, width].
            "Attention" => {
                let tokens = |dims: Vec<usize>| dims.len().checked_sub(2).and_then(|at| dims.get(at).copied());
                products(
                    input(0).map_or(0, |dims| elements(&dims)),
                    input(1).and_then(tokens).map(|keys| 2 * keys as u64),
                )
            }
            _ => None,
        };
        counted.unwrap_or(made)
    }

    fn fixed_dims_of(&self, name: &str) -> Option<Vec<usize>> {
        self.type_of(name).as_ref().and_then(TensorType::fixed_dims)
    }
}

fn elements(dims: &[usize]) -> u64 {
    dims.iter().fold(1, |product: u64, length| product.saturating_mul(*length as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataType, Port, Weight};

    fn model(operator: &str, inputs: &[&[usize]], weights: &[&[usize]]) -> Model {
        let mut model = Model::default();
        let mut names = Vec::new();
        for (at, dims) in inputs.iter().enumerate() {
            let name = format!("input{at}");
            model.inputs.push(Port { name: name.clone(), ty: TensorType::new(DataType::F32, dims.iter().copied()) });
            names.push(name);
        }
        for (at, dims) in weights.iter().enumerate() {
            let name = format!("weight{at}");
            let zeros = vec![0; dims.iter().product::<usize>() * 4];
            model.weights.insert(name.clone(), Weight::from_bytes(DataType::F32, dims.to_vec(), zeros).unwrap());
            names.push(name);
        }
        let heads = ["q_num_heads", "kv_num_heads"].map(|name| (name.into(), crate::Attribute::Int(2)));
        model.nodes.push(Node {
            name: "node".into(),
            operator: operator.into(),
            domain: String::new(),
            inputs: names,
            outputs: vec!["made".into()],
            attributes: if operator == "Attention" { heads.into() } else { Default::default() },
        });
        model.infer_types().unwrap();
        model
    }

    #[test]
    fn layers_count_their_multiplications_and_additions() {
        let of = |operator, inputs: &[&[usize]], weights: &[&[usize]]| model(operator, inputs, weights).operations();
        // Without padding, 8×8 pixels become 6×6 of 5 channels, each of 3·3·3 products.
        assert_eq!(of("Conv", &[&[1, 3, 8, 8]], &[&[5, 3, 3, 3]]), 2 * 5 * 6 * 6 * 27);
        assert_eq!(of("ConvTranspose", &[&[1, 3, 8, 8]], &[&[3, 5, 2, 2]]), 2 * 3 * 8 * 8 * 20);
        assert_eq!(of("MatMul", &[&[2, 7, 16]], &[&[16, 4]]), 2 * 2 * 7 * 4 * 16);
        assert_eq!(of("Gemm", &[&[7, 16]], &[&[16, 4]]), 2 * 7 * 4 * 16);
        assert_eq!(of("Attention", &[&[2, 9, 8], &[2, 5, 8], &[2, 5, 8]], &[]), 2 * 2 * (2 * 9 * 5 * 8));
        assert_eq!(of("Relu", &[&[2, 3, 4]], &[]), 24);
    }
}
