//! An engine under the name that clients call it by.

use std::sync::OnceLock;

use tileforge::{
    DepthEstimator, Engine, Generation, Generator, Host, OpenOptions, Placement, Task, TensorInfo, Tensors, Upscale,
    Upscaler,
};

use crate::failure::{Failure, Result, chain};

/// An engine under the name that clients call it by.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    /// `None` while it is dropped.
    opened: Option<Opened>,
}

/// What an engine is opened as. Each thing opens when it is asked for first, and its sessions with its first request.
#[derive(Debug)]
struct Opened {
    engine: Engine,
    tensors: OnceLock<Tensors>,
    upscaler: OnceLock<Upscaler>,
    depth: OnceLock<DepthEstimator>,
    /// Of a pipeline; else why it makes no pictures of texts.
    generator: std::result::Result<Generator, String>,
}

impl Model {
    /// Opens an engine, which checks its files. This takes as long as reading them does.
    pub(crate) fn open(host: &Host, name: &str, source: &str, options: &OpenOptions) -> tileforge::Result<Self> {
        let engine = Engine::open(host, source, options)?;
        let tensors = OnceLock::new();
        if engine.task().is_some() {
            // Whether the engine fits this machine is known now, not at the first request.
            let opened = engine.tensors(Placement::default())?;
            let _ = tensors.set(opened);
        }
        // Opened here, because it reads files.
        let generator = match engine.task() {
            Some(_) => Err("it is one network".to_owned()),
            None => engine.generator(Generation::default()).map_err(|error| chain(&error)),
        };
        let (upscaler, depth) = (OnceLock::new(), OnceLock::new());
        Ok(Self { name: name.to_owned(), opened: Some(Opened { engine, tensors, upscaler, depth, generator }) })
    }

    fn opened(&self) -> Result<&Opened> {
        self.opened.as_ref().ok_or_else(|| Failure::internal("the model is closed"))
    }

    /// What it is for; `None` for a pipeline of several networks.
    pub(crate) fn task(&self) -> Option<Task> {
        self.opened.as_ref()?.engine.task()
    }

    /// It takes tensors.
    pub(crate) fn tensors(&self) -> Result<&Tensors> {
        let wrong =
            || Failure::invalid(format!("{} is a pipeline of several networks, and takes no tensors", self.name));
        self.opened()?.tensors.get().ok_or_else(wrong)
    }

    /// It takes pictures, and gives larger or better ones.
    pub(crate) fn upscaler(&self) -> Result<&Upscaler> {
        let opened = self.opened()?;
        once(&opened.upscaler, || opened.engine.upscaler(Upscale::default()))
    }

    /// It takes pictures, and gives their depth.
    pub(crate) fn depth(&self) -> Result<&DepthEstimator> {
        let opened = self.opened()?;
        once(&opened.depth, || opened.engine.depth(Placement::default()))
    }

    /// It takes texts, and gives pictures.
    pub(crate) fn generator(&self) -> Result<&Generator> {
        let wrong = |reason| Failure::invalid(format!("{} makes no pictures of texts: {reason}", self.name));
        self.opened()?.generator.as_ref().map_err(wrong)
    }

    /// Its inputs and outputs; none of a pipeline.
    pub(crate) fn interface(&self) -> [Vec<TensorInfo>; 2] {
        let tensors = self.opened.as_ref().and_then(|opened| opened.tensors.get());
        tensors.map(|tensors| [tensors.inputs(), tensors.outputs()]).unwrap_or_default()
    }
}

/// What a place holds, which `open` fills the first time.
fn once<T>(place: &OnceLock<T>, open: impl FnOnce() -> tileforge::Result<T>) -> Result<&T> {
    if let Some(there) = place.get() {
        return Ok(there);
    }
    // Where two open it at the same time, one of them is kept.
    let opened = open()?;
    Ok(place.get_or_init(|| opened))
}

impl Drop for Model {
    /// Its last requests may be on their way, and its sessions take a while to close: not on the thread of a
    /// connection.
    fn drop(&mut self) {
        let opened = self.opened.take();
        // Where there is no thread, it closes here.
        let _ = std::thread::Builder::new().name("close".into()).spawn(move || drop(opened));
    }
}
