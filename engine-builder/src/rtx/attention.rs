//! Attention as TensorRT for RTX builds it.
//!
//! ONNX's operator Attention (opset 23, <https://onnx.ai/onnx/operators/onnx__Attention.html>) is one fused kernel or
//! nothing there: of causal or masked attention the builder takes a few head widths in half precision and refuses the
//! rest, although its parser says that it supports them. What it has no kernel for is written out here as products,
//! mask and softmax, which it builds for any width and type. CPUs keep the operator.

use super::writer::Writer;
use crate::{Error, Result};
use tileforge_graph::{Attribute, DataType, Model, Node, TensorType, Weight};

/// Widths of a head for which the builder has kernels in half precision. Measured with release 1.7.1, which
/// tests/tests/rtx_plans.rs repeats.
const FUSED_WIDTHS: std::ops::RangeInclusive<usize> = 9..=256;

/// Writes out every Attention that TensorRT for RTX has no kernel for, and says how many those were. The model's types
/// must be known; sequences must have fixed lengths where the attention is causal.
///
/// # Errors
/// [`Error::Graph`] for an attention that is refused and has a form that is not written out here: with earlier keys and
/// values, with fewer heads of keys than of queries, or with a soft cap.
pub(super) fn written_out(model: &mut Model) -> Result<usize> {
    let refused = |node: &Node| is_attention(node) && !has_kernel(model, node);
    let count = model.nodes.iter().filter(|node| refused(node)).count();
    if count == 0 {
        return Ok(0);
    }
    let mut writer = Writer::new(model.clone());
    for node in std::mem::take(&mut writer.model.nodes) {
        if refused(&node) {
            let form = Form::read(model, &node)?;
            writer.write(model, &node, &form)?;
        } else {
            writer.model.nodes.push(node);
        }
    }
    writer.model.infer_types()?;
    *model = writer.model;
    Ok(count)
}

fn is_attention(node: &Node) -> bool {
    node.operator == "Attention" && node.domain.is_empty()
}

fn integer(node: &Node, name: &str) -> i64 {
    match node.attributes.get(name) {
        Some(Attribute::Int(value)) => *value,
        _ => 0,
    }
}

/// The type of one of the node's inputs, if it has this one and its type is known.
fn input_type(model: &Model, node: &Node, index: usize) -> Option<TensorType> {
    node.inputs.get(index).filter(|name| !name.is_empty()).and_then(|name| model.type_of(name))
}

/// Whether the builder has a kernel for this attention, by what release 1.7.1 builds:
///
/// | queries | causal or masked | type | width of a head |
/// |---|---|---|---|
/// | 3-D | neither | any | any |
/// | 4-D | neither | half | [`FUSED_WIDTHS`] |
/// | any | one of the two | half | [`FUSED_WIDTHS`] |
fn has_kernel(model: &Model, node: &Node) -> bool {
    let causal = integer(node, "is_causal") != 0;
    let masked = node.inputs.get(3).is_some_and(|mask| !mask.is_empty());
    let Some(queries) = input_type(model, node, 0) else { return false };
    let heads = usize::try_from(integer(node, "q_num_heads")).ok().filter(|heads| *heads > 0);
    let (merged, width) = match queries.dims.as_slice() {
        [_, _, width] => (true, width.fixed().zip(heads).map(|(width, heads)| width / heads)),
        [_, _, _, width] => (false, width.fixed()),
        _ => return false,
    };
    let half = matches!(queries.data_type, DataType::F16 | DataType::Bf16);
    let fused = half && width.is_some_and(|width| FUSED_WIDTHS.contains(&width));
    (merged && !causal && !masked) || (fused && !(causal && masked))
}

/// What an Attention computes, as far as it is written out.
struct Form {
    /// Heads, and the widths of a head of queries and of values, if those are side by side in the last dimension.
    merged: Option<(i64, [i64; 2])>,
    data_type: DataType,
    scale: f32,
    causal: bool,
    mask: Option<String>,
}

impl Form {
    fn read(model: &Model, node: &Node) -> Result<Self> {
        let fail = |reason: String| {
            Error::from(tileforge_graph::Error::Node {
                node: node.name.clone(),
                operator: node.operator.clone(),
                reason: format!("{reason}; TensorRT has no kernel for it, and written out it would be something else"),
            })
        };
        let operand = |index: usize| {
            input_type(model, node, index).ok_or_else(|| fail(format!("the type of its input {index} is not known")))
        };
        let (queries, keys, values) = (operand(0)?, operand(1)?, operand(2)?);
        if node.inputs.iter().skip(4).any(|name| !name.is_empty()) {
            return Err(fail("it takes keys and values of earlier runs".into()));
        }
        if node.outputs.iter().skip(1).any(|name| !name.is_empty()) {
            return Err(fail("it has more than one output".into()));
        }
        let known = ["is_causal", "q_num_heads", "kv_num_heads", "scale"];
        let zero = |value: &Attribute| matches!(value, Attribute::Int(0)) || *value == Attribute::Float(0.0);
        let other = node.attributes.iter().find(|(name, value)| !known.contains(&name.as_str()) && !zero(value));
        if let Some((name, _)) = other {
            return Err(fail(format!("it has the attribute `{name}`")));
        }
        let ranks = [&queries, &keys, &values].map(|ty| ty.dims.len());
        let last = |ty: &TensorType| {
            let width = ty.dims.last().and_then(|dim| dim.fixed()).and_then(|width| i64::try_from(width).ok());
            width.ok_or_else(|| fail(format!("expected a fixed last dimension, found {ty}")))
        };
        let (merged, width) = match ranks {
            [3, 3, 3] => {
                let (heads, shared) = (integer(node, "q_num_heads"), integer(node, "kv_num_heads"));
                if heads < 1 || heads != shared {
                    return Err(fail(format!("{heads} heads of queries share {shared} of keys and values")));
                }
                let widths = [last(&queries)? / heads, last(&values)? / heads];
                (Some((heads, widths)), widths[0])
            }
            [4, 4, 4] if queries.dims[1] == keys.dims[1] => (None, last(&queries)?),
            _ => return Err(fail(format!("the queries {queries}, keys {keys} and values {values} have other forms"))),
        };
        let scale = match node.attributes.get("scale") {
            Some(Attribute::Float(scale)) => *scale,
            _ => 1.0 / (width as f32).sqrt(),
        };
        let mask = node.inputs.get(3).filter(|name| !name.is_empty()).cloned();
        let causal = integer(node, "is_causal") != 0;
        Ok(Form { merged, data_type: queries.data_type, scale, causal, mask })
    }
}

impl Writer {
    /// Puts the products, the mask and the softmax in the node's place. The last of them keeps the node's name and
    /// output.
    fn write(&mut self, model: &Model, node: &Node, form: &Form) -> Result<()> {
        let [queries, keys, values] = [0, 1, 2].map(|index| node.inputs[index].clone());
        let base = &node.name;
        // The scale stands on the queries, the smallest of what it could be applied to, before a product can overflow.
        let scale = self.scalar(&format!("{base}/scale"), form.data_type, form.scale)?;
        let (queries, keys, values) = match form.merged {
            Some((heads, [width, value_width])) => (
                self.heads(&format!("{base}/queries"), &queries, heads, width, [0, 2, 1, 3])?,
                self.heads(&format!("{base}/keys"), &keys, heads, width, [0, 2, 3, 1])?,
                self.heads(&format!("{base}/values"), &values, heads, value_width, [0, 2, 1, 3])?,
            ),
            None => (queries, self.transpose(&format!("{base}/keys"), &keys, [0, 1, 3, 2]), values),
        };
        let scaled = self.node(&format!("{base}/scaled"), "Mul", &[&queries, &scale], &[]);
        let mut scores = self.node(&format!("{base}/scores"), "MatMul", &[&scaled, &keys], &[]);
        if form.causal {
            let lengths = |index: usize| {
                let dims = input_type(model, node, index)?.dims;
                dims.get(dims.len().checked_sub(2)?)?.fixed()
            };
            let (Some(rows), Some(columns)) = (lengths(0), lengths(1)) else {
                return Err(tileforge_graph::Error::Node {
                    node: base.clone(),
                    operator: node.operator.clone(),
                    reason:
                        "it is causal, and TensorRT needs sequences of fixed length for it; give the graph's inputs \
                             fixed shapes"
                            .into(),
                }
                .into());
            };
            let later = self.later(form.data_type, rows, columns)?;
            scores = self.node(&format!("{base}/causal"), "Add", &[&scores, &later], &[]);
        }
        if let Some(mask) = &form.mask {
            let boolean = model.type_of(mask).is_some_and(|ty| ty.data_type == DataType::Bool);
            let mask = if boolean { self.added(base, mask, form.data_type)? } else { mask.clone() };
            scores = self.node(&format!("{base}/masked"), "Add", &[&scores, &mask], &[]);
        }
        let shares = self.node(&format!("{base}/softmax"), "Softmax", &[&scores], &[("axis", Attribute::Int(-1))]);
        match form.merged {
            None => self.last(node, "MatMul", &[&shares, &values]),
            Some((heads, [_, width])) => {
                let seen = self.node(&format!("{base}/seen"), "MatMul", &[&shares, &values], &[]);
                let seen = self.transpose(&format!("{base}/merged"), &seen, [0, 2, 1, 3]);
                let shape = self.shape(&[0, 0, heads * width])?;
                self.last(node, "Reshape", &[&seen, &shape]);
            }
        }
        Ok(())
    }

    /// What is added to scores for a mask that says which keys are seen: (mask − 1) · the largest number.
    fn added(&mut self, base: &str, mask: &str, data_type: DataType) -> Result<String> {
        let to = [("to", Attribute::Int(i64::from(data_type.to_onnx())))];
        let seen = self.node(&format!("{base}/mask"), "Cast", &[mask], &to);
        let one = self.scalar("attention/one", data_type, 1.0)?;
        let unseen = self.node(&format!("{base}/mask"), "Sub", &[&seen, &one], &[]);
        let largest = self.scalar("attention/largest", data_type, -lowest(data_type))?;
        Ok(self.node(&format!("{base}/mask"), "Mul", &[&unseen, &largest], &[]))
    }

    /// `[batch, tokens, heads · width]` → `[batch, tokens, heads, width]` → its dimensions in another order.
    fn heads(&mut self, base: &str, value: &str, heads: i64, width: i64, order: [i64; 4]) -> Result<String> {
        let shape = self.shape(&[0, 0, heads, width])?;
        let split = self.node(&format!("{base}/split"), "Reshape", &[value, &shape], &[]);
        Ok(self.transpose(base, &split, order))
    }

    fn transpose(&mut self, base: &str, value: &str, order: [i64; 4]) -> String {
        self.node(base, "Transpose", &[value], &[("perm", order.to_vec().into())])
    }

    /// What is added to scores `[…, rows, columns]` so that no query sees a later key: 0 up to the diagonal, and beyond
    /// it what makes every share 0.
    fn later(&mut self, data_type: DataType, rows: usize, columns: usize) -> Result<String> {
        let name = format!("attention/causal/{data_type}/{rows}x{columns}");
        let mask = (0..rows).flat_map(|row| (0..columns).map(move |column| column > row));
        let bytes: Vec<u8> =
            mask.map(|later| if later { lowest(data_type) } else { 0.0 }).flat_map(f32::to_le_bytes).collect();
        self.constant(name, Weight::from_bytes(DataType::F32, vec![rows, columns], bytes)?.cast(data_type)?)
    }

    fn scalar(&mut self, name: &str, data_type: DataType, value: f32) -> Result<String> {
        let weight = Weight::from_bytes(DataType::F32, vec![], value.to_le_bytes().to_vec())?.cast(data_type)?;
        self.constant(format!("{name}/{data_type}"), weight)
    }

    fn shape(&mut self, dims: &[i64]) -> Result<String> {
        let text: Vec<String> = dims.iter().map(ToString::to_string).collect();
        let bytes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        let weight = Weight::from_bytes(DataType::I64, vec![dims.len()], bytes)?;
        self.constant(format!("attention/shape/{}", text.join("x")), weight)
    }
}

/// The lowest finite number of a type. Softmax makes exactly 0 of it, and no sum with it is NaN, as one with −∞ can be.
fn lowest(data_type: DataType) -> f32 {
    match data_type {
        DataType::F16 => half::f16::MIN.to_f32(),
        DataType::Bf16 => half::bf16::MIN.to_f32(),
        _ => f32::MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::ArrayD;
    use tileforge_graph::{Dim, Opset, Port, WeightStorage, save};
    use tileforge_session::{Session, SessionOptions, Tensor};

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

    /// What the model makes of inputs that are the same for every call.
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
        session.run(&inputs).unwrap().remove(0).1.into_f32().unwrap()
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
        refused(&|model| model.nodes[0].outputs.push("present".into()), "more than one output");
        refused(&|model| model.nodes[0].inputs.extend(["", "past", ""].map(String::from)), "earlier runs");
        let dynamic = |model: &mut Model| {
            for port in &mut model.inputs {
                port.ty.dims[1] = Dim::symbol("tokens");
            }
            model.infer_types().unwrap();
        };
        refused(&dynamic, "fixed length");
    }
}
