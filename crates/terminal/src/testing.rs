//! What tests of programs share.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use std::collections::BTreeMap;
use std::process::Command;

/// What `--help` prints of a program and of each of its commands, 100 columns wide.
///
/// # Panics
/// If the program is not there, or fails.
pub fn help(program: &str) -> String {
    let printed = |arguments: &[&str]| {
        // clap wraps lines at the terminal's width, or at this one.
        let output = Command::new(program).args(arguments).env("COLUMNS", "100").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let pages: BTreeMap<String, String> = serde_json::from_str(&printed(&["manual"])).unwrap();
    // "runtime-infer.1", and "runtime.1" for the program.
    let (name, _) = pages.keys().filter_map(|page| page.split_once('.')).min_by_key(|(name, _)| name.len()).unwrap();
    let commands = pages.keys().filter_map(|page| page.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(".1"));
    let of = |arguments: &[&str]| format!("$ {name} {}\n{}\n", arguments.join(" "), printed(arguments));
    std::iter::once(of(&["--help"])).chain(commands.map(|command| of(&[command, "--help"]))).collect()
}
