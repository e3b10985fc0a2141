//! An engine that is ready for pictures.

use tileforge_engine::Engine;
use tileforge_image::tile::TilePlan;
use tileforge_image::{Header, Size};
use tileforge_session::Location;

use super::models::Models;
use super::options::UpscaleOptions;
use super::picture::Picture;
use super::request::{UpscaleRequest, UpscaleStatistics};
use crate::error::Result;
use crate::host::{Host, Reply, Task, Used};

/// An engine that is ready for pictures: the task of a [`Service`](crate::host::Service).
///
/// Sessions are opened when a picture first needs their tile shape.
pub struct Upscaler {
    models: Models,
}

impl std::fmt::Debug for Upscaler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Upscaler").field("options", &self.models.options).finish_non_exhaustive()
    }
}

impl Upscaler {
    /// An upscaler for an engine, on the best provider that fits this machine.
    ///
    /// # Errors
    /// As [`Ladder::new`](tileforge_session::Ladder::new) with the reasons, if no requested provider fits;
    /// [`Error::Contract`](crate::Error::Contract): the engine is for another task;
    /// [`Error::NoSuchTile`](crate::Error::NoSuchTile): it has no tiles of the requested size.
    pub fn new(host: &Host, engine: &Engine, options: UpscaleOptions) -> Result<Self> {
        Ok(Self { models: Models::new(host, engine, options)? })
    }

    /// The devices and providers of its sessions.
    pub fn location(&self) -> Location<'_> {
        self.models.network.location()
    }

    /// How a picture will be cut.
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image) for an overlap that does not go with the tile, or a picture that is too
    /// large.
    pub fn plan(&self, size: Size) -> Result<TilePlan> {
        self.models.plan(size)
    }

    /// The header of a picture's output: the same but larger, and without alpha if it is dropped.
    ///
    /// # Errors
    /// As [`Upscaler::plan`].
    pub fn output_of(&self, input: &Header) -> Result<Header> {
        self.models.output_of(input)
    }

    /// What memory allows now to run at the same time.
    pub fn used(&self) -> Used {
        self.models.used()
    }

    /// Threads of each session on the CPU; `None`: ONNX Runtime's default for one session.
    pub fn threads(&self) -> Option<usize> {
        self.models.network.threads()
    }
}

impl Task for Upscaler {
    const NAME: &'static str = "upscale";
    type Request = UpscaleRequest;
    type Output = UpscaleStatistics;

    fn concurrency(&self) -> usize {
        // Enough for pictures of one tile to fill the largest run on each stream, plus one that is decoded meanwhile.
        self.models.network.streams() * self.models.batch() + 1
    }

    fn serve(&self, request: UpscaleRequest, reply: &Reply<UpscaleStatistics>) -> Result<UpscaleStatistics> {
        Picture::make(&self.models, || request.open(&|header| self.models.output_of(header)), reply)
    }
}
