//! Random numbers that are the same on every machine.

/// Xorshift (<https://www.jstatsoft.org/article/view/v008i14>): fast enough to fill a checkpoint of billions of
/// weights.
#[derive(Debug, Clone)]
pub struct Noise(u64);

impl Noise {
    /// The sequence that belongs to a seed.
    pub fn new(seed: u64) -> Self {
        // From the state 0, the sequence would stay 0.
        Noise((seed ^ 0x9e37_79b9_7f4a_7c15).max(1))
    }

    /// The next number, uniform in −1 … 1.
    pub fn next_signed(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
