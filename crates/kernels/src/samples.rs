//! What the tests of the kernels share.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::thread;

/// Numbers between -1 and 1 that look random.
pub(crate) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0) as f32
    };
    (0..count).map(|_| next()).collect()
}

/// Calls a function as often as it is told, on so many threads.
pub(crate) fn on_threads(threads: usize) -> impl Fn(usize, &(dyn Fn() + Sync)) -> Result<(), Infallible> {
    move |count, f| {
        thread::scope(|scope| {
            for first in 0..threads {
                scope.spawn(move || (first..count).step_by(threads).for_each(|_| f()));
            }
        });
        Ok(())
    }
}

/// The largest number, or NaN if there is one.
pub(crate) fn largest(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(0.0, |largest, number| if number.is_nan() || number > largest { number } else { largest })
}
