//! `runtime inspect`: what an engine is.

use tileforge_contract::{Meaning, ReceptiveField, TensorSpec, Upscale};
use tileforge_engine::manifest::{Gate, MeasuredTile, Recipe};
use tileforge_engine::{Bundle, Engine, Graph, Manifest, Pipeline, PipelineManifest, Restoration};
use tileforge_runtime::upscale::TileShape;
use tileforge_terminal::{counted, print, print_json};

use super::chosen::Chosen;
use super::failure::CommandResult;

mod kernels;

const EXAMPLES: &str = "\
Examples:
  runtime inspect --engine engines/compact-x4
  runtime inspect --engine engines/compact-x4 --json | jq .gates
  runtime inspect --engine engines/rtx4090/compact-x4 --kernels";

/// Show what an engine is and what its model promises, after checking that its files are whole.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) engine: Chosen,
    /// Print the manifest as JSON; with the manifests of its parts, if it has any.
    #[arg(long)]
    json: bool,
    /// Print what the plans for RTX GPUs run, read from the plans: their kernels, the nodes that went into each, and the
    /// bytes and products of each.
    #[arg(long)]
    kernels: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let bundle = arguments.engine.open_bundle()?;
    if arguments.kernels {
        return kernels::run(&bundle, arguments.json);
    }
    Ok(match &bundle {
        Bundle::Engine(engine) if arguments.json => print_json(engine.manifest()),
        Bundle::Pipeline(_) if arguments.json => print_json(&bundle.manifest_json()?),
        Bundle::Engine(engine) => print(&text(engine.manifest())),
        Bundle::Pipeline(pipeline) => print(&pipeline_text(pipeline)),
    }?)
}

/// The pipeline, and then each part under its name.
fn pipeline_text(pipeline: &Pipeline) -> String {
    let PipelineManifest { name, producer, recipe, diffusion, restoration, gates, files, .. } = pipeline.manifest();
    let mut lines = vec![format!("name             {name}"), format!("built by         {producer}")];
    lines.extend(recipe.as_deref().map(recipe_text));
    lines.extend(diffusion.iter().map(|diffusion| format!("pipeline         {}", diffusion.class)));
    lines
        .extend(restoration.iter().map(|Restoration { text }| format!("pipeline         restoration, text in {text}")));
    lines.extend(pipeline.parts().map(|(part, engine)| format!("part             {part}, {}", task_text(engine))));
    lines.extend(files.iter().map(|(file, digest)| format!("file             {file}, {} bytes", digest.bytes)));
    lines.extend(gates.iter().map(gate_text));
    lines.extend(pipeline.parts().map(|(part, engine)| format!("\n{part}\n{}", text(engine.manifest()))));
    lines.join("\n")
}

/// The model from which `engine-builder rebuild` would make the engine.
fn recipe_text(recipe: &Recipe) -> String {
    let origin = recipe.origin.as_ref().map_or(String::new(), |origin| format!(", published at {origin}"));
    format!("made of          {}{origin}", recipe.model)
}

fn task_text(engine: &Engine) -> String {
    let Manifest { model, contract, .. } = engine.manifest();
    format!("{}, {}", contract.task, model.architecture)
}

fn text(manifest: &Manifest) -> String {
    let Manifest { model, contract, target, built_with, .. } = manifest;
    let bytes: u64 = manifest.files.values().map(|file| file.bytes).sum();
    let capability = target.compute_capability.as_ref().map_or(String::new(), |version| format!(", compute {version}"));
    let upscale = Upscale::of(contract).ok();
    let enlarges = upscale.as_ref().map_or(String::new(), |upscale| format!(" ×{}", upscale.scale));
    let reach = match contract.receptive_field {
        ReceptiveField::Radius(pixels) => counted(pixels, "pixel"),
        ReceptiveField::Unbounded => "unbounded or unknown: tiles are approximate".into(),
    };
    let mut lines = vec![
        format!("name             {}", manifest.name),
        format!("model            {}, {} parameters", model.architecture, model.parameters),
        format!("licence          {}", model.licence.as_deref().unwrap_or("not stated")),
        format!("task             {}{enlarges}", contract.task),
        format!("receptive field  {reach}"),
    ];
    lines.extend(manifest.recipe.as_deref().map(recipe_text));
    lines.extend(contract.inputs.iter().map(|tensor| format!("input            {}", tensor_text(tensor))));
    lines.extend(contract.outputs.iter().map(|tensor| format!("output           {}", tensor_text(tensor))));
    lines.extend([
        format!("precision        {}", manifest.precision),
        format!(
            "target           {} ({}{capability}){}",
            target.profile,
            target.provider,
            if target.portable { ", portable" } else { "" }
        ),
        format!(
            "built by         {} with ONNX Runtime {} on {} {}",
            manifest.producer, built_with.onnxruntime, built_with.operating_system, built_with.processor
        ),
        format!("files            {}, {:.1} MB, all whole", manifest.files.len(), bytes as f64 / 1e6),
    ]);
    lines.extend(
        manifest.graphs.iter().map(|graph| format!("graph            {}", graph_text(graph, upscale.as_ref()))),
    );
    lines.extend(manifest.gates.iter().map(gate_text));
    lines.extend(manifest.batches_change_no_byte.map(batches_text));
    lines.extend(manifest.tiling.iter().flat_map(|tiling| {
        tiling.tiles.iter().map(|tile| {
            let chosen = match [false, true].map(|is_filled| tiling.reaches(tile, is_filled)) {
                [true, _] => "",
                [_, true] => ": for pictures with a side below 256",
                _ => ": not chosen where tiles meet",
            };
            let MeasuredTile { width, height, overlap, psnr_db, .. } = tile;
            let floor = tiling.floor_db;
            format!(
                "tiles            {width}×{height} join at {psnr_db} dB (overlap {overlap}, at least {floor}){chosen}"
            )
        })
    }));
    lines.join("\n")
}

fn gate_text(gate: &Gate) -> String {
    // More digits than these differ between machines.
    let value = if gate.name == "cosine" { format!("{:.7}", gate.value) } else { format!("{:.4}", gate.value) };
    let value = value.trim_end_matches('0').trim_end_matches('.');
    format!("gate             {} on {}: {value} (at least {})", gate.name, gate.graph, gate.floor)
}

/// What the builder found when it compared the samples of a batch with each alone.
fn batches_text(change_no_byte: bool) -> String {
    let found = if change_no_byte {
        "change no byte of a sample's results on a processor"
    } else {
        "change results: samples of several requests share a run only if these allow rounding"
    };
    format!("batches          {found}")
}

fn graph_text(graph: &Graph, upscale: Option<&Upscale>) -> String {
    let optimised = if graph.optimised { ", optimised" } else { "" };
    let lengths = |shape: &[usize]| graph.lengths_text(shape).join(", ");
    let outputs = graph.outputs.iter().map(|(name, shape)| format!("{name} [{}]", lengths(shape)));
    let shape = upscale.and_then(|upscale| TileShape::of(graph, upscale).ok());
    let takes = match shape {
        Some(TileShape { tile, batch, any_size }) => {
            let most = if any_size { "any size, with at most as many pixels as " } else { "" };
            let run = if batch == 1 { String::new() } else { format!(", {batch} in a run") };
            format!("tiles of {most}{tile}{run}")
        }
        None => format!("{} to {}", graph.inputs_text(), outputs.collect::<Vec<_>>().join(", ")),
    };
    let plan = graph.plan.as_ref().map_or(String::new(), |plan| {
        let capabilities = plan.compute_capabilities.join(", ");
        let figures = plan.figures.map_or(String::new(), |figures| format!(": {}", kernels::figures_text(&figures)));
        format!(", plan of TensorRT for RTX {} for compute {capabilities}{figures}", plan.library)
    });
    format!("{}: {takes}{optimised}{plan}", graph.file)
}

/// "image: f32 [batch, 3 channels, height, width], rgb pixels from 0 to 1, extended by reflect".
fn tensor_text(tensor: &TensorSpec) -> String {
    let axes = tensor.axes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("{}: {} [{axes}], {}", tensor.name, tensor.data_type, meaning_text(&tensor.meaning))
}

fn meaning_text(meaning: &Meaning) -> String {
    match meaning {
        Meaning::Pixels { range: [black, white], normalisation, order, padding } => {
            let mut text = format!("{order} pixels from {black} to {white}");
            if let Some(normalisation) = normalisation {
                let (mean, deviation) = (normalisation.mean, normalisation.deviation);
                text += &format!(", minus {mean:?}, divided by {deviation:?}");
            }
            padding.iter().for_each(|padding| text += &format!(", extended by {padding}"));
            text
        }
        Meaning::Mask => "mask: 1 where pixels are made anew, 0 where they are kept".into(),
        Meaning::Depth { unit, missing } => {
            let missing = missing.map_or(String::new(), |value| format!(", {value} where it is missing"));
            format!("depth as {unit}{missing}")
        }
        Meaning::Latent { scaling, shift } => format!("latent, scaled by {scaling}, shifted by {shift}"),
        Meaning::LatentDistribution { scaling, shift } => {
            format!("means and log-variances of a latent, scaled by {scaling}, shifted by {shift}")
        }
        Meaning::NoisyLatent { latent, condition: 0, mask, masked_image } => {
            format!("noisy latent of {latent} channels, mask of {mask}, masked picture of {masked_image}")
        }
        Meaning::NoisyLatent { latent, condition, mask, masked_image } => format!(
            "noisy latent of {latent} channels, latent to restore of {condition}, mask of {mask}, masked picture of \
             {masked_image}"
        ),
        Meaning::Prediction => "prediction of the diffusion model".into(),
        Meaning::Timestep { range: [least, most] } => format!("timestep from {least} to {most}"),
        Meaning::Tokens { vocabulary } => format!("tokens of a vocabulary of {vocabulary}"),
        Meaning::Embedding { from } => format!("embedding of a text ({from:?})"),
        Meaning::TextMask => "mask: 1 for each token of the text, 0 for what fills the row up".into(),
        Meaning::TextLength => "tokens of the text".into(),
        Meaning::TimeIds => "sizes and crop of the picture".into(),
        Meaning::Guidance { range: [least, most] } => format!("guidance scale from {least} to {most}"),
        Meaning::Residual => "residual of a control network".into(),
        Meaning::Carried { from } => format!("the output {from} of the run before, zeros at first"),
        Meaning::Cache => "cache for the next run".into(),
        Meaning::Values => "values".into(),
    }
}

#[cfg(test)]
mod tests {
    use tileforge_contract::{Axis, DataType, Extent};

    use super::*;

    #[test]
    fn a_tensor_says_type_axes_and_meaning() {
        let tokens =
            TensorSpec::new("ids", [Axis::Batch, Axis::Tokens(Some(77))], Meaning::Tokens { vocabulary: 49408 });
        assert_eq!(
            tensor_text(&tokens.of_type(DataType::I64)),
            "ids: i64 [batch, tokens (at most 77)], tokens of a vocabulary of 49408"
        );
        let axes = [Axis::Batch, Axis::Channels(8), Axis::Height(Extent::multiple_of(8))];
        let carried = TensorSpec::new("state", axes, Meaning::Carried { from: "next_state".into() });
        assert_eq!(
            tensor_text(&carried),
            "state: f32 [batch, 8 channels, height (a multiple of 8)], the output next_state of the run before, zeros \
             at first"
        );
    }
}
