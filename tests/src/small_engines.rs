//! Engines of small networks for tests, of fixed shapes.

use crate::golden::GoldenComponent;
use crate::programs::{run_with_cache_in, words};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tileforge_exporter::{Checkpoint, Shapes, export_task};
use tileforge_graph::{WeightStorage, save};

/// A profile for CPU engines in full precision. A graph of fixed sizes needs no tiles.
const PROFILE: &str = "\
name: small
provider: cpu
precision: fp32
tasks:
  upscale: { tiles: [64x64] }
floors:
  psnr_db: 100
  cosine: 0.999999
";

/// Builds `folder/NAME`: the engine of a golden component's checkpoint for inputs of these shapes.
pub fn small_engine(
    folder: &Path,
    name: &str,
    golden: &GoldenComponent,
    shapes: &Shapes,
    hints: &[(&str, &str)],
) -> PathBuf {
    let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
    let hints: BTreeMap<String, String> = hints.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let export = export_task(&checkpoint, Some(golden.graph.parse().unwrap()), shapes, &hints);
    let export = export.unwrap_or_else(|error| panic!("{}: {error}", golden.name));
    let (graph, profile) = (folder.join(format!("{name}.onnx")), folder.join("small.yaml"));
    save(&export.model, &graph, WeightStorage::Copy).unwrap();
    std::fs::write(&profile, PROFILE).unwrap();
    let engine = folder.join(name);
    let line = words(&[&"build", &graph, &"--profile", &profile, &"-o", &engine]);
    let _ = run_with_cache_in(folder, "engine-builder", line).success();
    engine
}
