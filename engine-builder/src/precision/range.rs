//! From a histogram to the range of values that 8 bits cover.

use super::histogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the range of an activation is chosen from the measured values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RangeMethod {
    /// From the smallest value to the largest: nothing is cut off.
    MinMax,
    /// All but one value in 10,000.
    Percentile,
    /// The cut after which the rounded distribution differs least from the real one (Kullback-Leibler divergence;
    /// Migacz, "8-bit Inference with TensorRT", GTC 2017).
    Entropy,
    /// The cut with the smallest mean square error, of rounding and cutting together.
    #[default]
    Mse,
}

impl RangeMethod {
    /// Every method.
    pub const ALL: [Self; 4] = [Self::MinMax, Self::Percentile, Self::Entropy, Self::Mse];

    /// The name on the command line and in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::MinMax => "minmax",
            Self::Percentile => "percentile",
            Self::Entropy => "entropy",
            Self::Mse => "mse",
        }
    }
}

impl fmt::Display for RangeMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for RangeMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|method| method.name() == text);
        found.ok_or_else(|| format!("expected one of {}, found \"{text}\"", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The share of the values that [`RangeMethod::Percentile`] keeps.
const KEPT: f64 = 0.9999;
/// The number of cuts to try on each side.
const CUTS: usize = 32;
/// Levels of 8 bits.
const LEVELS: f64 = 255.0;

/// The range `[low, high]` of the quantised values; if `symmetric`, symmetric around 0. It always includes 0.
pub(super) fn range(histogram: &Histogram, method: RangeMethod, symmetric: bool) -> [f64; 2] {
    let full = [f64::from(histogram.low), f64::from(histogram.high)];
    let mirrored = |[low, high]: [f64; 2]| {
        let magnitude = high.max(-low);
        if symmetric { [-magnitude, magnitude] } else { [low, high] }
    };
    match method {
        RangeMethod::MinMax => mirrored(full),
        RangeMethod::Percentile => mirrored(percentile(histogram, full)),
        RangeMethod::Entropy => best(mirrored(full), symmetric, |range| divergence(histogram, range)),
        RangeMethod::Mse => best(mirrored(full), symmetric, |range| mean_square(histogram, range)),
    }
}

fn percentile(histogram: &Histogram, [low, high]: [f64; 2]) -> [f64; 2] {
    // The number of values that may be cut off on each side.
    let spare = (histogram.total() as f64 * (1.0 - KEPT) / 2.0) as u64;
    let counts: Vec<(f64, u64)> = histogram.counts().collect();
    fn cut<'a>(mut counts: impl Iterator<Item = &'a (f64, u64)>, spare: u64) -> Option<f64> {
        let mut left_out = 0;
        let stays = |(_, count): &&(f64, u64)| {
            left_out += count;
            left_out > spare
        };
        counts.find(stays).map(|(value, _)| *value)
    }
    let (from, to) = (cut(counts.iter(), spare), cut(counts.iter().rev(), spare));
    [from.unwrap_or(low).max(low).min(0.0), to.unwrap_or(high).min(high).max(0.0)]
}

/// The part of `full` with the smallest cost. First both sides are cut together, then each side alone.
fn best(full: [f64; 2], symmetric: bool, cost: impl Fn([f64; 2]) -> f64) -> [f64; 2] {
    let shares = |most: f64| (1..=CUTS).rev().map(move |step| most * step as f64 / CUTS as f64);
    let mut chosen = full;
    let mut least = f64::INFINITY;
    let mut consider = |range: [f64; 2], chosen: &mut [f64; 2]| {
        let cost = cost(range);
        if cost < least {
            (least, *chosen) = (cost, range);
        }
    };
    shares(1.0).for_each(|share| consider(full.map(|side| side * share), &mut chosen));
    if !symmetric {
        let together = chosen;
        shares(1.0).for_each(|share| consider([full[0] * share, together[1]], &mut chosen));
        let lower = chosen;
        shares(1.0).for_each(|share| consider([lower[0], full[1] * share], &mut chosen));
    }
    chosen
}

fn mean_square(histogram: &Histogram, [low, high]: [f64; 2]) -> f64 {
    let step = (high - low) / LEVELS;
    let rounding = step * step / 12.0;
    let error = |value: f64| {
        let cut = (low - value).max(value - high).max(0.0);
        if cut > 0.0 { cut * cut } else { rounding }
    };
    histogram.counts().map(|(value, count)| error(value) * count as f64).sum()
}

/// Kullback-Leibler divergence of the rounded distribution from the real one.
///
/// The real distribution is cut to the range, with the values outside counted at its ends. In the rounded distribution,
/// the count of each quantised value is spread evenly over the bins that it stands for and that were not empty.
fn divergence(histogram: &Histogram, [low, high]: [f64; 2]) -> f64 {
    let total = histogram.total() as f64;
    let step = (high - low) / LEVELS;
    if step <= 0.0 || total == 0.0 {
        return f64::INFINITY;
    }
    let quantised = |value: f64| ((value.clamp(low, high) - low) / step).round() as usize;
    let bins: Vec<(f64, u64)> = histogram.counts().collect();
    // The rounded distribution counts only values inside the range, so that cutting off has a cost.
    let mut inside = vec![(0.0, 0.0); LEVELS as usize + 1];
    for (value, count) in bins.iter().filter(|(value, _)| (low..=high).contains(value)) {
        let (sum, number) = &mut inside[quantised(*value)];
        *sum += *count as f64;
        *number += 1.0;
    }
    let kept: f64 = inside.iter().map(|(sum, _)| sum).sum();
    let mut outside = [0.0; 2];
    let mut first_and_last: [Option<usize>; 2] = [None; 2];
    for (position, (value, count)) in bins.iter().enumerate() {
        match (*value < low, *value > high) {
            (true, _) => outside[0] += *count as f64,
            (_, true) => outside[1] += *count as f64,
            _ => {
                first_and_last[0].get_or_insert(position);
                first_and_last[1] = Some(position);
            }
        }
    }
    let mut divergence = 0.0;
    for (position, (value, count)) in bins.iter().enumerate().filter(|(_, (value, _))| (low..=high).contains(value)) {
        let ends = (0..2).filter(|end| first_and_last[*end] == Some(position)).map(|end| outside[end]).sum::<f64>();
        let p = (*count as f64 + ends) / total;
        let (sum, number) = inside[quantised(*value)];
        let q = sum / number / kept;
        divergence += p * (p / q).ln();
    }
    divergence
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A normal distribution of deviation 1, and one value far out.
    fn with_outlier() -> Histogram {
        let mut noise = tileforge_exporter::Noise::new(3);
        let values: Vec<f32> = (0..50_000).map(|_| (0..12).map(|_| noise.next_signed()).sum::<f32>() / 2.0).collect();
        let mut histogram = Histogram::default();
        histogram.add(&values);
        histogram.add(&[60.0]);
        histogram
    }

    #[test]
    fn outliers_are_kept_or_cut() {
        let histogram = with_outlier();
        assert_eq!(range(&histogram, RangeMethod::MinMax, false)[1], 60.0);
        for method in [RangeMethod::Percentile, RangeMethod::Entropy] {
            let [low, high] = range(&histogram, method, false);
            assert!((-6.0..-2.0).contains(&low) && (2.0..20.0).contains(&high), "{method}: {low} {high}");
            let [low, high] = range(&histogram, method, true);
            assert!(low == -high && (2.0..20.0).contains(&high), "{method}: {low} {high}");
        }
    }

    #[test]
    fn no_method_has_a_smaller_square_than_mse() {
        let histogram = with_outlier();
        for symmetric in [false, true] {
            let least = mean_square(&histogram, range(&histogram, RangeMethod::Mse, symmetric));
            for method in RangeMethod::ALL {
                // Cuts are tried in steps, so the best cut may lie between two of them.
                assert!(least <= 1.02 * mean_square(&histogram, range(&histogram, method, symmetric)), "{method}");
            }
        }
    }

    fn histogram_of(values: &[f32]) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.add(values);
        histogram
    }

    #[test]
    fn a_square_is_of_the_rounding_inside_and_of_what_is_cut_off_outside() {
        let inside = mean_square(&histogram_of(&[0.5, -0.5]), [-1.0, 1.0]);
        let rounding = (2.0_f64 / 255.0).powi(2) / 12.0;
        assert!((inside / (2.0 * rounding) - 1.0).abs() < 1e-9, "{inside}");
        let often = mean_square(&histogram_of(&[3.0; 4]), [-1.0, 2.0]);
        assert!((often - 4.0).abs() < 0.01, "{often}");
        let histogram = histogram_of(&[-3.0, 0.5, 3.9]);
        for (range, expected) in [([-1.0, 2.0], 4.0 + 1.9_f64.powi(2)), ([-1.0, 5.0], 4.0), ([-5.0, 2.0], 3.61)] {
            let found = mean_square(&histogram, range);
            assert!((found - expected).abs() < 0.01, "{range:?}: {found}");
        }
    }

    #[test]
    fn a_percentile_cuts_the_same_number_of_values_off_each_side() {
        // Of 100,011 values, five may be cut off on each side.
        let mut values: Vec<f32> = (0..100_000).map(|at| at as f32 / 50_000.0 - 1.0).collect();
        values.extend([50.0, 60.0, 70.0, 80.0, 90.0]);
        values.extend([-50.0, -60.0, -70.0, -80.0, -90.0, -100.0]);
        let [low, high] = range(&histogram_of(&values), RangeMethod::Percentile, false);
        assert!((-50.1..-49.9).contains(&low) && (0.9..1.1).contains(&high), "{low} {high}");
    }

    #[test]
    fn the_best_range_is_cut_on_each_side_alone() {
        let cost = |[low, high]: [f64; 2]| (low + 3.0).abs() + (high - 1.0).abs();
        assert_eq!(best([-4.0, 4.0], false, cost), [-3.0, 1.0]);
        assert_eq!(best([-4.0, 4.0], false, |[low, high]| cost([-high, -low])), [-1.0, 3.0]);
        assert_eq!(best([-4.0, 4.0], true, |[low, high]| (low + 2.0).abs() + (high - 2.0).abs()), [-2.0, 2.0]);
    }

    #[test]
    fn a_divergence_counts_what_is_cut_off_at_the_ends() {
        // Bins are 1/512 wide: two neighbours share a level, and the third value has another level.
        let (first, second, last) = (0.5 / 512.0, 1.5 / 512.0, 1536.5 / 512.0);
        let counts = [(first, 2), (second, 6), (last, 4), (-1.0, 3), (3.9, 1)];
        let values = counts.iter().flat_map(|&(value, count)| std::iter::repeat_n(value as f32, count));
        let histogram = histogram_of(&values.collect::<Vec<_>>());
        let found = divergence(&histogram, [first, last]);
        // The real shares are 5, 6 and 5 sixteenths, the rounded ones a third each.
        let expected = 2.0 * 5.0 / 16.0 * (15.0_f64 / 16.0).ln() + 6.0 / 16.0 * (18.0_f64 / 16.0).ln();
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        assert_eq!(divergence(&histogram, [0.0, 0.0]), f64::INFINITY);
        assert_eq!(divergence(&Histogram::default(), [-1.0, 1.0]), f64::INFINITY);
    }

    #[test]
    fn zero_is_always_inside() {
        let mut positive = Histogram::default();
        positive.add(&[3.0, 5.0]);
        for method in RangeMethod::ALL {
            let [low, high] = range(&positive, method, false);
            assert!(low == 0.0 && (4.0..=5.0).contains(&high), "{method}: {low} {high}");
            assert_eq!(range(&Histogram::default(), method, true), [0.0, 0.0]);
        }
        for method in RangeMethod::ALL {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
        assert_eq!(RangeMethod::MinMax.to_string(), "minmax");
        assert!("best".parse::<RangeMethod>().unwrap_err().contains("minmax, percentile, entropy, mse"));
    }
}
