//! Pictures through an engine: decode → tile → run → blend → encode.
//!
//! Each stage has its thread; bounded channels between them carry buffers that are made once and
//! go around. Memory depends on the tile and the picture's width, never on its height.

mod cut;
mod join;
mod stages;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::engine::manifest::Provider;
use crate::engine::{Engine, Graph};
use crate::error::Result;
use crate::image::{Alpha, Depth, Header, RowSink, RowSource};
use crate::session::{Session, SessionOptions};
use crate::tile::{Blend, Overlap, Size, TilePlan};

/// How pictures are cut and run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How sessions are opened.
    pub session: SessionOptions,
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
    /// Tiles that are blended.
    pub done: u64,
    /// All tiles of the picture.
    pub total: u64,
}

/// Time that each stage was at work, in seconds. Stages run at the same time, so the parts sum to
/// more than the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Seconds {
    /// Decoding rows and cutting tiles.
    pub decode: f64,
    /// Within ONNX Runtime.
    pub run: f64,
    /// Blending tiles to rows.
    pub blend: f64,
    /// Encoding and writing.
    pub encode: f64,
    /// From the first row read to the file in its place, without opening the session.
    pub total: f64,
    /// From the start of the first tile's run to the end of the last one's.
    pub span_first_to_last_tile: f64,
}

/// What a picture took.
#[derive(Clone, Copy, Debug, Serialize)]
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
    /// Where the time went.
    pub seconds: Seconds,
}

/// An engine that is ready for pictures. Sessions are opened when a picture first needs their
/// tile shape, and kept.
pub struct Upscaler<'e> {
    engine: &'e Engine,
    options: Options,
    sessions: BTreeMap<String, Session>,
}

impl<'e> Upscaler<'e> {
    /// An upscaler for an engine.
    pub fn new(engine: &'e Engine, options: Options) -> Self {
        if options.session.provider == Provider::Cpu && engine.manifest().target.provider != Provider::Cpu {
            tracing::warn!(
                "engine {} was built for {} and runs on the CPU, far slower: this version of the runtime runs engines on the CPU only",
                engine.manifest().name,
                engine.manifest().target.provider
            );
        }
        Self { engine, options, sessions: BTreeMap::new() }
    }

    /// How a picture will be cut.
    ///
    /// # Errors
    /// [`Error::Tiling`](crate::Error::Tiling) for an overlap that does not go with the tile, or a
    /// picture that is too large.
    pub fn plan(&self, size: Size) -> Result<TilePlan> {
        self.plan_with(self.engine.graph_for(size), size)
    }

    fn plan_with(&self, graph: &Graph, size: Size) -> Result<TilePlan> {
        let interface = self.engine.manifest().images()?;
        let tile = graph.tile(interface);
        let overlap = Overlap::choose(self.options.overlap, self.options.margin, interface.receptive_field, tile)?;
        TilePlan::new(size, tile, overlap, interface.scale, interface.receptive_field)
    }

    /// What the output of a picture is: the same but larger, and without alpha where it is dropped.
    ///
    /// # Errors
    /// As [`Upscaler::plan`].
    pub fn output_of(&self, input: &Header) -> Result<Header> {
        let size = input.size.scaled(self.engine.manifest().images()?.scale)?;
        let colour = if self.options.alpha == Alpha::Drop { input.colour.without_alpha() } else { input.colour };
        Ok(Header { size, colour, ..input.clone() })
    }

    /// Upscales one picture. `writer` is for what [`Upscaler::output_of`] says, and may have
    /// another depth. `progress` is called after each tile, on the calling thread.
    ///
    /// # Errors
    /// The first error of any stage; then every stage has stopped, and nothing was written.
    pub fn upscale(
        &mut self,
        reader: impl RowSource,
        writer: impl RowSink,
        progress: impl Fn(Progress),
        cancel: &Cancel,
    ) -> Result<Statistics> {
        let graph = self.engine.graph_for(reader.header().size);
        let plan = self.plan_with(graph, reader.header().size)?;
        let interface = self.engine.manifest().images()?;
        let size = writer.header().size;
        let session = match self.sessions.entry(graph.file.clone()) {
            std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => place.insert(self.engine.session(graph, &self.options.session)?),
        };
        let started = Instant::now();
        let job = stages::Job { plan, interface, blend: self.options.blend, alpha: self.options.alpha, cancel };
        let mut seconds = job.run(reader, writer, session, progress)?;
        seconds.total = started.elapsed().as_secs_f64();
        Ok(Statistics { size, tiles: plan.count(), tile: plan.tile(), overlap: plan.overlap(), exact: plan.is_exact(), seconds })
    }

    /// How long all sessions so far took to open.
    pub fn session_time(&self) -> Duration {
        self.sessions.values().map(Session::open_time).sum()
    }
}

/// How the channels of a picture go through the model.
#[derive(Clone, Copy, Debug)]
struct Routing {
    colour: ColourRouting,
    /// `None` for a picture without alpha, or where it is dropped.
    alpha: Option<Alpha>,
}

/// How colour goes through the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColourRouting {
    /// The picture has the model's channels.
    Direct,
    /// A grey picture and a model for colours: three equal channels in, their mean out.
    Replicated,
    /// A colour picture and a model for grey: each channel on its own.
    Separate,
}

impl Routing {
    fn new(model_channels: u32, header: &Header, alpha: Alpha) -> Self {
        let colour = match (model_channels, header.colour.colour_channels()) {
            (3, 1) => ColourRouting::Replicated,
            (1, 3) => ColourRouting::Separate,
            _ => ColourRouting::Direct,
        };
        Self { colour, alpha: Some(alpha).filter(|&alpha| header.colour.has_alpha() && alpha != Alpha::Drop) }
    }

    /// Runs of the model for the colours of each tile.
    fn colour_runs(self) -> usize {
        if self.colour == ColourRouting::Separate { 3 } else { 1 }
    }

    /// Runs of the model for each tile; the last one is that of alpha, where the model enlarges it.
    fn runs(self) -> usize {
        self.colour_runs() + usize::from(self.alpha == Some(Alpha::Model))
    }

    /// Channels of the output.
    fn output_channels(self, header: &Header) -> usize {
        header.colour.colour_channels() + usize::from(self.alpha.is_some())
    }
}

/// Samples of `depth` as values of `range`; floats outside of 0 … 1 are clamped.
#[derive(Clone, Copy)]
struct Decoding {
    gain: f32,
    low: f32,
    depth: Depth,
}

impl Decoding {
    fn new([low, high]: [f32; 2], depth: Depth) -> Self {
        Self { gain: (high - low) / depth.maximum(), low, depth }
    }

    /// Channel `channel` of a row of interleaved pixels.
    fn decode(self, row: &[u8], channels: usize, channel: usize, into: &mut [f32]) {
        let value = |sample: f32| sample * self.gain + self.low;
        match self.depth {
            Depth::Eight => {
                for (into, pixel) in into.iter_mut().zip(row.chunks_exact(channels)) {
                    *into = value(f32::from(pixel[channel]));
                }
            }
            Depth::Sixteen => {
                for (into, pixel) in into.iter_mut().zip(row.chunks_exact(2 * channels)) {
                    *into = value(f32::from(u16::from_be_bytes([pixel[2 * channel], pixel[2 * channel + 1]])));
                }
            }
            Depth::Float => {
                let (samples, _) = row.as_chunks::<4>();
                for (into, pixel) in into.iter_mut().zip(samples.chunks_exact(channels)) {
                    *into = value(f32::from_ne_bytes(pixel[channel]).clamp(0.0, 1.0));
                }
            }
        }
    }
}
