//! Making a model by calling layer functions.
//!
//! A [`Value`] is a handle to something that the graph will compute; calling an operation on it adds a node. The first
//! error is kept in the [`Trace`] and is reported by [`Trace::finish`], so that the formulas of a network carry no
//! `?`. After an error, every operation returns a placeholder, and all sizes are 1.

mod image;
mod matrix;
mod operations;
mod shapes;

pub use operations::{Border, ConvOptions};
pub use shapes::Size;

use crate::infer::{self, Operand, Problem};
use crate::{Attribute, DataType, Dim, Error, Model, Node, Opset, Port, Result, TensorType, Weight};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// A model while it is being made. Cloning gives another handle to the same model.
#[derive(Debug, Clone)]
pub struct Trace(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    model: Model,
    error: Option<Error>,
    node_names: HashSet<String>,
    constants: HashMap<Weight, String>,
    /// The contents of values that are computed from shapes, where they are known.
    contents: HashMap<String, Vec<infer::Extent>>,
    /// The names of such values by their computation, so that each is computed once.
    from_shapes: HashMap<String, String>,
}

/// A value of the graph: an input, a constant, or the result of a node.
#[derive(Debug, Clone)]
pub struct Value {
    trace: Trace,
    name: Rc<str>,
    /// The checkpoint path of the layer that made the value. It names later nodes that have no weight of their own.
    scope: Rc<str>,
    /// Whether it depends on weights alone.
    parameter: bool,
    ty: TensorType,
}

/// Values of a small constant tensor that is part of the network's definition.
#[derive(Debug, Clone, Copy)]
pub enum Constant<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// 64-bit integers: shapes, axes, indices.
    I64(&'a [i64]),
}

impl Trace {
    /// An empty model of one version of ONNX's operators.
    pub fn new(name: &str, ir_version: i64, opset: i64) -> Self {
        let opsets = vec![Opset { domain: String::new(), version: opset }];
        let model = Model { name: name.into(), ir_version, opsets, ..Model::default() };
        Trace(Rc::new(RefCell::new(State { model, ..State::default() })))
    }

    /// Declares an input of the model.
    pub fn input(&self, name: &str, ty: TensorType) -> Value {
        self.0.borrow_mut().model.inputs.push(Port { name: name.into(), ty: ty.clone() });
        self.value(name, "", ty)
    }

    /// A weight of the checkpoint, under its path there. The same path twice is the same initializer.
    pub fn weight(&self, path: &str, weight: Weight) -> Value {
        let ty = TensorType::new(weight.data_type(), weight.dims().iter().copied());
        let scope = path.rsplit_once('.').map_or("", |(scope, _)| scope);
        let mut state = self.0.borrow_mut();
        let clash = state
            .model
            .weights
            .get(path)
            .filter(|known| **known != weight)
            .map(|known| format!("{known:?} and {weight:?}"));
        if let Some(both) = clash {
            state.fail(Error::weight(path, format!("two different tensors have this name: {both}")));
        } else {
            state.model.weights.insert(path.into(), weight);
        }
        drop(state);
        Value { parameter: true, ..self.value(path, scope, ty) }
    }

    /// A constant of the network's definition. Equal constants become one initializer, named after the first use.
    pub fn constant(&self, name: &str, dims: &[usize], values: Constant<'_>) -> Value {
        let (data_type, bytes): (_, Vec<u8>) = match values {
            Constant::F32(values) => (DataType::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            Constant::I64(values) => (DataType::I64, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        };
        let ty = TensorType::new(data_type, dims.iter().copied());
        let weight = match Weight::from_bytes(data_type, dims.to_vec(), bytes) {
            Ok(weight) => weight,
            Err(error) => {
                self.fail(error);
                return self.value(name, "", ty);
            }
        };
        let mut state = self.0.borrow_mut();
        let name = match state.constants.get(&weight) {
            Some(known) => known.clone(),
            None => {
                let name = unique(name, |name| state.model.weights.contains_key(name));
                state.constants.insert(weight.clone(), name.clone());
                state.model.weights.insert(name.clone(), weight);
                name
            }
        };
        drop(state);
        Value { parameter: true, ..self.value(&name, "", ty) }
    }

    /// Adds a node with one output. Call the methods of [`Value`] for the operations that it has.
    pub fn node(
        &self,
        operator: &str,
        inputs: &[&Value],
        attributes: impl IntoIterator<Item = (&'static str, Attribute)>,
    ) -> Value {
        // The node belongs to the layer of its last weight, so that an initializer's path leads to its node; without a
        // weight, to the layer of its first input.
        let mut state = self.0.borrow_mut();
        let weighted = inputs.iter().rev().find(|value| value.parameter && !value.scope.is_empty());
        let scope = weighted.or(inputs.first()).map_or_else(|| "".into(), |value| value.scope.clone());
        if state.error.is_some() {
            return self.absent();
        }
        let base = if scope.is_empty() { operator.to_owned() } else { format!("{scope}/{operator}") };
        let name = unique(&base, |name| state.node_names.contains(name));
        let node = Node {
            name: name.clone(),
            operator: operator.into(),
            domain: String::new(),
            inputs: inputs.iter().map(|value| value.name.to_string()).collect(),
            outputs: vec![name.clone()],
            attributes: attributes
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<BTreeMap<_, _>>(),
        };
        let mut operands = Vec::with_capacity(inputs.len());
        for value in inputs {
            let contents = state.contents.get(&*value.name).map(Vec::as_slice);
            let operand = Operand { ty: &value.ty, constant: state.model.weights.get(&*value.name), contents };
            operands.push((!value.name.is_empty()).then_some(operand));
        }
        let (inferred, contents) = (infer::infer(&node, &operands), infer::contents(&node, &operands));
        let ty = match inferred {
            Ok(types) => types.into_iter().next(),
            Err(Problem::NoRule) => {
                state.fail(Error::Node {
                    node: name,
                    operator: operator.into(),
                    reason: "there is no shape inference for it".into(),
                });
                return self.absent();
            }
            Err(Problem::Mismatch(reason)) => {
                state.fail(Error::Node { node: name, operator: operator.into(), reason });
                return self.absent();
            }
        };
        let Some(ty) = ty else {
            let reason = "expected one output, found none".into();
            state.fail(Error::Node { node: name, operator: operator.into(), reason });
            return self.absent();
        };
        state.node_names.insert(name.clone());
        if let Some(contents) = contents {
            state.contents.insert(name.clone(), contents);
        }
        state.model.types.insert(name.clone(), ty.clone());
        state.model.nodes.push(node);
        drop(state);
        let parameter = inputs.iter().all(|value| value.parameter);
        Value { parameter, ..self.value(&name, &scope, ty) }
    }

    /// Declares an output of the model. The value takes the output's name.
    pub fn output(&self, name: &str, value: &Value) {
        let mut state = self.0.borrow_mut();
        if state.error.is_some() {
            return;
        }
        let old = value.name.to_string();
        let model = &mut state.model;
        if !model.types.contains_key(&old) || model.outputs.iter().any(|port| port.name == old) {
            // An input, a weight, or a value that already is an output cannot be renamed, so an Identity copies it.
            drop(state);
            let copy = self.node("Identity", &[value], []);
            return self.output(name, &copy);
        }
        for used in model
            .nodes
            .iter_mut()
            .flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs))
            .filter(|used| **used == old)
        {
            name.clone_into(used);
        }
        if let Some(ty) = model.types.remove(&old) {
            model.types.insert(name.into(), ty);
        }
        model.outputs.push(Port { name: name.into(), ty: value.ty.clone() });
    }

    /// Records an error found outside of the operators, such as a missing weight. The first error wins.
    pub fn fail(&self, error: Error) {
        self.0.borrow_mut().fail(error);
    }

    /// Whether an error has been recorded.
    pub fn failed(&self) -> bool {
        self.0.borrow().error.is_some()
    }

    /// The finished model.
    ///
    /// # Errors
    /// The first error that was recorded.
    pub fn finish(self) -> Result<Model> {
        let mut state = self.0.borrow_mut();
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut state.model)),
        }
    }

    fn value(&self, name: &str, scope: &str, ty: TensorType) -> Value {
        Value { trace: self.clone(), name: name.into(), scope: scope.into(), parameter: false, ty }
    }

    /// An optional input that is left out. Also the placeholder for a value after an error.
    fn absent(&self) -> Value {
        self.value("", "", TensorType::new(DataType::F32, [0_usize; 0]))
    }
}

impl State {
    fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }
}

impl Value {
    /// The model that this value belongs to.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The value's type.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The shape, which must have `N` dimensions: images have 4, `[batch, channels, height, width]`.
    pub fn dims<const N: usize>(&self) -> [Dim; N] {
        let dims: Result<[Dim; N], _> = self.ty.dims.clone().try_into();
        dims.unwrap_or_else(|_| {
            self.fail_shape(format!("expected {N} dimensions, found {}", self.ty));
            std::array::from_fn(|_| Dim::Fixed(1))
        })
    }

    /// The size of dimension `axis`. The trace fails if the size is dynamic, because no number would be right for every
    /// size. A negative `axis` counts from the end.
    pub fn fixed(&self, axis: i64) -> usize {
        let from_end = usize::try_from(axis.unsigned_abs()).ok();
        let axis = if axis < 0 { from_end.and_then(|axis| self.ty.dims.len().checked_sub(axis)) } else { from_end };
        let size = axis.and_then(|axis| self.ty.dims.get(axis)).and_then(Dim::fixed);
        size.unwrap_or_else(|| {
            let axis = axis.map_or_else(|| "the dimension".into(), |axis| format!("dimension {axis}"));
            self.fail_shape(format!("expected {axis} to have a fixed size, found {}", self.ty));
            1
        })
    }

    /// The shape, which must have `N` dimensions of fixed sizes; otherwise the trace fails.
    pub fn fixed_dims<const N: usize>(&self) -> [usize; N] {
        let dims: [Dim; N] = self.dims();
        std::array::from_fn(|axis| {
            dims[axis].fixed().unwrap_or_else(|| {
                self.fail_shape(format!("expected dimension {axis} to have a fixed size, found {}", self.ty));
                1
            })
        })
    }

    /// Records that the value's shape is not what the network's code expects.
    fn fail_shape(&self, reason: String) {
        self.trace.fail(Error::Node { node: self.name.to_string(), operator: "shape".into(), reason });
    }
}

/// `base`, or `base.1`, `base.2`, … if it is taken.
fn unique(base: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(base) {
        return base.to_owned();
    }
    let mut number = 1_u64;
    loop {
        let name = format!("{base}.{number}");
        if !taken(&name) {
            return name;
        }
        number += 1;
    }
}
