//! Graphs on ONNX Runtime, with float32 values from tests.

use ndarray::{ArrayD, ArrayViewD};
use std::path::Path;
use tileforge_contract::{DataType, Provider};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Cancel, Environment, Result, Session, SessionOptions, Tensor, TensorInfo};

/// ONNX Runtime of this source tree, without a cache.
pub fn environment() -> Environment {
    let search = std::env::var_os("ORT_DYLIB_PATH")
        .map_or(Search::AroundExecutable, |place| Search::Named { place: place.into(), by: "ORT_DYLIB_PATH" });
    Environment::new(onnxruntime::load(&search).unwrap_or_else(|error| panic!("{error}: run `make test`")))
}

/// The libraries that compute on processors.
pub const PROCESSOR: [Provider; 2] = [Provider::Cpu, Provider::OpenVino];

/// A graph that is ready to run.
#[derive(Debug)]
pub struct Graph(Session);

impl Graph {
    /// Loads the graph at `path`.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open(path: &Path, options: &SessionOptions) -> Result<Self> {
        Session::open(&environment(), path, options).map(Self)
    }

    /// The graph's inputs, in its order.
    pub fn inputs(&self) -> &[TensorInfo] {
        self.0.inputs()
    }

    /// The graph's outputs, in its order.
    pub fn outputs(&self) -> &[TensorInfo] {
        self.0.outputs()
    }

    /// Runs the graph on float32 values, converted to integers for integer inputs. Returns its outputs.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run(&mut self, inputs: &[(&str, ArrayViewD<'_, f32>)]) -> Result<Vec<(String, ArrayD<f32>)>> {
        let is_integer = |name: &str| {
            self.0.inputs().iter().any(|input| input.name == name && input.data_type == Some(DataType::I64))
        };
        let tensor = |(name, values): &(&str, ArrayViewD<'_, f32>)| -> Tensor {
            if is_integer(name) { values.mapv(|value| value as i64).into() } else { values.to_owned().into() }
        };
        let tensors: Vec<Tensor> = inputs.iter().map(tensor).collect();
        let named: Vec<_> = inputs.iter().map(|(name, _)| *name).zip(&tensors).collect();
        self.0.run(&named, &Cancel::new())?.into_iter().map(|(name, value)| Ok((name, value.into_f32()?))).collect()
    }
}
