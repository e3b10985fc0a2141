//! Completions for shells.

use clap::Command;
use clap_complete::Shell;

use crate::output::{PrintError, print};

/// Prints a script with which a shell completes a program's command line.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_completions(shell: Shell, command: Command) -> Result<(), PrintError> {
    print(script(shell, command).trim_end())
}

fn script(shell: Shell, mut command: Command) -> String {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_knows_the_program_and_its_options() {
        let command = || Command::new("example").arg(clap::Arg::new("depth").long("depth"));
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell, command());
            assert!(script.contains("example") && script.contains("depth"), "{script}");
        }
    }
}
