//! Where layers get their weights.

use crate::Checkpoint;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tileforge_files::bounded_to;
use tileforge_graph::{DataType, Trace, Value, Weight};

/// A path in a checkpoint, with the model that is traced: `w.at("body.0").at("conv1")`.
#[derive(Debug, Clone)]
pub struct Scope<'a> {
    trace: Trace,
    parameters: &'a Parameters<'a>,
    path: String,
}

impl<'a> Scope<'a> {
    /// The root of a network's parameters.
    pub fn root(trace: &Trace, parameters: &'a Parameters<'a>) -> Self {
        Scope { trace: trace.clone(), parameters, path: String::new() }
    }

    /// The part of the network below this one.
    #[must_use]
    pub fn at(&self, name: impl AsRef<str>) -> Self {
        Scope { path: self.join(name.as_ref()), ..self.clone() }
    }

    /// The path of this part of the network: the prefix of its parameters' names.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The model that is traced.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// A parameter of these sizes, in f32. A Cast follows a weight that is stored in half precision.
    ///
    /// The call checks the shape in a checkpoint, and declares the tensor for a synthesised one.
    pub fn tensor<const N: usize>(&self, name: &str, dims: [usize; N]) -> Value {
        self.tensor_as(name, &dims, &dims)
    }

    /// As [`Scope::tensor`], in the type that it is stored in.
    pub fn tensor_stored(&self, name: &str, dims: &[usize]) -> Value {
        match self.stored(name, dims) {
            Ok(weight) => self.trace.weight(&self.join(name), weight),
            Err(error) => {
                self.trace.fail(error);
                self.trace.constant(&self.join(name), &[0], tileforge_graph::Constant::F32(&[]))
            }
        }
    }

    /// As [`Scope::tensor`], for a tensor that is stored with other sizes than it is used with.
    pub fn tensor_as(&self, name: &str, stored: &[usize], used: &[usize]) -> Value {
        self.computed_from(name, stored, name, |weight| weight.reshaped(used.to_vec()))
    }

    /// A parameter split into equal parts of its rows, each with its own name: `qkv.weight` as `qkv.NAME.weight`.
    pub fn parts<const N: usize, const PARTS: usize>(
        &self,
        name: &str,
        dims: [usize; N],
        names: [&str; PARTS],
    ) -> [Value; PARTS] {
        let rows = dims.first().filter(|rows| rows.is_multiple_of(PARTS)).map(|rows| (rows / PARTS) as u32);
        let Some(rows) = rows else {
            let reason = format!("expected a number of rows that divides into {PARTS} parts, found the sizes {dims:?}");
            let error = tileforge_graph::Error::Weight { weight: self.join(name), reason };
            return std::array::from_fn(|i| self.made(&format!("{}.{name}", names[i]), Err(error.clone())));
        };
        let stored = self.stored(name, &dims);
        std::array::from_fn(|i| {
            let part = stored
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|weight| weight.rows((i as u32 * rows..(i as u32 + 1) * rows).collect::<Vec<_>>()));
            self.made(&format!("{}.{name}", names[i]), part)
        })
    }

    /// A weight `name` that is computed from the parameter `stored`, which has these sizes.
    pub fn computed_from(
        &self,
        stored: &str,
        dims: &[usize],
        name: &str,
        compute: impl FnOnce(Weight) -> tileforge_graph::Result<Weight>,
    ) -> Value {
        self.made(name, self.stored(stored, dims).and_then(compute))
    }

    /// A weight `made` of a small parameter `stored`: a function of each number, with the sizes `used`. It is computed
    /// at once.
    pub fn each_number(
        &self,
        (stored, made): (&str, &str),
        dims: &[usize],
        used: &[usize],
        of: impl Fn(f64) -> f64,
    ) -> Value {
        let numbers = self.stored(stored, dims).and_then(|weight| weight.to_f32s());
        let bytes = |number: f32| (of(f64::from(number)) as f32).to_le_bytes();
        let weight = numbers.and_then(|numbers| {
            let bytes: Vec<u8> = numbers.into_iter().flat_map(bytes).collect();
            Weight::from_bytes(DataType::F32, used.to_vec(), bytes)
        });
        self.made(made, weight)
    }

    /// As [`Scope::computed`], for a fallible weight: the trace keeps the error.
    pub(crate) fn made(&self, name: &str, weight: tileforge_graph::Result<Weight>) -> Value {
        match weight {
            Ok(weight) => self.computed(name, weight),
            Err(error) => {
                self.trace.fail(error);
                self.trace.constant(&self.join(name), &[0], tileforge_graph::Constant::F32(&[]))
            }
        }
    }

    /// A parameter of these sizes as it is stored, to compute others from.
    ///
    /// # Errors
    /// The sizes are larger than memory can address.
    pub fn stored(&self, name: &str, dims: &[usize]) -> tileforge_graph::Result<Weight> {
        self.parameters.get(&self.join(name), dims)
    }

    /// Records that this part of the network is not as its code expects.
    pub fn fail(&self, reason: impl std::fmt::Display) {
        self.trace.fail(tileforge_graph::Error::Graph(format!("`{}`: {reason}", self.path)));
    }

    /// The entry for one of the network's levels in a list of hyperparameters called `name`. The trace fails if the
    /// list has no such entry.
    pub fn of_level(&self, name: &str, each: &[usize], level: usize) -> usize {
        each.get(level).copied().unwrap_or_else(|| {
            self.fail(format!("expected `{name}` to have a number for level {level}, found {each:?}"));
            1
        })
    }

    /// A weight that is computed from stored ones, in f32, under the path that it would have in a checkpoint.
    pub fn computed(&self, name: &str, weight: Weight) -> Value {
        self.trace.weight(&self.join(name), weight).cast(DataType::F32)
    }

    /// Declares a tensor whose mere presence has a meaning; the network does not compute with it.
    pub fn marker(&self, name: &str, dims: &[usize]) {
        if let Err(error) = self.stored(name, dims) {
            self.trace.fail(error);
        }
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// A tensor that an architecture needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// The path in the checkpoint.
    pub path: String,
    /// The sizes, as stored.
    pub dims: Vec<usize>,
}

/// The source of parameters, with a record of those that were fetched.
#[derive(Debug)]
pub struct Parameters<'a> {
    source: Option<&'a Checkpoint>,
    declared: RefCell<Vec<Declaration>>,
    missing: RefCell<Vec<Declaration>>,
    wrong: RefCell<Vec<(Declaration, Vec<usize>)>>,
}

impl<'a> Parameters<'a> {
    /// The tensors of a checkpoint.
    pub fn new(checkpoint: &'a Checkpoint) -> Self {
        Parameters { source: Some(checkpoint), ..Self::declared_only() }
    }

    /// No checkpoint: records what is fetched, and gives zeros.
    pub fn declared_only() -> Self {
        Parameters {
            source: None,
            declared: RefCell::default(),
            missing: RefCell::default(),
            wrong: RefCell::default(),
        }
    }

    /// Everything that was fetched, in order.
    pub fn declarations(self) -> Vec<Declaration> {
        self.declared.into_inner()
    }

    /// Number of elements of all tensors that were fetched.
    pub fn elements(&self) -> u64 {
        let declared = self.declared.borrow();
        let tensors: BTreeMap<&str, u64> =
            declared.iter().map(|d| (d.path.as_str(), d.dims.iter().map(|dim| *dim as u64).product())).collect();
        tensors.values().sum()
    }

    /// The tensor, or zeros if it is missing or has another shape, so that one pass finds every such tensor.
    fn get(&self, path: &str, dims: &[usize]) -> tileforge_graph::Result<Weight> {
        let declaration = Declaration { path: path.to_owned(), dims: dims.to_vec() };
        let found = self.source.map(|checkpoint| checkpoint.tensors().get(path));
        let found = match found {
            Some(Some(weight)) if weight.dims() == dims => Some(weight.clone()),
            Some(Some(weight)) => {
                self.wrong.borrow_mut().push((declaration.clone(), weight.dims().to_vec()));
                None
            }
            Some(None) => {
                self.missing.borrow_mut().push(declaration.clone());
                None
            }
            None => None,
        };
        self.declared.borrow_mut().push(declaration);
        found.map_or_else(|| Weight::zeros(DataType::F32, dims.to_vec()), Ok)
    }

    /// The differences between the checkpoint and what was fetched, one line each; `ignored` says which tensors may be
    /// left over. `None` if there are no differences.
    pub fn problems(&self, ignored: impl Fn(&str) -> bool) -> Option<String> {
        let checkpoint = self.source?;
        let asked: BTreeSet<String> =
            self.declared.borrow().iter().map(|declaration| declaration.path.clone()).collect();
        let left = checkpoint.tensors().iter().filter(|(name, _)| !asked.contains(*name) && !ignored(name));
        let left: BTreeMap<&String, &Weight> = left.collect();
        let (missing, wrong) = (self.missing.borrow(), self.wrong.borrow());
        let original = |name: &str| bounded_to(checkpoint.original_name(name), 300);
        let mut text = String::new();
        // Writing to a String cannot fail.
        for Declaration { path, dims } in list(&mut text, "missing", &missing) {
            let _ = writeln!(text, "  missing: `{}` {dims:?}", original(path));
        }
        for (Declaration { path, dims }, found) in list(&mut text, "wrong shape", &wrong) {
            let _ = writeln!(
                text,
                "  wrong shape: `{}`: expected {dims:?}, found {}",
                original(path),
                bounded_to(format!("{found:?}"), 300)
            );
        }
        let left: Vec<_> = left.into_iter().collect();
        for (name, weight) in list(&mut text, "left over", &left) {
            let _ = writeln!(text, "  left over: `{}` {}", original(name), bounded_to(format!("{weight:?}"), 300));
        }
        (!text.is_empty()).then(|| text.trim_end().to_owned())
    }
}

/// The first problems of a kind. The rest is only counted, because one wrong hyperparameter can rename a thousand
/// tensors.
fn list<'t, T>(text: &mut String, kind: &str, items: &'t [T]) -> &'t [T] {
    const SHOWN: usize = 12;
    if items.len() > SHOWN {
        let _ = writeln!(text, "  {} tensors are {kind}; the first {SHOWN}:", items.len());
    }
    &items[..items.len().min(SHOWN)]
}
