//! Pictures through an engine: decode → tile → run → blend → encode.
//!
//! Each stage has its thread, and the run stage one for each stream; bounded channels between them carry buffers that
//! are made once and go around. Memory depends on tile, batch, streams and the pictures' width, never on their height.
//! Tiles of consecutive pictures share batches; what comes out is blended in the order in which it went in, so that
//! neither batches nor streams change a picture.

mod clock;
mod cut;
mod join;
mod model;
mod routing;
mod run;
mod stages;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tileforge_contract::{Provider, Upscale};
use tileforge_engine::{Engine, Graph};
use tileforge_image::tile::{Blend, Overlap, TilePlan};
use tileforge_image::{Alpha, Header, RowSink, RowSource, Size};
use tileforge_session::{Assigned, Environment, Ladder, Placement, Verdict};

pub use clock::Seconds;

use crate::error::{Error, Result};
use crate::throughput::Throughput;
use model::{Limits, Model};

/// How long a stage waits before it looks whether it should stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// How pictures are cut and run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the engine runs.
    pub placement: Placement,
    /// Most images in one run; `None`: as many as the engine has graphs for.
    pub batch: Option<usize>,
    /// The tile's size in input pixels, one of the engine's; `None`: the best for each picture.
    pub tile: Option<Size>,
    /// Overlap of neighbouring tiles in input pixels; `None`: [`Overlap::automatic`].
    pub overlap: Option<u32>,
    /// Pixels thrown away at each inner border of a tile; `None`: as [`Overlap::choose`] says.
    pub margin: Option<u32>,
    /// How one tile hands over to the next.
    pub blend: Blend,
    /// How transparency is enlarged.
    pub alpha: Alpha,
}

/// A flag that stops a run between two tiles. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How far a picture has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The picture's number, from 0.
    pub picture: usize,
    /// Tiles that are blended.
    pub done: u64,
    /// All tiles of the picture.
    pub total: u64,
}

/// What a picture took.
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// Size of the output.
    pub size: Size,
    /// Number of tiles.
    pub tiles: u64,
    /// Size of each tile, in input pixels.
    pub tile: Size,
    /// How tiles overlap.
    pub overlap: Overlap,
    /// The result equals that of the whole picture at once, up to rounding.
    pub exact: bool,
    /// Which providers took the graph's nodes.
    pub assigned: Vec<Assigned>,
    /// Where the time went.
    pub seconds: Seconds,
}

/// What the calling thread is told during a run.
#[derive(Debug)]
pub enum Event {
    /// A picture has begun, or one more of its tiles is blended.
    Progress(Progress),
    /// The picture of this number is in its place, or has failed, which leaves the others alone.
    Finished(usize, Result<Statistics>),
}

/// A picture that has been opened.
pub struct Open {
    /// Where it comes from.
    pub source: Box<dyn RowSource>,
    /// Where its enlargement goes; for what `output_of` said, or for another depth.
    pub sink: Box<dyn RowSink>,
}

/// What [`Pictures`] have next.
pub enum Next {
    /// A picture; an error is of this picture alone.
    Picture(Result<Open>),
    /// Nothing yet, after a little while: what there is so far goes on its way, and the question comes again.
    NotYet,
    /// Nothing more.
    End,
}

/// Pictures to make, one after the other.
pub trait Pictures: Send {
    /// Opens the next picture; `output_of` says what its enlargement is.
    ///
    /// Called on another thread, while earlier pictures are still on their way. A run can only be stopped between two
    /// calls, so whoever waits for others says [`Next::NotYet`] after some milliseconds.
    fn next(&mut self, output_of: &dyn Fn(&Header) -> Result<Header>) -> Next;
}

/// One picture that is open already.
impl Pictures for Option<Open> {
    fn next(&mut self, _: &dyn Fn(&Header) -> Result<Header>) -> Next {
        self.take().map_or(Next::End, |open| Next::Picture(Ok(open)))
    }
}

/// What memory allowed to run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Used {
    /// Sessions.
    pub streams: usize,
    /// Most images in one run.
    pub batch: usize,
}

/// An engine that is ready for pictures. Sessions are opened when a picture first needs their tile shape, and kept.
pub struct Upscaler {
    models: Models,
}

impl Upscaler {
    /// An upscaler for an engine, on the best provider that fits this box.
    ///
    /// # Errors
    /// those of [`Ladder::new`] with the reasons, where no provider that was asked for does; [`Error::Manifest`]: it is no
    /// upscaler; [`Error::NoSuchTile`]: it has no tiles of the size that was asked for; those of
    /// [`crate::onnxruntime::load`].
    pub fn new(environment: &Environment, engine: &Engine, options: Options) -> Result<Self> {
        let manifest = engine.manifest();
        let interface = Upscale::of(&manifest.contract)?;
        let shapes = manifest.graphs.iter().map(|graph| Ok((graph.clone(), TileShape::of(graph, &interface)?)));
        let shapes = shapes.collect::<Result<Vec<_>>>()?;
        let largest = shapes.iter().map(|(_, shape)| shape.batch).max().unwrap_or(1);
        let ladder = Arc::new(Ladder::new(environment, engine, options.placement.clone())?);
        let limits = Limits { streams: ladder.streams(), batch: options.batch.unwrap_or(largest).max(1) };
        let tiles = tiles(&shapes, options.tile, &ladder)?;
        let device = options.placement.gpus()[0];
        let models = Models {
            scale: u32::try_from(interface.scale).unwrap_or(u32::MAX),
            shapes,
            interface,
            options,
            limits,
            ladder,
            tiles,
            throughput: Throughput::load(environment, engine, device),
            open: Mutex::default(),
        };
        Ok(Self { models })
    }

    /// How the engine fits this box.
    pub fn verdict(&self) -> &Verdict {
        self.models.ladder.verdict()
    }

    /// The provider that sessions are opened on: the verdict's, or one below it where that could not open one.
    pub fn provider(&self) -> Provider {
        self.models.ladder.provider()
    }

    /// How a picture will be cut.
    ///
    /// # Errors
    /// [`Error::Tiling`] for an overlap that does not go with the tile, or a picture that is too large.
    pub fn plan(&self, size: Size) -> Result<TilePlan> {
        self.models.plan(size)
    }

    /// What the output of a picture is: the same but larger, and without alpha where it is dropped.
    ///
    /// # Errors
    /// As [`Upscaler::plan`].
    pub fn output_of(&self, input: &Header) -> Result<Header> {
        self.models.output_of(input)
    }

    /// Sends pictures through the engine. Each has its own result among the `events`, which come in the order of the
    /// pictures, on the calling thread; this returns what memory allowed to run at the same time.
    ///
    /// # Errors
    /// What ends the run: the engine fails, or [`Error::Cancelled`]. Pictures that have not been told of as finished
    /// are not written.
    pub fn run(&mut self, pictures: impl Pictures, events: impl FnMut(Event), cancel: &Cancel) -> Result<Used> {
        let Limits { streams, batch } = stages::run(&self.models, self.models.limits, pictures, events, cancel)?;
        Ok(Used { streams, batch })
    }

    /// Enlarges one picture. `sink` is for what [`Upscaler::output_of`] says, and may have another depth. `progress` is
    /// called after each tile, on the calling thread.
    ///
    /// # Errors
    /// The first error of any stage; then every stage has stopped, and the sink has not been finished.
    pub fn upscale(
        &mut self,
        source: impl RowSource + 'static,
        sink: impl RowSink + 'static,
        progress: impl Fn(Progress),
        cancel: &Cancel,
    ) -> Result<Statistics> {
        let mut result = Err(Error::Internal("pipeline"));
        let one = Some(Open { source: Box::new(source), sink: Box::new(sink) });
        let event = |event| match event {
            Event::Progress(made) => progress(made),
            Event::Finished(_, finished) => result = finished,
        };
        self.run(one, event, cancel)?;
        result
    }

    /// Threads of each session on the CPU; `None`: those that ONNX Runtime takes for one session.
    pub fn threads(&self) -> Option<usize> {
        self.models.ladder.threads()
    }

    /// How long all sessions so far took to open.
    pub fn session_time(&self) -> Duration {
        self.models.ladder.opening()
    }
}

/// The tile of a graph, and how many of them it takes in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TileShape {
    tile: Size,
    batch: usize,
}

impl TileShape {
    fn of(graph: &Graph, interface: &Upscale) -> Result<Self> {
        let sizes = graph.sizes(&interface.contract())?;
        let side = |size: usize| u32::try_from(size * interface.size_multiple).unwrap_or(u32::MAX);
        Ok(Self { tile: Size { width: side(sizes.width), height: side(sizes.height) }, batch: sizes.batch })
    }
}

/// An engine's tile shapes, and those that have been opened.
struct Models {
    interface: Upscale,
    /// Output pixels for each input pixel, along each axis.
    scale: u32,
    /// The engine's graphs, each with its tile and batch.
    shapes: Vec<(Graph, TileShape)>,
    options: Options,
    limits: Limits,
    ladder: Arc<Ladder>,
    /// Those that pictures may be cut into: the one that was asked for, or all that memory may hold. Decided once, so
    /// that it is the same for all pictures.
    tiles: Vec<Size>,
    /// By which tiles are chosen, where all were measured.
    throughput: Throughput,
    open: Mutex<Vec<Arc<Model>>>,
}

impl Models {
    fn interface(&self) -> &Upscale {
        &self.interface
    }

    /// Those that have sessions.
    fn opened(&self) -> MutexGuard<'_, Vec<Arc<Model>>> {
        self.open.lock()
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn output_of(&self, input: &Header) -> Result<Header> {
        let size = input.size.scaled(self.scale)?;
        let colour = if self.options.alpha == Alpha::Drop { input.colour.without_alpha() } else { input.colour };
        Ok(Header { size, colour, ..input.clone() })
    }

    fn plan(&self, size: Size) -> Result<TilePlan> {
        let tiles = &self.tiles;
        let plan = |tile: &Size| {
            let overlap = Overlap::choose(
                self.options.overlap,
                self.options.margin,
                self.interface.receptive_field.radius(),
                *tile,
            )?;
            TilePlan::new(size, *tile, overlap, self.scale, self.interface.receptive_field.radius())
        };
        let seconds = self.throughput.of(tiles, self.ladder.provider());
        let seconds = (0..tiles.len()).map(|tile| seconds.as_ref().map(|seconds| seconds[tile]));
        Ok(TilePlan::best(tiles.iter().map(plan).zip(seconds))?)
    }

    /// What runs tiles of a size, opened if it has not been.
    fn of_tile(&self, tile: Size) -> Result<Arc<Model>> {
        let mut open = self.opened();
        if let Some(model) = open.iter().find(|model| model.tile == tile) {
            return Ok(model.clone());
        }
        let graphs = self.shapes.iter().filter(|(_, shape)| shape.tile == tile).cloned().collect();
        let model = Arc::new(Model::open(self.ladder.clone(), self.interface(), graphs, self.limits)?);
        open.push(model.clone());
        Ok(model)
    }
}

/// The tiles that pictures may be cut into.
fn tiles(shapes: &[(Graph, TileShape)], wanted: Option<Size>, ladder: &Ladder) -> Result<Vec<Size>> {
    let (mut all, mut held): (Vec<Size>, Vec<Size>) = (Vec::new(), Vec::new());
    for (graph, TileShape { tile, .. }) in shapes {
        let tile = *tile;
        if !all.contains(&tile) {
            all.push(tile);
        }
        if !held.contains(&tile) && ladder.may_hold(graph) {
            held.push(tile);
        }
    }
    match wanted {
        Some(wanted) if all.contains(&wanted) => Ok(vec![wanted]),
        Some(wanted) => Err(Error::NoSuchTile { wanted, known: all }),
        // Where none seems to be held, the attempt will tell.
        None if held.is_empty() => Ok(all),
        None => Ok(held),
    }
}
