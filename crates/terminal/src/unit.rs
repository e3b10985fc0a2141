//! What progress counts.

use crate::counted::counted_as;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things of this name, in the plural.
    Count(&'static str),
    /// Bytes, shown as MB.
    Bytes,
}

impl Unit {
    /// "3 of 8 graphs".
    pub(crate) fn part(self, done: u64, total: u64) -> String {
        match self {
            Self::Count(name) => format!("{done} of {}", of_name(total, name)),
            Self::Bytes => format!("{:.1} of {:.1} MB", done as f64 / 1e6, total as f64 / 1e6),
        }
    }

    /// "3 graphs".
    pub(crate) fn amount(self, done: u64) -> String {
        match self {
            Self::Count(name) => of_name(done, name),
            Self::Bytes => format!("{:.1} MB", done as f64 / 1e6),
        }
    }
}

/// "1 graph", "3 graphs", of a name in the plural.
fn of_name(number: u64, plural: &str) -> String {
    counted_as(number, plural.strip_suffix('s').unwrap_or(plural), plural)
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
}
