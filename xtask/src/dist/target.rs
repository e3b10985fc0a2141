//! What releases are made for.

use std::env::consts::ARCH;

/// A kind of machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Rust's name.
    pub(crate) triple: &'static str,
    /// The kernel's name of the processor, which wheels have, too.
    pub(crate) machine: &'static str,
    /// Debian's name of the processor.
    pub(crate) debian: &'static str,
    /// What the names of GNU's tools begin with where they are for another machine.
    pub(crate) tools: &'static str,
}

static KNOWN: [Target; 2] = [
    Target { triple: "x86_64-unknown-linux-gnu", machine: "x86_64", debian: "amd64", tools: "x86_64-linux-gnu-" },
    Target { triple: "aarch64-unknown-linux-gnu", machine: "aarch64", debian: "arm64", tools: "aarch64-linux-gnu-" },
];

impl Target {
    /// Whether programs for this target run here.
    pub(crate) fn is_here(&self) -> bool {
        self.machine == ARCH
    }

    /// Whether NVIDIA's builder for RTX GPUs exists for it.
    pub(crate) fn has_rtx(&self) -> bool {
        self.machine == "x86_64"
    }

    /// The name of one of GNU's tools that works on programs of this target.
    pub(crate) fn tool(&self, name: &str) -> String {
        if self.is_here() { name.to_owned() } else { format!("{}{name}", self.tools) }
    }
}

/// The target of this machine.
pub(crate) fn here() -> Result<&'static Target, String> {
    let names = || KNOWN.iter().map(|target| target.triple).collect::<Vec<_>>().join(", ");
    let found = KNOWN.iter().find(|target| target.is_here());
    found.ok_or_else(|| format!("this machine is {ARCH}; choose a --target: {}", names()))
}

pub(crate) fn parse(triple: &str) -> Result<&'static Target, String> {
    let names = || KNOWN.iter().map(|target| target.triple).collect::<Vec<_>>().join(" or ");
    KNOWN.iter().find(|target| target.triple == triple).ok_or_else(|| format!("expected {}", names()))
}
