//! Streams of frames: raw samples, or YUV4MPEG2.
//!
//! A frame is held whole while it is read. A YUV4MPEG2 frame is held whole while it is written, too.

mod raw;
mod reader;
mod writer;
mod y4m;
mod yuv;

pub use raw::{RawFormat, RawFrames};
pub use reader::{Frame, FrameReader};
pub use writer::{FrameSink, FrameWriter};
pub use yuv::Matrix;

use y4m::StreamHeader;

/// How a stream stores its frames.
#[derive(Clone, Debug)]
enum Layout {
    Raw(RawFormat),
    Y4m(StreamHeader, Matrix),
}
