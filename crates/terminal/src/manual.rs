//! Manual pages.

use std::collections::BTreeMap;

use clap::Command;
use clap_mangen::Man;

use crate::output::{PrintError, print_json};

/// Prints the manual pages of a program and of all commands that its help shows: one JSON object from the pages' file
/// names to their texts in roff.
///
/// # Errors
/// A page cannot be made, or standard output cannot be written.
pub fn print_manual(program: Command) -> Result<(), PrintError> {
    print_json(&pages(program)?)
}

fn pages(program: Command) -> Result<BTreeMap<String, String>, PrintError> {
    // Without clap's own `help` command, which would add pages that only repeat the other pages.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut pages = BTreeMap::new();
    collect(&program, &mut pages)?;
    Ok(pages)
}

fn collect(command: &Command, pages: &mut BTreeMap<String, String>) -> Result<(), PrintError> {
    for shown in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        collect(shown, pages)?;
    }
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    pages.insert(page.get_filename(), String::from_utf8_lossy(&text).into_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shown_command_has_a_page_of_its_own() {
        let secret = Command::new("secret").hide(true);
        let deep = Command::new("deep").arg(clap::Arg::new("depth").long("depth").help("How deep"));
        let program = Command::new("example").version("1.2.3").subcommand(deep).subcommand(secret);
        let pages = pages(program).unwrap();
        assert_eq!(pages.keys().collect::<Vec<_>>(), ["example-deep.1", "example.1"]);
        assert!(pages["example.1"].contains("deep") && pages["example.1"].contains("1.2.3"), "{}", pages["example.1"]);
        let deep = &pages["example-deep.1"];
        assert!(deep.contains("How deep") && deep.contains("depth"), "{deep}");
    }
}
