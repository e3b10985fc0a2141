//! MT19937 (Matsumoto and Nishimura 1998, <https://doi.org/10.1145/272991.272995>; `mt19937ar.c` of 2002 for the seed).

const LENGTH: usize = 624;
const SHIFT: usize = 397;
const MATRIX: u32 = 0x9908_b0df;
const UPPER: u32 = 0x8000_0000;

/// 32 random bits at a time.
#[derive(Clone, Debug)]
pub(super) struct MersenneTwister {
    state: [u32; LENGTH],
    next: usize,
}

impl MersenneTwister {
    pub(super) fn new(seed: u32) -> Self {
        let mut state = [seed; LENGTH];
        for index in 1..LENGTH {
            let before: u32 = state[index - 1];
            state[index] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(index as u32);
        }
        Self { state, next: LENGTH }
    }

    pub(super) fn next_u32(&mut self) -> u32 {
        if self.next == LENGTH {
            self.twist();
        }
        let mut bits = self.state[self.next];
        self.next += 1;
        bits ^= bits >> 11;
        bits ^= (bits << 7) & 0x9d2c_5680;
        bits ^= (bits << 15) & 0xefc6_0000;
        bits ^ (bits >> 18)
    }

    fn twist(&mut self) {
        for index in 0..LENGTH {
            let joined = (self.state[index] & UPPER) | (self.state[(index + 1) % LENGTH] & !UPPER);
            let odd = if joined & 1 == 1 { MATRIX } else { 0 };
            self.state[index] = self.state[(index + SHIFT) % LENGTH] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::MersenneTwister;

    #[test]
    fn the_ten_thousandth_number_of_the_default_seed_is_that_of_the_c_plus_plus_standard() {
        // [rand.predef] of the C++ standard.
        let mut generator = MersenneTwister::new(5489);
        let last = (0..10_000).map(|_| generator.next_u32()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}
