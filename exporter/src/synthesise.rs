//! Makes checkpoints with random weights for any network, so that tests and benchmarks need no download.

use crate::arch::Network;
use crate::export::{IR_VERSION, OPSET};
use crate::nn::{Declaration, Parameters, Scope};
use crate::{Error, Noise, Result};
use half::{bf16, f16};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use tileforge_graph::{DataType, Trace};

/// Writes a safetensors file with every tensor that `network` asks for, filled from `seed`.
///
/// Weights are scaled by the number of inputs that they sum, so that activations neither vanish nor explode. The same
/// network, type and seed give the same bytes.
///
/// # Errors
/// The network cannot be built, `data_type` is not f32, f16 or bf16, or the file cannot be written.
pub fn synthesise(network: &dyn Network, data_type: DataType, seed: u64, path: &Path) -> Result<()> {
    synthesise_with_gain(network, data_type, seed, 1.0, path)
}

/// As [`synthesise`], with the matrices and kernels multiplied by `gain`.
///
/// Networks that add up many branches, or have layers without an activation between them, amplify from layer to layer
/// with the usual scale. A gain below 1 keeps their activations, and so their rounding, in the range of trained
/// networks.
///
/// # Errors
/// As for [`synthesise`].
pub fn synthesise_with_gain(
    network: &dyn Network,
    data_type: DataType,
    seed: u64,
    gain: f32,
    path: &Path,
) -> Result<()> {
    let file_error = |source| Error::File { path: path.to_owned(), action: "write", source };
    let declarations = declarations(network)?;
    let mut header = Map::new();
    let notes: Map<String, Value> =
        network.notes().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    if !notes.is_empty() {
        header.insert("__metadata__".into(), notes.into());
    }
    let name = match data_type {
        DataType::F32 => "F32",
        DataType::F16 => "F16",
        DataType::Bf16 => "BF16",
        other => return Err(Error::SynthesisedType { found: other }),
    };
    let mut end = 0;
    for Declaration { path, dims } in &declarations {
        let begin = end;
        end += dims.iter().product::<usize>() * data_type.size();
        header.insert(path.clone(), json!({ "dtype": name, "shape": dims, "data_offsets": [begin, end] }));
    }
    let mut header = Value::from(header).to_string();
    // The data begins at a multiple of 8 bytes, as in files of the format's own writer.
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    let mut out = BufWriter::new(File::create(path).map_err(file_error)?);
    let mut write = || -> io::Result<()> {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        let mut noise = Noise::new(seed);
        for declaration in &declarations {
            write_tensor(&mut out, declaration, data_type, gain, &mut noise)?;
        }
        out.flush()
    };
    write().map_err(file_error)
}

/// Number of elements of the tensors that a network asks for.
///
/// # Errors
/// The network cannot be built.
pub fn parameters(network: &dyn Network) -> Result<u64> {
    let elements = |declaration: Declaration| declaration.dims.iter().map(|dim| *dim as u64).product::<u64>();
    Ok(declarations(network)?.into_iter().map(elements).sum())
}

/// The tensors that a network asks for, each once.
fn declarations(network: &dyn Network) -> Result<Vec<Declaration>> {
    let parameters = Parameters::declared_only();
    let trace = Trace::new(network.architecture(), IR_VERSION, OPSET);
    network.build(&Scope::root(&trace, &parameters), &network.example_shapes())?;
    trace.finish()?;
    let mut declarations = parameters.declarations();
    declarations.sort_by(|a, b| a.path.cmp(&b.path));
    declarations.dedup();
    Ok(declarations)
}

fn write_tensor(
    out: &mut impl Write,
    declaration: &Declaration,
    data_type: DataType,
    gain: f32,
    noise: &mut Noise,
) -> io::Result<()> {
    let Declaration { path, dims } = declaration;
    let inputs: usize = dims.iter().skip(1).product();
    // Biases and means are around 0, scales of normalisations around 1, and slopes around 0.25. Matrices keep the
    // variance of activations (He et al., 2015). Variances are a little below 1, because an activation before the
    // normalisation lowers the variance.
    let normalises = path.rsplit('.').nth(1).is_some_and(|layer| layer.contains("norm")) || path.contains(".norms.");
    let (centre, deviation) = match dims.len() {
        0 | 1 if path.ends_with("bias") || path.ends_with("running_mean") => (0.0, 0.05),
        0 | 1 if path.ends_with("running_var") => (0.9, 0.05),
        0 | 1 if normalises => (1.0, 0.1),
        0 | 1 => (0.25, 0.05),
        _ => (0.0, gain * (2.0 / inputs.max(1) as f32).sqrt()),
    };
    // A uniform number in −1 … 1 has the deviation 1/√3.
    let width = deviation * 3_f32.sqrt();
    for _ in 0..dims.iter().product() {
        let value = centre + width * noise.next_signed();
        match data_type {
            DataType::F16 => out.write_all(&f16::from_f32(value).to_le_bytes())?,
            DataType::Bf16 => out.write_all(&bf16::from_f32(value).to_le_bytes())?,
            _ => out.write_all(&value.to_le_bytes())?,
        }
    }
    Ok(())
}
