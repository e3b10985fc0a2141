//! Tensors through any engine: the caller supplies all values itself.
//!
//! If every tensor has a batch axis, a request has any number of samples, and they run with samples of other requests
//! (`samples`).

mod samples;

use std::collections::BTreeMap;
use std::time::Instant;

use ndarray::ArrayD;
use tileforge_contract::{Contract, DataType, Meaning, Shapes, Sizes, TensorSpec};
use tileforge_engine::Engine;
use tileforge_engine::manifest::{Graph, Manifest};
use tileforge_files::bounded;
use tileforge_session::{Assigned, Location, Named, Placement, Tensor, TensorInfo};

use crate::error::{Error, Result};
use crate::host::{Host, Made, Network, Reply, Task, Ticket, shapes_text};
use crate::tensor_file::{Description, Stored};

use samples::{Groups, check_type};

/// An engine that takes tensors: the task of a [`Service`](crate::host::Service).
///
/// Carried inputs that a request leaves out are zeros.
pub struct Runner {
    network: Network,
    groups: Groups,
    /// Whether samples of several requests may run together.
    separate: bool,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Runner").field("verdict", self.location().verdict).finish_non_exhaustive()
    }
}

/// The outputs of a run.
#[derive(Debug)]
pub struct Outputs {
    /// All outputs, in the graph's order.
    pub tensors: Named,
    /// The file name of the graph that ran.
    pub graph: String,
    /// Inputs that the request left out and that were zeros.
    pub zeros: Vec<String>,
    /// Which providers took the graph's nodes.
    pub assigned: Vec<Assigned>,
    /// How long the run took, without opening the session.
    pub seconds: f64,
}

impl Runner {
    /// A runner for an engine, on the best provider that fits this machine.
    ///
    /// # Errors
    /// As [`Ladder::new`](tileforge_session::Ladder::new), with the reasons.
    pub fn new(host: &Host, engine: &Engine, placement: Placement) -> Result<Self> {
        let network = Network::new(host, engine, placement)?;
        let separate = samples::are_separate(network.contract());
        Ok(Self { network, groups: Groups::default(), separate })
    }

    /// The inputs in the graph's order, with the lengths that all graphs share. Lengths that differ are open, and so
    /// is the number of samples if it is free.
    pub fn inputs(&self) -> Vec<TensorInfo> {
        self.information(&self.network.contract().inputs, |graph| &graph.inputs)
    }

    /// The outputs in the graph's order, as [`Runner::inputs`].
    pub fn outputs(&self) -> Vec<TensorInfo> {
        self.information(&self.network.contract().outputs, |graph| &graph.outputs)
    }

    fn information(&self, specs: &[TensorSpec], shapes: impl Fn(&Graph) -> &Shapes) -> Vec<TensorInfo> {
        let graphs = || self.network.graphs().iter().map(|(graph, _)| graph);
        let any_size = graphs().any(|graph| graph.any_size);
        let of = |spec: &TensorSpec| {
            let known: Vec<&[usize]> =
                graphs().filter_map(|graph| shapes(graph).get(&spec.name)).map(Vec::as_slice).collect();
            samples::information(self.network.contract(), spec, &known, any_size)
        };
        specs.iter().map(of).collect()
    }

    /// The devices and providers of its sessions.
    pub fn location(&self) -> Location<'_> {
        self.network.location()
    }

    fn run(&self, ticket: &Ticket, mut inputs: BTreeMap<String, Tensor>) -> Result<Outputs> {
        let contract = self.network.contract();
        let zeros = self.add_zeros(&mut inputs)?;
        let given = shapes_of(&inputs);
        let sizes = contract.sizes(&given)?;
        if self.separate {
            return self.run_samples(ticket, inputs, &sizes);
        }
        let graph = self.network.graph_for(&given)?;
        let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let (tensors, assigned, seconds) = self.network.call(ticket, graph, |session| {
            let started = Instant::now();
            let tensors = session.run(&named, ticket.cancel())?;
            Ok((tensors, session.assigned().to_vec(), started.elapsed().as_secs_f64()))
        })?;
        let file = self.network.graphs().get(graph).map(|(graph, _)| graph.file.clone()).unwrap_or_default();
        Ok(Outputs { tensors, graph: file, zeros, assigned, seconds })
    }

    /// Runs the samples of a request, together with other requests' samples if that changes no byte.
    fn run_samples(&self, ticket: &Ticket, inputs: BTreeMap<String, Tensor>, sizes: &Sizes) -> Result<Outputs> {
        let contract = self.network.contract();
        let group = self.groups.of(&self.network, *sizes)?;
        let split = samples::split(contract, inputs.into_iter().collect(), sizes.batch)?;
        let made = self.network.run(ticket, &group, split)?;
        let seconds = made.iter().map(|made| (made.ended - made.began).as_secs_f64() * made.share).sum();
        let outputs = made.into_iter().map(|Made { outputs, .. }| outputs).collect();
        let graph = group.file_for(sizes.batch);
        let tensors = samples::join(contract, sizes, outputs)?;
        Ok(Outputs { tensors, graph, zeros: Vec::new(), assigned: self.network.assigned(), seconds })
    }

    /// Adds zeros for the carried inputs that are left out, in shapes that match the other inputs. Returns their
    /// names.
    fn add_zeros(&self, inputs: &mut BTreeMap<String, Tensor>) -> Result<Vec<String>> {
        let contract = self.network.contract();
        let left_out = contract.inputs.iter().filter(|input| {
            matches!(input.meaning, Meaning::Carried { .. })
                && input.data_type == DataType::F32
                && !inputs.contains_key(&input.name)
        });
        let left_out: Vec<String> = left_out.map(|input| input.name.clone()).collect();
        if left_out.is_empty() {
            return Ok(left_out);
        }
        let given = shapes_of(inputs);
        let fits = |shapes: &&Shapes| given.iter().all(|(name, shape)| shapes.get(name) == Some(shape));
        let shapes = match self.network.graphs().iter().map(|(graph, _)| &graph.inputs).find(fits) {
            Some(shapes) => shapes.clone(),
            // A graph of any size may take them; the sizes follow from the other inputs.
            None => {
                let others = contract.inputs.iter().filter(|input| !left_out.contains(&input.name)).cloned().collect();
                contract.input_shapes(&Contract { inputs: others, ..contract.clone() }.sizes(&given)?)?
            }
        };
        for name in &left_out {
            if let Some(shape) = shapes.get(name) {
                inputs.insert(name.clone(), ArrayD::<f32>::zeros(shape.clone()).into());
            }
        }
        Ok(left_out)
    }
}

fn shapes_of(tensors: &BTreeMap<String, Tensor>) -> Shapes {
    tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape().to_vec())).collect()
}

/// Checks a file's descriptions of its tensors against an engine, before their elements are read: names, types, and
/// whether one of the engine's graphs takes these shapes.
///
/// # Errors
/// [`Error::Tensor`] with what was expected and what was found, [`Error::NoSuchShapes`], or the error of
/// [`Contract::sizes`].
pub fn check_inputs(manifest: &Manifest, found: &BTreeMap<String, Description>) -> Result<()> {
    let contract = &manifest.contract;
    check_names(contract, &found.keys().map(String::as_str).collect::<Vec<_>>())?;
    for (name, tensor) in found {
        check_type(contract, name, tensor.data_type)?;
    }
    let shapes: Shapes = found.iter().map(|(name, tensor)| (name.clone(), tensor.shape.clone())).collect();
    // Carried inputs may be left out.
    let inputs = contract.inputs.iter().filter(|input| shapes.contains_key(&input.name)).cloned().collect();
    let sizes = Contract { inputs, ..contract.clone() }.sizes(&shapes)?;
    let same = |inputs: &Shapes| shapes.iter().all(|(name, shape)| inputs.get(name) == Some(shape));
    let of_free_sizes = |graph: &Graph| graph.resized(contract, sizes).is_ok_and(|graph| same(&graph.inputs));
    let fits = |graph: &Graph| same(&graph.inputs) || of_free_sizes(graph);
    let in_pieces =
        || samples::are_separate(contract) && samples::record_for(contract, manifest.graphs.iter(), sizes).is_some();
    if manifest.graphs.iter().any(fits) || in_pieces() {
        return Ok(());
    }
    let known = manifest.graphs.iter().map(|graph| graph.inputs_text()).collect();
    Err(Error::NoSuchShapes { wanted: shapes_text(&shapes), known })
}

/// Checks that all required inputs are present, and no unknown ones.
fn check_names(contract: &Contract, found: &[&str]) -> Result<()> {
    let wrong =
        |tensor: &str, expected: String, found: String| Error::Tensor { tensor: tensor.into(), expected, found };
    let names = || contract.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = found.iter().find(|name| contract.input(name).is_none()) {
        let name = bounded((*name).to_owned());
        return Err(wrong(&name, format!("only the engine's inputs ({})", names()), "another tensor".into()));
    }
    for input in contract.inputs.iter().filter(|input| !matches!(input.meaning, Meaning::Carried { .. })) {
        if !found.contains(&input.name.as_str()) {
            let found = found.join(", ");
            return Err(wrong(&input.name, "a tensor of this name".into(), format!("only {found}")));
        }
    }
    Ok(())
}

/// Checks the names and types of a file's tensors against an engine's contract, and converts them. Shapes are checked
/// against the engine's graphs when they run.
///
/// # Errors
/// [`Error::Tensor`] with what was expected and what was found.
pub fn inputs_of(contract: &Contract, stored: BTreeMap<String, Stored>) -> Result<BTreeMap<String, Tensor>> {
    check_names(contract, &stored.keys().map(String::as_str).collect::<Vec<_>>())?;
    let converted = stored.into_iter().map(|(name, stored)| {
        check_type(contract, &name, stored.data_type)?;
        let wrong = |expected: String| Error::Tensor { tensor: name.clone(), expected, found: "other bytes".into() };
        let tensor = stored.tensor().ok_or_else(|| wrong(stored.data_type.to_string()))?;
        Ok((name, tensor))
    });
    converted.collect()
}

impl Task for Runner {
    const NAME: &'static str = "run";
    type Request = BTreeMap<String, Tensor>;
    type Output = Outputs;

    fn concurrency(&self) -> usize {
        // Enough to fill the streams, plus one that is being prepared.
        let most = self.network.graphs().iter().map(|(_, sizes)| sizes.batch).max().unwrap_or(1);
        self.network.streams() * if self.separate { most } else { 1 } + 1
    }

    fn serve(&self, inputs: BTreeMap<String, Tensor>, reply: &Reply<Outputs>) -> Result<Outputs> {
        self.run(reply.ticket(), inputs)
    }
}
