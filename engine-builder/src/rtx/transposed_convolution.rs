//! Transposed convolutions for TensorRT for RTX: it does not build them in BF16 ("Could not infer output types for
//! operation … deconv", release 1.7.1, 8.6 to 12.0), but in FP16 and FP32.

use crate::Result;
use tileforge_graph::{DataType, Model, Node, rewrite};

/// Replaces every transposed convolution in BF16 with one in FP32 between casts, and returns their number. The result
/// is rounded to BF16 as before.
pub(super) fn in_fp32(model: &mut Model) -> Result<usize> {
    let refused = |node: &Node| {
        let input = node.inputs.first().and_then(|name| model.type_of(name));
        node.is("ConvTranspose") && input.is_some_and(|input| input.data_type == DataType::Bf16)
    };
    let refused: Vec<bool> = model.nodes.iter().map(refused).collect();
    let count = refused.iter().filter(|refused| **refused).count();
    if count > 0 {
        *model = rewrite::in_fp32(model, DataType::Bf16, &refused)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileforge_graph::{Attribute, Opset, Port, TensorType, Weight};

    #[test]
    fn bf16_becomes_fp32_between_casts_and_the_rest_stays() {
        for (data_type, expected) in [(DataType::Bf16, 1), (DataType::F16, 0), (DataType::F32, 0)] {
            let port =
                |name: &str, size| Port { name: name.into(), ty: TensorType::new(data_type, [1, 4, size, size]) };
            let weight = |dims: Vec<usize>| Weight::zeros(data_type, dims).unwrap();
            let node = Node {
                name: "up/ConvTranspose".into(),
                operator: "ConvTranspose".into(),
                domain: String::new(),
                inputs: ["x", "up.weight", "up.bias"].map(String::from).into(),
                outputs: vec!["y".into()],
                attributes: [("strides".to_owned(), Attribute::Ints(vec![2, 2]))].into(),
            };
            let mut model = Model {
                opsets: vec![Opset { domain: String::new(), version: 22 }],
                inputs: vec![port("x", 3)],
                outputs: vec![port("y", 6)],
                nodes: vec![node],
                weights: [("up.weight", weight(vec![4, 4, 2, 2])), ("up.bias", weight(vec![4]))]
                    .map(|(name, weight)| (name.to_owned(), weight))
                    .into(),
                ..Model::default()
            };
            model.infer_types().unwrap();
            let outputs = model.outputs.clone();
            assert_eq!(in_fp32(&mut model).unwrap(), expected);
            assert_eq!(model.outputs, outputs);
            let operators: Vec<&str> = model.nodes.iter().map(|node| node.operator.as_str()).collect();
            let weights: Vec<DataType> = model.weights.values().map(Weight::data_type).collect();
            if expected == 1 {
                assert_eq!(operators, ["Cast", "ConvTranspose", "Cast"]);
                assert_eq!((model.nodes[1].name.as_str(), weights), ("up/ConvTranspose", vec![DataType::F32; 2]));
            } else {
                assert_eq!((operators, weights), (vec!["ConvTranspose"], vec![data_type; 2]));
            }
        }
    }
}
