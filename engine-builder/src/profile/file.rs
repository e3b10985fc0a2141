//! Reads one profile or family file, and combines several of them into a profile.

use super::find;
use super::options::{CudaKeys, TensorRtKeys};
use super::{Bandwidth, Chip, ComputeCapability, Device, Floors, MOST_STREAMS, Memory, Profile, Tasks, within};
use crate::{Error, Result, yaml};
use serde::{Deserialize, Deserializer};
use std::path::Path;
use tileforge_contract::Precision;
use tileforge_contract::Provider;

impl Profile {
    /// Reads the profile `name_or_path`: a path that ends in `.yaml`, or a name to look up in `profiles/` beside
    /// the executable, of its installation, and of the source tree that it was built in.
    ///
    /// # Errors
    /// There is no such profile, or the file or one of its families is not valid.
    pub fn read(name_or_path: &str) -> Result<Self> {
        let path = find::path_of(name_or_path)?;
        let (file, families) = ProfileFile::read_with_families(&path)?;
        let profile = file.complete(families).map_err(|reason| Error::input(&path, reason))?;
        profile.check().map_err(|reason| Error::input(&path, reason))?;
        Ok(profile)
    }
}

/// The keys of a file. All but the name may come from the family that the file extends.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileFile {
    name: String,
    extends: Option<String>,
    gpu: Option<String>,
    driver_names: Option<Vec<String>>,
    architecture: Option<String>,
    compute_capability: Option<ComputeCapability>,
    /// For plans that run on several kinds of GPUs, instead of `gpu` and its keys.
    compute_capabilities: Option<Vec<ComputeCapability>>,
    memory: Option<Memory>,
    bandwidth: Option<Bandwidth>,
    chip: Option<Chip>,
    provider: Option<Provider>,
    precision: Option<Precision>,
    #[serde(default)]
    tasks: Tasks,
    #[serde(default, deserialize_with = "streams")]
    streams: Option<u32>,
    cuda_graphs: Option<bool>,
    #[serde(default)]
    tensorrt: TensorRtKeys,
    #[serde(default)]
    cuda: CudaKeys,
    floors: Option<Floors>,
}

fn streams<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    within(deserializer, &format!("1 to {MOST_STREAMS}"), 1..=MOST_STREAMS).map(Some)
}

/// The folder of families, beside the profiles.
const FAMILIES: &str = "families";

impl ProfileFile {
    /// Reads a profile with everything that it extends. For each key, the nearest file that has it counts. Also
    /// returns the families' names, nearest first.
    pub(super) fn read_with_families(path: &Path) -> Result<(Self, Vec<String>)> {
        let mut merged = Self::read(path)?;
        let folder = path.parent().unwrap_or(Path::new("")).join(FAMILIES);
        let mut names = Vec::new();
        let mut from = path.to_owned();
        while let Some(name) = merged.extends.take() {
            if !tileforge_files::is_plain(&name) {
                return Err(Error::input(&from, format!("`extends`: expected the name of a family, found {name:?}")));
            }
            // Families are read from this folder only, so that a profile means the same wherever it is read.
            let family = folder.join(format!("{name}.yaml"));
            if !family.is_file() {
                let reason =
                    format!("`extends: {name}`: there is no {}; families are in that folder", family.display());
                return Err(Error::input(&from, reason));
            }
            if names.contains(&name) {
                let chain = names.join(" → ");
                return Err(Error::input(
                    &from,
                    format!("`extends: {name}` is circular: {chain} → {name}; remove one of them"),
                ));
            }
            let read = Self::read(&family)?;
            names.push(name);
            from = family;
            merged = merged.over(read);
        }
        Ok((merged, names))
    }

    fn read(path: &Path) -> Result<Self> {
        let file: Self = yaml::read(path)?;
        if path.file_stem().is_none_or(|stem| stem != file.name.as_str()) {
            return Err(Error::input(
                path,
                format!("expected the profile to have its file's name, found `name: {}`", file.name),
            ));
        }
        Ok(file)
    }

    /// The given keys, and the keys of `base` where none is given.
    fn over(self, base: Self) -> Self {
        Self {
            name: self.name,
            extends: base.extends,
            gpu: self.gpu.or(base.gpu),
            driver_names: self.driver_names.or(base.driver_names),
            architecture: self.architecture.or(base.architecture),
            compute_capability: self.compute_capability.or(base.compute_capability),
            compute_capabilities: self.compute_capabilities.or(base.compute_capabilities),
            memory: self.memory.or(base.memory),
            bandwidth: self.bandwidth.or(base.bandwidth),
            chip: self.chip.or(base.chip),
            provider: self.provider.or(base.provider),
            precision: self.precision.or(base.precision),
            tasks: self.tasks.over(base.tasks),
            streams: self.streams.or(base.streams),
            cuda_graphs: self.cuda_graphs.or(base.cuda_graphs),
            tensorrt: self.tensorrt.over(base.tensorrt),
            cuda: self.cuda.over(base.cuda),
            // Floors belong to a precision: a profile with another precision does not inherit them.
            floors: self
                .floors
                .or(base.floors.filter(|_| self.precision.is_none_or(|own| base.precision == Some(own)))),
        }
    }

    /// The profile, after everything has been inherited.
    pub(super) fn complete(self, families: Vec<String>) -> Result<Profile, String> {
        let place = if families.is_empty() {
            String::new()
        } else {
            format!(" or in the families that it extends ({})", families.join(", "))
        };
        let missing = |key: &str| format!("`{key}` is missing: expected in this file{place}");
        let device = match self.gpu {
            None => None,
            Some(gpu) => Some(Device {
                gpu,
                driver_names: self.driver_names.ok_or_else(|| missing("driver_names"))?,
                architecture: self.architecture.ok_or_else(|| missing("architecture"))?,
                compute_capability: self.compute_capability.ok_or_else(|| missing("compute_capability"))?,
                memory: self.memory.ok_or_else(|| missing("memory"))?,
                bandwidth: self.bandwidth.ok_or_else(|| missing("bandwidth"))?,
                chip: self.chip,
            }),
        };
        let precision = self.precision.ok_or_else(|| missing("precision"))?;
        let provider = self.provider.ok_or_else(|| missing("provider"))?;
        let own = device.iter().map(|device| device.compute_capability).filter(|_| provider == Provider::TensorRtRtx);
        let mut plans_for = self.compute_capabilities.unwrap_or_else(|| own.collect());
        plans_for.sort();
        plans_for.dedup();
        Ok(Profile {
            name: self.name,
            families,
            provider,
            precision,
            device,
            plans_for,
            tasks: self.tasks,
            streams: self.streams.unwrap_or(1),
            cuda_graphs: self.cuda_graphs.unwrap_or(false),
            tensorrt: self.tensorrt.complete()?,
            cuda: self.cuda.complete(),
            floors: self.floors.unwrap_or_else(|| Floors::expected_of(precision)),
        })
    }
}

impl Tasks {
    fn over(self, base: Self) -> Self {
        Self {
            upscale: self.upscale.or(base.upscale),
            vae_encoder: self.vae_encoder.or(base.vae_encoder),
            vae_decoder: self.vae_decoder.or(base.vae_decoder),
            unet: self.unet.or(base.unet),
            inpaint: self.inpaint.or(base.inpaint),
            depth: self.depth.or(base.depth),
            realtime: self.realtime.or(base.realtime),
        }
    }
}
