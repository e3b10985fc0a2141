//! The operations of a program, kernel by kernel.

use super::notation::{Entry, Value};
use super::operation::{ElementType, Operation, OperationKind};
use super::tensors::{Tensor, product};
use crate::{Error, Result};
use std::collections::{BTreeSet, HashMap};

/// One text: its tensors and its operations.
pub(super) struct Listing<'t> {
    pub(super) tensors: HashMap<&'t str, Tensor>,
    pub(super) entries: Vec<Entry<'t>>,
}

impl<'t> Listing<'t> {
    pub(super) fn of(text: &Value<'t>) -> Result<Self> {
        let section =
            |name: &str| text.get(name).ok_or_else(|| Error::not_known(format!("a program without `{name}`")));
        let tensors = super::tensors::read(section("descriptors")?)?;
        let entries = section("main")?.entries().iter().filter(|entry| entry.key.is_some()).cloned().collect();
        Ok(Listing { tensors, entries })
    }

    fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.tensors.get(name).ok_or_else(|| Error::not_known(format!("a tensor `{name}` that nothing describes")))
    }

    fn tensors(&self, names: &[&str]) -> Result<Vec<&Tensor>> {
        names.iter().map(|name| self.tensor(name)).collect()
    }
}

/// The operations of `listing`. `fused` holds the content of its fused kernels.
pub(super) fn read(listing: &Listing<'_>, fused: &[Listing<'_>]) -> Result<Vec<Operation>> {
    listing.entries.iter().map(|entry| operation(listing, entry, fused)).collect()
}

fn operation(listing: &Listing<'_>, entry: &Entry<'_>, fused: &[Listing<'_>]) -> Result<Operation> {
    let (word, record) = (entry.key.unwrap_or_default(), &entry.value);
    let arguments = Arguments::of(record);
    let bytes = |names: &[&str]| -> Result<u64> {
        // A tensor that a kernel reads twice comes from memory once.
        let names: BTreeSet<&str> = names.iter().copied().collect();
        let mut sum = Some(0_u64);
        for name in names {
            let tensor = listing.tensor(name)?;
            sum = sum.and_then(|sum| sum.checked_add(if tensor.is_scratch { 0 } else { tensor.bytes }));
        }
        sum.ok_or_else(|| Error::not_known("more bytes than a number holds".into()))
    };
    let inside = match record.word_of(if word == "runtime_function" { "runtime_binary" } else { "binary" }) {
        Some(number) if word.starts_with("runtime_") => {
            let listing = number.parse::<usize>().ok().and_then(|number| fused.get(number));
            Some(listing.ok_or_else(|| Error::not_known(format!("what is in the fused kernel {number}")))?)
        }
        _ => None,
    };
    let kernel = record.word_of("name").unwrap_or_default();
    let (kind, element, multiply_adds) = match inside {
        Some(inside) => products_inside(inside)?,
        None => products(listing, word, record)?,
    };
    let first = arguments.inputs.first().map(|name| listing.tensor(name)).transpose()?;
    Ok(Operation {
        kind,
        // For kernels of a library, this is the name of a node.
        kernel: kernel.strip_prefix("__myl_").or(kernel.strip_prefix('_')).unwrap_or(word).to_owned(),
        layers: layers(record),
        element: element.or(first.map(|tensor| tensor.element)),
        read_bytes: bytes(&arguments.inputs)?,
        written_bytes: bytes(&arguments.outputs)?,
        multiply_adds,
    })
}

/// The nodes of the graph that went into an operation.
fn layers(record: &Value<'_>) -> Vec<String> {
    let name = |layer: &str| layer.trim_start_matches("[ONNX Layer: ").trim_end_matches(']').to_owned();
    let layers = record.word_of("layers").unwrap_or_default().split('\u{1f}');
    layers.filter(|layer| !layer.is_empty()).map(name).collect()
}

/// The names of the tensors that an operation reads and writes.
struct Arguments<'t> {
    inputs: Vec<&'t str>,
    outputs: Vec<&'t str>,
}

impl<'t> Arguments<'t> {
    fn of(record: &Value<'t>) -> Self {
        let words = |keys: [&str; 2]| keys.into_iter().flat_map(|key| record.words_of(key)).collect();
        Arguments { inputs: words(["input", "input_args"]), outputs: words(["output", "output_args"]) }
    }
}

/// The kind of products, their type, and their number. `None` if the type or the number is not known.
type Products = (OperationKind, Option<ElementType>, Option<u64>);

/// The products of a kernel that consists of several operations.
fn products_inside(inside: &Listing<'_>) -> Result<Products> {
    let mut all: Products = (OperationKind::Pass, None, Some(0));
    for entry in &inside.entries {
        let word = entry.key.unwrap_or_default();
        let (kind, element, count) = products(inside, word, &entry.value)?;
        if kind != OperationKind::Pass {
            (all.0, all.1) = (kind, element);
        }
        all.2 = all.2.zip(count).and_then(|(sum, count)| sum.checked_add(count));
    }
    Ok(all)
}

fn products(listing: &Listing<'_>, word: &str, record: &Value<'_>) -> Result<Products> {
    let (kernel, arguments) = (record.word_of("name").unwrap_or_default(), Arguments::of(record));
    let kind = match word {
        "corrltn" => OperationKind::Convolution,
        "deconvolution" => OperationKind::TransposedConvolution,
        "fully_connected" => OperationKind::Product,
        "function" if kernel.contains("_mha") => OperationKind::Attention,
        _ => return Ok((OperationKind::Pass, None, Some(0))),
    };
    let (inputs, outputs) = (listing.tensors(&arguments.inputs)?, listing.tensors(&arguments.outputs)?);
    let count = match (kind, inputs.as_slice(), outputs.as_slice()) {
        (OperationKind::Convolution, [_, filters, ..], [output, ..]) => convolution(output, filters),
        (OperationKind::TransposedConvolution, [input, filters, ..], _) => convolution(input, filters),
        (OperationKind::Product, [left, right, ..], [output, ..]) => matrix_product(record, left, right, output),
        (OperationKind::Attention, [queries, keys, ..], [output, ..]) => attention(queries, keys, output),
        _ => None,
    };
    Ok((kind, inputs.first().map(|tensor| tensor.element), count))
}

/// Each filter value is multiplied once for each position of `image`: a convolution's output, or a transposed
/// convolution's input.
fn convolution(image: &Tensor, filters: &Tensor) -> Option<u64> {
    let ([batch, channels, sides @ ..], [count, ..]) = (image.dims.as_slice(), filters.dims.as_slice()) else {
        return None;
    };
    let positions = product(sides)?.checked_mul(*batch)?;
    (channels == count && filters.dims.len() >= 3).then(|| filters.elements()?.checked_mul(positions)).flatten()
}

/// [.., m, k] · [.., k, n] = [.., m, n]: k products for each value of the output. Either may be stored transposed.
fn matrix_product(record: &Value<'_>, left: &Tensor, right: &Tensor, output: &Tensor) -> Option<u64> {
    let is_transposed = |key: &str| match record.word_of(key) {
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => None,
    };
    let [.., left_rows, left_columns] = left.dims.as_slice() else { return None };
    let [.., right_rows, right_columns] = right.dims.as_slice() else { return None };
    let from_left = if is_transposed("trA")? { left_rows } else { left_columns };
    let from_right = if is_transposed("trB")? { right_columns } else { right_rows };
    (from_left == from_right).then(|| output.elements()?.checked_mul(*from_left)).flatten()
}

/// Queries [heads, m, d] and keys [heads, d, n] give weights of values [heads, n, e].
fn attention(queries: &Tensor, keys: &Tensor, output: &Tensor) -> Option<u64> {
    let ([heads, m, d], [also_heads, also_d, n]) = (queries.dims.as_slice(), keys.dims.as_slice()) else { return None };
    let [heads_out, m_out, e] = output.dims.as_slice() else { return None };
    let fits = [heads, heads, d, m] == [also_heads, heads_out, also_d, m_out];
    fits.then(|| product(&[*heads, *m, *n, d.checked_add(*e)?])).flatten()
}
