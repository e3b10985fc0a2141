//! Writes a film in parts, so that finished parts survive a crash.
//!
//! A folder beside the film holds a file for each part, in NUT, with its frames encoded. Each part begins with a key
//! frame and has the times of the whole film. So the parts together are one stream if the later parts omit the
//! format's name. A file beside the parts records the settings that they are made with; parts with other settings are
//! removed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use serde::{Deserialize, Serialize};
use tileforge_files::{Kept, NotKept};
use tileforge_image::frames::FrameTarget;

use crate::child::Running;
use crate::error::{Error, Result};
use crate::nut::{FILE_ID, Track};
use crate::plan::{Picture, Plan};
use crate::write::Encoding;

/// Frames of a part: the default key frame distance of x264 and x265, so that parts cost little.
const FRAMES: u64 = 250;
/// The file with the settings of the parts, and the list of finished parts.
const STATE: &str = "parts.json";
/// The largest state file. A film of a week needs less.
const STATE_BYTES_MAXIMUM: u64 = 16 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    made_with: String,
    parts: Vec<Part>,
}

/// A finished part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    frames: u64,
    bytes: u64,
}

fn name(part: usize) -> String {
    format!("{part:06}.nut")
}

fn is_known(name: &str) -> bool {
    name == STATE || name.strip_suffix(".nut").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The finished parts of a film, locked against other processes.
pub struct Parts {
    plan: Plan,
    kept: Kept,
    state: State,
}

impl Parts {
    /// The parts that an earlier run has made with the same settings. `made_of` identifies everything that they depend
    /// on beside the plan.
    ///
    /// # Errors
    /// [`Error::Output`] while another process makes the same film; [`Error::File`].
    pub fn of(plan: &Plan, made_of: &str) -> Result<Self> {
        let kept = Kept::beside(&plan.output, || false).map_err(|error| match error {
            NotKept::File { path, action, source } => Error::file(&path, action, source),
            other => Error::output(&plan.output, other.to_string()),
        })?;
        let made_with = format!("{made_of} {}", plan.making());
        let found = kept.read(STATE, STATE_BYTES_MAXIMUM).ok().flatten();
        let found = found.and_then(|json| serde_json::from_slice::<State>(&json).ok());
        let mut state = found.filter(|state| state.made_with == made_with).unwrap_or_default();
        state.made_with = made_with;
        // Parts after a part that is missing or has another length are made again.
        let is_there = |(number, part): &(usize, &Part)| kept.length(&name(*number)) == part.bytes;
        let whole = state.parts.iter().enumerate().take_while(is_there).count();
        // The last part is made again, too: so there is always a frame left, and after a power cut its file may be
        // shorter than recorded.
        state.parts.truncate(whole.saturating_sub(1));
        Ok(Self { plan: plan.clone(), kept, state })
    }

    /// Frames of the finished parts.
    pub fn frames(&self) -> u64 {
        self.state.parts.iter().map(|part| part.frames).sum()
    }

    /// Begins to write the frames after the finished parts. `track` is the frames' track.
    pub fn write(self, track: Track) -> Box<dyn FrameTarget> {
        Box::new(Writing { parts: self, track, part: None })
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> Error {
        let path = self.kept.path().to_owned();
        move |source| Error::File { path, action, source }
    }

    fn begin(&self, track: Track) -> Result<Encoding> {
        let file = self.kept.open(&name(self.state.parts.len())).map_err(self.failed("create a file in"))?;
        file.set_len(0).map_err(self.failed("write"))?;
        let mut command = self.plan.part_command();
        command.stdout(file);
        Encoding::start(&self.plan, Running::start(command, "ffmpeg")?, track)
    }

    /// Records the part as finished.
    fn add(&mut self, frames: u64) -> Result<()> {
        let bytes = self.kept.length(&name(self.state.parts.len()));
        self.state.parts.push(Part { frames, bytes });
        let json = serde_json::to_vec(&self.state).unwrap_or_default();
        self.kept.write(STATE, &json).map_err(self.failed("write"))
    }

    /// Joins the parts, with the other tracks of the source.
    fn join(self) -> Result<()> {
        let file = self.plan.unfinished()?;
        let mut running = Running::start(self.plan.film_command(Picture::Copied, file.path()), "ffmpeg")?;
        let sent = running.stdin().map_or(Ok(()), |stdin| self.send(stdin));
        let ended = running.end()?;
        if !ended.succeeded() {
            return Err(self.plan.refusal(&ended.reason("ffmpeg")));
        }
        sent.map_err(self.failed("read"))?;
        let output = &self.plan.output;
        file.rename(output).map_err(|source| Error::file(output, "create", source))?;
        if let Err(error) = self.kept.remove(is_known) {
            tracing::warn!("{}: its finished parts cannot be removed: {error}", output.display());
        }
        Ok(())
    }

    fn send(&self, mut to: impl Write) -> io::Result<()> {
        for number in 0..self.state.parts.len() {
            let mut file: File = self.kept.open(&name(number))?;
            if number > 0 {
                file.seek(SeekFrom::Start(FILE_ID.len() as u64))?;
            }
            io::copy(&mut file.take(u64::MAX), &mut to)?;
        }
        Ok(())
    }
}

/// Writes frames to parts.
struct Writing {
    parts: Parts,
    track: Track,
    /// The part that is being written, and its number of frames.
    part: Option<(Encoding, u64)>,
}

impl Writing {
    fn end_part(&mut self) -> Result<()> {
        let Some((encoding, frames)) = self.part.take() else { return Ok(()) };
        encoding.end(&self.parts.plan)?;
        self.parts.add(frames)
    }
}

impl FrameTarget for Writing {
    fn write(&mut self, time: i64, bytes: &[u8]) -> tileforge_image::Result<()> {
        let (mut encoding, frames) = match self.part.take() {
            Some(part) => part,
            None => (self.parts.begin(self.track)?, 0),
        };
        if encoding.write(time, bytes).is_err() {
            encoding.end(&self.parts.plan)?;
            return Err(self.parts.plan.refusal("ffmpeg stopped reading").into());
        }
        self.part = Some((encoding, frames + 1));
        if frames + 1 == FRAMES {
            self.end_part()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> tileforge_image::Result<()> {
        self.end_part()?;
        Ok(self.parts.join()?)
    }
}
