//! The numbers that PyTorch draws for a seed: `torch.randn(n, generator=torch.Generator("cpu").manual_seed(seed))` in
//! float32, for at least 16 numbers.
//!
//! The generator is MT19937 (Matsumoto and Nishimura, 1998). The normal numbers are Box and Muller's, in blocks of 16,
//! as in `aten/src/ATen/native/cpu/DistributionTemplates.h`.

/// Numbers of the generator's state.
const STATE: usize = 624;
/// The distance of the two states that a new one is made of.
const MIDDLE: usize = 397;
/// Numbers that are made normal together.
const BLOCK: usize = 16;

struct MersenneTwister {
    state: [u32; STATE],
    next: usize,
}

impl MersenneTwister {
    fn new(seed: u32) -> Self {
        let mut state = [seed; STATE];
        for at in 1..STATE {
            let before = state[at - 1];
            state[at] = 1_812_433_253_u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(at as u32);
        }
        Self { state, next: STATE }
    }

    fn number(&mut self) -> u32 {
        if self.next == STATE {
            for at in 0..STATE {
                let mixed = (self.state[at] & 0x8000_0000) | (self.state[(at + 1) % STATE] & 0x7fff_ffff);
                let twist = if mixed & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[at] = self.state[(at + MIDDLE) % STATE] ^ (mixed >> 1) ^ twist;
            }
            self.next = 0;
        }
        let mut number = self.state[self.next];
        self.next += 1;
        number ^= number >> 11;
        number ^= (number << 7) & 0x9d2c_5680;
        number ^= (number << 15) & 0xefc6_0000;
        number ^ (number >> 18)
    }

    /// From 0 to 1, with the 24 bits that a float holds.
    fn uniform(&mut self) -> f32 {
        (self.number() & 0x00ff_ffff) as f32 / 16_777_216.0
    }
}

/// `count` normal numbers for a seed; at least 16 are drawn. PyTorch takes the seed's lower 32 bits.
pub(super) fn normal(seed: u64, count: usize) -> Vec<f32> {
    let mut generator = MersenneTwister::new((seed & 0xffff_ffff) as u32);
    let mut numbers: Vec<f32> = (0..count.max(BLOCK)).map(|_| generator.uniform()).collect();
    let length = numbers.len();
    numbers.chunks_exact_mut(BLOCK).for_each(make_normal);
    if !length.is_multiple_of(BLOCK) {
        // The last block is drawn again, and overlaps the one before.
        let last = &mut numbers[length - BLOCK..];
        last.iter_mut().for_each(|number| *number = generator.uniform());
        make_normal(last);
    }
    numbers.truncate(count);
    numbers
}

/// The first half of a block gives the radii, the second half the angles.
fn make_normal(block: &mut [f32]) {
    let (radii, angles) = block.split_at_mut(BLOCK / 2);
    for (one, two) in radii.iter_mut().zip(angles) {
        let radius = (-2.0 * (1.0 - *one).ln()).sqrt();
        let angle = 2.0 * std::f32::consts::PI * *two;
        (*one, *two) = (radius * angle.cos(), radius * angle.sin());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with `torch.randn(20, generator=torch.Generator("cpu").manual_seed(7))`.
    #[test]
    fn numbers_are_those_of_pytorch() {
        let found = normal(7, 20);
        for (found, expected) in found.iter().zip(SEED_7) {
            assert!((found - expected).abs() < 2e-6, "{found} instead of {expected}");
        }
        assert_eq!(normal(7, 20)[..4], normal(7, 64)[..4]);
    }

    const SEED_7: [f32; 20] = [
        -0.8201345, 0.3956312, 0.8989085, -1.3884039, 0.1984451, 0.7820727, 1.0391077, -0.7245107, -0.8489086,
        -1.2169294, -0.0810216, 1.3614851, -2.061478, 0.6741007, -1.3233458, -1.359769, -0.8667016, -0.5640067,
        -2.0564625, -0.3567225,
    ];
}
