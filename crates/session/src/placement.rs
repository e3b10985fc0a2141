//! Where an engine runs.

use tileforge_contract::Provider;

use crate::options::SessionOptions;

/// Where an engine runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The provider; `None`: the best one that fits, from the one that the engine was built for down to the CPU.
    pub provider: Option<Provider>,
    /// Number of sessions that run at the same time; `None`: the number in the engine's profile on a GPU, one on the
    /// CPU.
    pub streams: Option<usize>,
    /// Numbers of the GPUs that streams are dealt to; empty: the first GPU.
    pub devices: Vec<u32>,
    /// How sessions are opened. Provider, provider options and device are set for each session.
    pub session: SessionOptions,
}

impl Placement {
    /// Numbers of the GPUs in use, at least one.
    pub fn gpus(&self) -> &[u32] {
        if self.devices.is_empty() { &[0] } else { &self.devices }
    }
}
