//! Streams of frames: raw samples, YUV4MPEG2, or the frames of a container.
//!
//! A frame is held whole while it is read. A frame of planes or of a container is held whole while it is written, too.

mod container;
mod layout;
mod planar;
mod raw;
mod reader;
mod writer;
mod y4m;
mod yuv;

pub use container::{FrameSource, FrameTarget, StoredFrame};
pub use layout::FrameLayout;
pub use planar::{ChromaLocation, ChromaSampling, PlanarFormat};
pub use raw::{RawFormat, RawFrames};
pub use reader::{Frame, FrameReader};
pub use writer::{FrameSink, FrameWriter};
pub use yuv::Matrix;
