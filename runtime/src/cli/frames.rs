//! `runtime infer` on a stream of frames.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use runtime::image::frames::{FrameReader, FrameWriter};
use runtime::image::{Format, Limits};
use runtime::pipeline::{Cancel, Progress, Seconds, Statistics, Upscaler};
use runtime::{Error, Result};

use super::Failure;
use super::infer::{Arguments, bar};
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

/// Upscales frame by frame; gives the sum of all frames, and their number.
pub(super) fn upscale(upscaler: &mut Upscaler<'_>, assignment: &Assignment, arguments: &Arguments) -> Result<(Statistics, u64)> {
    let limits = Limits { megapixels: arguments.max_megapixels, ..Limits::default() };
    let mut reader = open(&assignment.input, arguments, &limits)?;
    let mut header = upscaler.output_of(reader.header())?;
    header.depth = arguments.bit_depth.unwrap_or(header.depth);
    let mut writer = if is_standard_stream(&assignment.output) {
        FrameWriter::to_stream(Box::new(io::stdout()), Path::new("standard output"), &reader, header)?
    } else {
        FrameWriter::create(&assignment.output, &reader, header)?
    };
    let bar = bar("");
    let mut sum: Option<Statistics> = None;
    let mut frames = 0;
    let upscaled = loop {
        let frame = match reader.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        frames += 1;
        bar.set_message(format!("frame {frames}"));
        let progress = |Progress { done, total }| {
            bar.set_length(total);
            bar.set_position(done);
        };
        let sink = writer.next_frame(&frame);
        match upscaler.upscale(frame, sink, progress, &Cancel::new()) {
            Ok(statistics) => sum = Some(sum.map_or(statistics, |sum| added(sum, statistics))),
            Err(error) => break Err(error),
        }
    };
    bar.finish_and_clear();
    upscaled?;
    writer.finish()?;
    // A stream without frames is an error of the reader.
    sum.map(|sum| (sum, frames)).ok_or(Error::Internal("frames"))
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

fn added(sum: Statistics, next: Statistics) -> Statistics {
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
