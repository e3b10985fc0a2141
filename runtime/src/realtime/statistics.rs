//! What a stream of frames took.

use serde::Serialize;
use tileforge_image::Size;
use tileforge_session::Assigned;

/// What a stream took.
#[derive(Clone, Debug, Serialize)]
pub struct StreamStatistics {
    /// Size of the frames.
    pub size: Size,
    /// Size in the network.
    pub network_size: Size,
    /// Frames of the stream.
    pub frames: u64,
    /// Frames that were not computed, because they were late.
    pub dropped: u64,
    /// Frames that were computed, and finished after the next one was due.
    pub late: u64,
    /// Runs of the network for each frame.
    pub runs_per_frame: usize,
    /// Computed frames per second, from the first frame to the last result.
    pub frames_per_second: f64,
    /// The median time of a computed frame, from the network's input to its output, in milliseconds.
    pub p50_ms: f64,
    /// The time that 95 % of the computed frames do not exceed, in milliseconds.
    pub p95_ms: f64,
    /// The time that 99 % do not exceed, in milliseconds.
    pub p99_ms: f64,
    /// Which providers took the graph's nodes.
    pub assigned: Vec<Assigned>,
    /// Seconds from the first frame to the last result.
    pub seconds: f64,
}
