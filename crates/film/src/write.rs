//! Writes a film with one encoder, from its first frame to its last.

use std::io::BufWriter;
use std::process::ChildStdin;

use tileforge_files::unfinished;
use tileforge_image::frames::FrameTarget;

use crate::child::Running;
use crate::error::{Error, Result};
use crate::nut::{NutWriter, Track};
use crate::plan::{Picture, Plan};

/// A stream of frames to an encoder.
pub(crate) struct Encoding {
    running: Running,
    writer: NutWriter<BufWriter<ChildStdin>>,
}

impl Encoding {
    /// Starts a stream of frames to a running program.
    pub(crate) fn start(plan: &Plan, mut running: Running, track: Track) -> Result<Self> {
        let stdin = running.stdin().ok_or_else(|| plan.refusal("ffmpeg has no input"))?;
        match NutWriter::new(BufWriter::new(stdin), track, plan.code()) {
            Ok(writer) => Ok(Self { running, writer }),
            Err(_) => Err(plan.refusal(&running.end()?.reason("ffmpeg"))),
        }
    }

    /// Sends a frame. An error means that the encoder has ended.
    pub(crate) fn write(&mut self, time: i64, bytes: &[u8]) -> std::io::Result<()> {
        // A film whose first frame has a negative time begins at 0.
        self.writer.write(time.max(0), bytes)
    }

    /// Waits for the encoder, after the last frame or after an error.
    pub(crate) fn end(self, plan: &Plan) -> Result<()> {
        let Self { running, mut writer } = self;
        let flushed = writer.flush();
        // The encoder ends when its input does.
        drop(writer);
        let ended = running.end()?;
        if ended.succeeded() && flushed.is_ok() { Ok(()) } else { Err(plan.refusal(&ended.reason("ffmpeg"))) }
    }
}

/// A film that gets its name when it is complete.
struct Film {
    plan: Plan,
    /// Declared before the file, so that the encoder is stopped before the file is removed. `None` after a failure.
    encoding: Option<Encoding>,
    file: unfinished::File,
}

impl Plan {
    /// Begins to write the film. `track` is its frames' track.
    ///
    /// # Errors
    /// [`Error::Start`], [`Error::File`], [`Error::Output`].
    pub fn write(&self, track: Track) -> Result<Box<dyn FrameTarget>> {
        let file = self.unfinished()?;
        let running = Running::start(self.film_command(Picture::Encoded, file.path()), "ffmpeg")?;
        let encoding = Some(Encoding::start(self, running, track)?);
        Ok(Box::new(Film { plan: self.clone(), file, encoding }))
    }
}

impl FrameTarget for Film {
    fn write(&mut self, time: i64, bytes: &[u8]) -> tileforge_image::Result<()> {
        let ended = || self.plan.refusal("ffmpeg has ended");
        let encoding = self.encoding.as_mut().ok_or_else(ended)?;
        if encoding.write(time, bytes).is_err() {
            self.encoding.take().map_or(Ok(()), |encoding| encoding.end(&self.plan))?;
            return Err(self.plan.refusal("ffmpeg stopped reading").into());
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> tileforge_image::Result<()> {
        let ended = self.plan.refusal("ffmpeg has ended");
        self.encoding.take().ok_or(ended)?.end(&self.plan)?;
        let Self { plan, file, .. } = *self;
        file.rename(&plan.output).map_err(|source| Error::file(&plan.output, "create", source).into())
    }
}
