//! PyTorch's generator of CUDA devices.

use super::Noise;

/// Threads of a block of PyTorch's kernel.
const BLOCK: u64 = 256;
/// Numbers that a thread draws at once.
const DRAWN: u64 = 4;

/// `torch.Generator("cuda").manual_seed(seed)`, for `torch.randn` in float32.
///
/// Philox 4×32-10 (Salmon and others 2011, <https://doi.org/10.1145/2063384.2063405>) with cuRAND's Box–Muller
/// transform, distributed over a kernel's threads as PyTorch does
/// (`aten/src/ATen/native/cuda/DistributionTemplates.h`). The random integers are equal. The normal numbers are
/// computed exactly here and with the GPU's approximate sine there: they differ by less than 1e-6.
#[derive(Clone, Debug)]
pub struct Philox {
    key: [u32; 2],
    /// How many groups of four numbers every thread has drawn.
    counter: u64,
    /// The most threads of one kernel.
    threads: u64,
}

impl Philox {
    /// A generator with this seed, for tensors that have no more elements than the GPU has threads (196,608 on an RTX
    /// 4090). stable-diffusion.cpp and the web UI of AUTOMATIC1111 draw tensors of any size like this.
    pub fn new(seed: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], counter: 0, threads: u64::MAX }
    }

    /// The same on a GPU with this many streaming multiprocessors, each with this many threads: a larger tensor takes
    /// several numbers from each thread.
    pub fn with_multiprocessors(seed: u64, multiprocessors: u32, threads_of_each: u32) -> Self {
        let blocks = u64::from(multiprocessors) * (u64::from(threads_of_each) / BLOCK);
        Self { threads: BLOCK * blocks.max(1), ..Self::new(seed) }
    }
}

impl Noise for Philox {
    fn fill(&mut self, values: &mut [f32]) {
        let count = values.len() as u64;
        let threads = self.threads.min(count.div_ceil(BLOCK) * BLOCK);
        for (index, value) in (0_u64..).zip(values) {
            let (thread, turn) = (index % threads, index / threads);
            let counter = self.counter + turn / DRAWN;
            let bits = philox([counter as u32, (counter >> 32) as u32, thread as u32, (thread >> 32) as u32], self.key);
            *value = match turn % DRAWN {
                0 => box_muller(bits[0], bits[1]).0,
                1 => box_muller(bits[0], bits[1]).1,
                2 => box_muller(bits[2], bits[3]).0,
                _ => box_muller(bits[2], bits[3]).1,
            };
        }
        if count > 0 {
            self.counter += count.div_ceil(threads * DRAWN);
        }
    }
}

/// Philox 4×32 with ten rounds.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let first = u64::from(counter[0]) * 0xd251_1f53;
        let second = u64::from(counter[2]) * 0xcd9e_8d57;
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

/// cuRAND's: the sine first, then the cosine.
fn box_muller(x: u32, y: u32) -> (f32, f32) {
    // 2⁻³² and 2π · 2⁻³² in float32; half of it keeps both away from 0.
    const SCALE: f32 = 2.328_306_4e-10;
    const ANGLE: f32 = SCALE * std::f32::consts::TAU;
    let u = f64::from((x as f32).mul_add(SCALE, SCALE / 2.0));
    let v = f64::from((y as f32).mul_add(ANGLE, ANGLE / 2.0));
    // Rounding can make u slightly larger than 1.
    let radius = (-2.0 * u.ln()).max(0.0).sqrt();
    ((radius * v.sin()) as f32, (radius * v.cos()) as f32)
}

#[cfg(test)]
mod tests {
    use super::{Noise, Philox, philox};

    #[test]
    fn integers_are_those_of_the_specification() {
        // The known answers of Random123 for philox4x32 with ten rounds.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let known = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(philox(pi, [0xa409_3822, 0x299f_31d0]), known);
    }

    #[test]
    fn normal_numbers_are_those_of_cuda() {
        // What `torch.randn(3, 4, device="cuda")` gives after `torch.manual_seed(0)`.
        let known = [
            -0.924_662_59,
            -0.425_344_15,
            -2.643_845_7,
            0.145_183_88,
            -0.120_866_47,
            -0.579_725_64,
            -0.622_851_22,
            -0.328_387_09,
            -1.074_542_31,
            -0.363_144_07,
            -1.671_050_67,
            2.265_504_97,
        ];
        for (found, known) in Philox::new(0).normal(12).into_iter().zip(known) {
            assert!((f64::from(found) - known).abs() < 1e-6, "{found} instead of {known}");
        }
    }

    #[test]
    fn a_second_tensor_goes_on() {
        let mut generator = Philox::new(7);
        let (first, second) = (generator.normal(100), generator.normal(100));
        assert_ne!(first, second);
        assert_eq!(generator.counter, 2);
        assert!(Philox::new(7 << 32).normal(100) != first, "the upper half of the seed counts");
    }

    #[test]
    fn a_large_tensor_takes_several_numbers_from_each_thread() {
        let small = Philox::new(3).normal(256);
        let mut generator = Philox::with_multiprocessors(3, 1, 256);
        let large = generator.normal(256 * 5);
        assert_eq!(large[..256], small);
        let cosines: Vec<f32> = (0..256)
            .map(|thread| {
                let bits = philox([0, 0, thread, 0], [3, 0]);
                super::box_muller(bits[0], bits[1]).1
            })
            .collect();
        assert_eq!(large[256..512], cosines);
        // The fifth number is the first of the next group.
        let mut next = Philox::new(3);
        next.normal(256);
        assert_eq!(large[1024..], next.normal(256));
        assert_eq!(generator.counter, 2);
    }

    #[test]
    fn an_empty_tensor_changes_nothing() {
        let mut generator = Philox::new(0);
        generator.fill(&mut []);
        assert_eq!(generator.counter, 0);
    }
}
