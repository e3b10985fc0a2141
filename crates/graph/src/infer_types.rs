//! The types of a model's values.

use crate::budget::{self, Budget};
use crate::infer::{self, Operand, Problem};
use crate::{Error, Model, Result, TensorType};
use std::collections::{BTreeMap, HashMap};

const TOO_LARGE: &str = "larger than memory can address";

impl Model {
    /// Infers the types of all values again from the inputs, including the outputs' types.
    ///
    /// The output of an unknown operator keeps its type from the file, if there is one.
    ///
    /// # Errors
    /// A node's inputs do not fit its operator, or a node reads a value that nothing before it makes.
    pub fn infer_types(&mut self) -> Result<()> {
        let declared = std::mem::take(&mut self.types);
        let mut types: HashMap<&str, TensorType> =
            self.inputs.iter().map(|port| (port.name.as_str(), port.ty.clone())).collect();
        for (name, weight) in &self.weights {
            types.insert(name, TensorType::new(weight.data_type(), weight.dims().iter().copied()));
        }
        let mut unknown = std::collections::HashSet::new();
        let mut contents: HashMap<&str, Vec<infer::Extent>> = HashMap::new();
        if let Some(port) = self.inputs.iter().find(|port| port.ty.is_too_large()) {
            return Err(Error::Graph(format!("the input `{}` is {}, {TOO_LARGE}", port.name, port.ty)));
        }
        let mut constants = Budget::default().constants(self);
        for node in &self.nodes {
            let fail =
                |reason: String| Error::Node { node: node.name.clone(), operator: node.operator.clone(), reason };
            let mut operands = Vec::with_capacity(node.inputs.len());
            let mut complete = true;
            for name in &node.inputs {
                let ty = types.get(name.as_str());
                if ty.is_none() && !name.is_empty() {
                    if node.outputs.contains(name) {
                        return Err(fail(format!("it reads its own output `{name}`: graphs have no loops")));
                    }
                    if !unknown.contains(name.as_str()) {
                        return Err(fail(format!("it reads `{name}`, which no input, weight or earlier node makes")));
                    }
                    complete = false;
                }
                let contents = contents.get(name.as_str()).map(Vec::as_slice);
                operands.push(ty.map(|ty| Operand { ty, constant: self.weights.get(name), contents }));
            }
            let made = infer::contents(node, &operands).filter(|made| budget::are_few(made));
            let inferred = if complete { infer::infer(node, &operands) } else { Err(Problem::NoRule) };
            let inferred = match inferred {
                Ok(inferred) => inferred.into_iter().map(Some).collect(),
                Err(Problem::NoRule) => node.outputs.iter().map(|name| declared.get(name).cloned()).collect::<Vec<_>>(),
                Err(Problem::Mismatch(reason)) => return Err(fail(reason)),
            };
            let mut found = Vec::with_capacity(node.outputs.len());
            for (name, ty) in node.outputs.iter().zip(inferred) {
                match ty {
                    Some(ty) if ty.is_too_large() => {
                        return Err(fail(format!("its output `{name}` is {ty}, {TOO_LARGE}")));
                    }
                    Some(ty) => found.push((name.as_str(), ty)),
                    None => drop(unknown.insert(name.as_str())),
                }
            }
            let found: HashMap<&str, TensorType> = found.into_iter().collect();
            constants.add(node, &operands, &found).map_err(fail)?;
            types.extend(found);
            if let (Some(made), Some(name)) = (made, node.outputs.first()) {
                contents.insert(name, made);
            }
        }
        for port in &mut self.outputs {
            if let Some(ty) = types.get(port.name.as_str()) {
                port.ty = ty.clone();
            } else if !unknown.contains(port.name.as_str()) {
                return Err(Error::Graph(format!("nothing makes the output `{}`", port.name)));
            }
        }
        let made = self.nodes.iter().flat_map(|node| &node.outputs);
        self.types = made.filter_map(|name| Some((name.clone(), types.get(name.as_str())?.clone()))).collect();
        Ok(())
    }

    /// The same model for other input shapes; all other types are inferred.
    ///
    /// # Errors
    /// There is no such input, the number of dimensions or a fixed size differs, or an operator does not accept the
    /// shapes.
    pub fn specialised(&self, shapes: &BTreeMap<String, Vec<usize>>) -> Result<Self> {
        let mut model = self.clone();
        for (name, dims) in shapes {
            let names: Vec<&str> = self.inputs.iter().map(|port| port.name.as_str()).collect();
            let Some(port) = model.inputs.iter_mut().find(|port| port.name == *name) else {
                return Err(Error::Graph(format!("no input `{name}`; the inputs are {}", names.join(", "))));
            };
            let fits = |(old, new): (&crate::Dim, &usize)| old.fixed().is_none_or(|old| old == *new);
            if port.ty.dims.len() != dims.len() || !port.ty.dims.iter().zip(dims).all(fits) {
                return Err(Error::Graph(format!("the input `{name}` is {}; it cannot become {dims:?}", port.ty)));
            }
            port.ty = TensorType::new(port.ty.data_type, dims.iter().copied());
        }
        model.infer_types()?;
        Ok(model)
    }
}
