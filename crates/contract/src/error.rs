//! The errors of this crate.

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a contract, or with tensors that are checked against it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A graph's metadata lacks a key.
    #[error("the graph's metadata lacks {key}")]
    Missing {
        /// The key, such as `tileforge.contract`.
        key: &'static str,
    },
    /// A graph's metadata has a key whose value cannot be read.
    #[error("the graph's metadata has a {key} that cannot be read: {reason}")]
    Metadata {
        /// The key, such as `tileforge.contract`.
        key: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A value of the contract is outside its documented bounds.
    #[error("contract: {place}: expected {expected}, found {found}")]
    Rule {
        /// Where in the contract: `inputs.image.axes`.
        place: String,
        /// The bounds.
        expected: String,
        /// The value.
        found: String,
    },
    /// A tensor does not have a shape that the contract allows.
    #[error("`{tensor}`: expected {expected}, found {found}")]
    Shape {
        /// The tensor's name.
        tensor: String,
        /// The shape or length that the contract allows.
        expected: String,
        /// The shape or length that was given.
        found: String,
    },
    /// The contract is for another task.
    #[error("expected a model of task {expected}, found {found}")]
    Task {
        /// The requested task.
        expected: crate::Task,
        /// The contract's task.
        found: crate::Task,
    },
}
