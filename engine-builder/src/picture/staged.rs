//! An engine whose parts are written, in the forms that this CPU runs.

use crate::precision::emulation;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tileforge_contract::{Precision, Provider};
use tileforge_engine::digest::sha256_file;
use tileforge_engine::manifest::{Graph, Manifest, Target};
use tileforge_engine::{MANIFEST_FILE, PipelineManifest, WEIGHTS_FILE, exchange, folder};
use tileforge_files::{link_or_copy, unfinished};
use tileforge_graph::Model;

/// An engine whose parts are written, in a temporary folder.
pub(crate) struct Staged<'s> {
    /// The folder of the parts and of the files beside them.
    pub(crate) folder: &'s Path,
    /// The future manifest, without these gates.
    pub(crate) manifest: &'s PipelineManifest,
    pub(crate) parts: &'s BTreeMap<String, StagedPart<'s>>,
}

/// A part that is written.
pub(crate) struct StagedPart<'s> {
    pub(crate) manifest: &'s Manifest,
    /// Its graphs before they were converted to the part's precision, in the order of the manifest.
    pub(crate) exported: Vec<Model>,
    /// The least PSNR of the part itself.
    pub(crate) floor_db: f64,
}

impl Staged<'_> {
    /// The provider that runs the engine on this machine's processor.
    pub(super) fn provider(&self) -> Provider {
        let providers = self.parts.values().map(|part| part.manifest.target.provider);
        providers.into_iter().find(|provider| provider.is_on_processor()).unwrap_or(Provider::Cpu)
    }

    /// Writes an engine of the same parts for this CPU to `folder`. `write_part` gets a part, its name and its own
    /// folder.
    pub(super) fn write(
        &self,
        folder: &Path,
        mut write_part: impl FnMut(&StagedPart<'_>, &str, &Path) -> Result<()>,
    ) -> Result<()> {
        let mut manifest = self.manifest.clone();
        for (name, part) in self.parts {
            let to = folder.join(name);
            make_folder(&to)?;
            write_part(part, name, &to)?;
            manifest.parts.insert(name.clone(), sha256_file(&to.join(MANIFEST_FILE))?);
        }
        for name in manifest.files.keys() {
            let to = folder.join(name);
            make_folder(exchange::parent_of(&to))?;
            link(&self.folder.join(name), &to)?;
        }
        Ok(exchange::write_manifest(&manifest, folder)?)
    }
}

impl StagedPart<'_> {
    /// Writes the part in the form that a CPU runs. Returns whether its graphs are emulations. `from` is the part's
    /// own folder.
    pub(super) fn write_for_cpu(&self, from: &Path, to: &Path) -> Result<bool> {
        let provider = self.manifest.target.provider;
        if provider.is_on_processor() {
            link(&from.join(MANIFEST_FILE), &to.join(MANIFEST_FILE))?;
            self.manifest.files.keys().try_for_each(|name| link(&from.join(name), &to.join(name)))?;
            return Ok(false);
        }
        let mut emulated = false;
        let mut graphs = Vec::new();
        for Graph { file, .. } in &self.manifest.graphs {
            let graph = tileforge_graph::load(from.join(file))?;
            let emulation = emulation(&graph, provider)?;
            emulated |= emulation.is_some();
            graphs.push(emulation.unwrap_or(graph));
        }
        self.write_graphs(&graphs, from, to)?;
        Ok(emulated)
    }

    /// Writes the part with other graphs, which compute in FP32 on a CPU.
    pub(super) fn write_graphs(&self, graphs: &[Model], from: &Path, to: &Path) -> Result<()> {
        let record = |graph: &Graph| Graph { optimised: false, plan: None, ..graph.clone() };
        let records: Vec<Graph> = self.manifest.graphs.iter().map(record).collect();
        let paths: Vec<PathBuf> = records.iter().map(|record| to.join(&record.file)).collect();
        let pairs: Vec<(&Model, &Path)> = graphs.iter().zip(paths.iter().map(PathBuf::as_path)).collect();
        tileforge_graph::save_sharing_weights(&pairs, &to.join(WEIGHTS_FILE))?;
        let selftest = &self.manifest.selftest.file;
        link(&from.join(selftest), &to.join(selftest))?;
        let manifest = Manifest {
            precision: Precision::Fp32,
            islands: Vec::new(),
            target: Target {
                profile: self.manifest.target.profile.clone(),
                provider: Provider::Cpu,
                compute_capability: None,
                portable: false,
                streams: 1,
                tensorrt_rtx: BTreeMap::new(),
                tensorrt: BTreeMap::new(),
                cuda: BTreeMap::new(),
                openvino: BTreeMap::new(),
            },
            graphs: records,
            gates: Vec::new(),
            files: folder::files(to)?,
            ..self.manifest.clone()
        };
        Ok(exchange::write_manifest(&manifest, to)?)
    }
}

fn make_folder(folder: &Path) -> Result<()> {
    unfinished::create_folders(folder).map_err(|e| Error::file(folder, "create", e))
}

fn link(from: &Path, to: &Path) -> Result<()> {
    link_or_copy(from, to).map_err(|e| Error::file(to, "create", e))
}
