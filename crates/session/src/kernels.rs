//! Our own kernels in ONNX Runtime, on the processor.

mod attention;
mod convolution;
mod memory;
mod operator;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ort::operator::OperatorDomain;
use ort::session::builder::SessionBuilder;
use parking_lot::Mutex;
use tileforge_contract::Provider;
use tileforge_graph::{OWN_DOMAIN, with_kernels};
use tileforge_kernels::{self as kernels, Convolution};

use crate::error::{Error, Result};
use crate::options::{OptimisationLevel, SessionOptions};
use memory::Memory;

/// The most bytes of a session's prepared weights, which are four times as large as weights. RRDBNet needs 255 MiB, and
/// the decoder of Stable Diffusion 342 MiB for all sizes but the smallest.
const MOST_BYTES: usize = 384 << 20;

/// The most channels on a side of a convolution: the scratch memory of a thread is 5 KB for each.
const MOST_CHANNELS: usize = 1 << 12;

/// The kernels of one session.
#[derive(Clone, Default)]
pub(crate) struct Kernels(Arc<Memory>);

impl Kernels {
    /// Whether a session uses them.
    pub(crate) fn are_for(options: &SessionOptions) -> bool {
        let is_usual = options.optimisation == OptimisationLevel::All && options.optimised_model_path.is_none();
        options.own_kernels && options.provider == Provider::Cpu && is_usual && kernels::is_supported()
    }

    /// The ONNX file with these bytes, with our operators where they can compute, and the kernels of its session.
    /// `None`: nothing changes.
    pub(crate) fn adapted(options: &SessionOptions, bytes: &[u8], path: &Path) -> Result<Option<(Vec<u8>, Self)>> {
        if !Self::are_for(options) {
            return Ok(None);
        }
        let bytes_of = |[outputs, inputs]: [usize; 2]| match outputs.max(inputs) {
            channels if channels > MOST_CHANNELS => usize::MAX,
            _ => Convolution::bytes_of(outputs, inputs),
        };
        let adapted = with_kernels(bytes, path, options.dequantises_weights, MOST_BYTES, bytes_of);
        let adapted = adapted.map_err(|error| Error::unloaded(path, error.to_string()))?;
        Ok(adapted.map(|bytes| (bytes, Self::default())))
    }

    /// Makes a session that has the kernels.
    pub(crate) fn open<S>(
        &self,
        builder: SessionBuilder,
        commit: impl FnOnce(SessionBuilder) -> Result<S, String>,
    ) -> Result<S, String> {
        let domain = OperatorDomain::new(OWN_DOMAIN)
            .and_then(|domain| domain.add(convolution::Operator(self.0.clone())))
            .and_then(|domain| domain.add(attention::Operator(self.0.clone())));
        let domain = domain.map_err(|error| error.to_string())?;
        let builder = builder.with_operators(domain).map_err(|error| error.to_string())?;
        // ONNX Runtime adds the domain to a list of the process, without a lock, when the first session is made.
        let first = (!IS_KNOWN.load(Ordering::Acquire)).then(|| FIRST.lock());
        let made = commit(builder);
        if made.is_ok() {
            IS_KNOWN.store(true, Ordering::Release);
        }
        drop(first);
        made
    }

    /// The bytes that the kernels hold, with the scratch memory of one thread. ONNX Runtime does not count them.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

/// Whether ONNX Runtime knows our domain.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// Held while it may get to know it.
static FIRST: Mutex<()> = Mutex::new(());
