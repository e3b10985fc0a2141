//! Figures as text.

use tileforge_session::Assigned;
use tileforge_terminal::counted;

/// "31.42 dB", or what stands for infinity.
pub(crate) fn decibels(value: Option<f64>) -> String {
    value.map_or("identical".into(), |value| format!("{value:.2} dB"))
}

/// "CPUExecutionProvider (57 nodes)": what a session's nodes run on, by ONNX Runtime's names.
pub(crate) fn nodes(assigned: &[Assigned]) -> String {
    let each = assigned
        .iter()
        .map(|Assigned { provider, nodes }| format!("{provider} ({})", counted(*nodes, "node")))
        .collect::<Vec<_>>();
    if each.is_empty() { "no provider (0 nodes)".into() } else { each.join(", ") }
}
