//! Numbers that users type.

use std::ops::RangeInclusive;

/// A parser for a clap argument: a number within `range`. NaN and infinity are in no range.
pub fn number(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn only_numbers_in_the_range_are_taken() {
        let ratio = number(0.0..=100.0);
        assert_eq!(["0.9", "0", "1e2"].map(|text| ratio(text).ok()), [Some(0.9), Some(0.0), Some(100.0)]);
        for wrong in ["nan", "NaN", "inf", "-inf", "-0.1", "1e3", "1e999", "", "0,9"] {
            assert_eq!(ratio(wrong), Err("expected a number from 0 to 100".into()), "{wrong}");
        }
    }
}
