//! Reads streams of frames and films, one frame ahead.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use tileforge_image::frames::{Frame, FrameReader, FrameWriter, Matrix, RawFrames};
use tileforge_image::{Header, Limits, RowSource};
use tileforge_runtime::upscale::{Outscale, Seconds, UpscaleRequest, UpscaleStatistics, Upscaler, outscaled};
use tileforge_runtime::{Error, Result};

use super::arguments::Arguments;
use super::films::{Films, Making};
use super::kind::is_standard_stream;
use super::plan::Assignment;

/// How long the feeder waits for a frame before it checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The next item of a stream.
pub(super) enum NextFrame {
    Frame(UpscaleRequest),
    /// A frame with the same bytes as the previous frame; it gets that frame's result.
    Repeated,
    NotYet,
    /// The frames begin; with their number, if known.
    Begun(Option<u64>),
    /// There are no more frames; the writer has all their results to come.
    End(FrameWriter),
}

/// A stream that is being read, and the writer of its results.
pub(super) enum Stream {
    Opening(Awaited<Result<Clip>>),
    Reading(Awaited<(FrameReader, Result<Option<Frame>>)>, FrameWriter),
}

impl Stream {
    /// Begins to open the input. The program that writes it may take any time.
    pub(super) fn open(assignment: &Assignment, arguments: &Arguments, films: &Films) -> Self {
        let (opening, input) = (ClipOpening::new(arguments, films), assignment.input.clone());
        Self::Opening(Awaited::start(move || opening.open(&input)))
    }

    /// Returns the stream and its next item. After an error or the end, there is no stream.
    pub(super) fn next(
        self,
        assignment: &Assignment,
        arguments: &Arguments,
        upscaler: &Upscaler,
    ) -> (Option<Self>, Result<NextFrame>) {
        match self {
            Self::Opening(opening) => match opening.wait() {
                Ok(None) => (Some(Self::Opening(opening)), Ok(NextFrame::NotYet)),
                Ok(Some(Ok(clip))) => {
                    let frames = clip.frames(assignment);
                    match writer(clip, assignment, arguments, upscaler) {
                        Ok((reader, writer)) => {
                            (Some(Self::Reading(read(reader), writer)), Ok(NextFrame::Begun(frames)))
                        }
                        Err(error) => (None, Err(error)),
                    }
                }
                Ok(Some(Err(error))) | Err(error) => (None, Err(error)),
            },
            Self::Reading(reading, writer) => match reading.wait() {
                Ok(None) => (Some(Self::Reading(reading, writer)), Ok(NextFrame::NotYet)),
                Ok(Some((reader, Ok(Some(frame))))) if frame.is_repeated() && !arguments.film.no_deduplicate => {
                    match writer.repeat(&frame) {
                        Ok(()) => (Some(Self::Reading(read(reader), writer)), Ok(NextFrame::Repeated)),
                        Err(error) => (None, Err(error.into())),
                    }
                }
                Ok(Some((reader, Ok(Some(frame))))) => {
                    let size = match upscaler.output_of(frame.header()) {
                        Ok(header) => header.size,
                        Err(error) => return (None, Err(error)),
                    };
                    let sink = writer.frame(&frame);
                    let request = if writer.header().size == size {
                        UpscaleRequest::opened(frame, sink)
                    } else {
                        UpscaleRequest::opened(frame, Outscale::new(size, Box::new(sink)))
                    };
                    (Some(Self::Reading(read(reader), writer)), Ok(NextFrame::Frame(request)))
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
        let frame = reader.next_frame().map_err(Error::from);
        (reader, frame)
    })
}

fn writer(
    clip: Clip,
    assignment: &Assignment,
    arguments: &Arguments,
    upscaler: &Upscaler,
) -> Result<(FrameReader, FrameWriter)> {
    let mut header = upscaler.output_of(clip.reader.header())?;
    header.depth = arguments.bit_depth.unwrap_or(header.depth);
    if let Some(factor) = arguments.outscale {
        header.size = outscaled(clip.reader.header().size, factor)?;
    }
    clip.write(assignment, header)
}

/// How streams of frames are opened.
#[derive(Clone)]
pub(super) struct ClipOpening {
    raw: Option<RawFrames>,
    matrix: Option<Matrix>,
    limits: Limits,
    films: Films,
}

impl ClipOpening {
    pub(super) fn new(arguments: &Arguments, films: &Films) -> Self {
        let (raw, matrix, limits) = (arguments.raw, arguments.matrix, arguments.limits());
        Self { raw, matrix, limits, films: films.clone() }
    }

    pub(super) fn open(&self, input: &Path) -> Result<Clip> {
        if let Some(film) = self.films.get(input) {
            let opened = film.open(&self.limits)?;
            return Ok(Clip { reader: opened.reader, film: Some(opened.making) });
        }
        Ok(Clip { reader: open(input, self.raw, self.matrix, &self.limits)?, film: None })
    }
}

/// A stream of frames that has been opened.
pub(super) struct Clip {
    pub(super) reader: FrameReader,
    /// How it is written, if it is a film.
    film: Option<Making>,
}

impl Clip {
    /// The number of frames, exact or estimated; unknown for a pipe.
    pub(super) fn frames(&self, assignment: &Assignment) -> Option<u64> {
        if let Some(film) = &self.film {
            return film.frames();
        }
        let found = std::fs::metadata(&assignment.input).ok().filter(std::fs::Metadata::is_file)?;
        Some(self.reader.frames_in(found.len()))
    }

    /// The reader of the frames, and the writer of their results, with this header but the depth of the output.
    pub(super) fn write(self, assignment: &Assignment, mut header: Header) -> Result<(FrameReader, FrameWriter)> {
        let Self { reader, film } = self;
        let output = &assignment.output;
        let writer = if let Some(film) = film {
            let layout = film.plan().layout();
            header.depth = layout.depth();
            FrameWriter::to_container(film.target(header.size)?, output, layout, header)?
        } else if is_standard_stream(output) {
            FrameWriter::to_stream(Box::new(io::stdout()), Path::new("standard output"), &reader, header)?
        } else {
            FrameWriter::create(output, &reader, header)?
        };
        Ok((reader, writer))
    }
}

/// Opens a stream of raw or YUV4MPEG2 frames.
pub(crate) fn open(
    path: &Path,
    raw: Option<RawFrames>,
    matrix: Option<Matrix>,
    limits: &Limits,
) -> Result<FrameReader> {
    let (input, name): (Box<dyn Read + Send>, PathBuf) = if is_standard_stream(path) {
        (Box::new(BufReader::new(io::stdin())), "standard input".into())
    } else {
        let file = File::open(path).map_err(|source| tileforge_image::Error::File {
            path: path.to_owned(),
            action: "open",
            source,
        })?;
        (Box::new(BufReader::new(file)), path.to_owned())
    };
    match raw {
        Some(frames) => Ok(FrameReader::raw(input, &name, frames, limits)?),
        None => Ok(FrameReader::y4m(input, &name, matrix, limits)?),
    }
}

/// Work that waits for another program, perhaps for ever. It runs on its own thread, which ends with the process.
pub(super) struct Awaited<T>(Receiver<T>);

impl<T: Send + 'static> Awaited<T> {
    fn start(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, done) = bounded(1);
        thread::spawn(move || {
            // The receiver is dropped when the stream has been abandoned.
            let _ = sender.send(work());
        });
        Self(done)
    }

    /// The result of the work; `None` if it is not there within `POLL_INTERVAL`.
    fn wait(&self) -> Result<Option<T>> {
        match self.0.recv_timeout(POLL_INTERVAL) {
            Ok(done) => Ok(Some(done)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Internal("read".into())),
        }
    }
}

/// The statistics of a stream: adds the next frame's to the sum. `elapsed` is the seconds since the first frame began.
pub(super) fn added(sum: UpscaleStatistics, next: &UpscaleStatistics, elapsed: f64) -> UpscaleStatistics {
    let (one, two) = (sum.seconds, next.seconds);
    let seconds = Seconds {
        decode: one.decode + two.decode,
        run: one.run + two.run,
        blend: one.blend + two.blend,
        encode: one.encode + two.encode,
        // Frames run at the same time, so their totals cannot be added.
        total: elapsed,
        span_first_to_last_tile: elapsed,
    };
    UpscaleStatistics { tiles: sum.tiles + next.tiles, seconds, ..sum }
}
