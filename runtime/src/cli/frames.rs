//! `runtime infer` on a stream of frames.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use tileforge_runtime::image::frames::{Frame, FrameReader, FrameWriter, Matrix, RawFrames};
use tileforge_runtime::image::{Format, Header, Limits};
use tileforge_runtime::pipeline::{Open, Seconds, Statistics};
use tileforge_runtime::{Error, Result};

use super::Failure;
use super::infer::Arguments;
use super::plan::{Assignment, is_standard_stream};

/// How long a frame may take before the run is told that there is none yet.
const PATIENCE: Duration = Duration::from_millis(50);

/// The input is a stream of frames, not a picture.
pub(super) fn are_in(input: &Path, raw: Option<RawFrames>) -> bool {
    raw.is_some() || is_y4m(input) || is_standard_stream(input)
}

/// A name of YUV4MPEG2 frames.
pub(super) fn is_y4m(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("y4m"))
}

/// Refuses options and names that do not go with what the input is.
pub(super) fn check(assignment: &Assignment, arguments: &Arguments) -> Result<(), Failure> {
    let usage = |problem: &str| Err(Failure::Usage(problem.into()));
    let (frames, y4m) = (are_in(&assignment.input, arguments.raw), arguments.raw.is_none());
    if !frames && is_standard_stream(&assignment.output) {
        return usage("pictures go to files; only frames (--raw, .y4m) go to standard output");
    }
    if frames && Format::of_name(&assignment.output).is_ok() {
        return usage(
            "frames become a stream; expected - or a name such as large.y4m for --output, found that of a picture",
        );
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

/// What a stream has next.
pub(super) enum NextFrame {
    Frame(Open),
    NotYet,
    /// There are no more; all that have been read go to this.
    End(FrameWriter),
}

/// A stream that is being read, and that which its frames become.
pub(super) enum Stream {
    Opening(Awaited<Result<FrameReader>>),
    Reading(Awaited<(FrameReader, Result<Option<Frame>>)>, FrameWriter),
}

impl Stream {
    /// Begins to open the input. Whoever writes it may take as long as they like.
    pub(super) fn open(assignment: &Assignment, arguments: &Arguments) -> Self {
        let limits = Limits { megapixels: arguments.max_megapixels, ..Limits::default() };
        let (input, raw, matrix) = (assignment.input.clone(), arguments.raw, arguments.matrix);
        Self::Opening(Awaited::start(move || open(&input, raw, matrix, &limits)))
    }

    /// The stream, and what it has next. It has nothing after an error or the end.
    pub(super) fn next(
        self,
        assignment: &Assignment,
        arguments: &Arguments,
        output_of: &dyn Fn(&Header) -> Result<Header>,
    ) -> (Option<Self>, Result<NextFrame>) {
        match self {
            Self::Opening(opening) => match opening.wait() {
                Ok(None) => (Some(Self::Opening(opening)), Ok(NextFrame::NotYet)),
                Ok(Some(Ok(reader))) => match writer(&reader, assignment, arguments, output_of) {
                    Ok(writer) => (Some(Self::Reading(read(reader), writer)), Ok(NextFrame::NotYet)),
                    Err(error) => (None, Err(error)),
                },
                Ok(Some(Err(error))) | Err(error) => (None, Err(error)),
            },
            Self::Reading(reading, writer) => match reading.wait() {
                Ok(None) => (Some(Self::Reading(reading, writer)), Ok(NextFrame::NotYet)),
                Ok(Some((reader, Ok(Some(frame))))) => {
                    let sink = Box::new(writer.frame(&frame));
                    (
                        Some(Self::Reading(read(reader), writer)),
                        Ok(NextFrame::Frame(Open { source: Box::new(frame), sink })),
                    )
                }
                Ok(Some((_, Ok(None)))) => (None, Ok(NextFrame::End(writer))),
                Ok(Some((_, Err(error)))) | Err(error) => (None, Err(error)),
            },
        }
    }
}

/// Begins to read the next frame.
fn read(mut reader: FrameReader) -> Awaited<(FrameReader, Result<Option<Frame>>)> {
    Awaited::start(move || {
        let frame = reader.next_frame();
        (reader, frame)
    })
}

fn writer(
    reader: &FrameReader,
    assignment: &Assignment,
    arguments: &Arguments,
    output_of: &dyn Fn(&Header) -> Result<Header>,
) -> Result<FrameWriter> {
    let mut header = output_of(reader.header())?;
    header.depth = arguments.bit_depth.unwrap_or(header.depth);
    if is_standard_stream(&assignment.output) {
        return FrameWriter::to_stream(Box::new(io::stdout()), Path::new("standard output"), reader, header);
    }
    FrameWriter::create(&assignment.output, reader, header)
}

fn open(path: &Path, raw: Option<RawFrames>, matrix: Option<Matrix>, limits: &Limits) -> Result<FrameReader> {
    let (input, name): (Box<dyn Read + Send>, PathBuf) = if is_standard_stream(path) {
        (Box::new(BufReader::new(io::stdin())), "standard input".into())
    } else {
        let file = File::open(path).map_err(|source| Error::File { path: path.to_owned(), action: "open", source })?;
        (Box::new(BufReader::new(file)), path.to_owned())
    };
    match raw {
        Some(frames) => FrameReader::raw(input, &name, frames, limits),
        None => FrameReader::y4m(input, &name, matrix, limits),
    }
}

/// Work that waits for somebody else, perhaps for ever: it has a thread of its own, which the end of the process ends.
pub(super) struct Awaited<T>(Receiver<T>);

impl<T: Send + 'static> Awaited<T> {
    fn start(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, done) = bounded(1);
        thread::spawn(move || {
            // Nobody listens once the stream has been given up.
            let _ = sender.send(work());
        });
        Self(done)
    }

    /// What came of it; `None` if that takes longer than a run should be kept waiting.
    fn wait(&self) -> Result<Option<T>> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(done) => Ok(Some(done)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Internal("read")),
        }
    }
}

/// The statistics of a stream: those of its frames together, which took `elapsed` seconds since the first one began.
pub(super) fn added(sum: Statistics, next: &Statistics, elapsed: f64) -> Statistics {
    let (one, two) = (sum.seconds, next.seconds);
    let seconds = Seconds {
        decode: one.decode + two.decode,
        run: one.run + two.run,
        blend: one.blend + two.blend,
        encode: one.encode + two.encode,
        // Frames are on their way at the same time.
        total: elapsed,
        span_first_to_last_tile: elapsed,
    };
    Statistics { tiles: sum.tiles + next.tiles, seconds, ..sum }
}
