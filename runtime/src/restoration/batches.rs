//! Batches of frames that go through the networks together, and how batches blend.

use std::f32::consts::PI;

/// The numbers of the frames that pad a batch of `count` frames to `full`: backwards from the frame before the last.
/// If there are not enough: all from the last back to the second one, and then the last one repeated.
pub(super) fn filling(count: usize, full: usize) -> Vec<usize> {
    let (last, missing) = (count.saturating_sub(1), full.saturating_sub(count));
    if missing < count {
        return (0..last).rev().take(missing).collect();
    }
    (1..count).rev().chain(std::iter::repeat(last)).take(missing).collect()
}

/// The weight of the earlier batch in each frame that it shares with the later one.
pub(super) fn weights(shared: usize) -> Vec<f32> {
    match shared {
        0 => Vec::new(),
        1 => vec![1.0],
        2 => vec![1.0, 0.0],
        _ => {
            let place = |at: usize| at as f32 / (shared - 1) as f32;
            // In the first and the last third, only one batch counts.
            let of = |place: f32| 0.5 + 0.5 * (PI * (3.0 * place - 1.0).clamp(0.0, 1.0)).cos();
            (0..shared).map(|at| of(place(at))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_filled_by_what_was_before_their_end() {
        assert_eq!(filling(5, 5), [0_usize; 0]);
        assert_eq!(filling(4, 5), [2]);
        assert_eq!(filling(3, 5), [1, 0]);
        assert_eq!(filling(2, 5), [1, 1, 1]);
        assert_eq!(filling(1, 5), [0, 0, 0, 0]);
        assert_eq!(filling(3, 9), [2, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn the_earlier_batch_hands_over_in_the_middle() {
        assert_eq!(weights(0), [0.0_f32; 0]);
        assert_eq!(weights(1), [1.0]);
        assert_eq!(weights(2), [1.0, 0.0]);
        for (shared, expected) in [
            (3, vec![1.0, 0.5, 0.0]),
            (4, vec![1.0, 1.0, 0.0, 0.0]),
            (5, vec![1.0, 1.0, 0.5, 0.0, 0.0]),
            (8, vec![1.0, 1.0, 1.0, 0.811_745, 0.188_255, 0.0, 0.0, 0.0]),
            (7, vec![1.0, 1.0, 1.0, 0.5, 0.0, 0.0, 0.0]),
        ] {
            let found = weights(shared);
            let close = found.iter().zip(&expected).all(|(one, other)| (one - other).abs() < 1e-6);
            assert!(found.len() == shared && close, "{shared}: {found:?}");
        }
    }
}
