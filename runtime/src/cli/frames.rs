//! `runtime infer` on a stream of frames.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use runtime::image::frames::{FrameReader, FrameWriter};
use runtime::image::{Format, Header, Limits};
use runtime::pipeline::{Open, Seconds, Statistics};
use runtime::{Error, Result};

use super::Failure;
use super::infer::Arguments;
use super::plan::{Assignment, is_standard_stream};

/// The input is a stream of frames, not a picture.
pub(super) fn are_in(assignment: &Assignment, arguments: &Arguments) -> bool {
    let named = assignment.input.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("y4m"));
    arguments.raw.is_some() || named || is_standard_stream(&assignment.input)
}

/// Refuses options and names that do not go with what the input is.
pub(super) fn check(assignment: &Assignment, arguments: &Arguments) -> Result<(), Failure> {
    let usage = |problem: &str| Err(Failure::Usage(problem.into()));
    let (frames, y4m) = (are_in(assignment, arguments), arguments.raw.is_none());
    if !frames && is_standard_stream(&assignment.output) {
        return usage("pictures go to files; only frames (--raw, .y4m) go to standard output");
    }
    if frames && Format::of_name(&assignment.output).is_ok() {
        return usage("frames become a stream; expected - or a name such as large.y4m for --output, found that of a picture");
    }
    if frames && arguments.srgb {
        return usage("--srgb is for pictures with a colour profile, and frames have none");
    }
    if frames && y4m && arguments.bit_depth.is_some() {
        return usage("--bit-depth does not go with .y4m frames, which keep their colour space");
    }
    if arguments.matrix.is_some() && !(frames && y4m) {
        return usage("--matrix is for .y4m frames");
    }
    Ok(())
}

/// A stream that is being read, and that which its frames become.
pub(super) struct Stream {
    reader: FrameReader,
    pub(super) writer: FrameWriter,
}

impl Stream {
    /// Opens both.
    pub(super) fn open(assignment: &Assignment, arguments: &Arguments, output_of: &dyn Fn(&Header) -> Result<Header>) -> Result<Self> {
        let limits = Limits { megapixels: arguments.max_megapixels, ..Limits::default() };
        let reader = open(&assignment.input, arguments, &limits)?;
        let mut header = output_of(reader.header())?;
        header.depth = arguments.bit_depth.unwrap_or(header.depth);
        let writer = if is_standard_stream(&assignment.output) {
            FrameWriter::to_stream(Box::new(io::stdout()), Path::new("standard output"), &reader, header)?
        } else {
            FrameWriter::create(&assignment.output, &reader, header)?
        };
        Ok(Self { reader, writer })
    }

    /// The next frame; `None` after the last one.
    pub(super) fn next(&mut self) -> Result<Option<Open>> {
        let Some(frame) = self.reader.next_frame()? else { return Ok(None) };
        let sink = Box::new(self.writer.frame(&frame));
        Ok(Some(Open { source: Box::new(frame), sink }))
    }
}

fn open(path: &Path, arguments: &Arguments, limits: &Limits) -> Result<FrameReader> {
    let (input, name): (Box<dyn Read + Send>, PathBuf) = if is_standard_stream(path) {
        (Box::new(BufReader::new(io::stdin())), "standard input".into())
    } else {
        let file = File::open(path).map_err(|source| Error::File { path: path.to_owned(), action: "open", source })?;
        (Box::new(BufReader::new(file)), path.to_owned())
    };
    match arguments.raw {
        Some(frames) => FrameReader::raw(input, &name, frames, limits),
        None => FrameReader::y4m(input, &name, arguments.matrix, limits),
    }
}

/// The statistics of a stream: those of its frames together.
pub(super) fn added(sum: Statistics, next: &Statistics) -> Statistics {
    let (one, two) = (sum.seconds, next.seconds);
    let seconds = Seconds {
        decode: one.decode + two.decode,
        run: one.run + two.run,
        blend: one.blend + two.blend,
        encode: one.encode + two.encode,
        total: one.total + two.total,
        span_first_to_last_tile: one.span_first_to_last_tile + two.span_first_to_last_tile,
    };
    Statistics { tiles: sum.tiles + next.tiles, seconds, ..sum }
}
