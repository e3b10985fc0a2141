//! What was measured of an engine's tiles, for [`TilePlan::best`](crate::tile::TilePlan::best) to choose by.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::digest::hexadecimal;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::onnxruntime;
use crate::provider::{self, Provider};
use crate::tile::Size;

/// Seconds that a tile takes, the least of all settings that were tried: of each provider, with what it computes on and
/// the version of ONNX Runtime, and of each tile. What was measured on another processor or GPU, or with another
/// version, says nothing of this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Throughput {
    measured: BTreeMap<String, BTreeMap<String, f64>>,
    /// The GPU's number.
    #[serde(skip)]
    device: u32,
}

impl Throughput {
    /// The same, of which only what was measured on the GPU of this number counts; without this, on the first one.
    pub fn on_device(self, device: u32) -> Self {
        Self { device, ..self }
    }

    /// Adds a measurement.
    ///
    /// # Errors
    /// Those of [`onnxruntime::load`].
    pub fn add(&mut self, tile: Size, provider: Provider, seconds: f64) -> Result<()> {
        self.add_to(place(provider, self.device)?, tile, seconds);
        Ok(())
    }

    fn add_to(&mut self, place: String, tile: Size, seconds: f64) {
        let least = self.measured.entry(place).or_default().entry(tile.to_string()).or_insert(f64::INFINITY);
        *least = least.min(seconds);
    }

    /// Seconds of each of these tiles on a provider; `None` unless all were measured.
    pub fn of(&self, tiles: &[Size], provider: Provider) -> Option<Vec<f64>> {
        // Most engines were never measured, and then the GPU need not be asked for its name.
        if self.measured.is_empty() { None } else { self.of_place(tiles, &place(provider, self.device).ok()?) }
    }

    fn of_place(&self, tiles: &[Size], place: &str) -> Option<Vec<f64>> {
        let measured = self.measured.get(place)?;
        tiles
            .iter()
            .map(|tile| {
                measured.get(&tile.to_string()).copied().filter(|seconds| *seconds > 0.0 && seconds.is_finite())
            })
            .collect()
    }

    /// What was measured of an engine before; nothing where nothing was, or where it cannot be read.
    pub fn load(engine: &Engine) -> Self {
        let read = || serde_json::from_slice(&fs::read(file_of(engine)?).ok()?).ok();
        read().unwrap_or_default()
    }

    /// Keeps this in the user's cache, in place of what was measured in the same places before, and beside what was in
    /// others.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be written. A box without a cache keeps nothing.
    pub fn save(&self, engine: &Engine) -> Result<()> {
        let Some(path) = file_of(engine) else { return Ok(()) };
        let failed = |source: std::io::Error| Error::file(&path, "write", source);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let text = serde_json::to_vec_pretty(&self.beside(Self::load(engine))).map_err(|error| failed(error.into()))?;
        fs::write(&path, text).map_err(failed)
    }

    fn beside(&self, mut others: Self) -> Self {
        others.measured.extend(self.measured.clone());
        others
    }
}

/// Where a measurement holds.
fn place(provider: Provider, device: u32) -> Result<String> {
    let version = onnxruntime::load(None)?.version();
    Ok(format!("{provider} on {}, ONNX Runtime {version}", provider::device_name(provider, device)))
}

/// By the digests of the engine's graphs: another engine of the same name has its own.
fn file_of(engine: &Engine) -> Option<PathBuf> {
    let manifest = engine.manifest();
    let mut digest = Sha256::new();
    manifest
        .graphs
        .iter()
        .filter_map(|graph| manifest.files.get(&graph.file))
        .for_each(|file| digest.update(&file.sha256));
    let key = hexadecimal(&digest.finalize()[..16]);
    Some(crate::compiled::user_cache()?.join("throughput").join(format!("{key}.json")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(side: u32) -> Size {
        Size { width: side, height: side }
    }

    #[test]
    fn all_tiles_must_have_been_measured() {
        let mut throughput = Throughput::default();
        throughput.add_to("here".into(), tile(64), 0.5);
        throughput.add_to("here".into(), tile(64), 0.25);
        assert_eq!(throughput.of_place(&[tile(64)], "here"), Some(vec![0.25]));
        assert_eq!(throughput.of_place(&[tile(64), tile(128)], "here"), None);
        assert_eq!(throughput.of_place(&[tile(64)], "there"), None);
    }

    #[test]
    fn other_places_are_kept_and_the_same_one_is_replaced() {
        let measured = |places: &[(&str, f64)]| {
            let mut throughput = Throughput::default();
            places.iter().for_each(|(place, seconds)| throughput.add_to((*place).into(), tile(64), *seconds));
            throughput
        };
        let (before, now) = (measured(&[("CPU", 1.0), ("GPU", 0.1)]), measured(&[("CPU", 2.0)]));
        assert_eq!(now.beside(before), measured(&[("CPU", 2.0), ("GPU", 0.1)]));
    }
}
