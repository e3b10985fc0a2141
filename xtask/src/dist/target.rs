//! The targets of releases.

use std::env::consts::{ARCH, OS};

/// A kind of machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Rust's name of the target.
    pub(crate) triple: &'static str,
    /// Rust's name of the system.
    pub(crate) system: System,
    /// The kernel's name of the processor, which wheels also use.
    pub(crate) machine: &'static str,
    /// The prefix of GNU's tools for this target on another machine.
    pub(crate) tools: &'static str,
}

/// The system of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Linux {
        /// Debian's name of the processor.
        debian: &'static str,
    },
    Windows,
}

/// The programs that a release has.
pub(crate) const PROGRAMS: [&str; 4] = ["engine-builder", "exporter", "runtime", "tileforge-server"];

static KNOWN: [Target; 3] = [
    Target {
        triple: "x86_64-unknown-linux-gnu",
        system: System::Linux { debian: "amd64" },
        machine: "x86_64",
        tools: "x86_64-linux-gnu-",
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        system: System::Linux { debian: "arm64" },
        machine: "aarch64",
        tools: "aarch64-linux-gnu-",
    },
    Target {
        triple: "x86_64-pc-windows-gnu",
        system: System::Windows,
        machine: "x86_64",
        tools: "x86_64-w64-mingw32-",
    },
];

impl Target {
    /// Whether programs for this target run here.
    pub(crate) fn is_here(&self) -> bool {
        self.machine == ARCH && self.system_name() == OS
    }

    /// The system's name in the table of libraries.
    pub(crate) fn system_name(&self) -> &'static str {
        match self.system {
            System::Linux { .. } => "linux",
            System::Windows => "windows",
        }
    }

    /// Whether NVIDIA's builder for RTX GPUs exists for this target, and can be included.
    pub(crate) fn has_rtx(&self) -> bool {
        self.machine == "x86_64" && self.system != System::Windows
    }

    /// The name of one of GNU's tools for programs of this target. The tools for a processor support the programs of
    /// every system.
    pub(crate) fn tool(&self, name: &str) -> String {
        if self.machine == ARCH { name.to_owned() } else { format!("{}{name}", self.tools) }
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
