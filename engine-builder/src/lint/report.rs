//! What a lint has found.

use std::fmt;

use serde::Serialize;
use tileforge_graph::Node;

use super::target::Target;
use crate::{Error, Result};

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// TensorRT refuses the graph, or a part of it goes to another provider.
    Error,
    /// The graph works, but the user should know something.
    Warning,
    /// The graph works, but could be faster.
    Hint,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How serious it is.
    pub severity: Severity,
    /// The node, if the finding is about one.
    pub node: Option<String>,
    /// The node's operator.
    pub operator: Option<String>,
    /// What was expected, and what was found.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.severity {
            Severity::Error => "error: ",
            Severity::Warning => "warning: ",
            Severity::Hint => "hint: ",
        })?;
        if let (Some(node), Some(operator)) = (&self.node, &self.operator) {
            write!(formatter, "{node} ({operator}): ")?;
        }
        formatter.write_str(&self.message)
    }
}

/// Everything that [`lint`](super::lint) found, errors first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LintReport {
    /// The TensorRT version that was checked.
    pub target: Target,
    /// Errors, then warnings, then hints, each in the graph's order.
    pub findings: Vec<Finding>,
}

impl LintReport {
    /// The findings that make TensorRT refuse the graph.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.of(Severity::Error)
    }

    /// The findings of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.severity == severity)
    }

    /// Checks that there are no errors.
    ///
    /// # Errors
    /// [`Error::Lint`] with all of them, about the graph `name`.
    pub fn check(&self, name: &str) -> Result<()> {
        let lines: String = self.errors().map(|finding| format!("\n  {finding}")).collect();
        if lines.is_empty() { Ok(()) } else { Err(self.refusal(name, &lines)) }
    }

    /// Checks that there are no errors, for a caller that has already shown them.
    ///
    /// # Errors
    /// [`Error::Lint`] for the graph `name`, with the number of errors but without their texts.
    pub fn check_shown(&self, name: &str) -> Result<()> {
        let count = self.errors().count();
        match count {
            0 => Ok(()),
            1 => Err(self.refusal(name, " 1 error")),
            _ => Err(self.refusal(name, &format!(" {count} errors"))),
        }
    }

    fn refusal(&self, name: &str, errors: &str) -> Error {
        Error::Lint(format!("{name}: {} would not take this graph:{errors}", self.target))
    }
}

/// The findings so far.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn about(&mut self, severity: Severity, node: Option<&Node>, message: String) {
        let (name, operator) = (node.map(|node| node.name.clone()), node.map(|node| node.operator.clone()));
        self.0.push(Finding { severity, node: name, operator, message });
    }

    pub(super) fn error(&mut self, node: &Node, message: impl Into<String>) {
        self.about(Severity::Error, Some(node), message.into());
    }
}
