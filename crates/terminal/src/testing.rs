//! Functions that tests of programs share.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The output of `--help` of a program and of each of its commands, 100 columns wide.
///
/// # Panics
/// If the program does not exist, or fails.
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

/// Parses every example of a program: in the help of each of its commands, and in the code of README.md and of the
/// documents of the source tree.
///
/// # Panics
/// If the program refuses one of them, or if there are none.
pub fn check_examples<P: clap::Parser>() {
    let program = P::command();
    let mut helps = Vec::new();
    collect_helps(&program, &mut helps);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents: Vec<_> = root
        .join("docs")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    documents.push(root.join("README.md"));
    let documents = documents.iter().map(|path| (path.display().to_string(), code(&fs::read_to_string(path).unwrap())));
    let mut parsed = 0;
    let mut refused = String::new();
    for (place, text) in helps.into_iter().chain(documents) {
        for line in command_lines(program.get_name(), &text) {
            parsed += 1;
            match P::try_parse_from(&line) {
                Err(error) if error.use_stderr() => refused += &format!("{place}: {}\n{error}\n", line.join(" ")),
                _ => {}
            }
        }
    }
    assert!(refused.is_empty(), "{refused}");
    assert!(parsed > 0, "{}: no examples", program.get_name());
}

/// Gives every option of a program a value that is no number, size or name, and looks at what the program says.
///
/// # Panics
/// If one of the errors is Rust's own about numbers, which says nothing of what is expected.
pub fn check_values<P: clap::Parser>() {
    let mut wrong = Vec::new();
    check_values_of::<P>(&P::command(), &[], &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

fn check_values_of<P: clap::Parser>(command: &clap::Command, path: &[&str], wrong: &mut Vec<String>) {
    let path = [path, &[command.get_name()]].concat();
    for option in command.get_arguments().filter(|argument| argument.get_action().takes_values()) {
        let Some(name) = option.get_long() else { continue };
        let given = format!("--{name}=x9");
        let error = P::try_parse_from(path.iter().copied().chain([given.as_str()])).err();
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        if ["invalid digit", "invalid float", "provided string", "is not in "].iter().any(|of| text.contains(of)) {
            wrong.push(format!("{} {given}: {text}\n", path.join(" ")));
        }
    }
    command.get_subcommands().for_each(|inner| check_values_of::<P>(inner, &path, wrong));
}

fn collect_helps(command: &clap::Command, helps: &mut Vec<(String, String)>) {
    let name = format!("{} --help", command.get_name());
    helps.extend(command.get_after_help().map(|help| (name, help.to_string())));
    command.get_subcommands().for_each(|inner| collect_helps(inner, helps));
}

/// The code of a document in Markdown: between fences, or indented by four spaces.
fn code(markdown: &str) -> String {
    let mut is_fenced = false;
    let mut lines = String::new();
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            lines += line;
            lines += "\n";
        }
    }
    lines
}

/// Every command line of `program` in a text, as words. A command line begins a line or follows a pipe, after
/// variables.
fn command_lines(program: &str, text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ").replace("|\n", "| ");
    let commands = text.lines().flat_map(commands);
    let is_variable = |word: &String| word.split_once('=').is_some_and(|(name, _)| name.chars().all(is_of_variable));
    let of_program = |words: Vec<String>| -> Option<Vec<String>> {
        let words: Vec<String> = words.into_iter().skip_while(is_variable).collect();
        let name = Path::new(words.first()?).file_name()?.to_str()?;
        // In a table of crates, an arrow follows the name.
        (name == program && words.get(1).is_some_and(|word| word != "→")).then_some(words)
    };
    commands.filter_map(of_program).collect()
}

fn is_of_variable(sign: char) -> bool {
    sign.is_ascii_uppercase() || sign.is_ascii_digit() || sign == '_'
}

/// The commands of a line, as a shell reads them: quotes, comments, pipes and redirections.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let (mut word, mut quote) = (None::<String>, None);
    let mut signs = line.trim_start_matches("$ ").chars();
    while let Some(sign) = signs.next() {
        match (sign, quote) {
            (_, Some(mark)) if sign == mark => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(sign),
            ('\'' | '"', None) => {
                quote = Some(sign);
                word.get_or_insert_default();
            }
            ('\\', None) => word.get_or_insert_default().extend(signs.next()),
            ('#', None) if word.is_none() => break,
            ('|' | ';' | '&' | '>', None) => {
                commands.last_mut().unwrap().extend(word.take());
                commands.push(Vec::new());
            }
            (' ', None) => commands.last_mut().unwrap().extend(word.take()),
            _ => word.get_or_insert_default().push(sign),
        }
    }
    commands.last_mut().unwrap().extend(word);
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_read_as_a_shell_does() {
        let text = "\
Examples:
  tool build 'a b.png' --name \"two words\"   # a comment
  A_B=1 bin/tool run a.png > out.txt
  cat x | tool read - |
    tool write --all \\
      --more
  another build
a tool in a sentence
  tool → other
  tool";
        let expected: [&[&str]; 4] = [
            &["tool", "build", "a b.png", "--name", "two words"],
            &["bin/tool", "run", "a.png"],
            &["tool", "read", "-"],
            &["tool", "write", "--all", "--more"],
        ];
        assert_eq!(command_lines("tool", text), expected);
        assert_eq!(code("text\n```sh\ntool a\n```\ntool b\n\n    tool c\n"), "tool a\n    tool c\n");
    }
}
