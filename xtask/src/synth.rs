//! Checkpoints with random weights, for tests and benchmarks without downloads.

use std::path::PathBuf;
use tileforge_exporter::arch::{Entry, registry};
use tileforge_exporter::synthesise_with_gain;
use tileforge_graph::DataType;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The architecture, by the exporter's name
    architecture: String,
    /// One of its presets
    #[arg(long, default_value = "tiny")]
    preset: String,
    /// Element type of the weights: f32, f16 or bf16
    #[arg(long, default_value = "f32")]
    data_type: String,
    /// Each seed gives other weights
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Matrices and kernels are multiplied by this: below 1 for networks whose activations explode
    #[arg(long, default_value_t = 1.0)]
    gain: f32,
    /// Where the checkpoint goes
    #[arg(short, long, value_name = "OUT.safetensors")]
    output: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let known = |names: Vec<&str>| format!("known are {}", names.join(", "));
    let entry = registry().iter().find(|entry| entry.name.eq_ignore_ascii_case(&arguments.architecture));
    let architectures = || known(registry().iter().map(|entry: &Entry| entry.name).collect());
    let entry = entry.ok_or_else(|| format!("no architecture `{}`; {}", arguments.architecture, architectures()))?;
    let presets = entry.presets();
    let preset = presets.iter().find(|(name, _)| *name == arguments.preset);
    let names = || known(presets.iter().map(|(name, _)| *name).collect());
    let (_, network) =
        preset.ok_or_else(|| format!("{} has no preset `{}`; {}", entry.name, arguments.preset, names()))?;
    let data_type =
        [DataType::F32, DataType::F16, DataType::Bf16].into_iter().find(|known| known.name() == arguments.data_type);
    let data_type = data_type.ok_or_else(|| format!("expected f32, f16 or bf16, found `{}`", arguments.data_type))?;
    let Arguments { seed, gain, output, .. } = arguments;
    synthesise_with_gain(network.as_ref(), data_type, *seed, *gain, output).map_err(|e| e.to_string())
}
