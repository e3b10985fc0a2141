//! Numbers that users type.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds, RangeInclusive};
use std::str::FromStr;

/// A parser for a clap argument: a number within `range`. NaN and infinity are in no range.
pub fn number(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
    }
}

/// A parser for a clap argument: a whole number within `range`.
pub fn whole<T>(
    range: impl RangeBounds<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Default,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let least = match range.start_bound() {
                Bound::Included(least) | Bound::Excluded(least) => least.to_string(),
                Bound::Unbounded => T::default().to_string(),
            };
            match range.end_bound() {
                Bound::Included(most) => format!("expected a whole number from {least} to {most}"),
                Bound::Excluded(end) => format!("expected a whole number from {least}, below {end}"),
                Bound::Unbounded => format!("expected a whole number, at least {least}"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{number, whole};

    #[test]
    fn whole_numbers_have_no_other_signs() {
        let some = whole::<u16>(1..=300);
        assert_eq!(["1", "300", "007"].map(|text| some(text).ok()), [Some(1), Some(300), Some(7)]);
        for wrong in ["0", "301", "-1", "1.5", "1e2", "", "x", "99999"] {
            assert_eq!(some(wrong), Err("expected a whole number from 1 to 300".into()), "{wrong}");
        }
        assert_eq!(whole::<u32>(1..)("0"), Err("expected a whole number, at least 1".into()));
        assert_eq!(whole::<u8>(..)("256"), Err("expected a whole number, at least 0".into()));
        assert_eq!(whole::<u64>(..)("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(whole::<u8>(0..9)("9"), Err("expected a whole number from 0, below 9".into()));
    }

    #[test]
    fn only_numbers_in_the_range_are_taken() {
        let ratio = number(0.0..=100.0);
        assert_eq!(["0.9", "0", "1e2"].map(|text| ratio(text).ok()), [Some(0.9), Some(0.0), Some(100.0)]);
        for wrong in ["nan", "NaN", "inf", "-inf", "-0.1", "1e3", "1e999", "", "0,9"] {
            assert_eq!(ratio(wrong), Err("expected a number from 0 to 100".into()), "{wrong}");
        }
    }
}
