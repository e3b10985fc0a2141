//! `runtime run`: tensors from a file through any engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;
use tileforge_contract::{Meaning, TensorSpec};
use tileforge_engine::Manifest;
use tileforge_files::outputs;
use tileforge_runtime::host::{Cancel, Host, HostOptions, Service};
use tileforge_runtime::run::{Outputs, Runner, check_inputs, inputs_of};
use tileforge_runtime::tensor_file::{self, Contents, Description, Stored, TensorFormat};
use tileforge_runtime::{Error, Result};
use tileforge_session::Environment;
use tileforge_session::peak_memory_bytes;
use tileforge_terminal::{Placing, print, print_json};

use super::chosen::{Chosen, placement};
use super::failure::{CommandResult, Failure};
use super::figures::nodes;

const EXAMPLES: &str = "\
Examples:
  runtime run --engine engines/unet --input step.safetensors --output predicted.safetensors
  runtime run --engine engines/text-encoder --input tokens.npz --output hidden.npz --json
  runtime run --engine engines/vae-decoder --input latent.npy --output pixels.npy

`runtime inspect` lists the engine's tensors: names, types and axes. A .npy file holds one tensor, without a name; the
other formats hold tensors by name. Inputs that are carried over from the run before (caches, previous frames) are zeros
where the file leaves them out.";

/// Send tensors from a file through any engine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) engine: Chosen,
    /// The inputs: .safetensors, .npz or .npy.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Where the outputs go: .safetensors, .npz or .npy.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    placing: Placing,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, environment: impl Fn() -> Result<Environment>) -> CommandResult {
    let format = TensorFormat::of_name(&arguments.output)?;
    TensorFormat::of_name(&arguments.input)?;
    outputs::check(&[&arguments.output], &[&arguments.input, &arguments.engine.directory])?;
    let engine = arguments.engine.open()?;
    let contract = &engine.manifest().contract;
    if format == TensorFormat::Npy && contract.outputs.len() > 1 {
        return Err(Failure::Usage(format!(
            "{}: a .npy file holds one tensor, and the engine gives {}; write .npz or .safetensors",
            arguments.output.display(),
            names(&contract.outputs)
        )));
    }
    let inputs = inputs_of(contract, named(&arguments.input, engine.manifest())?)?;
    let host = Host::new(&environment()?, HostOptions::default());
    let runner = Service::new(&host, Runner::new(&host, &engine, placement(&arguments.placing))?, 1);
    let Outputs { tensors, graph, zeros, assigned, seconds } = runner.submit(inputs, &Cancel::new())?.wait()?;
    let stored: Vec<_> = tensors.iter().map(|(name, tensor)| (name.clone(), Stored::from(tensor))).collect();
    tensor_file::write(&arguments.output, &stored, &BTreeMap::new())?;
    if arguments.json {
        let tensors: Vec<_> = stored
            .iter()
            .map(|(name, stored)| json!({ "name": name, "type": stored.data_type, "shape": stored.shape }))
            .collect();
        return Ok(print_json(&json!({
            "engine": engine.manifest().name,
            "graph": graph,
            "output": arguments.output,
            "tensors": tensors,
            "zeros": zeros,
            "assigned": assigned,
            "run_seconds": seconds,
            "session_seconds": runner.task().location().opening.as_secs_f64(),
            "peak_memory_bytes": peak_memory_bytes(),
        }))?);
    }
    let tensors = stored.iter().map(|(name, stored)| format!("\n  {name}: {stored}")).collect::<String>();
    let zeros = if zeros.is_empty() { String::new() } else { format!(", with zeros for {}", zeros.join(", ")) };
    print(&format!(
        "{} → {}: {graph}{zeros}, {seconds:.2} s on {}{tensors}",
        arguments.input.display(),
        arguments.output.display(),
        nodes(&assigned)
    ))?;
    Ok(())
}

/// The tensors of a file by name, checked against the shapes of the engine's graphs. A tensor without a name is for
/// the engine's only input.
fn named(path: &Path, manifest: &Manifest) -> Result<BTreeMap<String, Stored>> {
    let contract = &manifest.contract;
    let mut needed = contract.inputs.iter().filter(|input| !matches!(input.meaning, Meaning::Carried { .. }));
    let (first, second) = (needed.next(), needed.next());
    let only = first.filter(|_| second.is_none());
    let check = |found: &BTreeMap<String, Description>| match (found.get(""), only) {
        (Some(tensor), Some(input)) if TensorFormat::of_name(path)? == TensorFormat::Npy => {
            check_inputs(manifest, &BTreeMap::from([(input.name.clone(), tensor.clone())]))
        }
        (Some(_), None) if TensorFormat::of_name(path)? == TensorFormat::Npy => Err(Error::TensorFile {
            path: path.to_owned(),
            problem: format!(
                "a .npy file holds one tensor, and the engine takes {}; give .npz or .safetensors",
                names(&contract.inputs)
            ),
        }),
        _ => check_inputs(manifest, found),
    };
    Ok(match (tensor_file::read_checked(path, check)?, only) {
        (Contents::Named { tensors, .. }, _) => tensors,
        (Contents::Single(stored), only) => only.map(|input| (input.name.clone(), stored)).into_iter().collect(),
    })
}

fn names(tensors: &[TensorSpec]) -> String {
    tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>().join(", ")
}
