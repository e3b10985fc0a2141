//! What progress counts.

use std::time::Duration;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Items of this name, which is in the plural.
    Count(&'static str),
    /// The same, with the number of items a second.
    Rate(&'static str),
    /// Bytes, shown as MB.
    Bytes,
}

impl Unit {
    /// "3 of 8 graphs".
    pub(crate) fn part(self, done: u64, total: u64) -> String {
        match self {
            Self::Count(name) | Self::Rate(name) => format!("{} of {}", grouped(done), of_name(total, name)),
            Self::Bytes => format!("{:.1} of {:.1} MB", done as f64 / 1e6, total as f64 / 1e6),
        }
    }

    /// ", 3.2 frames a second", averaged over the stage; empty for units without a rate, and while nothing is done.
    pub(crate) fn rate(self, done: u64, elapsed: Duration) -> String {
        match self {
            Self::Rate(name) if done > 0 && !elapsed.is_zero() => {
                format!(", {:.1} {name} a second", done as f64 / elapsed.as_secs_f64())
            }
            _ => String::new(),
        }
    }

    /// "3 graphs".
    pub(crate) fn amount(self, done: u64) -> String {
        match self {
            Self::Count(name) | Self::Rate(name) => of_name(done, name),
            Self::Bytes => format!("{:.1} MB", done as f64 / 1e6),
        }
    }
}

/// A number with a comma at each thousand: "1,000".
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 graph", "3,000 graphs", of a name in the plural.
fn of_name(number: u64, plural: &str) -> String {
    let name = if number == 1 { plural.strip_suffix('s').unwrap_or(plural) } else { plural };
    format!("{} {name}", grouped(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_no_plural() {
        let graphs = Unit::Count("graphs");
        assert_eq!([graphs.part(0, 1), graphs.part(1, 3)], ["0 of 1 graph", "1 of 3 graphs"]);
        assert_eq!([graphs.amount(1), graphs.amount(0)], ["1 graph", "0 graphs"]);
    }

    #[test]
    fn thousands_are_set_apart() {
        let texts = [0, 12, 999, 1000, 12_345, 1_000_000, u64::MAX].map(grouped);
        assert_eq!(texts, ["0", "12", "999", "1,000", "12,345", "1,000,000", "18,446,744,073,709,551,615"]);
    }
}
