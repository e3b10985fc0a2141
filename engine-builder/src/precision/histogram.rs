//! The distribution of a tensor's values: minimum, maximum, and a histogram that grows with them.

use serde::{Deserialize, Serialize};

/// Bins on each side of 0.
const HALF: usize = 2048;

/// Larger values are counted in the outer bins. With this limit, the width of both sides together is still finite.
const LIMIT_MAXIMUM: f32 = f32::from_bits(0x7e80_0000); // 2^126

/// How often values occur. Values are added in any number of pieces, in bounded memory.
///
/// The bins cover −limit … limit, where limit is a power of two. A larger value doubles the limit, which merges pairs
/// of bins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Histogram {
    /// Smallest value.
    pub(super) low: f32,
    /// Largest value.
    pub(super) high: f32,
    /// Whether a value was infinite or NaN. Such values are not counted.
    pub(super) non_finite: bool,
    limit: f32,
    bins: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        // The smallest limit for which the bins are still normal numbers.
        Histogram { low: 0.0, high: 0.0, non_finite: false, limit: 2_f32.powi(-100), bins: vec![0; 2 * HALF] }
    }
}

impl Histogram {
    /// Adds values. The range always includes 0: padding is 0, and there must be a zero point.
    pub(super) fn add(&mut self, values: &[f32]) {
        let (mut low, mut high) = (self.low, self.high);
        for value in values {
            if value.is_finite() {
                low = low.min(*value);
                high = high.max(*value);
            } else {
                self.non_finite = true;
            }
        }
        (self.low, self.high) = (low, high);
        self.grow_to(self.magnitude());
        let scale = HALF as f32 / self.limit;
        for value in values.iter().filter(|value| value.is_finite()) {
            // The quotient is not negative, so the conversion rounds down.
            let bin = (value * scale + HALF as f32) as usize;
            self.bins[bin.min(2 * HALF - 1)] += 1;
        }
    }

    /// The largest magnitude.
    pub(super) fn magnitude(&self) -> f32 {
        self.high.max(-self.low)
    }

    fn grow_to(&mut self, magnitude: f32) {
        while self.limit < magnitude.min(LIMIT_MAXIMUM) {
            self.limit *= 2.0;
            let mut merged = vec![0; 2 * HALF];
            for (bin, count) in self.bins.iter().enumerate() {
                merged[HALF / 2 + bin / 2] += count;
            }
            self.bins = merged;
        }
    }

    /// The middle and the count of each bin that is not empty.
    pub(super) fn counts(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let width = f64::from(self.limit) / HALF as f64;
        let middle = move |bin: usize| (bin as f64 - HALF as f64 + 0.5) * width;
        self.bins.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(bin, count)| (middle(bin), *count))
    }

    /// Number of values.
    pub(super) fn total(&self) -> u64 {
        self.bins.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_count_as_the_whole() {
        let values: Vec<f32> = (0..10_000).map(|i| ((i * 7919 % 10_007) as f32 / 100.0 - 40.0).powi(3)).collect();
        let mut whole = Histogram::default();
        whole.add(&values);
        let mut pieces = Histogram::default();
        values.chunks(17).for_each(|piece| pieces.add(piece));
        assert_eq!((whole.low, whole.high, whole.total()), (pieces.low, pieces.high, pieces.total()));
        assert_eq!(whole.total(), 10_000);
        let mean = |h: &Histogram| h.counts().map(|(value, count)| value * count as f64).sum::<f64>() / 10_000.0;
        let exact = values.iter().map(|v| f64::from(*v)).sum::<f64>() / 10_000.0;
        assert!(
            (mean(&whole) - exact).abs() < 150.0 && (mean(&pieces) - exact).abs() < 300.0,
            "{} {} {exact}",
            mean(&whole),
            mean(&pieces)
        );
    }

    #[test]
    fn every_value_is_counted_in_the_bin_that_it_lies_in() {
        let close = |found: f64, value: f64, limit: f64| (found - value).abs() <= 0.5 * limit / HALF as f64;
        let mut histogram = Histogram::default();
        for (pieces, limit) in [(&[0.4, -0.3][..], 0.5), (&[1.0], 1.0), (&[-5.0, 5.0], 8.0)] {
            histogram.add(pieces);
            for value in pieces {
                let counted = |(middle, count): (f64, u64)| close(middle, f64::from(*value), limit) && count == 1;
                assert!(histogram.counts().any(counted), "{value}: {:?}", histogram.counts().collect::<Vec<_>>());
            }
        }
        // All of them, in the order of their values, in the bins of the last limit.
        let found: Vec<f64> = histogram.counts().map(|(middle, _)| middle).collect();
        assert_eq!(found.len(), 5);
        assert!(found.iter().zip([-5.0, -0.3, 0.4, 1.0, 5.0]).all(|(found, value)| close(*found, value, 8.0)));
        assert_eq!(histogram.magnitude(), 5.0);
        histogram.add(&[-6.0]);
        assert_eq!(histogram.magnitude(), 6.0);
    }

    #[test]
    fn infinite_values_and_nan_are_noticed_and_not_counted() {
        let mut histogram = Histogram::default();
        histogram.add(&[1.0, f32::NAN, -3.0, f32::INFINITY]);
        assert!(histogram.non_finite);
        assert_eq!((histogram.low, histogram.high, histogram.total()), (-3.0, 1.0, 2));
        histogram.add(&[f32::MAX, f32::MIN_POSITIVE]);
        assert_eq!((histogram.magnitude(), histogram.total()), (f32::MAX, 4));
        let (largest, _) = histogram.counts().last().unwrap();
        assert!((0.999..1.0).contains(&(largest / 2_f64.powi(126))), "{largest}");
    }
}
