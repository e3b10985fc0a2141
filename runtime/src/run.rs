//! Tensors through an engine, whatever its task: the task for which a caller makes the values itself.

use std::collections::BTreeMap;
use std::time::Instant;

use ndarray::ArrayD;
use tileforge_contract::{Contract, DataType, Meaning, Shapes};
use tileforge_engine::Engine;
use tileforge_session::{Assigned, Cancel, Environment, Named, Placed, Placement, Tensor};

use crate::error::{Error, Result};
use crate::executor::{Intake, Task, serve_each};
use crate::sessions::{Sessions, Worker};
use crate::tensor_file::Stored;

/// An engine that takes tensors: the task of an [`Executor`](crate::executor::Executor).
///
/// Inputs that are carried over from a run before are zeros where a request leaves them out.
pub struct Runner {
    sessions: Sessions,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Runner").field("verdict", self.placed().verdict).finish_non_exhaustive()
    }
}

/// What an engine made of tensors.
#[derive(Debug)]
pub struct Outputs {
    /// All outputs, in the graph's order.
    pub tensors: Named,
    /// The file name of the graph that ran.
    pub graph: String,
    /// Inputs that the request left out, and that were zeros.
    pub zeros: Vec<String>,
    /// Which providers took the graph's nodes.
    pub assigned: Vec<Assigned>,
    /// How long the run took, without opening the session.
    pub seconds: f64,
}

impl Runner {
    /// A runner for an engine, on the best provider that fits this box.
    ///
    /// # Errors
    /// Those of [`Ladder::new`](tileforge_session::Ladder::new), with the reasons.
    pub fn new(environment: &Environment, engine: &Engine, placement: Placement) -> Result<Self> {
        Ok(Self { sessions: Sessions::new(environment, engine, placement)? })
    }

    /// Where its sessions run.
    pub fn placed(&self) -> Placed<'_> {
        self.sessions.placed()
    }

    fn run(&self, worker: &mut Worker<'_>, mut inputs: BTreeMap<String, Tensor>, cancel: &Cancel) -> Result<Outputs> {
        let contract = self.sessions.contract();
        let shapes = |inputs: &BTreeMap<String, Tensor>| -> Shapes {
            inputs.iter().map(|(name, tensor)| (name.clone(), tensor.shape().to_vec())).collect()
        };
        let zeros = add_zeros(contract, self.sessions.graphs().iter().map(|(graph, _)| &graph.inputs), &mut inputs);
        let given = shapes(&inputs);
        contract.sizes(&given)?;
        let graph = self.sessions.graph_for(&given)?;
        let session = worker.session(graph)?;
        let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let started = Instant::now();
        let tensors = session.run(&named, cancel)?;
        let seconds = started.elapsed().as_secs_f64();
        let file = self.sessions.graphs().get(graph).map(|(graph, _)| graph.file.clone()).unwrap_or_default();
        Ok(Outputs { tensors, graph: file, zeros, assigned: worker.assigned(), seconds })
    }
}

/// Adds zeros for the carried inputs that are left out, in the shapes of the first graph that takes the others. Returns
/// their names.
fn add_zeros<'g>(
    contract: &Contract,
    mut graphs: impl Iterator<Item = &'g Shapes>,
    inputs: &mut BTreeMap<String, Tensor>,
) -> Vec<String> {
    let left_out = contract.inputs.iter().filter(|input| {
        matches!(input.meaning, Meaning::Carried { .. })
            && input.data_type == DataType::F32
            && !inputs.contains_key(&input.name)
    });
    let left_out: Vec<String> = left_out.map(|input| input.name.clone()).collect();
    let fits = |shapes: &&Shapes| {
        inputs.iter().all(|(name, tensor)| shapes.get(name).is_some_and(|shape| shape == tensor.shape()))
    };
    let Some(shapes) = graphs.find(fits) else { return Vec::new() };
    for name in &left_out {
        if let Some(shape) = shapes.get(name) {
            inputs.insert(name.clone(), ArrayD::<f32>::zeros(shape.clone()).into());
        }
    }
    left_out
}

/// Checks what a file holds against an engine's contract, and converts it: the names and types of the inputs. Shapes
/// are checked against the engine's graphs when they run.
///
/// # Errors
/// [`Error::Tensor`] with what was expected and what was found.
pub fn inputs_of(contract: &Contract, stored: BTreeMap<String, Stored>) -> Result<BTreeMap<String, Tensor>> {
    let wrong =
        |tensor: &str, expected: String, found: String| Error::Tensor { tensor: tensor.into(), expected, found };
    let names = || contract.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = stored.keys().find(|name| contract.input(name).is_none()) {
        return Err(wrong(name, format!("only the engine's inputs ({})", names()), "another tensor".into()));
    }
    for input in contract.inputs.iter().filter(|input| !matches!(input.meaning, Meaning::Carried { .. })) {
        if !stored.contains_key(&input.name) {
            let found = stored.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(wrong(&input.name, "a tensor of this name".into(), format!("only {found}")));
        }
    }
    let converted = stored.into_iter().map(|(name, stored)| {
        let expected = contract.input(&name).map_or(DataType::F32, |input| input.data_type);
        if stored.data_type != expected {
            return Err(wrong(&name, format!("elements of {expected}"), format!("elements of {}", stored.data_type)));
        }
        let tensor = stored.tensor().ok_or_else(|| wrong(&name, expected.to_string(), "other bytes".into()))?;
        Ok((name, tensor))
    });
    converted.collect()
}

impl Task for Runner {
    const NAME: &'static str = "run";
    type Request = BTreeMap<String, Tensor>;
    type Output = Outputs;

    fn serve(&self, intake: &Intake<Self>) -> Result<()> {
        let begin = |stream| self.sessions.worker(stream);
        serve_each(intake, self.sessions.streams(), begin, |worker, inputs, reply| {
            self.run(worker, inputs, reply.cancel())
        })
    }
}
