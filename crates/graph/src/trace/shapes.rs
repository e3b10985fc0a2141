//! Shapes that are known only when the model runs.

use super::{Constant, Value};
use crate::{Attribute, Dim};

/// One size of a shape to reshape to.
#[derive(Debug, Clone, Copy)]
pub enum Size<'a> {
    /// A number, with Reshape's meaning: a 0 keeps a dimension, and one −1 stands for the remaining elements.
    Number(i64),
    /// The size of a dimension of a value, which may be dynamic.
    Of(&'a Value, usize),
}

impl Size<'_> {
    /// The number, if it is known while the model is made.
    fn known(&self) -> Option<i64> {
        match *self {
            Size::Number(number) => Some(number),
            Size::Of(value, axis) => value.ty.dims.get(axis).and_then(Dim::fixed).map(|size| size as i64),
        }
    }
}

impl Value {
    /// The same elements in another shape, which may have several dynamic sizes.
    ///
    /// Sizes that are known while the model is made become constants, because runtimes optimise constant shapes best.
    /// The others are computed, once for each shape.
    #[must_use]
    pub fn reshape_to(&self, sizes: &[Size<'_>]) -> Value {
        let mut sizes = sizes.to_vec();
        let unknown: Vec<usize> = (0..sizes.len()).filter(|i| sizes[*i].known().is_none()).collect();
        if let [only] = unknown.as_slice()
            && !sizes.iter().any(|size| size.known() == Some(-1))
        {
            sizes[*only] = Size::Number(-1);
        }
        self.trace.node("Reshape", &[self, &self.sizes("shape", &sizes)], [])
    }

    /// A list of sizes, one number each: a constant called `name` where all are known, else computed.
    pub(super) fn sizes(&self, name: &str, sizes: &[Size<'_>]) -> Value {
        let numbers: Vec<Option<i64>> = sizes.iter().map(Size::known).collect();
        if let Some(constant) = numbers.iter().copied().collect::<Option<Vec<i64>>>() {
            return self.trace.constant(name, &[constant.len()], Constant::I64(&constant));
        }
        let mut parts: Vec<Value> = Vec::new();
        let mut next = 0;
        while next < sizes.len() {
            let start = next;
            next += 1;
            if let (None, Size::Of(value, axis)) = (numbers[start], sizes[start]) {
                // Dimensions that follow each other in the same value are read together.
                let follows = |i: usize| match sizes[i] {
                    Size::Of(other, at) => other.name == value.name && at == axis + i - start,
                    Size::Number(_) => false,
                };
                while next < sizes.len() && follows(next) {
                    next += 1;
                }
                let (from, to) = (axis as i64, (axis + next - start) as i64);
                parts.push(self.computed_once("Shape", &[value], vec![("start", from.into()), ("end", to.into())]));
            } else {
                while next < sizes.len() && numbers[next].is_some() {
                    next += 1;
                }
                let constants: Vec<i64> = numbers[start..next].iter().copied().flatten().collect();
                parts.push(self.trace.constant(name, &[constants.len()], Constant::I64(&constants)));
            }
        }
        match parts.as_slice() {
            [one] => one.clone(),
            parts => self.computed_once("Concat", &parts.iter().collect::<Vec<_>>(), vec![("axis", 0.into())]),
        }
    }

    /// The same elements in the shape of another value.
    #[must_use]
    pub fn reshape_like(&self, like: &Value) -> Value {
        let sizes: Vec<Size<'_>> = (0..like.ty.dims.len()).map(|axis| Size::Of(like, axis)).collect();
        self.reshape_to(&sizes)
    }

    /// A value that is computed from shapes alone. The same computation gives the same value.
    fn computed_once(
        &self,
        operator: &'static str,
        inputs: &[&Value],
        attributes: Vec<(&'static str, Attribute)>,
    ) -> Value {
        let names: Vec<&str> = inputs.iter().map(|input| &*input.name).collect();
        let key = format!("{operator} {names:?} {attributes:?}");
        let state = self.trace.0.borrow();
        let known =
            state.from_shapes.get(&key).and_then(|name| Some((name.clone(), state.model.types.get(name)?.clone())));
        drop(state);
        if let Some((name, ty)) = known {
            return self.trace.value(&name, "", ty);
        }
        let value = self.trace.node(operator, inputs, attributes);
        self.trace.0.borrow_mut().from_shapes.insert(key, value.name.to_string());
        value
    }
}
