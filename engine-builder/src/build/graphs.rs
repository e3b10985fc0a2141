//! The graphs of an engine: converted to its precision, fused where that helps, and written with their weights.

use std::borrow::Borrow;
use std::fs;
use std::path::{Path, PathBuf};

use tileforge_contract::{Precision, Provider, Sizes};
use tileforge_engine::{Graph, WEIGHTS_FILE, scaled_bytes};
use tileforge_graph::rewrite::fold_weight_casts;
use tileforge_graph::{Dim, Model, WeightStorage};

use crate::fixed::{fixed_shapes, fixed_sizes};
use crate::optimise::optimised;
use crate::precision::{self, Converted, Job};
use crate::source::{Free, FreeGraph, Graphs};
use crate::{Error, Result, Source};

/// A graph of the engine.
pub(super) struct EngineGraph {
    pub(super) record: Graph,
    /// The files of the exported graphs, one for each size that the gates run.
    pub(super) references: Vec<PathBuf>,
    /// An FP32 graph that rounds as this graph does on its target; set if this graph would round differently on this
    /// machine.
    pub(super) emulation: Option<PathBuf>,
}

/// What [`write_graphs`] made.
pub(super) struct Written {
    pub(super) graphs: Vec<EngineGraph>,
    /// SHA-256 of the last graph before any pass.
    pub(super) graph_sha256: String,
    pub(super) converted: Converted,
}

/// A graph that is written to the engine, before its conversion.
struct Planned<'m> {
    model: &'m Model,
    /// The record of the graph before it is optimised.
    record: Graph,
    references: Vec<PathBuf>,
}

/// The engine's planned graphs, each with the reference files that it is measured against. `references` has the files
/// of the graphs of fixed sizes.
fn planned<'m>(job: &Job<'_>, graphs: &'m Graphs, references: &[PathBuf]) -> Result<Vec<Planned<'m>>> {
    let measured = references.iter().zip(&job.coverage.is_run).map(|(file, is_run)| is_run.then_some(file));
    let record = |file, inputs, outputs, free| Graph {
        file,
        inputs,
        outputs,
        any_size: free == Some(Free::Size),
        any_batch: free == Some(Free::Batch),
        values_bytes: None,
        values_bytes_of_one: None,
        kernels_bytes: 0,
        optimised: false,
        plan: None,
    };
    if graphs.free.is_empty() {
        let each = graphs.fixed.iter().zip(file_names(&graphs.fixed)?).zip(measured);
        let planned = each.map(|((model, name), reference)| {
            let record = record(name, fixed_shapes(&model.inputs)?, fixed_shapes(&model.outputs)?, None);
            Ok(Planned { model, record, references: reference.into_iter().cloned().collect() })
        });
        return planned.collect();
    }
    let models: Vec<&Model> = graphs.free.iter().map(|graph| &graph.model).collect();
    let mut planned = Vec::new();
    for (FreeGraph { model, largest, free }, file) in graphs.free.iter().zip(file_names(&models)?) {
        let (inputs, outputs) = (job.contract.input_shapes(largest)?, job.contract.output_shapes(largest)?);
        planned.push(Planned { model, record: record(file, inputs, outputs, Some(*free)), references: Vec::new() });
    }
    for (model, file) in graphs.fixed.iter().zip(measured).filter_map(|(model, file)| Some((model, file?))) {
        let sizes = fixed_sizes(job.contract, model)?;
        let is_for = |graph: &FreeGraph| match graph.free {
            // It may be measured in a size that is too large for the memory of other machines.
            Free::Size => graph.largest.batch == sizes.batch,
            Free::Batch => graph.largest == Sizes { batch: graph.largest.batch, ..sizes },
        };
        let planned = graphs.free.iter().position(is_for).and_then(|place| planned.get_mut(place));
        let missing = || tileforge_graph::Error::Graph("expected a graph that takes each measured size".into());
        planned.ok_or_else(missing)?.references.push(file.clone());
    }
    Ok(planned)
}

/// Writes the graphs with one weight file for all.
pub(super) fn write_graphs(
    source: &Source,
    job: &Job<'_>,
    graphs: &Graphs,
    staging: &Path,
    scratch: &Path,
) -> Result<Written> {
    let write = |models: &[&Model], paths: &[PathBuf], folder: &Path| {
        let models: Vec<Model> = models.iter().map(|model| model.with_leaves_last()).collect();
        let pairs: Vec<(&Model, &Path)> = models.iter().zip(paths.iter().map(PathBuf::as_path)).collect();
        tileforge_graph::save_sharing_weights(&pairs, &folder.join(WEIGHTS_FILE))
    };
    let references: Vec<PathBuf> = file_names(&graphs.fixed)?.iter().map(|name| scratch.join(name)).collect();
    write(&graphs.fixed.iter().collect::<Vec<_>>(), &references, scratch)?;
    let (Some(smallest), [file, ..], Some(largest)) = (graphs.fixed.first(), &references[..], references.last()) else {
        return Err(Error::input(source.path(), "the profile has no tile for it"));
    };
    let planned = planned(job, graphs, &references)?;
    let models: Vec<&Model> = planned.iter().map(|planned| planned.model).collect();
    let mut converted = precision::convert(job, &models, (smallest, file), scratch)?;
    let paths_in =
        |folder: &Path| -> Vec<PathBuf> { planned.iter().map(|planned| folder.join(&planned.record.file)).collect() };
    // Fusions are stored for FP32 engines of CPUs only. In other types, ONNX Runtime would store Casts for operators
    // that its CPU kernels lack, and 8-bit graphs in the form for this processor. TensorRT fuses by itself and does
    // not know ONNX Runtime's own operators.
    let optimise = job.precision == Precision::Fp32 && job.provider == Provider::Cpu;
    let unfused = scratch.join("unfused");
    let mut folded = Vec::new();
    if optimise {
        // ONNX Runtime would compute 16-bit weights in 32 bits and store them in each fused graph, whose file is
        // limited to 2 GB. Weights in 32 bits stay in the file that all graphs share.
        folded = converted.models.iter().map(fold_weight_casts).collect::<Result<_, _>>()?;
        fs::create_dir(&unfused).map_err(|e| Error::file(&unfused, "create", e))?;
        write(&folded.iter().collect::<Vec<_>>(), &paths_in(&unfused), &unfused)?;
    }
    let mut folded = folded.into_iter();
    let mut written = Vec::new();
    for (model, Planned { record, references, .. }) in converted.models.iter_mut().zip(&planned) {
        let optimised = match folded.next() {
            Some(folded) => optimised(job.environment, &folded, &unfused.join(&record.file), model.nodes.len())?,
            None => None,
        };
        // The shapes of ONNX Runtime's own operators are not known, so the graph before fusions is counted.
        let record = Graph { optimised: optimised.is_some(), ..estimated(job, model, record, &graphs.fixed)? };
        written.push(EngineGraph { record, references: references.clone(), emulation: None });
        if let Some(optimised) = optimised {
            *model = optimised;
        }
    }
    write(&converted.models.iter().collect::<Vec<_>>(), &paths_in(staging), staging)?;
    for graph in written.iter_mut().filter(|graph| !graph.references.is_empty()) {
        // Loaded from the file, so that it points into the engine's own weights.
        let model = tileforge_graph::load(staging.join(&graph.record.file))?;
        if let Some(emulation) = precision::emulation(&model, job.provider)? {
            let path = scratch.join(format!("emulated-{}", graph.record.file));
            tileforge_graph::save(&emulation, &path, WeightStorage::LinkUndigested)?;
            graph.emulation = Some(path);
        }
    }
    let graph_sha256 = tileforge_engine::digest::sha256_file(largest)?.sha256;
    Ok(Written { graphs: written, graph_sha256, converted })
}

/// The record with an estimate of the most bytes that the values of its graph hold at once in a run. For a graph of
/// free sizes: the bytes of the graphs of fixed sizes. Where height and width are free, those of the largest graph with
/// the same batch, scaled by the number of pixels.
fn estimated(job: &Job<'_>, model: &Model, record: &Graph, fixed: &[Model]) -> Result<Graph> {
    let peak = |model: &Model| model.with_leaves_last().peak().map(|(_, bytes)| bytes);
    if !record.any_size && !record.any_batch {
        return Ok(Graph { values_bytes: peak(model), ..record.clone() });
    }
    let wanted = record.sizes(job.contract)?;
    let sized = |model| Ok((fixed_sizes(job.contract, model)?, model));
    let fixed = fixed.iter().map(sized).collect::<Result<Vec<_>>>()?;
    let of_batch = |batch: usize| {
        let fits =
            |sizes: &Sizes| if record.any_batch { Sizes { batch, ..wanted } == *sizes } else { sizes.batch == batch };
        let models = fixed.iter().filter(|(sizes, _)| fits(sizes));
        let (sizes, model) = models.max_by_key(|(sizes, _)| sizes.height * sizes.width)?;
        Some(scaled_bytes(peak(model)?, sizes.height * sizes.width, wanted.height * wanted.width))
    };
    let values_bytes_of_one = of_batch(1).filter(|_| record.any_batch);
    Ok(Graph { values_bytes: of_batch(wanted.batch), values_bytes_of_one, ..record.clone() })
}

/// `model-1x3x256x256.onnx`: named after the shape of the first input; `model-1x3xanyxany.onnx` where sizes are free.
pub(super) fn file_name(model: &Model) -> Result<String> {
    Ok(format!("model-{}.onnx", shape_text(model, 0)?))
}

/// A name for each graph. Where several graphs have the same shape of the first input, such as graphs for texts of
/// several lengths, the name also has the shape of the next input that differs.
pub(crate) fn file_names<M: Borrow<Model>>(models: &[M]) -> Result<Vec<String>> {
    let models: Vec<&Model> = models.iter().map(Borrow::borrow).collect();
    let name = |model: &Model| {
        let first = shape_text(model, 0)?;
        let alike = |other: &&Model| shape_text(other, 0).is_ok_and(|other| other == first);
        let alike: Vec<&Model> = models.iter().copied().filter(alike).collect();
        for input in 1..model.inputs.len() {
            let own = shape_text(model, input)?;
            if alike.iter().any(|other| shape_text(other, input).is_ok_and(|other| other != own)) {
                return Ok(format!("model-{first}-{own}.onnx"));
            }
        }
        Ok(format!("model-{first}.onnx"))
    };
    models.iter().map(|model| name(model)).collect()
}

/// "1x3x256x256": the shape of an input.
fn shape_text(model: &Model, input: usize) -> Result<String> {
    let port = model.inputs.get(input).ok_or_else(|| tileforge_graph::Error::Graph("expected an input".into()))?;
    let length = |dim: &Dim| dim.fixed().map_or_else(|| "any".to_owned(), |length| length.to_string());
    Ok(port.ty.dims.iter().map(length).collect::<Vec<_>>().join("x"))
}
