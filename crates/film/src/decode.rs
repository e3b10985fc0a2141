//! The frames of a film.

use std::io::{self, BufReader};
use std::process::{ChildStdout, Stdio};

use tileforge_image::frames::{FrameReader, FrameSource, StoredFrame};
use tileforge_image::{Limits, Size};

use crate::child::Running;
use crate::error::{Error, Result};
use crate::film::{Described, Film, only_this_file, url};
use crate::nut::{MILLISECONDS, NutReader, Track};

/// Frames are read in pieces of this size, so that ffmpeg seldom waits for a full pipe.
const BUFFER: usize = 1 << 20;

impl Film {
    /// Begins to decode. The first `after` frames are decoded and dropped.
    ///
    /// # Errors
    /// [`Error::Start`], [`Error::Film`]: the film cannot be decoded, or its frames are beyond `limits`.
    pub fn decode(&self, after: u64, limits: &Limits) -> Result<Frames> {
        let described = self.described_by();
        let Described { programs, path, reading, samples, .. } = described;
        let mut command = programs.ffmpeg();
        if !reading.tolerant {
            command.arg("-xerror");
        }
        match reading.from {
            // A part starts at time 0; a whole film keeps its start time.
            Some(from) => command.args(["-ss", &format!("{:.6}", from.as_secs_f64())]),
            None => command.arg("-copyts"),
        };
        if let Some(to) = reading.to {
            command.args(["-to", &format!("{:.6}", to.as_secs_f64())]);
        }
        only_this_file(&mut command);
        command.arg("-i").arg(url(path));
        command.args(["-map", &format!("0:{}", described.picture)]);
        if after > 0 {
            command.args(["-vf", &format!("select=gte(n\\,{after})")]);
        }
        // Every frame once, with its own time and size. The size must not change.
        command.args(["-fps_mode", "passthrough", "-enc_time_base", programs.time_base_of_input(), "-noautoscale"]);
        command.args(["-c:v", "rawvideo", "-pix_fmt", &samples.name(), "-f", "nut", "pipe:1"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = Running::start(command, "ffmpeg")?;
        let missing = || Error::film(path, "ffmpeg has no output");
        let output = BufReader::with_capacity(BUFFER, running.stdout().ok_or_else(missing)?);
        let mut source = FilmSource { film: self.clone(), running: Some(running), reader: None };
        match NutReader::new(output, limits.decoded_bytes) {
            Ok(reader) => source.reader = reader,
            Err(error) => return Err(source.failed(error)),
        }
        let track = source.reader.as_ref().map(NutReader::track);
        if track.is_none() {
            source.end()?;
            if let Some(from) = reading.from.filter(|_| after == 0) {
                let problem = format!("ends before {} s; choose an earlier --from", from.as_secs_f64());
                return Err(Error::film(path, problem));
            }
        }
        // Without any frame, the described size and a default time base are used.
        let Size { width, height } = described.size;
        let track = track.unwrap_or(Track { width, height, pixel: [0, 0], time_base: MILLISECONDS });
        let reader = FrameReader::of_container(Box::new(source), path, self.layout(), track.size(), limits);
        Ok(Frames { reader: reader.map_err(|error| Error::film(path, error.to_string()))?, track })
    }
}

/// The frames of a film that is being decoded.
pub struct Frames {
    /// The frames.
    pub reader: FrameReader,
    /// Their size, and the unit of their times.
    pub track: Track,
}

struct FilmSource {
    film: Film,
    /// `None` when it has ended.
    running: Option<Running>,
    reader: Option<NutReader<BufReader<ChildStdout>>>,
}

impl FilmSource {
    /// Waits for the decoder to end, after its last frame.
    fn end(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let ended = running.end()?;
        let Described { path, reading, .. } = self.film.described_by();
        if ended.succeeded() && ended.messages().is_empty() {
            return Ok(());
        }
        let problem = format!("cannot be decoded to its end: {}", ended.reason("ffmpeg"));
        if ended.succeeded() && reading.tolerant {
            tracing::warn!("{}: {problem}", path.display());
            return Ok(());
        }
        let advice = if reading.tolerant { "" } else { "\n  go on with what can be decoded: --tolerant" };
        Err(Error::film(path, format!("{problem}{advice}")))
    }

    /// The error for a damaged stream of frames: the decoder's reason, if there is one.
    fn failed(&mut self, error: io::Error) -> Error {
        match self.end() {
            Err(reason) => reason,
            Ok(()) => Error::film(&self.film.described_by().path, format!("what ffmpeg sends is damaged: {error}")),
        }
    }
}

impl FrameSource for FilmSource {
    fn next(&mut self) -> tileforge_image::Result<Option<StoredFrame>> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        match reader.next() {
            Ok(Some(frame)) => Ok(Some(frame)),
            Ok(None) => {
                self.reader = None;
                Ok(self.end().map(|()| None)?)
            }
            Err(error) => {
                // The decoder ends when its pipe is closed.
                self.reader = None;
                Err(self.failed(error).into())
            }
        }
    }
}
