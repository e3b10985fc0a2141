//! Building engines of several parts.

use crate::build::{Built, Order, Prepared, check_output, producer};
use crate::gate;
use crate::picture::{Picture, Staged, StagedPart};
use crate::{Error, PartOrder, Plans, Progress, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tileforge_engine::digest::{FileDigest, sha256, sha256_file};
use tileforge_engine::manifest::{Recipe, SCHEMA};
use tileforge_engine::share::share_files;
use tileforge_engine::{Diffusion, MANIFEST_FILE, PipelineManifest, Restoration, exchange};
use tileforge_files::{TEXT_MAXIMUM_BYTES, unfinished};
use tileforge_session::Environment;

/// The files and facts beside the parts of an engine.
#[derive(Clone, Debug, Default)]
pub struct PipelineExtras {
    /// The facts about a diffusion pipeline beside its networks.
    pub diffusion: Option<Diffusion>,
    /// The facts about a film-restoring pipeline beside its networks.
    pub restoration: Option<Restoration>,
    /// The files, by their names in the engine: `NAME` or `FOLDER/NAME`.
    pub files: BTreeMap<String, PipelineFile>,
}

impl PipelineExtras {
    /// Whether the parts make pictures together.
    fn makes_pictures(&self) -> bool {
        self.diffusion.is_some() || self.restoration.is_some()
    }
}

/// A file beside the parts of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineFile {
    /// A copy of a file.
    Copy(PathBuf),
    /// A file with new content, derived from another file.
    Made {
        /// The other file.
        of: PathBuf,
        /// The new content.
        bytes: Vec<u8>,
    },
}

impl PipelineFile {
    /// The source file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Copy(path) | Self::Made { of: path, .. } => path,
        }
    }
}

/// A written engine of several parts.
#[derive(Debug)]
pub struct BuiltPipeline {
    /// The engine directory.
    pub directory: PathBuf,
    /// The manifest.
    pub manifest: PipelineManifest,
    /// The parts by name.
    pub parts: BTreeMap<String, Built>,
    /// The measurement of the picture that all parts make together.
    pub picture: Option<Picture>,
    /// Bytes of all stored files.
    pub bytes: u64,
    /// Bytes of files that are equal to a file of another part, and are stored only once.
    pub shared: u64,
}

/// Builds an engine of several parts at `directory`, as [`build`](crate::build) does with one. `recipe` is
/// recorded for another build.
///
/// All graphs are made before any is measured. If the parts make pictures together, they make one at the end, which
/// has its own gate. Files that are equal in several parts, such as weights, are stored once where the file system has
/// hard links.
///
/// # Errors
/// [`Error::Part`] with the reasons of [`build`](crate::build), or a file cannot be written. Then nothing is left
/// behind, and an older engine stays.
pub fn build_pipeline(
    environment: &Environment,
    progress: &dyn Progress,
    parts: &BTreeMap<String, PartOrder<'_>>,
    extras: &PipelineExtras,
    recipe: Option<Box<Recipe>>,
    plans: &Plans,
    directory: &Path,
) -> Result<BuiltPipeline> {
    let name = tileforge_engine::engine_name(directory)?.to_owned();
    let orders: Vec<Order<'_>> = parts
        .iter()
        .map(|(name, PartOrder { source, profile, options })| Order {
            name: name.clone(),
            recipe: None,
            source,
            profile,
            options,
        })
        .collect();
    let read: Vec<PathBuf> = extras.files.values().map(|file| file.path().to_owned()).collect();
    check_output(&orders.iter().collect::<Vec<_>>(), &read, directory)?;
    let mut prepared = Vec::new();
    for order in orders {
        let name = order.name.clone();
        let progress = OfPart { part: &name, progress };
        let part = Prepared::new(environment, &progress, order, plans).map_err(in_part(&name))?;
        prepared.push((name, part));
    }
    let parent = exchange::place_for(directory)?;
    let staging = exchange::temporary(parent)?;
    let (mut built, mut digests, mut shared) = (BTreeMap::new(), BTreeMap::new(), 0);
    let mut exported = BTreeMap::new();
    for (name, prepared) in prepared {
        if extras.makes_pictures() {
            exported.insert(name.clone(), prepared.exported());
        }
        let folder = staging.path().join(&name);
        let place = |error: Error| error.relocated(staging.path(), directory);
        fs::create_dir(&folder).map_err(|e| place(Error::file(&folder, "create", e)))?;
        let progress = OfPart { part: &name, progress };
        let part = prepared.write(environment, &progress, &folder, parent, &directory.join(&name));
        let part = part.map_err(in_part(&name))?;
        // Files are shared with the parts that are already there.
        shared += share_files(&folder, staging.path()).map_err(|error| place(error.into()))?;
        digests.insert(name.clone(), sha256_file(&folder.join(MANIFEST_FILE)).map_err(|error| place(error.into()))?);
        built.insert(name, part);
    }
    let place = |error: Error| error.relocated(staging.path(), directory);
    let written = |(name, file): (&String, &PipelineFile)| Ok((name.clone(), write(file, &staging.path().join(name))?));
    let files = extras.files.iter().map(written).collect::<Result<BTreeMap<_, _>>>().map_err(place)?;
    let mut manifest = PipelineManifest {
        schema: SCHEMA,
        name,
        producer: producer(),
        parts: digests,
        recipe,
        diffusion: extras.diffusion.clone(),
        restoration: extras.restoration.clone(),
        gates: Vec::new(),
        files,
    };
    let picture = if extras.makes_pictures() {
        let scratch = exchange::temporary(parent)?;
        // All three are in the order of the parts' names.
        let each = built.iter().zip(exported.into_values()).zip(parts.values());
        let staged_parts = each.map(|(((name, part), exported), order)| {
            let floor_db = order.profile.floors.psnr_db;
            (name.clone(), StagedPart { manifest: &part.manifest, exported, floor_db })
        });
        let staged_parts = staged_parts.collect();
        let staged = Staged { folder: staging.path(), manifest: &manifest, parts: &staged_parts };
        let picture = Picture::measure(environment, progress, &staged, scratch.path());
        let picture = picture.map_err(|error| place(error).relocated(scratch.path(), directory))?;
        gate::check(&picture.gates.iter().collect::<Vec<_>>())?;
        manifest.gates.clone_from(&picture.gates);
        Some(picture)
    } else {
        None
    };
    exchange::write_manifest(&manifest, staging.path()).map_err(|error| place(error.into()))?;
    exchange::put_in_place(staging, directory)?;
    let of_files = manifest.files.values().map(|file| file.bytes).sum::<u64>();
    let bytes = (built.values().map(|part| part.bytes).sum::<u64>() + of_files).saturating_sub(shared);
    Ok(BuiltPipeline { directory: directory.to_owned(), manifest, parts: built, picture, bytes, shared })
}

/// Writes a small file, and returns its digest.
fn write(file: &PipelineFile, to: &Path) -> Result<FileDigest> {
    let bytes = match file {
        PipelineFile::Made { bytes, .. } => Cow::Borrowed(bytes),
        PipelineFile::Copy(from) => {
            Cow::Owned(tileforge_files::read(from, TEXT_MAXIMUM_BYTES).map_err(|e| Error::file(from, "read", e))?)
        }
    };
    let folder = exchange::parent_of(to);
    unfinished::create_folders(folder).map_err(|e| Error::file(folder, "create", e))?;
    fs::write(to, &*bytes).map_err(|e| Error::file(to, "write", e))?;
    Ok(FileDigest { bytes: bytes.len() as u64, sha256: sha256(&bytes) })
}

fn in_part(part: &str) -> impl Fn(Error) -> Error {
    let part = part.to_owned();
    move |source| Error::Part { part: part.clone(), source: Box::new(source) }
}

/// Progress of one part.
struct OfPart<'p> {
    part: &'p str,
    progress: &'p dyn Progress,
}

impl Progress for OfPart<'_> {
    fn begin(&self, stage: &str, steps: usize) {
        self.progress.begin(&format!("{}: {stage}", self.part), steps);
    }

    fn step(&self) {
        self.progress.step();
    }

    fn note(&self, text: &str) {
        self.progress.note(&format!("{}: {text}", self.part));
    }
}
