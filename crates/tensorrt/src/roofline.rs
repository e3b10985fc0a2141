//! The minimum time that a GPU needs for a plan: a roofline for every kernel, computed without that GPU.

use crate::program::{ElementType, Operation, Program};
use serde::{Deserialize, Serialize};

/// The limits of a GPU of compute capability 8.6, 8.9 or 12.x.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// The rated boost clock, in hertz. A card with a higher clock is faster by that factor.
    pub boost_hertz: f64,
    /// Bytes of the L2 cache.
    pub cache_bytes: u64,
    /// Bytes per second between the GPU and its memory.
    pub bandwidth: f64,
}

impl Gpu {
    /// Dense operations per second of the tensor cores. A product and its addition count as two.
    ///
    /// In each clock, a multiprocessor of GA10x, Ada or GB20x does 1024 in FP16 and BF16, 2048 in INT8 and FP8, and
    /// 512 in TF32 (NVIDIA's whitepapers of the three). GeForce cards do half of that if sums are FP32. The type of a
    /// kernel's sums is not known, so this is the higher rate.
    pub fn operations_per_second(&self, element: ElementType) -> f64 {
        let each_clock = match element {
            ElementType::Int8 | ElementType::Uint8 | ElementType::Fp8 | ElementType::Bool => 2048.0,
            ElementType::Half | ElementType::Bf16 => 1024.0,
            ElementType::Float | ElementType::Int32 | ElementType::Int64 => 512.0,
        };
        f64::from(self.multiprocessors) * self.boost_hertz * each_clock
    }

    /// The same GPU without a cache: all bytes are read from and written to memory.
    #[must_use]
    pub fn without_cache(self) -> Self {
        Gpu { cache_bytes: 0, ..self }
    }

    /// The minimum time of a run, with everything cached that fits, and with nothing cached.
    pub fn least_times(&self, program: &Program) -> LeastTimes {
        LeastTimes { cached: self.least_seconds(program), uncached: self.without_cache().least_seconds(program) }
    }

    /// The minimum time of a run, in seconds. Kernels run one after the other. Each takes the time of its operations
    /// at the peak rate, or the time of its bytes at the memory's bandwidth, whichever is longer.
    ///
    /// Data that fits in the cache need not come from memory when a kernel begins, nor reach memory when it ends. So
    /// each kernel's count omits this number of bytes once for its inputs and once for its outputs.
    pub fn least_seconds(&self, program: &Program) -> f64 {
        program.operations.iter().map(|operation| self.least_seconds_of(operation)).sum()
    }

    /// The same for one kernel. Unknown products do not count.
    pub fn least_seconds_of(&self, operation: &Operation) -> f64 {
        let beyond_cache = |bytes: u64| bytes.saturating_sub(self.cache_bytes) as f64;
        let bytes = beyond_cache(operation.read_bytes) + beyond_cache(operation.written_bytes);
        let operations = 2.0 * operation.multiply_adds.unwrap_or(0) as f64;
        let rate = operation.element.map_or(f64::INFINITY, |element| self.operations_per_second(element));
        (bytes / self.bandwidth).max(operations / rate)
    }
}

/// The minimum time of a run, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeastTimes {
    /// With everything in the cache that fits.
    pub cached: f64,
    /// With nothing in the cache.
    pub uncached: f64,
}

impl LeastTimes {
    /// The expected speed relative to `other`: the smaller of the two times' ratios. So a plan that moves more bytes
    /// is not called faster just because a cache may hold them.
    pub fn speed_over(&self, other: &Self) -> f64 {
        let ratio = |own: f64, other: f64| other / own.max(f64::MIN_POSITIVE);
        ratio(self.cached, other.cached).min(ratio(self.uncached, other.uncached))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::OperationKind;

    const RTX_4090: Gpu = Gpu { multiprocessors: 128, boost_hertz: 2.52e9, cache_bytes: 72 << 20, bandwidth: 1008e9 };

    #[test]
    fn the_smaller_of_two_ratios_counts() {
        let of = |cached, uncached| LeastTimes { cached, uncached };
        assert_eq!(of(1.0, 2.0).speed_over(&of(2.0, 3.0)), 1.5);
        assert_eq!(of(1.0, 4.0).speed_over(&of(2.0, 3.0)), 0.75);
        assert_eq!(of(0.0, 1.0).speed_over(&of(0.0, 2.0)), 0.0);
    }

    fn kernel(element: ElementType, bytes: [u64; 2], multiply_adds: Option<u64>) -> Operation {
        let [read_bytes, written_bytes] = bytes;
        let (kind, kernel, layers) = (OperationKind::Convolution, "Corr".into(), Vec::new());
        Operation { kind, kernel, layers, element: Some(element), read_bytes, written_bytes, multiply_adds }
    }

    #[test]
    fn rates_are_those_of_the_whitepapers() {
        let of = |multiprocessors, megahertz: f64, element| {
            let gpu = Gpu { multiprocessors, boost_hertz: megahertz * 1e6, ..RTX_4090 };
            (gpu.operations_per_second(element) / 1e11).round() / 10.0
        };
        // RTX 4090, 3090, 5090 and L4.
        assert_eq!(of(128, 2520.0, ElementType::Half), 330.3);
        assert_eq!(of(128, 2520.0, ElementType::Fp8), 660.6);
        assert_eq!(of(82, 1695.0, ElementType::Half), 142.3);
        assert_eq!(of(82, 1695.0, ElementType::Int8), 284.7);
        assert_eq!(of(170, 2407.0, ElementType::Half), 419.0);
        assert_eq!(of(58, 2040.0, ElementType::Half), 121.2);
    }

    #[test]
    fn the_slower_of_bytes_and_operations_counts_for_each_kernel() {
        let cache = RTX_4090.cache_bytes;
        let seconds = |operation: &Operation| RTX_4090.least_seconds_of(operation);
        // A thousandth of a second for the bytes beyond the cache, and for operations.
        let by_bytes = kernel(ElementType::Half, [cache + 1_000_000_000, cache + 8_000_000], Some(10));
        assert_eq!(seconds(&by_bytes), 1e-3);
        let by_operations = kernel(ElementType::Half, [cache, cache], Some(165_150_720_000));
        assert_eq!(seconds(&by_operations), 1e-3);
        let in_8_bits = kernel(ElementType::Int8, [0, 0], Some(165_150_720_000));
        assert_eq!(seconds(&in_8_bits), 5e-4);
        let not_known = kernel(ElementType::Half, [cache, 1], None);
        assert_eq!(seconds(&not_known), 0.0);
        let operations = vec![by_bytes, by_operations, in_8_bits, not_known];
        let program = Program { operations, activation_bytes: 0, weight_bytes: 0 };
        assert_eq!(RTX_4090.least_seconds(&program), 2.5e-3);
        let cached = 2.0 * cache as f64 / RTX_4090.bandwidth;
        let LeastTimes { cached: with, uncached: without } = RTX_4090.least_times(&program);
        assert_eq!(with, 2.5e-3);
        assert!((without - (2.5e-3 + cached + (cache + 1) as f64 / RTX_4090.bandwidth)).abs() < 1e-9, "{without}");
    }
}
