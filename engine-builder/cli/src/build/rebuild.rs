//! `engine-builder rebuild`: builds an engine again from its manifest.

use super::super::failure::CommandResult;
use super::super::libraries::Libraries;
use super::super::models::{model_folders, weight_folders};
use super::super::named;
use super::super::talk::Shown;
use super::compilation::compilation;
use super::outcome::Printing;
use std::path::PathBuf;
use tileforge_engine_builder::Plans;
use tileforge_engine_builder::rebuild::{RebuildRequest, rebuild};
use tileforge_exporter::lora::Lora;
use tileforge_terminal::{report, whole};

const HELP: &str = "\
Examples:
  engine-builder rebuild engines/cpu/compact-x4
  engine-builder rebuild engines/rtx4090/x4plus --model x4plus.pth -o engines/rtx4090/x4plus-new
  engine-builder rebuild old-engine --model sdxl/ --allow-changed-source -o engines/rtx4090/sdxl

The manifest has the names of the files and folders that the engine was made of, without their folders. They are looked
for in the current folder, in the folders of model files, and in those of weights (MODEL_PATH, and the cache of
`engine-builder fetch`). Options name them elsewhere. A file with another digest is an error, and so is a profile of the
same name that has changed, unless --profile names it.";

/// Make an engine again, as its manifest says: after an upgrade of Tileforge, ONNX Runtime or TensorRT. The same inputs
/// and releases give the same bytes.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(in super::super) struct Arguments {
    /// The engine's directory or name; only its manifest is read
    #[arg(value_name = "DIR")]
    engine: PathBuf,
    /// Where the new engine goes [default: in the place of the older one, in one step when it is finished]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The name of a model, or the model file, checkpoint, folder or graph that the engine was made of
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// The folder that describes a pipeline in one file
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// A file of low-rank adaptations that was merged into the weights; may be repeated. All of them, in their order
    #[arg(long, value_name = "FILE[:SCALE]")]
    lora: Vec<Lora>,
    /// The profile as it is now, or another one: a name that `engine-builder profiles` lists, or the path of a .yaml
    /// file
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// The folder that activations were measured on
    #[arg(long, value_name = "DIR")]
    calibration: Option<PathBuf>,
    /// Go on where a file is another one than the engine was made of, or where the manifest does not say. Changes are
    /// printed
    #[arg(long)]
    allow_changed_source: bool,
    /// Fail with exit code 3 if the engine cannot be compiled here
    #[arg(long)]
    require_compiled: bool,
    /// Build an engine for RTX GPUs without plans where NVIDIA's builder is missing, as the older one may be
    #[arg(long, conflicts_with = "require_compiled")]
    portable: bool,
    /// How many plans for RTX GPUs to build at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole::<u16>(1..=64))]
    jobs: u16,
    /// Store files that engines below this folder also have only once, as hard links
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// Print what `build --json` prints
    #[arg(long)]
    json: bool,
}

pub(in super::super) fn run(arguments: Arguments, libraries: &Libraries) -> CommandResult {
    let engine = named::engine(&arguments.engine)?;
    let printing = Printing { share: arguments.share.as_deref(), json: arguments.json };
    let request = RebuildRequest {
        engine: engine.clone(),
        output: arguments.output,
        model: arguments.model.as_deref().map(named::model).transpose()?,
        config: arguments.config,
        adaptations: arguments.lora,
        profile: arguments.profile,
        calibration: arguments.calibration,
        allows_changed_source: arguments.allow_changed_source,
        compilation: compilation(arguments.require_compiled, arguments.portable),
        folders: model_folders(),
        weights: weight_folders(),
    };
    let was_signed = engine.join(tileforge_engine::signature::SIGNATURE_FILE).exists();
    let environment = libraries.environment()?;
    let plans = Plans { program: Some(libraries.plan_program()?), jobs: usize::from(arguments.jobs) };
    let shown = Shown::default();
    let rebuilt = rebuild(&request, &environment, &plans, &shown);
    shown.finish();
    let rebuilt = rebuilt?;
    printing.tell(&rebuilt.name, &rebuilt.engine)?;
    rebuilt.differences.iter().for_each(|line| report(&format!("  {line}")));
    if was_signed {
        report("  the older engine was signed; `engine-builder sign` signs this one");
    }
    Ok(())
}
