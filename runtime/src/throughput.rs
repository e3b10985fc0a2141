//! What was measured of an engine's tiles on this box, for [`TilePlan::best`](crate::tile::TilePlan::best) to choose by.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::digest::hexadecimal;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::provider::Provider;
use crate::tile::Size;

/// Seconds that a tile takes, the least of all settings that were tried, by provider and tile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput(BTreeMap<String, BTreeMap<String, f64>>);

impl Throughput {
    /// Adds a measurement. `provider` has ONNX Runtime's name.
    pub fn add(&mut self, tile: Size, provider: &str, seconds: f64) {
        let least = self.0.entry(provider.to_owned()).or_default().entry(tile.to_string()).or_insert(f64::INFINITY);
        *least = least.min(seconds);
    }

    /// Seconds of each of these tiles on a provider; `None` unless all were measured.
    pub fn of(&self, tiles: &[Size], provider: Provider) -> Option<Vec<f64>> {
        let measured = self.0.get(provider.onnxruntime_name())?;
        tiles.iter().map(|tile| measured.get(&tile.to_string()).copied().filter(|seconds| *seconds > 0.0 && seconds.is_finite())).collect()
    }

    /// What was measured of an engine on this box before; nothing where nothing was, or where it cannot be read.
    pub fn load(engine: &Engine) -> Self {
        let read = || serde_json::from_slice(&fs::read(place(engine)?).ok()?).ok();
        read().unwrap_or_default()
    }

    /// Keeps this in the user's cache.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be written. A box without a cache keeps nothing.
    pub fn save(&self, engine: &Engine) -> Result<()> {
        let Some(path) = place(engine) else { return Ok(()) };
        let failed = |source: std::io::Error| Error::file(&path, "write", source);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        fs::write(&path, text).map_err(failed)
    }
}

/// By the digests of the engine's graphs: another engine of the same name has its own.
fn place(engine: &Engine) -> Option<PathBuf> {
    let manifest = engine.manifest();
    let mut digest = Sha256::new();
    manifest.graphs.iter().filter_map(|graph| manifest.files.get(&graph.file)).for_each(|file| digest.update(&file.sha256));
    let key = hexadecimal(&digest.finalize()[..16]);
    Some(crate::compiled::user_cache()?.join("throughput").join(format!("{key}.json")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tiles_must_have_been_measured() {
        let tile = |side: u32| Size { width: side, height: side };
        let mut throughput = Throughput::default();
        throughput.add(tile(64), "CPUExecutionProvider", 0.5);
        throughput.add(tile(64), "CPUExecutionProvider", 0.25);
        assert_eq!(throughput.of(&[tile(64)], Provider::Cpu), Some(vec![0.25]));
        assert_eq!(throughput.of(&[tile(64), tile(128)], Provider::Cpu), None);
        assert_eq!(throughput.of(&[tile(64)], Provider::Cuda), None);
    }
}
