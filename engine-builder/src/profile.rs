//! Profiles: what an engine for one kind of machine looks like.

use crate::{Error, Result, yaml};
use exporter::Task;
use runtime::engine::manifest::Precision;
use runtime::provider::Provider;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::path::{Path, PathBuf};

/// A profile, as `profiles/NAME.yaml` says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name: that of the file.
    pub name: String,
    /// What executes the engine.
    pub provider: Provider,
    /// The arithmetic of the engine.
    pub precision: Precision,
    /// Tile shapes for each task.
    pub tiles: Tiles,
    /// What an engine must reach against its FP32 reference.
    pub floors: Floors,
}

/// Tile shapes for each task, in input pixels.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiles {
    /// Images to larger images.
    pub upscale: Vec<Tile>,
}

/// A tile's size in input pixels, `HEIGHTxWIDTH` in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

/// Least quality of an engine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floors {
    /// Peak signal-to-noise ratio against the FP32 reference, in dB; the peak is the reference's range.
    pub psnr_db: f64,
}

/// Largest side of a tile: beyond it no image model fits any device, and sizes near it are typing errors.
const LARGEST_SIDE: usize = 16384;

impl Profile {
    /// Reads the profile `name_or_path`: a path that ends in `.yaml`, or a name to look up in `profiles/` below the current folder or
    /// any folder above the executable.
    ///
    /// # Errors
    /// There is no such profile, or the file is not a valid one.
    pub fn read(name_or_path: &str) -> Result<Self> {
        let path = if name_or_path.ends_with(".yaml") { PathBuf::from(name_or_path) } else { find(name_or_path)? };
        let profile: Profile = yaml::read(&path)?;
        if path.file_stem().is_none_or(|stem| stem != profile.name.as_str()) {
            return Err(Error::input(&path, format!("expected the profile to have its file's name, found `name: {}`", profile.name)));
        }
        if profile.tiles.upscale.is_empty() {
            return Err(Error::input(&path, "expected at least one tile shape in `tiles: upscale`"));
        }
        if profile.precision != Precision::Fp32 || profile.provider != Provider::Cpu {
            let found = format!("found {} on {}", profile.precision.name(), profile.provider.name());
            return Err(Error::input(&path, format!("this version builds FP32 engines for the CPU, {found}")));
        }
        Ok(profile)
    }

    /// The tile shapes for a task.
    pub fn tiles_for(&self, task: Task) -> &[Tile] {
        match task {
            Task::Upscale => &self.tiles.upscale,
            // Engines of these are not built yet.
            Task::Unet | Task::VaeEncoder | Task::VaeDecoder | Task::TextEncoder | Task::Depth | Task::Realtime => &[],
        }
    }
}

/// Looks a profile up by its name.
fn find(name: &str) -> Result<PathBuf> {
    let executable = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    let folders: Vec<PathBuf> = std::iter::once(Path::new("profiles").to_owned())
        .chain(executable.ancestors().skip(1).map(|folder| folder.join("profiles")))
        .filter(|folder| folder.is_dir())
        .collect();
    if let Some(path) = folders.iter().map(|folder| folder.join(format!("{name}.yaml"))).find(|path| path.is_file()) {
        return Ok(path);
    }
    let mut known: Vec<String> = Vec::new();
    for entry in folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            known.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    known.sort();
    known.dedup();
    let known = if known.is_empty() { "there is no folder `profiles`".into() } else { format!("known are {}", known.join(", ")) };
    Err(Error::input(Path::new(name), format!("no such profile; {known}, or give the path of a .yaml file")))
}

impl<'de> Deserialize<'de> for Tile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let side = |text: &str| text.parse::<usize>().ok().filter(|side| (1..=LARGEST_SIDE).contains(side));
        let tile = text.split_once('x').and_then(|(height, width)| Some(Tile { height: side(height)?, width: side(width)? }));
        tile.ok_or_else(|| de::Error::custom(format!("expected a tile HEIGHTxWIDTH in pixels, as in 256x256, found `{text}`")))
    }
}
