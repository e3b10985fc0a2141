//! PyTorch's generator of the CPU.

use super::Noise;
use super::mersenne_twister::MersenneTwister;
use super::vector_math::{ln, sin_cos};

/// Tensors of this many elements and more are filled in blocks of as many.
const BLOCK: usize = 16;

/// `torch.Generator("cpu").manual_seed(seed)`, for `torch.randn` in float32.
///
/// Equal bit for bit to PyTorch on x86-64 with AVX2. On processors without vector units PyTorch itself gives other last
/// bits. (`aten/src/ATen/native/cpu/DistributionTemplates.h` and `aten/src/ATen/core/DistributionsHelper.h`.)
#[derive(Clone, Debug)]
pub struct TorchCpu {
    engine: MersenneTwister,
    /// The second number of a pair, for the next small tensor. It outlives large tensors in between.
    spare: Option<f64>,
}

impl TorchCpu {
    /// A generator with this seed. PyTorch uses the lower 32 bits of a seed.
    pub fn new(seed: u64) -> Self {
        Self { engine: MersenneTwister::new(seed as u32), spare: None }
    }

    /// The numbers of a non-contiguous tensor, in its memory order. PyTorch draws them one by one, for any size.
    pub fn one_by_one(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.normal_f64() as f32).collect()
    }

    /// From 0 to 1 (exclusive), 24 bits.
    fn uniform_f32(&mut self) -> f32 {
        (self.engine.next_u32() & 0x00ff_ffff) as f32 / 16_777_216.0
    }

    /// From 0 to 1 (exclusive), 53 bits.
    fn uniform_f64(&mut self) -> f64 {
        let high = u64::from(self.engine.next_u32());
        let bits = (high << 32 | u64::from(self.engine.next_u32())) & ((1 << 53) - 1);
        bits as f64 / (1_u64 << 53) as f64
    }

    fn uniform_block(&mut self, block: &mut [f32]) {
        block.fill_with(|| self.uniform_f32());
    }

    /// One number of a Box–Muller pair in double precision.
    fn normal_f64(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let angle = std::f64::consts::TAU * self.uniform_f64();
        let radius = (-2.0 * (-self.uniform_f64()).ln_1p()).sqrt();
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }
}

impl Noise for TorchCpu {
    fn fill(&mut self, values: &mut [f32]) {
        if values.len() < BLOCK {
            values.copy_from_slice(&self.one_by_one(values.len()));
            return;
        }
        self.uniform_block(values);
        values.chunks_exact_mut(BLOCK).for_each(box_muller);
        if !values.len().is_multiple_of(BLOCK) {
            // The last 16 values are drawn again as a block, which replaces some values of the block before.
            let start = values.len() - BLOCK;
            self.uniform_block(&mut values[start..]);
            box_muller(&mut values[start..]);
        }
    }
}

/// Eight uniform numbers for the radii, then eight for the angles, become normal numbers.
fn box_muller(block: &mut [f32]) {
    let (first, second) = block.split_at_mut(BLOCK / 2);
    for (a, b) in first.iter_mut().zip(second) {
        let radius = (-2.0 * ln(1.0 - *a)).sqrt();
        let (sine, cosine) = sin_cos(std::f32::consts::TAU * *b);
        // PyTorch adds the mean, 0, which turns −0 into 0.
        (*a, *b) = (radius * cosine + 0.0, radius * sine + 0.0);
    }
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::{Noise, TorchCpu};

    #[test]
    fn numbers_are_those_of_pytorch_bit_for_bit() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden-random/torch-cpu");
        let mut seeds = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let file = std::fs::read(&path).unwrap();
            let (_, header) = SafeTensors::read_metadata(&file).unwrap();
            let seed = header.metadata().as_ref().unwrap()["seed"].parse().unwrap();
            let mut generator = TorchCpu::new(seed);
            let tensors = SafeTensors::deserialize(&file).unwrap();
            for index in 0..tensors.len() {
                let expected = tensors.tensor(&index.to_string()).unwrap();
                let expected =
                    expected.data().chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
                let expected: Vec<u32> = expected.collect();
                let found: Vec<u32> = generator.normal(expected.len()).into_iter().map(f32::to_bits).collect();
                assert!(found == expected, "seed {seed}, tensor {index} of {} elements", expected.len());
            }
            seeds += 1;
        }
        assert!(seeds >= 4, "{seeds} files in {folder}");
    }
}
