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
    /// For each size that is run for the gates, the file of the graph of that size as it was exported.
    pub(super) references: Vec<PathBuf>,
    /// An FP32 graph that rounds as this graph does on its target; set if running this graph here would not show that
    /// rounding.
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
    /// Of the graph, not optimised.
    record: Graph,
    references: Vec<PathBuf>,
}

/// What the engine's graphs will be, and which of the files `references` of its graphs of fixed sizes they are measured
/// against.
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
    // Fusions are stored for FP32 engines of CPUs only. In other types, ONNX Runtime would store Casts for what its CPU
    // kernels lack, and 8-bit graphs in this processor's form. TensorRT fuses by itself and does not know ONNX
    // Runtime's own operators.
    let optimise = job.precision == Precision::Fp32 && job.provider == Provider::Cpu;
    let unfused = scratch.join("unfused");
    let mut folded = Vec::new();
    if optimise {
        // ONNX Runtime would compute 16-bit weights in 32 bits, and store them in each fused graph, which cannot have
        // 2 GB. Weights in 32 bits stay in the file that all graphs share.
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
        // Shapes of operators that are ONNX Runtime's own are not known, so the graph before fusions counts.
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
        // Of the file, so that it points into the engine's own weights.
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

/// Bytes of the values that a run of a graph holds at once at most. Where its sizes are free: those of the largest graph
/// of fixed sizes and the same batch, times as many as its largest picture has more pixels.
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

/// A name for each graph. Where several have the same shape of the first input, such as those for texts of several
/// lengths, the shape of the next input that tells them apart follows it.
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
