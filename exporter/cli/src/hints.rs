//! The options for what a checkpoint does not determine.

use std::collections::BTreeMap;
use std::path::Path;

use tileforge_exporter::pipeline::weights_in;
use tileforge_exporter::{Checkpoint, Task};

use super::failure::Failure;

/// What the checkpoint does not determine.
#[derive(clap::Args)]
pub(crate) struct Hints {
    /// Which graph to make, where a checkpoint or a pipeline gives several; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) component: Vec<String>,
    /// Which weights to take from a folder that has several sets of them, such as fp16
    #[arg(long, value_name = "NAME")]
    pub(crate) variant: Option<String>,
    /// Where a depth network's input is normalised by mean and deviation: before the graph, which is the default, or in
    /// it
    #[arg(long, value_name = "PLACE", value_parser = ["outside", "in-graph"])]
    preprocess: Option<String>,
    /// Which chunk of a video the graph is for: the first one, or any other; short for --set chunk=NAME
    #[arg(long, value_name = "NAME", value_parser = ["first", "next"])]
    chunk: Option<String>,
    /// A hyperparameter that the checkpoint does not determine; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

impl Hints {
    /// The checkpoint at `path`, which may be the folder of a component.
    pub(crate) fn open(&self, path: &Path) -> Result<Checkpoint, Failure> {
        Ok(if path.is_dir() {
            Checkpoint::open(weights_in(path, self.variant.as_deref())?)?
        } else {
            Checkpoint::open(path)?
        })
    }

    /// The task of the graph to make of one checkpoint, if it is given.
    pub(crate) fn task(&self) -> Result<Option<Task>, Failure> {
        match self.component.as_slice() {
            [] => Ok(None),
            [one] => one.parse().map(Some).map_err(|reason| Failure::Usage(format!("--component: {reason}"))),
            _ => Err(Failure::Usage("one checkpoint becomes one graph; give --component once".into())),
        }
    }

    pub(crate) fn map(&self) -> BTreeMap<String, String> {
        let preprocess = self.preprocess.iter().map(|place| ("preprocess".to_owned(), place.clone()));
        let chunk = self.chunk.iter().map(|chunk| ("chunk".to_owned(), chunk.clone()));
        self.set.iter().cloned().chain(preprocess).chain(chunk).collect()
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    pair.map(|(name, value)| (name.into(), value.into())).ok_or_else(|| "expected NAME=VALUE".into())
}
