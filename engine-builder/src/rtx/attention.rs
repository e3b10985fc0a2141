//! Attention as TensorRT for RTX builds it.
//!
//! ONNX's operator Attention (opset 23, <https://onnx.ai/onnx/operators/onnx__Attention.html>) is a single fused
//! kernel there, or is refused: for causal or masked attention the builder takes a few head widths in half precision
//! and refuses the others, although its parser reports that it supports them. Attention without a kernel is written
//! out here as products, mask and softmax, which the builder takes in any width and type. CPUs keep the operator.

use crate::Result;
use tileforge_graph::rewrite::attention_as_products;
use tileforge_graph::{DataType, Model, Node};

/// Widths of a head for which the builder has kernels in half precision. Measured with release 1.7.1, which
/// tests/tests/whole/rtx_plans.rs repeats.
const FUSED_WIDTHS: std::ops::RangeInclusive<usize> = 9..=256;

/// Writes out every Attention that TensorRT for RTX has no kernel for, and returns their number.
///
/// # Errors
/// The errors of [`attention_as_products`], with the node; the model is then unchanged.
pub(super) fn written_out(model: &mut Model) -> Result<usize> {
    let is_quantised = model.nodes.iter().any(|node| node.operator == "QuantizeLinear");
    let refused = |node: &Node| node.is("Attention") && !has_kernel(model, node, is_quantised);
    let refused: Vec<bool> = model.nodes.iter().map(refused).collect();
    let count = refused.iter().filter(|refused| **refused).count();
    if count > 0 {
        *model = attention_as_products(model, &refused)?;
    }
    Ok(count)
}

/// Whether the builder has a kernel for this attention, as measured with release 1.7.1:
///
/// | queries | causal or masked | type | width of a head |
/// |---|---|---|---|
/// | 3-D | neither | any | any |
/// | 4-D | neither | half | [`FUSED_WIDTHS`] |
/// | any | one of the two | half | [`FUSED_WIDTHS`] |
///
/// In a graph with 8-bit values, 3-D has only the kernels of 4-D, and a single head has none.
fn has_kernel(model: &Model, node: &Node, is_quantised: bool) -> bool {
    let causal = node.int("is_causal").is_some_and(|causal| causal != 0);
    let masked = node.inputs.get(3).is_some_and(|mask| !mask.is_empty());
    let Some(queries) = node.inputs.first().and_then(|name| model.type_of(name)) else { return false };
    let (merged, heads, width) = match queries.dims.as_slice() {
        [_, _, width] => {
            let heads =
                node.int("q_num_heads").and_then(|heads| usize::try_from(heads).ok()).filter(|heads| *heads > 0);
            (true, heads, width.fixed().zip(heads).map(|(width, heads)| width / heads))
        }
        [_, heads, _, width] => (false, heads.fixed(), width.fixed()),
        _ => return false,
    };
    let half = matches!(queries.data_type, DataType::F16 | DataType::Bf16);
    let fused = half
        && width.is_some_and(|width| FUSED_WIDTHS.contains(&width))
        && !(is_quantised && heads.is_none_or(|heads| heads == 1));
    (merged && !is_quantised && !causal && !masked) || (fused && !(causal && masked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::ArrayD;
    use tileforge_graph::{Attribute, Dim, Opset, Port, TensorType, Weight, WeightStorage, save};
    use tileforge_session::{Cancel, Session, SessionOptions, Tensor};

    const BATCH: usize = 2;
    const HEADS: usize = 3;

    /// An attention of `tokens` queries and keys, with values of another width than queries and keys.
    fn model(
        data_type: DataType,
        tokens: usize,
        width: usize,
        causal: bool,
        mask: Option<(DataType, &[usize])>,
    ) -> Model {
        let port = |name: &str, data_type, dims: &[usize]| Port {
            name: name.into(),
            ty: TensorType::new(data_type, dims.iter().copied()),
        };
        let wide = |name: &str, width: usize| port(name, data_type, &[BATCH, tokens, HEADS * width]);
        let mut inputs = vec![wide("q", width), wide("k", width), wide("v", width + 1)];
        inputs.extend(mask.map(|(data_type, dims)| port("mask", data_type, dims)));
        let attributes = [("q_num_heads", HEADS), ("kv_num_heads", HEADS), ("is_causal", usize::from(causal))];
        let node = Node {
            name: "text.0/Attention".into(),
            operator: "Attention".into(),
            domain: String::new(),
            inputs: inputs.iter().map(|port| port.name.clone()).collect(),
            outputs: vec!["seen".into()],
            attributes: attributes.map(|(name, value)| (name.into(), Attribute::Int(value as i64))).into(),
        };
        let mut model = Model {
            name: "attention".into(),
            ir_version: 10,
            opsets: vec![Opset { domain: String::new(), version: 23 }],
            outputs: vec![wide("seen", width + 1)],
            inputs,
            nodes: vec![node],
            ..Model::default()
        };
        model.infer_types().unwrap();
        model
    }

    /// The outputs of the model for fixed input values.
    fn run(model: &Model) -> ArrayD<f32> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        save(model, &path, WeightStorage::Inline).unwrap();
        let mut session = Session::open(&crate::tests::environment(), &path, &SessionOptions::default()).unwrap();
        let value = |input: usize, i: usize| ((i * 37 + input * 11) % 101) as f32 / 50.0 - 1.0;
        let tensors: Vec<(String, Tensor)> = (0..)
            .zip(&model.inputs)
            .map(|(number, port)| {
                let dims = port.ty.fixed_dims().unwrap();
                let count = dims.iter().product();
                // Of a mask, every fifth key is not seen, and each key is seen by some query.
                let seen = |i: usize| if i % 5 == 3 { -1e4 } else { value(number, i) };
                let of = |i| if port.name == "mask" { seen(i) } else { 3.0 * value(number, i) };
                let array = ArrayD::from_shape_vec(dims, (0..count).map(of).collect()).unwrap();
                (port.name.clone(), array.into())
            })
            .collect();
        let inputs: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        session.run(&inputs, &Cancel::new()).unwrap().remove(0).1.into_f32().unwrap()
    }

    fn written(model: &Model) -> Model {
        let mut written = model.clone();
        assert_eq!(written_out(&mut written).unwrap(), 1);
        assert!(written.nodes.iter().all(|node| node.operator != "Attention"));
        assert_eq!(written.nodes.last().unwrap().name, "text.0/Attention");
        assert_eq!(written.outputs, model.outputs);
        written
    }

    #[test]
    fn written_out_it_is_the_operator_bit_for_bit() {
        for tokens in [1, 7, 77] {
            for width in [4, 64] {
                let masks: [&[usize]; 3] =
                    [&[tokens, tokens], &[1, 1, tokens, tokens], &[BATCH, HEADS, tokens, tokens]];
                let masks = masks.map(|dims| Some((DataType::F32, dims)));
                for (causal, mask) in [(true, None), (false, masks[0]), (false, masks[1]), (true, masks[2])] {
                    let model = model(DataType::F32, tokens, width, causal, mask);
                    let (expected, found) = (run(&model), run(&written(&model)));
                    let worst = (&expected - &found).mapv(f32::abs).into_iter().fold(0.0, f32::max);
                    assert!(expected.iter().any(|value| value.abs() > 0.1));
                    assert_eq!(worst, 0.0, "{tokens} tokens of width {width}, causal {causal}, mask {mask:?}");
                }
            }
        }
    }

    #[test]
    fn a_boolean_mask_is_what_the_operator_takes_it_for() {
        let mut model = model(DataType::F32, 6, 8, true, Some((DataType::F32, &[6, 6])));
        // The session feeds float32 only: the mask is made of it inside the graph.
        let zero = Weight::from_bytes(DataType::F32, vec![], 0_f32.to_le_bytes().to_vec()).unwrap();
        let bits: Vec<u8> = (0..36).map(|i| u8::from(i % 5 != 3)).collect();
        model.weights.insert("zero".into(), zero);
        model.weights.insert("visible".into(), Weight::from_bytes(DataType::Bool, vec![6, 6], bits).unwrap());
        model.inputs.pop();
        model.nodes[0].inputs[3] = "visible".into();
        model.infer_types().unwrap();
        let worst = (run(&model) - run(&written(&model))).mapv(f32::abs).into_iter().fold(0.0, f32::max);
        assert_eq!(worst, 0.0);
    }

    #[test]
    fn what_has_a_kernel_stays() {
        let plain = model(DataType::F32, 8, 4, false, None);
        let half = |width, causal| model(DataType::F16, 8, width, causal, None);
        let masked = model(DataType::F16, 8, 256, false, Some((DataType::F16, &[8, 8])));
        for kept in [plain, half(16, true), half(4, false), masked] {
            let mut same = kept.clone();
            assert_eq!(written_out(&mut same).unwrap(), 0);
            assert_eq!(same.nodes, kept.nodes);
        }
        let both = model(DataType::F16, 8, 64, true, Some((DataType::F16, &[8, 8])));
        for refused in [half(8, true), half(264, true), both] {
            assert_eq!(written_out(&mut refused.clone()).unwrap(), 1);
        }
    }

    #[test]
    fn two_layers_share_the_causal_mask() {
        let mut model = model(DataType::F16, 5, 8, true, None);
        let mut second = model.nodes[0].clone();
        second.name = "text.1/Attention".into();
        second.outputs = vec!["seen.1".into()];
        model.nodes.push(second);
        model.outputs.push(Port { name: "seen.1".into(), ty: model.outputs[0].ty.clone() });
        model.infer_types().unwrap();
        assert_eq!(written_out(&mut model).unwrap(), 2);
        let masks: Vec<_> = model.weights.keys().filter(|name| name.starts_with("attention/causal")).collect();
        assert_eq!(masks, ["attention/causal/f16/5x5"]);
    }

    /// Graphs of other tools may have nodes without names.
    #[test]
    fn two_layers_of_one_name_keep_their_scales() {
        let mut model = model(DataType::F16, 5, 8, true, None);
        model.nodes[0].name.clear();
        let mut second = model.nodes[0].clone();
        second.outputs = vec!["seen.1".into()];
        second.attributes.insert("scale".into(), Attribute::Float(0.5));
        model.nodes.push(second);
        model.outputs.push(Port { name: "seen.1".into(), ty: model.outputs[0].ty.clone() });
        model.infer_types().unwrap();
        assert_eq!(written_out(&mut model).unwrap(), 2);
        let scaled = model.nodes.iter().filter(|node| node.operator == "Mul");
        let scales: std::collections::BTreeSet<_> = scaled.map(|node| node.inputs[1].clone()).collect();
        assert_eq!(scales.len(), 2, "{scales:?}");
    }

    #[test]
    fn what_would_become_something_else_is_refused() {
        let refused = |change: &dyn Fn(&mut Model), word: &str| {
            let mut model = model(DataType::F32, 5, 8, true, None);
            change(&mut model);
            let before = model.nodes.clone();
            let error = written_out(&mut model).unwrap_err().to_string();
            assert!(error.contains("text.0/Attention") && error.contains(word), "{error}");
            assert_eq!(model.nodes, before);
        };
        let set = |name: &'static str, value: Attribute| {
            move |model: &mut Model| drop(model.nodes[0].attributes.insert(name.into(), value.clone()))
        };
        refused(&set("softcap", Attribute::Float(30.0)), "softcap");
        refused(&set("kv_num_heads", Attribute::Int(1)), "share 1");
        refused(&|model| model.nodes[0].outputs.push("present".into()), "does not have one output");
        refused(&|model| model.nodes[0].inputs.extend(["", "past", ""].map(String::from)), "earlier runs");
        let dynamic = |model: &mut Model| {
            for port in &mut model.inputs {
                port.ty.dims[1] = Dim::symbol("tokens");
            }
            model.infer_types().unwrap();
        };
        refused(&dynamic, "fixed length");
        let long = |model: &mut Model| {
            for port in &mut model.inputs {
                port.ty.dims[1] = Dim::Fixed(1 << 20);
            }
            model.infer_types().unwrap();
        };
        refused(&long, "a mask of at most");
    }
}
