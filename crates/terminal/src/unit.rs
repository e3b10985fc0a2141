//! What progress counts.

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
            Self::Count(name) => format!("{done} of {total} {name}"),
            Self::Bytes => format!("{:.1} of {:.1} MB", done as f64 / 1e6, total as f64 / 1e6),
        }
    }

    /// "3 graphs".
    pub(crate) fn amount(self, done: u64) -> String {
        match self {
            Self::Count(name) => format!("{done} {name}"),
            Self::Bytes => format!("{:.1} MB", done as f64 / 1e6),
        }
    }
}
