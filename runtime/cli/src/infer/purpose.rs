//! What an engine does with pictures and frames.

use std::path::Path;

use tileforge_contract::{Contract, Upscale};
use tileforge_engine::{Bundle, Engine, Pipeline};
use tileforge_film::Colours;
use tileforge_image::Size;
use tileforge_runtime::depth::is_depth;
use tileforge_runtime::inpaint::is_inpainter;
use tileforge_runtime::realtime::is_realtime;
use tileforge_runtime::restoration::Fitting;
use tileforge_runtime::upscale::outscaled;

use super::super::failure::{CommandResult, Failure};
use super::arguments::Arguments;
use super::plan::{Assignment, check, check_effects};
use super::{depth, inpaint, realtime, restoration};

/// What an engine does with pictures and frames.
pub(super) enum Purpose {
    Upscale(Engine),
    Depth(Engine),
    Inpaint(Engine),
    RealTime(Engine),
    Restoration(Box<Pipeline>),
}

impl Purpose {
    /// Opens the engine that was asked for.
    pub(super) fn open(arguments: &Arguments) -> Result<Self, Failure> {
        match arguments.engine.open_bundle()? {
            Bundle::Pipeline(pipeline) if pipeline.manifest().restoration.is_some() => {
                Ok(Self::Restoration(Box::new(pipeline)))
            }
            // The error of `open` lists the parts.
            Bundle::Pipeline(_) => Ok(arguments.engine.open().map(Self::Upscale)?),
            Bundle::Engine(engine) if is_depth(&engine.manifest().contract) => Ok(Self::Depth(engine)),
            Bundle::Engine(engine) if is_inpainter(&engine.manifest().contract) => Ok(Self::Inpaint(engine)),
            Bundle::Engine(engine) if is_realtime(&engine.manifest().contract) => Ok(Self::RealTime(engine)),
            Bundle::Engine(engine) => Ok(Self::Upscale(engine)),
        }
    }

    /// The engine's name.
    pub(super) fn engine(&self) -> &str {
        match self {
            Self::Upscale(engine) | Self::Depth(engine) | Self::Inpaint(engine) | Self::RealTime(engine) => {
                &engine.manifest().name
            }
            Self::Restoration(pipeline) => &pipeline.manifest().name,
        }
    }

    /// The folder of the engine that was opened.
    pub(super) fn directory(&self) -> &Path {
        match self {
            Self::Upscale(engine) | Self::Depth(engine) | Self::Inpaint(engine) | Self::RealTime(engine) => {
                engine.directory()
            }
            Self::Restoration(pipeline) => pipeline.directory(),
        }
    }

    pub(super) fn gives_depth(&self) -> bool {
        matches!(self, Self::Depth(_))
    }

    /// The scale of the results; `None` for engines that do not enlarge.
    pub(super) fn scale(&self, arguments: &Arguments) -> Option<f64> {
        let Self::Upscale(engine) = self else { return None };
        let upscale = Upscale::of(&engine.manifest().contract).ok()?;
        Some(arguments.outscale.unwrap_or(upscale.scale as f64))
    }

    /// The default suffix of an output's name.
    pub(super) fn suffix(&self) -> &'static str {
        match self {
            Self::Depth(_) => "depth",
            Self::Inpaint(_) => "filled",
            Self::Restoration(_) => "restored",
            Self::Upscale(_) | Self::RealTime(_) => "out",
        }
    }

    /// Refuses options and names that do not fit such an engine.
    pub(super) fn check(&self, assignments: &[Assignment], arguments: &Arguments) -> CommandResult {
        let others = [
            (arguments.depth.given(), "engines that give depth", self.gives_depth()),
            (arguments.inpaint.given(), "engines that fill in pictures", matches!(self, Self::Inpaint(_))),
            (arguments.realtime.given(), "real-time networks", matches!(self, Self::RealTime(_))),
            (arguments.restoration.given(), "engines that restore", matches!(self, Self::Restoration(_))),
        ];
        for (given, whose, is_own) in others {
            if let Some(option) = given.filter(|_| !is_own) {
                return Err(Failure::Usage(format!("{option} is for {whose}; this one is for {}", self.task())));
            }
        }
        match self {
            Self::Depth(engine) => return depth::check(&engine.manifest().contract, assignments, arguments),
            Self::Inpaint(_) => inpaint::check(assignments, arguments)?,
            Self::RealTime(_) => realtime::check(assignments, arguments)?,
            Self::Restoration(_) => restoration::check(assignments, arguments)?,
            Self::Upscale(_) => {}
        }
        assignments.iter().try_for_each(|assignment| check(assignment, arguments))?;
        check_effects(assignments, arguments)
    }

    fn task(&self) -> String {
        let of = |contract: &Contract| contract.task.to_string();
        match self {
            Self::Upscale(engine) | Self::Depth(engine) | Self::Inpaint(engine) | Self::RealTime(engine) => {
                of(&engine.manifest().contract)
            }
            Self::Restoration(_) => "restoration".into(),
        }
    }

    /// The colours of films.
    pub(super) fn colours(&self) -> Colours {
        if self.gives_depth() { Colours::New } else { Colours::Kept }
    }

    /// The size of the result for frames of a size.
    ///
    /// # Errors
    /// The engine has no graph for it.
    pub(super) fn size_of(&self, frame: Size, arguments: &Arguments) -> Result<Size, Failure> {
        Ok(match self {
            Self::Restoration(pipeline) => Fitting::new(pipeline, arguments.restoration.size())?.result(frame)?,
            _ => self.scale(arguments).and_then(|factor| outscaled(frame, factor).ok()).unwrap_or(frame),
        })
    }
}
