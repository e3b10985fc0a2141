//! Plans, their headers, and their validity for a machine.

use crate::{ComputeCapability, Error, LibraryVersion, Message, Result};
use std::fmt;

/// A plan's bytes, which stay where the builder wrote them.
#[cfg(feature = "rtx")]
pub(crate) type Memory = trtx::host_memory::HostMemory<'static>;

/// A plan, in the builder's own memory: it can be gigabytes large and is not copied.
pub struct Plan {
    #[cfg(feature = "rtx")]
    pub(crate) memory: Memory,
    pub(crate) layers: usize,
    pub(crate) messages: Vec<Message>,
}

impl Plan {
    /// The bytes of the plan's file.
    pub fn bytes(&self) -> &[u8] {
        #[cfg(feature = "rtx")]
        return self.memory.as_ref();
        #[cfg(not(feature = "rtx"))]
        &[]
    }

    /// Layers of the network before the builder fused any.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// The builder's messages, down to the severity in [`crate::BuildOptions::messages`].
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes().len();
        f.debug_struct("Plan").field("bytes", &bytes).field("layers", &self.layers).finish_non_exhaustive()
    }
}

/// The header in the first bytes of a plan's file.
///
/// The format is not documented. This is what release 1.7.1 writes, and a test checks it: `vtrt` at 0, the size of the
/// rest at 16, the release at 24, and at 32 one bit for each capability, the oldest lowest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanHeader {
    /// The release that built the plan. Only this release can run it.
    pub version: LibraryVersion,
    /// The capabilities that it was built for.
    pub capabilities: Vec<ComputeCapability>,
}

impl PlanHeader {
    /// The number of bytes of the file that are needed.
    pub const LENGTH: usize = 40;
    /// A plan's first four bytes.
    pub const TAG: [u8; 4] = *b"vtrt";

    /// Reads the header at the front of a plan, without any library.
    ///
    /// # Errors
    /// [`Error::NotAPlan`].
    pub fn read(plan: &[u8]) -> Result<Self> {
        let Some(header) = plan.first_chunk::<{ Self::LENGTH }>() else {
            let reason = format!("expected at least {} bytes, found {}", Self::LENGTH, plan.len());
            return Err(Error::NotAPlan { reason });
        };
        let [a, b, c, d, ..] = *header;
        if [a, b, c, d] != Self::TAG {
            let reason = format!("expected `vtrt` at the front, found {:?}", String::from_utf8_lossy(&[a, b, c, d]));
            return Err(Error::NotAPlan { reason });
        }
        let [major, minor, patch, build] = [header[24], header[25], header[26], header[27]].map(u32::from);
        let bits = u32::from_le_bytes([header[32], header[33], header[34], header[35]]);
        let capabilities: Vec<_> =
            (0..).zip(ComputeCapability::ALL).filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, it)| it).collect();
        if capabilities.is_empty() || bits >> ComputeCapability::ALL.len() != 0 {
            return Err(Error::NotAPlan {
                reason: format!("expected known compute capabilities, found bits {bits:#x}"),
            });
        }
        Ok(PlanHeader { version: LibraryVersion { major, minor, patch, build }, capabilities })
    }
}

/// The library's verdict on a plan for this machine. Without a driver, it is [`Validity::Invalid`] without a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// It is likely to run.
    Valid,
    /// It is likely to run, but slower than a plan made for this GPU.
    Slower,
    /// It cannot run.
    Invalid {
        /// Another release built it.
        other_version: bool,
        /// It has no code for this GPU.
        other_gpu: bool,
        /// The driver or CUDA is older than the plan needs.
        older_cuda: bool,
        /// The GPU has too little memory for its weights.
        too_little_memory: bool,
        /// Its header is damaged.
        malformed: bool,
        /// CUDA or the driver is missing or does not work.
        no_cuda: bool,
    },
}
