//! Attention as matrix products, for targets without a kernel for it.

use super::{Names, Patch, Rule, apply};
use crate::{Attribute, DataType, Error, Model, Node, Result, TensorType, Weight};
use std::collections::HashMap;

/// The model in which products, mask and softmax replace the Attention nodes at positions that `selected` marks.
/// ONNX's operator is <https://onnx.ai/onnx/operators/onnx__Attention.html>.
///
/// The model's types must be known. Sequences must have fixed lengths where a selected node is causal.
///
/// # Errors
/// `selected` does not have one entry for each node, or a selected node has an unsupported form: past keys and values,
/// fewer key heads than query heads, a soft cap, or a causal mask larger than 256 MB.
pub fn attention_as_products(model: &Model, selected: &[bool]) -> Result<Model> {
    super::one_for_each_node(model, selected)?;
    apply(model, &mut AttentionAsProducts { model, selected, constants: HashMap::new() })
}

struct AttentionAsProducts<'a> {
    /// The original model, with its types.
    model: &'a Model,
    selected: &'a [bool],
    /// Weights that several nodes share, by their content.
    constants: HashMap<String, String>,
}

impl Rule for AttentionAsProducts<'_> {
    fn patch<'n>(&mut self, position: usize, node: &Node, names: &'n mut Names) -> Result<Option<Patch<'n>>> {
        if !self.selected[position] {
            return Ok(None);
        }
        let form = Form::read(self.model, node)?;
        let mut writer = Writer { model: self.model, constants: &mut self.constants, patch: Patch::new(names) };
        writer.write(node, &form)?;
        Ok(Some(writer.patch))
    }
}

/// The type of one of the node's inputs, if the input exists and its type is known.
fn input_type(model: &Model, node: &Node, index: usize) -> Option<TensorType> {
    node.inputs.get(index).filter(|name| !name.is_empty()).and_then(|name| model.type_of(name))
}

/// Most elements of a causal mask: 8192 tokens on both sides, far above what text encoders have.
const MASK_MAXIMUM: usize = 1 << 26;

/// The form of an Attention node that this module supports.
struct Form {
    /// Queries, keys and values.
    operands: [String; 3],
    output: String,
    /// The number of heads and the widths of a query head and a value head, if the heads are side by side in the last
    /// dimension.
    merged: Option<(i64, [i64; 2])>,
    data_type: DataType,
    scale: f32,
    causal: bool,
    mask: Option<String>,
}

impl Form {
    fn read(model: &Model, node: &Node) -> Result<Self> {
        let fail = |reason: String| {
            let reason = format!("{reason}; written out as products, it would be something else");
            Error::Node { node: node.name.clone(), operator: node.operator.clone(), reason }
        };
        let operand = |index: usize| {
            input_type(model, node, index).ok_or_else(|| fail(format!("the type of its input {index} is not known")))
        };
        let (queries, keys, values) = (operand(0)?, operand(1)?, operand(2)?);
        if node.inputs.iter().skip(4).any(|name| !name.is_empty()) {
            return Err(fail("it takes keys and values of earlier runs".into()));
        }
        let mut outputs = node.outputs.iter().filter(|name| !name.is_empty());
        let (Some(output), None) = (outputs.next(), outputs.next()) else {
            return Err(fail("it does not have one output".into()));
        };
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
                let (heads, shared) = (node.int("q_num_heads").unwrap_or(0), node.int("kv_num_heads").unwrap_or(0));
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
        let causal = node.int("is_causal").is_some_and(|causal| causal != 0);
        let operands = [0, 1, 2].map(|index| node.inputs.get(index).cloned().unwrap_or_default());
        Ok(Form { operands, output: output.clone(), merged, data_type: queries.data_type, scale, causal, mask })
    }
}

/// Writes one node's patch.
struct Writer<'a, 'n> {
    model: &'a Model,
    constants: &'a mut HashMap<String, String>,
    patch: Patch<'n>,
}

impl Writer<'_, '_> {
    /// Puts the products, the mask and the softmax in the node's place. The last of them keeps the node's name and
    /// output.
    fn write(&mut self, node: &Node, form: &Form) -> Result<()> {
        let [queries, keys, values] = form.operands.clone();
        let base = &node.name;
        // The scale is applied to the queries: they are the smallest operand, and the product then cannot overflow.
        let scale = self.scalar("attention/scale", form.data_type, form.scale)?;
        let (queries, keys, values) = match form.merged {
            Some((heads, [width, value_width])) => (
                self.heads(&format!("{base}/queries"), &queries, heads, width, [0, 2, 1, 3])?,
                self.heads(&format!("{base}/keys"), &keys, heads, width, [0, 2, 3, 1])?,
                self.heads(&format!("{base}/values"), &values, heads, value_width, [0, 2, 1, 3])?,
            ),
            None => (queries, self.transpose(&format!("{base}/keys"), &keys, [0, 1, 3, 2]), values),
        };
        let scaled = self.patch.node(&format!("{base}/scaled"), "Mul", &[&queries, &scale], []);
        let mut scores = self.patch.node(&format!("{base}/scores"), "MatMul", &[&scaled, &keys], []);
        if form.causal {
            let lengths = |index: usize| {
                let dims = input_type(self.model, node, index)?.dims;
                dims.get(dims.len().checked_sub(2)?)?.fixed()
            };
            let fail = |reason: String| Error::Node { node: base.clone(), operator: node.operator.clone(), reason };
            let (Some(rows), Some(columns)) = (lengths(0), lengths(1)) else {
                let reason = "it is causal: expected sequences of fixed length; give the graph's inputs fixed shapes";
                return Err(fail(reason.into()));
            };
            if rows.checked_mul(columns).is_none_or(|elements| elements > MASK_MAXIMUM) {
                return Err(fail(format!(
                    "it is causal: expected a mask of at most {MASK_MAXIMUM} elements, found {rows} rows and {columns} \
                     columns"
                )));
            }
            let later = self.later(form.data_type, rows, columns)?;
            scores = self.patch.node(&format!("{base}/causal"), "Add", &[&scores, &later], []);
        }
        if let Some(mask) = &form.mask {
            let boolean = self.model.type_of(mask).is_some_and(|ty| ty.data_type == DataType::Bool);
            let mask = if boolean { self.added(base, mask, form.data_type)? } else { mask.clone() };
            scores = self.patch.node(&format!("{base}/masked"), "Add", &[&scores, &mask], []);
        }
        let shares = self.patch.node(&format!("{base}/softmax"), "Softmax", &[&scores], [("axis", Attribute::Int(-1))]);
        let last = Node { outputs: vec![form.output.clone()], ..node.clone() };
        match form.merged {
            None => self.patch.substitute(&last, "MatMul", &[&shares, &values], []),
            Some((heads, [_, width])) => {
                let seen = self.patch.node(&format!("{base}/seen"), "MatMul", &[&shares, &values], []);
                let seen = self.transpose(&format!("{base}/merged"), &seen, [0, 2, 1, 3]);
                let shape = self.shape(&[0, 0, heads * width])?;
                self.patch.substitute(&last, "Reshape", &[&seen, &shape], []);
            }
        }
        Ok(())
    }

    /// The addend to the scores for a boolean mask of visible keys: (mask − 1) · the largest number.
    fn added(&mut self, base: &str, mask: &str, data_type: DataType) -> Result<String> {
        let seen = self.patch.node(&format!("{base}/mask"), "Cast", &[mask], [super::half::to(data_type)]);
        let one = self.scalar("attention/one", data_type, 1.0)?;
        let unseen = self.patch.node(&format!("{base}/mask"), "Sub", &[&seen, &one], []);
        let largest = self.scalar("attention/largest", data_type, -lowest(data_type))?;
        Ok(self.patch.node(&format!("{base}/mask"), "Mul", &[&unseen, &largest], []))
    }

    /// `[batch, tokens, heads · width]` → `[batch, tokens, heads, width]` → its dimensions in another order.
    fn heads(&mut self, base: &str, value: &str, heads: i64, width: i64, order: [i64; 4]) -> Result<String> {
        let shape = self.shape(&[0, 0, heads, width])?;
        let split = self.patch.node(&format!("{base}/split"), "Reshape", &[value, &shape], []);
        Ok(self.transpose(base, &split, order))
    }

    fn transpose(&mut self, base: &str, value: &str, order: [i64; 4]) -> String {
        self.patch.node(base, "Transpose", &[value], [("perm", order.to_vec().into())])
    }

    /// The addend to scores `[…, rows, columns]` of a causal mask: 0 up to the diagonal, and beyond it the number that
    /// makes the softmax 0.
    fn later(&mut self, data_type: DataType, rows: usize, columns: usize) -> Result<String> {
        let name = format!("attention/causal/{data_type}/{rows}x{columns}");
        let values = || {
            let later = (0..rows).flat_map(|row| (0..columns).map(move |column| column > row));
            let added = later.map(|later| if later { lowest(data_type) } else { 0.0 });
            let bytes: Vec<u8> = added.flat_map(f32::to_le_bytes).collect();
            Weight::from_bytes(DataType::F32, vec![rows, columns], bytes)?.cast(data_type)
        };
        self.constant(name, values)
    }

    /// A weight that nodes share: equal names mean equal values.
    fn constant(&mut self, name: String, values: impl FnOnce() -> Result<Weight>) -> Result<String> {
        if let Some(there) = self.constants.get(&name) {
            return Ok(there.clone());
        }
        let weight = self.patch.weight(&name, values()?);
        self.constants.insert(name, weight.clone());
        Ok(weight)
    }

    fn scalar(&mut self, name: &str, data_type: DataType, value: f32) -> Result<String> {
        self.constant(format!("{name}/{data_type}/{value}"), || Weight::from_f32s(vec![], &[value])?.cast(data_type))
    }

    fn shape(&mut self, dims: &[i64]) -> Result<String> {
        let text: Vec<String> = dims.iter().map(ToString::to_string).collect();
        let bytes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        let length = dims.len();
        self.constant(format!("attention/shape/{}", text.join("x")), || {
            Weight::from_bytes(DataType::I64, vec![length], bytes)
        })
    }
}

/// The lowest finite number of a type. Its softmax is exactly 0, and a sum with it is never NaN; a sum with −∞ can be
/// NaN.
fn lowest(data_type: DataType) -> f32 {
    match data_type {
        DataType::F16 => half::f16::MIN.to_f32(),
        DataType::Bf16 => half::bf16::MIN.to_f32(),
        _ => f32::MIN,
    }
}
