//! The graphs of an engine: converted to its precision, fused where that helps, and written with their weights.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tileforge_contract::{Precision, Provider};
use tileforge_engine::WEIGHTS_FILE;
use tileforge_engine::manifest::{Graph, scaled_bytes};
use tileforge_graph::rewrite::fold_weight_casts;
use tileforge_graph::{Dim, Model, WeightStorage};

use crate::fixed::{fixed_shapes, fixed_sizes};
use crate::optimise::optimised;
use crate::precision::{self, Converted, Job};
use crate::source::{AnySize, Graphs};
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
    let record = |file, inputs, outputs, any_size| {
        let (values_bytes, optimised, plan) = (None, false, None);
        Graph { file, inputs, outputs, any_size, values_bytes, optimised, plan }
    };
    if graphs.any_size.is_empty() {
        let each = graphs.fixed.iter().zip(file_names(&graphs.fixed)?).zip(measured);
        let planned = each.map(|((model, name), reference)| {
            let record = record(name, fixed_shapes(&model.inputs)?, fixed_shapes(&model.outputs)?, false);
            Ok(Planned { model, record, references: reference.into_iter().cloned().collect() })
        });
        return planned.collect();
    }
    let mut of_batch: BTreeMap<usize, Vec<PathBuf>> = BTreeMap::new();
    for (model, file) in graphs.fixed.iter().zip(measured) {
        let files = of_batch.entry(fixed_sizes(job.contract, model)?.batch).or_default();
        files.extend(file.cloned());
    }
    let each = graphs.any_size.iter().map(|AnySize { model, largest }| {
        let (inputs, outputs) = (job.contract.input_shapes(largest)?, job.contract.output_shapes(largest)?);
        let references = of_batch.remove(&largest.batch).unwrap_or_default();
        Ok(Planned { model, record: record(file_name(model)?, inputs, outputs, true), references })
    });
    each.collect()
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
        let record = Graph {
            values_bytes: values_bytes(job, model, record, &graphs.fixed)?,
            optimised: optimised.is_some(),
            ..record.clone()
        };
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

/// The largest number of bytes that the values of a graph hold at once in a run. For a graph of free sizes: the bytes
/// of the largest graph of fixed sizes with the same batch, scaled by the number of pixels.
fn values_bytes(job: &Job<'_>, model: &Model, record: &Graph, fixed: &[Model]) -> Result<Option<u64>> {
    let peak = |model: &Model| model.with_leaves_last().peak().map(|(_, bytes)| bytes);
    if !record.any_size {
        return Ok(peak(model));
    }
    let wanted = record.sizes(job.contract)?;
    let mut found: Option<(usize, u64)> = None;
    for model in fixed {
        let sizes = fixed_sizes(job.contract, model)?;
        let pixels = sizes.height * sizes.width;
        if sizes.batch == wanted.batch && found.is_none_or(|(most, _)| pixels > most) {
            found = peak(model).map(|bytes| (pixels, bytes)).or(found);
        }
    }
    Ok(found.map(|(pixels, bytes)| scaled_bytes(bytes, pixels, wanted.height * wanted.width)))
}

/// `model-1x3x256x256.onnx`: named after the shape of the first input; `model-1x3xanyxany.onnx` where sizes are free.
pub(super) fn file_name(model: &Model) -> Result<String> {
    Ok(format!("model-{}.onnx", shape_text(model, 0)?))
}

/// A name for each graph. Where several graphs have the same shape of the first input, such as graphs for texts of
/// several lengths, the name also has the shape of the next input that differs.
pub(crate) fn file_names(models: &[Model]) -> Result<Vec<String>> {
    let name = |model: &Model| {
        let first = shape_text(model, 0)?;
        let alike = |other: &&Model| shape_text(other, 0).is_ok_and(|other| other == first);
        let alike: Vec<&Model> = models.iter().filter(alike).collect();
        for input in 1..model.inputs.len() {
            let own = shape_text(model, input)?;
            if alike.iter().any(|other| shape_text(other, input).is_ok_and(|other| other != own)) {
                return Ok(format!("model-{first}-{own}.onnx"));
            }
        }
        Ok(format!("model-{first}.onnx"))
    };
    models.iter().map(name).collect()
}

/// "1x3x256x256": the shape of an input.
fn shape_text(model: &Model, input: usize) -> Result<String> {
    let port = model.inputs.get(input).ok_or_else(|| tileforge_graph::Error::Graph("expected an input".into()))?;
    let length = |dim: &Dim| dim.fixed().map_or_else(|| "any".to_owned(), |length| length.to_string());
    Ok(port.ty.dims.iter().map(length).collect::<Vec<_>>().join("x"))
}
