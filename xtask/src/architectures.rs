//! Lists the exporter's architectures, for scripts and tests that iterate over them.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use tileforge_exporter::arch::{Entry, registry};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON: name and task of each architecture, name and example shapes of each preset
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let text = if arguments.json { as_json() } else { as_text() };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("stdout: {error}")),
        _ => Ok(()),
    }
}

fn as_json() -> String {
    let presets = |entry: &Entry| -> Vec<Value> {
        let presets = entry.presets().into_iter();
        presets.map(|(name, network)| json!({ "name": name, "shapes": network.example_shapes().to_string() })).collect()
    };
    let entries: Vec<Value> = registry()
        .iter()
        .map(|entry| json!({ "name": entry.name, "task": entry.task.to_string(), "presets": presets(entry) }))
        .collect();
    format!("{:#}\n", Value::from(entries))
}

fn as_text() -> String {
    let mut text = String::new();
    for entry in registry() {
        // Writing to a String never fails.
        let _ = writeln!(text, "{} ({})", entry.name, entry.task);
        for (name, network) in entry.presets() {
            let _ = writeln!(text, "{}", format!("    {name} {}", network.example_shapes()).trim_end());
        }
    }
    text
}
