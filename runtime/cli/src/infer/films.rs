//! The films among the inputs: what is known of them before the work begins, and how each is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tileforge_film::nut::Track;
use tileforge_film::{Colours, Film, Parts, Plan, Programs, Reading};
use tileforge_image::frames::{FrameReader, FrameTarget};
use tileforge_image::{Error as ImageError, Limits, Size};

use super::super::failure::Failure;
use super::arguments::Arguments;
use super::kind::is_film;
use super::plan::Assignment;
use super::standard::Piped;

/// The films among the inputs, by their files.
#[derive(Clone, Debug, Default)]
pub(super) struct Films(Arc<BTreeMap<PathBuf, Work>>);

/// A film to make.
#[derive(Clone, Debug)]
pub(super) struct Work {
    film: Film,
    plan: Plan,
    /// What finished parts depend on, if they are kept.
    made_of: Option<String>,
}

/// What is known of the inputs before any work.
#[derive(Clone, Copy)]
pub(super) struct Known<'k> {
    pub(super) piped: &'k Piped,
    pub(super) films: &'k Films,
}

/// A film's frames, and how they are written.
pub(super) struct OpenedFilm {
    pub(super) reader: FrameReader,
    pub(super) making: Making,
}

/// How the frames of a film that has been opened are written.
pub(super) struct Making {
    plan: Plan,
    track: Track,
    parts: Option<Parts>,
    frames: Option<u64>,
}

/// The properties of the films' results.
pub(super) struct Made<'m> {
    pub(super) colours: Colours,
    /// The size of the result for frames of a size.
    pub(super) size: &'m dyn Fn(Size) -> Result<Size, Failure>,
    /// A text that identifies engine and options, if finished parts are kept.
    pub(super) with: Option<String>,
}

impl Films {
    /// Probes all films, and tests how each can be written, before the work begins.
    pub(super) fn open(assignments: &[Assignment], arguments: &Arguments, made: &Made<'_>) -> Result<Self, Failure> {
        let mut films = BTreeMap::new();
        let wanted: Vec<_> = assignments.iter().filter(|pair| is_film(&pair.input, arguments.raw)).collect();
        if wanted.is_empty() {
            return Ok(Self::default());
        }
        let programs = Programs::find()?;
        let (from, to) = arguments.film.part();
        for Assignment { input, output } in wanted {
            let reading = Reading { from, to, matrix: arguments.matrix, tolerant: arguments.tolerant };
            let film = Film::open(programs, input, reading)?;
            let size = (made.size)(film.size())?;
            let encoding = arguments.film.encoding();
            let plan = Plan::new(programs, output, &encoding, Some(&film), made.colours, size)?;
            plan.check(size)?;
            for note in film.notes() {
                tracing::warn!("{}: {note}", input.display());
            }
            for note in plan.notes() {
                tracing::warn!("{}: {note}", output.display());
            }
            let made_of = made.with.as_ref().map(|with| format!("{} {with}", state(input)));
            films.insert(input.clone(), Work { film, plan, made_of });
        }
        Ok(Self(Arc::new(films)))
    }

    /// The film in this file, if there is one.
    pub(super) fn get(&self, input: &Path) -> Option<&Work> {
        self.0.get(input)
    }
}

/// A text that changes when a file changes.
fn state(path: &Path) -> String {
    let found = std::fs::metadata(path).ok();
    format!("{:?}", found.map(|found| (found.len(), found.modified().ok())))
}

impl Work {
    /// Begins to decode the film after its finished parts.
    pub(super) fn open(&self, limits: &Limits) -> Result<OpenedFilm, ImageError> {
        let parts = self.made_of.as_deref().map(|made_of| Parts::of(&self.plan, made_of)).transpose()?;
        let finished = parts.as_ref().map_or(0, Parts::frames);
        if finished > 0 {
            let name = self.film.path().display();
            tracing::warn!("{name}: goes on behind frame {finished}; what is before it is finished");
        }
        let frames = self.film.decode(finished, limits)?;
        let count = self.film.frames().map(|count| count.saturating_sub(finished));
        let making = Making { plan: self.plan.clone(), track: frames.track, parts, frames: count };
        Ok(OpenedFilm { reader: frames.reader, making })
    }
}

impl Making {
    /// About how many frames are still to be made.
    pub(super) fn frames(&self) -> Option<u64> {
        self.frames
    }

    /// How frames are stored when they are written.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Begins to write frames of this size.
    pub(super) fn target(self, size: Size) -> Result<Box<dyn FrameTarget>, ImageError> {
        let track = Track { width: size.width, height: size.height, ..self.track };
        Ok(match self.parts {
            Some(parts) => parts.write(track),
            None => self.plan.write(track)?,
        })
    }
}
