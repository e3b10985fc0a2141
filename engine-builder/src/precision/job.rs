//! The inputs of a conversion.

use super::PrecisionOptions;
use crate::coverage::Coverage;
use crate::{Floors, Progress};
use std::collections::BTreeMap;
use tileforge_contract::{Contract, Precision, Provider};
use tileforge_session::{Environment, SessionOptions, openvino};

/// One conversion: the target, and the caller's options.
pub(crate) struct Job<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) progress: &'a dyn Progress,
    pub(crate) precision: Precision,
    pub(crate) provider: Provider,
    pub(crate) contract: &'a Contract,
    pub(crate) floors: &'a Floors,
    pub(crate) options: &'a PrecisionOptions,
    /// Whether our kernels compute on the processor, where they can.
    pub(crate) own_kernels: bool,
    pub(crate) coverage: &'a Coverage,
}

impl Job<'_> {
    /// The session options for the engine's graphs on this machine: the engine's own provider if it runs on
    /// processors, and ONNX Runtime's CPU kernels otherwise.
    pub(crate) fn session_options(&self) -> SessionOptions {
        self.session_options_in(self.precision)
    }

    /// The same for a graph of the network in another precision.
    pub(super) fn session_options_in(&self, precision: Precision) -> SessionOptions {
        let provider = if self.provider.is_on_processor() { self.provider } else { Provider::Cpu };
        let provider_options = openvino_options(self.provider, precision);
        let dequantises_weights = precision == Precision::Int8Weights;
        let own_kernels = self.own_kernels;
        SessionOptions { provider, provider_options, dequantises_weights, own_kernels, ..SessionOptions::default() }
    }
}

/// Options of OpenVINO for an engine in this precision; none for other providers.
pub(crate) fn openvino_options(provider: Provider, precision: Precision) -> BTreeMap<String, String> {
    let rounds = provider == Provider::OpenVino && precision == Precision::Bf16;
    rounds.then(|| (openvino::PRECISION.to_owned(), "bf16".to_owned())).into_iter().collect()
}
