//! Measured times of an engine's tiles. [`TilePlan::best`](tileforge_image::tile::TilePlan::best) chooses by them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use tileforge_contract::Provider;
use tileforge_engine::Engine;
use tileforge_engine::digest::hexadecimal;
use tileforge_files::{TEXT_MAXIMUM_BYTES, unfinished};
use tileforge_image::Size;
use tileforge_session::Environment;

use crate::error::Result;

/// For each place of measurement, the seconds of each tile size.
type Measured = BTreeMap<String, BTreeMap<String, f64>>;

/// Seconds that a tile of an engine takes on this machine: the minimum over all settings that were tried.
///
/// A measurement holds for one provider, one processor or GPU and one version of ONNX Runtime.
#[derive(Clone, Debug)]
pub struct Throughput {
    environment: Environment,
    /// The file in the environment's cache; `None`: nothing is kept.
    file: Option<PathBuf>,
    /// The GPU's number, by the driver's order.
    device: u32,
    measured: Measured,
}

impl Throughput {
    /// An empty set of measurements of an engine. `device` is the number of the GPU, for GPU providers.
    pub fn new(environment: &Environment, engine: &Engine, device: u32) -> Self {
        let file = environment.cache().map(|cache| cache.join("throughput").join(file_name(engine)));
        Self { environment: environment.clone(), file, device, measured: Measured::new() }
    }

    /// Loads the measurements of an engine from the environment's cache; empty if they cannot be read.
    pub fn load(environment: &Environment, engine: &Engine, device: u32) -> Self {
        let empty = Self::new(environment, engine, device);
        Self { measured: empty.kept(), ..empty }
    }

    fn kept(&self) -> Measured {
        let read =
            || serde_json::from_slice(&tileforge_files::read(self.file.as_ref()?, TEXT_MAXIMUM_BYTES).ok()?).ok();
        read().unwrap_or_default()
    }

    /// Adds a measurement.
    pub fn add(&mut self, tile: Size, provider: Provider, seconds: f64) {
        let place = self.place(provider);
        let least = self.measured.entry(place).or_default().entry(tile.to_string()).or_insert(f64::INFINITY);
        *least = least.min(seconds);
    }

    /// Seconds of each of these tiles on a provider; `None` unless all were measured.
    pub fn of(&self, tiles: &[Size], provider: Provider) -> Option<Vec<f64>> {
        // Most engines were never measured; then the GPU's name is not needed.
        if self.measured.is_empty() { None } else { of_place(&self.measured, tiles, &self.place(provider)) }
    }

    /// Saves the measurements to the environment's cache. Replaces earlier measurements of the same places.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self) -> Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let failed = |source: std::io::Error| tileforge_engine::Error::file(path, "write", source);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let all = beside(self.kept(), &self.measured);
        let text = serde_json::to_vec_pretty(&all).map_err(|error| failed(error.into()))?;
        Ok(unfinished::write(path, &text).map_err(failed)?)
    }

    /// The key of a measurement: provider, device and library version.
    fn place(&self, provider: Provider) -> String {
        let library = self.environment.library();
        // A CPU's name needs no driver.
        let device = match provider {
            on_processor if on_processor.is_on_processor() => tileforge_session::provider::processor(),
            gpu => self.environment.probe().device_name(gpu, self.device),
        };
        // Reading the release loads OpenVINO, which only the OpenVINO provider needs.
        let openvino = (provider == Provider::OpenVino).then(|| library.openvino_release());
        match openvino {
            Some(Ok(release)) => format!("{provider} on {device}, OpenVINO {release}"),
            _ => format!("{provider} on {device}, ONNX Runtime {}", library.version()),
        }
    }
}

fn of_place(measured: &Measured, tiles: &[Size], place: &str) -> Option<Vec<f64>> {
    let measured = measured.get(place)?;
    let sound = |seconds: &f64| *seconds > 0.0 && seconds.is_finite();
    tiles.iter().map(|tile| measured.get(&tile.to_string()).copied().filter(sound)).collect()
}

/// Older measurements, replaced by newer ones of the same places.
fn beside(mut older: Measured, newer: &Measured) -> Measured {
    older.extend(newer.clone());
    older
}

/// Named by the digests of the engine's graphs, so that another engine of the same name has its own file.
fn file_name(engine: &Engine) -> String {
    let manifest = engine.manifest();
    let mut digest = Sha256::new();
    let files = manifest.graphs.iter().filter_map(|graph| manifest.files.get(&graph.file));
    files.for_each(|file| digest.update(&file.sha256));
    format!("{}.json", hexadecimal(&digest.finalize()[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(side: u32) -> Size {
        Size { width: side, height: side }
    }

    fn measured(places: &[(&str, f64)]) -> Measured {
        let of = |seconds: f64| BTreeMap::from([(tile(64).to_string(), seconds)]);
        places.iter().map(|(place, seconds)| ((*place).to_owned(), of(*seconds))).collect()
    }

    #[test]
    fn all_tiles_must_have_been_measured() {
        let here = measured(&[("here", 0.25), ("broken", 0.0)]);
        assert_eq!(of_place(&here, &[tile(64)], "here"), Some(vec![0.25]));
        assert_eq!(of_place(&here, &[tile(64), tile(128)], "here"), None);
        assert_eq!(of_place(&here, &[tile(64)], "there"), None);
        assert_eq!(of_place(&here, &[tile(64)], "broken"), None);
    }

    #[test]
    fn other_places_are_kept_and_the_same_one_is_replaced() {
        let older = measured(&[("CPU", 1.0), ("GPU", 0.1)]);
        assert_eq!(beside(older, &measured(&[("CPU", 2.0)])), measured(&[("CPU", 2.0), ("GPU", 0.1)]));
    }
}
