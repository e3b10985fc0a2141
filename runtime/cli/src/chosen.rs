//! The engine that a command is about, where it runs, and how.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tileforge_engine::{Bundle, Engine, Pipeline, PublicKey, Result};
use tileforge_image::tile::Blend;
use tileforge_image::{Alpha, Size};
use tileforge_runtime::upscale::UpscaleOptions;
use tileforge_session::{Placement, SessionOptions};
use tileforge_terminal::{Placing, RequiredSignature, whole};

use super::failure::Failure;

/// The engine, and whose it must be; shared by the commands that open one.
#[derive(clap::Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct Chosen {
    /// The engine's directory; or its name, or PROFILE/NAME, in `engines/` or the user's data folder: of several profiles
    /// the one that fits this machine; or oci://HOST/NAME:TAG for the one in a registry that fits this machine, which is kept
    /// in the user's cache.
    #[arg(long = "engine", value_name = "ENGINE")]
    pub(crate) directory: PathBuf,
    #[command(flatten)]
    meant: Meant,
}

impl Chosen {
    /// The engine as it was named.
    pub(crate) fn named(&mut self) -> Named<'_> {
        Named { paths: vec![&mut self.directory], signed: &self.meant.signed }
    }

    /// Opens it after checking its signature and files. It must be one network: an engine of one network, or a part.
    pub(crate) fn open(&self) -> Result<Engine> {
        self.meant.open(&self.directory)
    }

    /// Opens it with all its parts, or the part that was named, as [`Chosen::open`] does.
    pub(crate) fn open_bundle(&self) -> Result<Bundle> {
        self.meant.open_bundle(&self.directory)
    }
}

/// The same for a command that finds an engine where none is named.
#[derive(clap::Args)]
pub(crate) struct ChosenOrFound {
    /// The engine's directory; or the name of an engine in the folder engines/ here, or in the user's folder: of several
    /// profiles the one that fits this machine; or oci://HOST/NAME:TAG for the one in a registry that fits this machine,
    /// which is kept in the user's cache [default: the one for this machine, see below].
    #[arg(long = "engine", value_name = "DIR")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    meant: Meant,
}

impl ChosenOrFound {
    /// Uses the engine that `find` returns if none is named.
    pub(crate) fn or_find(&mut self, find: impl FnOnce() -> Result<PathBuf, Failure>) -> Result<(), Failure> {
        if self.directory.is_none() {
            self.directory = Some(find()?);
        }
        Ok(())
    }

    /// The engine as it was named or found.
    pub(crate) fn named(&mut self) -> Named<'_> {
        Named { paths: self.directory.as_mut().into_iter().collect(), signed: &self.meant.signed }
    }

    /// Its directory.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or(Path::new(""))
    }

    /// Opens it as [`Chosen::open`] does.
    pub(crate) fn open(&self) -> Result<Engine> {
        self.meant.open(self.directory())
    }

    /// Opens it with all its parts, or the part that was named, as [`Chosen::open_bundle`] does.
    pub(crate) fn open_bundle(&self) -> Result<Bundle> {
        self.meant.open_bundle(self.directory())
    }
}

/// What of an engine is meant, and whose it must be.
#[derive(clap::Args)]
struct Meant {
    /// The part to use of an engine that has several, such as decoder: `runtime inspect` lists them.
    #[arg(long, value_name = "NAME")]
    part: Option<String>,
    #[command(flatten)]
    signed: Signed,
}

impl Meant {
    fn open(&self, directory: &Path) -> Result<Engine> {
        match &self.part {
            None => self.signed.open(directory),
            Some(part) => Pipeline::open_part(directory, part, self.signed.key()?.as_ref()),
        }
    }

    fn open_bundle(&self, directory: &Path) -> Result<Bundle> {
        match &self.part {
            None => self.signed.open_bundle(directory),
            Some(_) => self.open(directory).map(Bundle::Engine),
        }
    }
}

/// The engines that a command's arguments name, and the required signature.
pub(crate) struct Named<'a> {
    pub(crate) paths: Vec<&'a mut PathBuf>,
    pub(crate) signed: &'a Signed,
}

/// Whose engines must be; shared by all commands that open any.
#[derive(clap::Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct Signed {
    #[command(flatten)]
    required: RequiredSignature,
}

impl Signed {
    /// Opens an engine after checking its signature and files.
    pub(crate) fn open(&self, directory: &Path) -> Result<Engine> {
        Engine::open_of(directory, self.key()?.as_ref())
    }

    /// Opens an engine of either kind, in the same way.
    pub(crate) fn open_bundle(&self, directory: &Path) -> Result<Bundle> {
        Bundle::open_of(directory, self.key()?.as_ref())
    }

    /// Opens the engine of a diffusion pipeline, in the same way.
    pub(crate) fn open_diffusion(&self, directory: &Path) -> Result<Pipeline, Failure> {
        match self.open_bundle(directory)? {
            Bundle::Pipeline(pipeline) => Ok(pipeline),
            Bundle::Engine(engine) => Err(Failure::Usage(format!(
                "{}: expected the engine of a diffusion pipeline, found one for {}",
                directory.display(),
                engine.manifest().contract.task
            ))),
        }
    }

    pub(crate) fn key(&self) -> Result<Option<PublicKey>> {
        self.required.key.as_deref().map(PublicKey::read).transpose()
    }

    /// Whether a key was given.
    pub(crate) fn is_required(&self) -> bool {
        self.required.key.is_some()
    }
}

/// Where an engine runs, from the options of the commands that run one.
pub(crate) fn placement(placing: &Placing) -> Placement {
    let session = SessionOptions { strict: placing.strict, threads: placing.threads, ..SessionOptions::default() };
    let streams = placing.streams.map(usize::from);
    Placement { provider: placing.provider.0, streams, devices: placing.devices.clone(), session }
}

/// How pictures go through it; shared by the commands that send some.
#[derive(clap::Args)]
#[command(next_help_heading = "Tiles")]
pub(crate) struct Running {
    /// Pixels that neighbouring tiles share [default: by the model's receptive field].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(..))]
    overlap: Option<u32>,
    /// Pixels thrown away at each inner border of a tile [default: by the model's receptive field].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(..))]
    margin: Option<u32>,
    /// How one tile hands over to the next: hann, cosine, linear or none [default: hann].
    #[arg(long, value_name = "CURVE", value_parser = str::parse::<Blend>)]
    blend: Option<Blend>,
    /// How transparency is enlarged: bicubic, model (as a grey picture through the engine) or drop.
    #[arg(long, value_name = "HOW", default_value = "bicubic", value_parser = str::parse::<Alpha>)]
    alpha: Alpha,
    /// The engine's tile to use, WIDTHxHEIGHT, or auto: the one with the least to compute. Where the engine takes any
    /// size, tiles have at most as many pixels as this.
    #[arg(long, value_name = "TILE", default_value = "auto", value_parser = tile)]
    tile: TileChoice,
    /// Images in one run, as many as one of the engine's graphs takes [default: the most]. What is left over runs in
    /// smaller pieces.
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=64))]
    batch: Option<u16>,
    #[command(flatten)]
    placing: Placing,
}

#[derive(Clone, Copy)]
enum TileChoice {
    Auto,
    Only(Size),
}

fn tile(text: &str) -> Result<TileChoice, String> {
    match text {
        "auto" => Ok(TileChoice::Auto),
        _ => text.parse().map(TileChoice::Only).map_err(|_: String| "expected auto, or a size such as 256x256".into()),
    }
}

impl Running {
    /// The first given option about tiles, to be refused by engines that do not cut pictures.
    pub(crate) fn tiling(&self) -> Option<&'static str> {
        let overlap = self.overlap.map(|_| "--overlap");
        overlap.or_else(|| self.tiling_of_networks())
    }

    /// The same without `--overlap`, which pipelines have for their autoencoders.
    pub(crate) fn tiling_of_networks(&self) -> Option<&'static str> {
        let margin = self.margin.map(|_| "--margin");
        margin.or(self.blend.map(|_| "--blend")).or(self.batch.map(|_| "--batch"))
    }

    /// The requested tile.
    pub(crate) fn tile(&self) -> Option<Size> {
        match self.tile {
            TileChoice::Auto => None,
            TileChoice::Only(size) => Some(size),
        }
    }

    fn blend(&self) -> Blend {
        self.blend.unwrap_or_default()
    }

    /// The options that change an output, by their names. The device is not among them: it changes only rounding.
    pub(crate) fn making(&self) -> BTreeMap<String, String> {
        let all = [
            ("overlap", format!("{:?}", self.overlap)),
            ("margin", format!("{:?}", self.margin)),
            ("blend", format!("{:?}", self.blend())),
            ("alpha", format!("{:?}", self.alpha)),
            ("tile", format!("{:?}", self.tile())),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    pub(crate) fn options(&self) -> UpscaleOptions {
        UpscaleOptions {
            placement: placement(&self.placing),
            batch: self.batch.map(usize::from),
            tile: self.tile(),
            overlap: self.overlap,
            margin: self.margin,
            blend: self.blend(),
            alpha: self.alpha,
        }
    }
}
