//! An engine that is ready for pictures, and the threads that serve it.

use std::thread;

use crossbeam_channel::{bounded, unbounded};
use tileforge_engine::Engine;
use tileforge_image::tile::TilePlan;
use tileforge_image::{Header, Size};
use tileforge_session::{Environment, Placed};

use super::blending::Blending;
use super::decoding::Decoding;
use super::encoding::Encoding;
use super::limits::Used;
use super::models::Models;
use super::options::Options;
use super::request::{Request, Statistics};
use super::streams::Streams;
use crate::error::Result;
use crate::executor::{Intake, Task};

/// Batches that are cut ahead: one that is being filled and one that waits, so that no stream waits as long as cutting
/// is faster.
const AHEAD: usize = 1;

/// An engine that is ready for pictures: the task of an [`Executor`](crate::executor::Executor).
///
/// Sessions are opened when a picture first needs their tile shape, and kept.
pub struct Upscaler {
    models: Models,
}

impl std::fmt::Debug for Upscaler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Upscaler").field("options", &self.models.options).finish_non_exhaustive()
    }
}

impl Upscaler {
    /// An upscaler for an engine, on the best provider that fits this box.
    ///
    /// # Errors
    /// Those of [`Ladder::new`](tileforge_session::Ladder::new) with the reasons, where no provider that was asked for
    /// does; [`Error::Contract`](crate::Error::Contract): it is an engine of another task;
    /// [`Error::NoSuchTile`](crate::Error::NoSuchTile): it has no tiles of the size that was
    /// asked for.
    pub fn new(environment: &Environment, engine: &Engine, options: Options) -> Result<Self> {
        Ok(Self { models: Models::new(environment, engine, options)? })
    }

    /// Where its sessions run.
    pub fn placed(&self) -> Placed<'_> {
        self.models.ladder.placed()
    }

    /// How a picture will be cut.
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image) for an overlap that does not go with the tile, or a picture that is too
    /// large.
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

    /// What memory has allowed so far to run at the same time.
    pub fn used(&self) -> Used {
        self.models.used()
    }

    /// Threads of each session on the CPU; `None`: those that ONNX Runtime takes for one session.
    pub fn threads(&self) -> Option<usize> {
        self.models.ladder.threads()
    }
}

impl Task for Upscaler {
    const NAME: &'static str = "upscale";
    type Request = Request;
    type Output = Statistics;

    fn serve(&self, intake: &Intake<Self>) -> Result<()> {
        let failure = intake.failure();
        let streams = Streams::new(failure, &self.models);
        let (orders, ordered) = unbounded();
        let (filled, batches) = bounded(AHEAD);
        // Bounded by the tensors that there are.
        let (ran, finished) = unbounded();
        let (written, to_write) = bounded(1);
        thread::scope(|scope| {
            // A stage owns its channels, and lends them to what is watched: see `Failure::watch`.
            let (streams, models) = (&streams, &self.models);
            let mut decoding = Decoding { models, streams, failure, orders, filled, pending: None, batches: 0 };
            failure.spawn(scope, "decode", move || failure.watch("decode", || decoding.run(intake)));
            for stream in 0..models.limits.streams {
                let (batches, ran) = (batches.clone(), ran.clone());
                failure.spawn(scope, "run", move || failure.watch("run", || streams.work(stream, &batches, &ran)));
            }
            drop((batches, ran));
            let mut encoding = Encoding::new(to_write);
            failure.spawn(scope, "encode", move || failure.watch("encode", || encoding.run()));
            let mut blending = Blending::new(failure, finished, written);
            failure.spawn(scope, "blend", move || failure.watch("blend", || blending.run(&ordered)));
        });
        if failure.is_set() { Err(failure.error(Self::NAME)) } else { Ok(()) }
    }
}
