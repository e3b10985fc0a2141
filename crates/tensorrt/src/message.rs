//! The builder's messages, and the graph's nodes that they refer to.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How severe a message is, from the most to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// An internal error of the builder.
    Internal,
    /// The build cannot go on.
    Error,
    /// The build goes on.
    Warning,
    /// What the builder is doing.
    Info,
    /// Every layer, and how it was optimised.
    Verbose,
}

/// One line of the builder's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// How severe it is.
    pub severity: Severity,
    /// The builder's words.
    pub text: String,
}

/// Why the builder refused a graph, and the part of the graph that it refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The names of the nodes in question: the node that the builder named, several nodes that it had fused, or all
    /// nodes of an operator if it named only the operator. Empty if it named none.
    pub nodes: Vec<String>,
    /// Their operator, if the builder names it.
    pub operator: Option<String>,
    /// Its message.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nodes.as_slice() {
            [] => {}
            [node] => write!(f, "node `{node}`")?,
            [node, others @ ..] => write!(f, "node `{node}` or one of {} more like it", others.len())?,
        }
        if let Some(operator) = self.operator.as_ref().filter(|_| !self.nodes.is_empty()) {
            write!(f, " ({operator})")?;
        }
        f.write_str(if self.nodes.is_empty() { "" } else { ": " })?;
        f.write_str(&self.reason)
    }
}

/// A layer that the parser made. It has the name of the node that it was made from, perhaps with a suffix.
#[cfg_attr(not(feature = "rtx"), allow(dead_code))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) name: String,
    pub(crate) is_attention: bool,
}

#[cfg_attr(not(feature = "rtx"), allow(dead_code))]
impl Refusal {
    /// The parser's failure, from its log. The log names the node and quotes it, line by line.
    pub(crate) fn of_parser(messages: &[Message]) -> Self {
        let mut refusal = Refusal { nodes: Vec::new(), operator: None, reason: String::new() };
        let mut reasons = Vec::new();
        for line in lines(messages) {
            // "ModelImporter.cpp:140: While parsing node number 1 [Det -> "y"]:"
            if let Some((_, node)) = line.split_once("While parsing node number ") {
                let operator = node.split_once('[').and_then(|(_, rest)| rest.split_once(" ->"));
                refusal.operator = operator.map(|(operator, _)| operator.to_owned());
            } else if let Some(name) = line.strip_prefix("Node name: ") {
                refusal.nodes = vec![name.to_owned()];
            } else if !line.contains("--- Begin node ---") && !line.contains("--- End node ---") {
                // "ModelImporter.cpp:151: ERROR: onnxOpCheckers.cpp:1130 In function checkDet:"
                reasons.push(line.split_once("ERROR: ").map_or(line, |(_, reason)| reason));
            }
        }
        refusal.reason = joined(&reasons);
        refusal
    }

    /// The builder's failure, from its log. The log names the builder's layers, some of which are fused.
    pub(crate) fn of_builder(messages: &[Message], layers: &[Layer]) -> Self {
        let reasons: Vec<&str> = lines(messages)
            .map(|line| line.strip_prefix("IBuilder::buildSerializedNetwork: ").unwrap_or(line))
            .collect();
        let reason = joined(&reasons);
        let delimiters = |c: char| c.is_whitespace() || "'\"`()[]{},;+".contains(c);
        let words: Vec<&str> = reason
            .split(delimiters)
            .flat_map(|word| word.split("..."))
            .map(|word| word.trim_end_matches([':', '.']))
            .collect();
        let named = |layer: &&Layer| words.contains(&layer.name.as_str());
        let mut nodes: Vec<String> = layers.iter().filter(named).map(|layer| layer.name.clone()).collect();
        let mut operator = None;
        if nodes.is_empty() && reason.contains("Attention operation") {
            operator = Some("Attention".to_owned());
            nodes = layers.iter().filter(|layer| layer.is_attention).map(|layer| layer.name.clone()).collect();
        }
        nodes.sort();
        nodes.dedup();
        Refusal { nodes, operator, reason }
    }

    /// The element type that the GPU lacks, if that is the reason. The message is "… because the model contains
    /// HW-specific datatypes: fp8_e4m3."
    pub(crate) fn missing_precision(&self) -> Option<String> {
        let (_, rest) = self.reason.split_once("HW-specific datatypes: ")?;
        let precision = rest.split([' ', '.']).next().filter(|precision| !precision.is_empty())?;
        Some(match precision {
            "b16" => "bf16".to_owned(),
            precision => precision.to_owned(),
        })
    }
}

/// The lines of all errors, without the message about a missing driver, which the builder does not need.
#[cfg_attr(not(feature = "rtx"), allow(dead_code))]
fn lines(messages: &[Message]) -> impl Iterator<Item = &str> {
    let errors = messages.iter().filter(|message| message.severity <= Severity::Error);
    errors.flat_map(|message| message.text.lines()).filter(|line| !line.contains("catchCudaError"))
}

/// Each line once, or a placeholder if the builder reported nothing.
#[cfg_attr(not(feature = "rtx"), allow(dead_code))]
fn joined(lines: &[&str]) -> String {
    let mut once: Vec<&str> = Vec::new();
    for line in lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
        if !once.contains(&line) {
            once.push(line);
        }
    }
    if once.is_empty() { "it gives no reason".to_owned() } else { once.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Message {
        Message { severity: Severity::Error, text: text.into() }
    }

    #[test]
    fn the_parser_names_the_node() {
        let refusal = Refusal::of_parser(&[
            error("ITensor::getDimensions: Error Code 4: API Usage Error (layers.1/MatMul: 4 and 5 must match.)"),
            error("[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (cudaError 35: no driver)"),
            error("ModelImporter.cpp:140: While parsing node number 0 [MatMul -> \"y\"]:"),
            error("ModelImporter.cpp:142: --- Begin node ---\nNode name: layers.1/MatMul"),
            error("ModelImporter.cpp:143: --- End node ---"),
            error("ModelImporter.cpp:151: ERROR: ModelImporter.cpp:489 In function parseNode:\n[6] Invalid Node"),
        ]);
        assert_eq!(refusal.nodes, ["layers.1/MatMul"]);
        assert_eq!(refusal.operator.as_deref(), Some("MatMul"));
        let reason = "ITensor::getDimensions: Error Code 4: API Usage Error (layers.1/MatMul: 4 and 5 must match.); \
                      ModelImporter.cpp:489 In function parseNode:; [6] Invalid Node";
        assert_eq!(refusal.to_string(), format!("node `layers.1/MatMul` (MatMul): {reason}"));
    }

    #[test]
    fn the_builder_s_words_are_held_against_the_layers() {
        let layer = |name: &str, is_attention| Layer { name: name.into(), is_attention };
        let layers = [layer("a/MatMul", false), layer("b/Attention", true), layer("c/Attention", true)];
        let refusal =
            |text: &str| Refusal::of_builder(&[error(&format!("IBuilder::buildSerializedNetwork: {text}"))], &layers);

        let turing = refusal("Cannot compile operation 'a/MatMul' for Turing (SM75): FP32 GEMM is not supported.");
        assert_eq!((turing.nodes.as_slice(), turing.missing_precision()), (["a/MatMul".to_owned()].as_slice(), None));

        let attention = refusal("Attention operation was not supported by a dedicated kernel.");
        assert_eq!(attention.nodes, ["b/Attention", "c/Attention"]);
        let said = attention.to_string();
        assert!(said.starts_with("node `b/Attention` or one of 1 more like it (Attention): Attention op"), "{said}");

        let fused = refusal("Could not find any implementation for node {ForeignNode[a/MatMul...b/Attention]}.");
        assert_eq!(fused.nodes, ["a/MatMul", "b/Attention"]);

        let fp8 = refusal(
            "Cannot compile for target(s) sm86, because the model contains HW-specific datatypes: fp8_e4m3. In",
        );
        assert_eq!((fp8.nodes.len(), fp8.missing_precision().as_deref()), (0, Some("fp8_e4m3")));
        assert_eq!(Refusal::of_builder(&[], &layers).to_string(), "it gives no reason");
    }
}
