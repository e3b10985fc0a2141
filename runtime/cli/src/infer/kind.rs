//! Whether an input is a picture, a film, or another stream of frames.

use std::path::Path;

use tileforge_image::frames::RawFrames;

/// The name that stands for standard input and standard output.
const STANDARD_STREAM: &str = "-";

/// Whether a name stands for standard input or standard output.
pub(crate) fn is_standard_stream(path: &Path) -> bool {
    path == Path::new(STANDARD_STREAM)
}

/// Whether the input has frames, and is not a picture.
pub(crate) fn has_frames(input: &Path, raw: Option<RawFrames>) -> bool {
    raw.is_some() || is_y4m(input) || is_standard_stream(input) || tileforge_film::is_film(input)
}

/// Whether the input is a film, which ffmpeg reads.
pub(crate) fn is_film(input: &Path, raw: Option<RawFrames>) -> bool {
    raw.is_none() && tileforge_film::is_film(input)
}

/// A name of YUV4MPEG2 frames.
fn is_y4m(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("y4m"))
}
