//! How many processors this process may use.
//!
//! By default, ONNX Runtime starts a thread for each physical core of the machine, even if this process may use fewer:
//! a container with two processors of 64 would get 32 threads, which wait for each other. So the number is decided
//! here.

use std::thread;

use crate::system::processors;

/// The processors that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors {
    /// Processors as the system counts them: several for each core where it runs several threads. Limited by the
    /// affinity of the calling thread (sched_setaffinity(2), `taskset`) and by the quota of its control groups.
    pub logical: usize,
    /// Their physical cores. Two threads of networks on one core are no faster than one.
    pub physical: usize,
}

impl Processors {
    /// The processors that the calling thread may use.
    pub fn available() -> Self {
        // The standard library knows affinity, and quotas of both versions of control groups.
        let logical = thread::available_parallelism().map_or(1, usize::from);
        // If the system does not report cores, each processor counts as one.
        Self { logical, physical: processors::physical().unwrap_or(logical).clamp(1, logical) }
    }

    /// The threads of each session, if this many sessions share the processors.
    pub fn threads(self, sessions: usize) -> usize {
        (self.physical / sessions.max(1)).max(1)
    }
}

/// Whether processors multiply and add numbers of 8 bits in one instruction: VNNI of x86-64, DotProd of 64-bit Arm.
/// Others compute INT8 engines not much faster than those in FP32, or slower.
pub fn multiply_8_bits() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("dotprod")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    #[test]
    fn affinity_limits_them() {
        let all = Processors::available();
        assert!((1..=all.logical).contains(&all.physical), "{all:?}");
        // Set in a separate thread, because the other tests need all processors.
        let on_one = thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let mut one = CpuSet::new();
            one.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
            sched_setaffinity(None, &one).unwrap();
            Processors::available()
        });
        assert_eq!(on_one.join().unwrap(), Processors { logical: 1, physical: 1 });
    }

    #[test]
    fn sessions_share_the_cores() {
        let of = |physical, sessions| Processors { logical: 16, physical }.threads(sessions);
        assert_eq!([of(8, 1), of(8, 2), of(8, 3), of(2, 4), of(8, 0)], [8, 4, 2, 1, 8]);
    }
}
