//! The request to an upscaler, and its statistics.

use serde::Serialize;
use tileforge_image::tile::Overlap;
use tileforge_image::{Header, RowSink, RowSource, Size};
use tileforge_session::Assigned;

use super::clock::Seconds;
use crate::error::Result;

/// A picture that has been opened.
pub struct OpenedPicture {
    /// Where it comes from.
    pub source: Box<dyn RowSource>,
    /// The sink of its enlargement, with the header of `output_of`; the depth may differ.
    pub sink: Box<dyn RowSink>,
}

/// Returns the header of a picture's enlargement: [`Upscaler::output_of`](super::Upscaler::output_of).
pub type OutputOf<'o> = &'o dyn Fn(&Header) -> Result<Header>;

/// A picture to enlarge.
pub struct UpscaleRequest(Box<dyn FnOnce(OutputOf<'_>) -> Result<OpenedPicture> + Send>);

impl std::fmt::Debug for UpscaleRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("UpscaleRequest").finish_non_exhaustive()
    }
}

impl UpscaleRequest {
    /// A picture that `open` opens when its turn comes, on another thread.
    pub fn new(open: impl FnOnce(OutputOf<'_>) -> Result<OpenedPicture> + Send + 'static) -> Self {
        Self(Box::new(open))
    }

    /// A picture that is already open. `sink` has the header of [`Upscaler::output_of`](super::Upscaler::output_of);
    /// its depth may differ.
    pub fn opened(source: impl RowSource + 'static, sink: impl RowSink + 'static) -> Self {
        Self::new(move |_| Ok(OpenedPicture { source: Box::new(source), sink: Box::new(sink) }))
    }

    pub(super) fn open(self, output_of: OutputOf<'_>) -> Result<OpenedPicture> {
        (self.0)(output_of)
    }
}

/// What a picture took.
#[derive(Clone, Debug, Serialize)]
pub struct UpscaleStatistics {
    /// Size of the output.
    pub size: Size,
    /// Number of tiles.
    pub tiles: u64,
    /// Size of each tile, in input pixels.
    pub tile: Size,
    /// How tiles overlap.
    pub overlap: Overlap,
    /// The result equals the result of the whole picture at once, up to rounding.
    pub exact: bool,
    /// PSNR in dB of such tiles against the whole picture, measured when the engine was built; `None` if it was not
    /// measured, or if the picture is one tile.
    pub tiling_psnr_db: Option<f64>,
    /// Which providers took the graph's nodes.
    pub assigned: Vec<Assigned>,
    /// Where the time went.
    pub seconds: Seconds,
}
