//! An engine under the name that clients call it by.

use std::fmt;
use std::sync::OnceLock;

use tileforge::{
    Coding, DepthEstimator, Engine, ErrorKind, Generation, Generator, Host, Inpainter, OpenOptions, Placement,
    Restorer, Task, TensorInfo, Tensors, Upscale, Upscaler,
};

use crate::failure::{Failure, Result, chain};
use crate::settings::NamedModel;

/// What an engine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// One network.
    Network(Task),
    /// A pipeline that restores pictures.
    Restore,
    /// Another pipeline of several networks.
    Generate,
}

impl Purpose {
    fn of(engine: &Engine) -> Self {
        match engine.task() {
            Some(task) => Self::Network(task),
            None if engine.is_restorer() => Self::Restore,
            None => Self::Generate,
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(task) => task.fmt(formatter),
            Self::Restore => formatter.write_str("restore"),
            Self::Generate => formatter.write_str("generate"),
        }
    }
}

/// An engine under the name that clients call it by.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) purpose: Purpose,
    /// `None` while it is dropped.
    opened: Option<Services>,
}

/// The services of an engine. Each opens on first use, and its sessions open with its first request.
#[derive(Debug)]
struct Services {
    engine: Engine,
    placement: Placement,
    tensors: OnceLock<Tensors>,
    upscaler: OnceLock<Upscaler>,
    depth: OnceLock<DepthEstimator>,
    inpainter: OnceLock<Inpainter>,
    /// The generator of a pipeline, or why the engine makes no pictures from texts.
    generator: std::result::Result<Generator, String>,
    /// The restorer of a pipeline that restores.
    restorer: Option<Restorer>,
}

impl Model {
    /// Opens an engine, which checks its files. This takes as long as reading them.
    pub(crate) fn open(host: &Host, named: &NamedModel, options: &OpenOptions) -> tileforge::Result<Self> {
        let engine = Engine::open(host, &named.source, options)?;
        let placement = named.placement.clone();
        let purpose = Purpose::of(&engine);
        // Checks now, not at the first request, whether the engine fits this machine.
        let tensors = OnceLock::new();
        if let Purpose::Network(_) = purpose {
            let opened = engine.tensors(placement.clone())?;
            let _ = tensors.set(opened);
        }
        let restorer = (purpose == Purpose::Restore)
            .then(|| engine.restorer(Coding { placement: placement.clone() }))
            .transpose()?;
        // Opened here, because it reads files.
        let generator = match purpose {
            Purpose::Network(_) => Err("it is one network".to_owned()),
            Purpose::Restore => Err("it restores pictures".to_owned()),
            Purpose::Generate => {
                let generation = Generation { placement: placement.clone(), ..Generation::default() };
                match engine.generator(generation) {
                    Err(error) if error.kind() == ErrorKind::DoesNotFit => return Err(error),
                    generator => generator.map_err(|error| chain(&error)),
                }
            }
        };
        let (upscaler, depth, inpainter) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let opened = Services { engine, placement, tensors, upscaler, depth, inpainter, generator, restorer };
        Ok(Self { name: named.name.clone(), purpose, opened: Some(opened) })
    }

    fn opened(&self) -> Result<&Services> {
        self.opened.as_ref().ok_or_else(|| Failure::internal("the model is closed"))
    }

    /// The service that takes tensors.
    pub(crate) fn tensors(&self) -> Result<&Tensors> {
        let wrong =
            || Failure::invalid(format!("{} is a pipeline of several networks, and takes no tensors", self.name));
        self.opened()?.tensors.get().ok_or_else(wrong)
    }

    /// The service that makes larger or better pictures.
    pub(crate) fn upscaler(&self) -> Result<&Upscaler> {
        let opened = self.opened()?;
        once(&opened.upscaler, || {
            opened.engine.upscaler(Upscale { placement: opened.placement.clone(), ..Upscale::default() })
        })
    }

    /// The service that gives the depth of pictures.
    pub(crate) fn depth(&self) -> Result<&DepthEstimator> {
        let opened = self.opened()?;
        once(&opened.depth, || opened.engine.depth(opened.placement.clone()))
    }

    /// The service that fills in the masked parts of pictures.
    pub(crate) fn inpainter(&self) -> Result<&Inpainter> {
        let opened = self.opened()?;
        once(&opened.inpainter, || opened.engine.inpainter(opened.placement.clone()))
    }

    /// The service that restores pictures.
    pub(crate) fn restorer(&self) -> Result<&Restorer> {
        let wrong = || Failure::invalid(format!("{} restores no pictures", self.name));
        self.opened()?.restorer.as_ref().ok_or_else(wrong)
    }

    /// The service that makes pictures from texts.
    pub(crate) fn generator(&self) -> Result<&Generator> {
        let wrong = |reason| Failure::invalid(format!("{} makes no pictures of texts: {reason}", self.name));
        self.opened()?.generator.as_ref().map_err(wrong)
    }

    /// Its inputs and outputs; empty for a pipeline.
    pub(crate) fn interface(&self) -> [Vec<TensorInfo>; 2] {
        let tensors = self.opened.as_ref().and_then(|opened| opened.tensors.get());
        tensors.map(|tensors| [tensors.inputs(), tensors.outputs()]).unwrap_or_default()
    }
}

/// The value of a cell, which `open` initialises on first use.
fn once<T>(place: &OnceLock<T>, open: impl FnOnce() -> tileforge::Result<T>) -> Result<&T> {
    if let Some(there) = place.get() {
        return Ok(there);
    }
    // If two threads open it at the same time, one of the values is kept.
    let opened = open()?;
    Ok(place.get_or_init(|| opened))
}

impl Drop for Model {
    /// Closing may wait for the last requests, and closing sessions takes time, so it does not run on the thread of a
    /// connection.
    fn drop(&mut self) {
        let opened = self.opened.take();
        // If no thread can be started, it closes here.
        let _ = std::thread::Builder::new().name("close".into()).spawn(move || drop(opened));
    }
}
