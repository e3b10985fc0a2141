//! The tensors of a program.

use super::notation::Value;
use super::operation::ElementType;
use crate::{Error, Result};
use std::collections::HashMap;

/// A tensor, or a view of one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor {
    pub(super) dims: Vec<u64>,
    pub(super) element: ElementType,
    pub(super) bytes: u64,
    /// Memory that a kernel uses for itself.
    pub(super) is_scratch: bool,
    /// Bytes of a weight, which are in the plan.
    pub(super) weight_bytes: u64,
}

impl Tensor {
    pub(super) fn elements(&self) -> Option<u64> {
        product(&self.dims)
    }
}

pub(super) fn product(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1_u64, |all, dim| all.checked_mul(*dim))
}

/// The tensors of a program's section `descriptors`, by name.
pub(super) fn read<'t>(descriptors: &Value<'t>) -> Result<HashMap<&'t str, Tensor>> {
    let mut tensors: HashMap<&str, Tensor> = HashMap::new();
    for entry in descriptors.entries() {
        let is_view = match entry.key {
            Some("tensor") => false,
            Some("sub_tensor") => true,
            _ => return Err(Error::not_known(format!("`{}` among tensors", entry.key.unwrap_or_default()))),
        };
        let tensor = &entry.value;
        let name = tensor.word_of("name").ok_or_else(|| Error::not_known("a tensor without a name".into()))?;
        let missing = |what: &str| Error::not_known(format!("{what} of the tensor `{name}`"));
        let dims: Vec<u64> = tensor
            .words_of("dims")
            .into_iter()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| missing("sizes"))?;
        // A view has the type of its base.
        let element = match tensor.word_of("base").filter(|_| is_view) {
            Some(base) => tensors.get(base).ok_or_else(|| missing("what is shown"))?.element,
            None => {
                let word = tensor.word_of("type").unwrap_or_default();
                ElementType::of(word).ok_or_else(|| missing(&format!("the type `{word}`")))?
            }
        };
        let bits = product(&dims).and_then(|elements| elements.checked_mul(element.bits()));
        let number =
            |key: &str| tensor.word_of(key).map_or(Ok(0), |word| word.parse::<u64>().map_err(|_| missing(key)));
        let read = Tensor {
            bytes: bits.ok_or_else(|| missing("sizes"))?.div_ceil(8),
            dims,
            element,
            is_scratch: number("is_scratchspace")? != 0,
            weight_bytes: number("const_payload_size")?,
        };
        if tensors.insert(name, read).is_some() {
            return Err(missing("a second description"));
        }
    }
    Ok(tensors)
}
