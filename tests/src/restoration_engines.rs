//! Small engines that restore films and pictures.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::{repository, run_with_cache_in, words};

/// A model file of the golden networks, with weights beside it, for latent frames of these heights and widths.
pub fn restoration_model(work: &Path, transformer: &str, frames: usize, tiles: &[[usize; 2]]) -> PathBuf {
    let weights = repository("tests/golden-restoration/models");
    for file in ["vae.safetensors", transformer, "pos_emb.pt"] {
        fs::copy(weights.join(file), work.join(file)).unwrap();
    }
    let sides = |factor: usize| {
        let tile = |[height, width]: &[usize; 2]| format!("{}x{}", height * factor, width * factor);
        tiles.iter().map(tile).collect::<Vec<_>>()
    };
    let mut graphs = serde_json::Map::new();
    for (half, task, architecture, factor, [first, next]) in [
        ("encoder", "vae_encoder", "VideoAutoencoderKLEncoder", 8, [5, 4]),
        ("decoder", "vae_decoder", "VideoAutoencoderKLDecoder", 1, [2, 1]),
    ] {
        for (chunk, frames) in [("first", first), ("next", next)] {
            let graph = json!({
                "task": task, "architecture": architecture, "checkpoint": "vae.safetensors",
                "set": { "chunk": chunk }, "sizes": { "tiles": sides(factor), "frames": frames },
            });
            graphs.insert(format!("{half}_{chunk}"), graph);
        }
    }
    let sizes = json!({ "tiles": sides(1), "frames": frames });
    let graph = json!({ "task": "transformer", "architecture": "NaDiT", "checkpoint": transformer, "sizes": sizes });
    graphs.insert("transformer".into(), graph);
    let model = json!({
        "name": "small", "description": "Small.", "licence": "Apache-2.0", "provenance": "random",
        "files": { "vae.safetensors": {}, (transformer): {}, "pos_emb.pt": {} },
        "restoration": { "text": "pos_emb.pt" }, "graphs": graphs,
    });
    let path = work.join("small.yaml");
    fs::write(&path, model.to_string()).unwrap();
    path
}

/// The engine of such a model at `work/engine`.
pub fn restoration_engine(work: &Path, transformer: &str, frames: usize, tiles: &[[usize; 2]]) -> PathBuf {
    let model = restoration_model(work, transformer, frames, tiles);
    let (profile, engine) = (repository("tests/profiles/small-tiles.yaml"), work.join("engine"));
    let line = words(&[&"build", &model, &"--profile", &profile, &"-o", &engine]);
    let _ = run_with_cache_in(work, "engine-builder", line).success();
    engine
}
