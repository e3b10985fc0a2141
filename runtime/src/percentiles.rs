//! Percentiles of measurements.

/// The percentile `part`, 0 to 1, of sorted values, interpolated between its two neighbours; 0 without values.
pub fn percentile(sorted: &[f64], part: f64) -> f64 {
    let at = part * sorted.len().saturating_sub(1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    let value = |position: usize| sorted.get(position).copied().unwrap_or(0.0);
    value(low) + (value(high) - value(low)) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_lie_between_the_values() {
        let values = [1.0, 2.0, 4.0];
        assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|part| percentile(&values, part)), [1.0, 1.5, 2.0, 3.0, 4.0]);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
