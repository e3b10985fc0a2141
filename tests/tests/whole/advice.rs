//! Advice in errors names commands and options that the programs have.

use end_to_end::{repository, run};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

const PROGRAMS: [&str; 3] = ["exporter", "engine-builder", "runtime"];

/// Options of other programs: Docker's and those of ONNX Runtime's own build.
const FOREIGN: [&str; 4] = ["--runtime", "--use_cuda", "--use_tensorrt", "--build_shared_lib"];

/// The options of each command, as `--help` lists them; for a program alone, the options of all its commands.
static OPTIONS: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
    let mut all = BTreeMap::new();
    for program in PROGRAMS {
        let pages: BTreeMap<String, String> = serde_json::from_str(&run(program, ["manual"]).success().stdout).unwrap();
        let names = pages.keys().filter_map(|page| page.strip_suffix(".1")?.strip_prefix(program)?.strip_prefix('-'));
        let mut of_program = BTreeSet::new();
        for command in names {
            let help = run(program, [command, "--help"]).success().stdout;
            let options = options_in(&help);
            of_program.extend(options.clone());
            all.insert(format!("{program} {command}"), options);
        }
        all.insert(program.to_owned(), of_program);
    }
    all
});

/// Every `--name` in a text.
fn options_in(text: &str) -> BTreeSet<String> {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '-' || character == '_';
    let starts = text.match_indices("--").filter(|(at, _)| !text[..*at].ends_with(is_of_name));
    let names = starts.map(|(at, _)| text[at..].split(|character| !is_of_name(character)).next().unwrap_or_default());
    names.filter(|name| name.len() > 2).map(str::to_owned).collect()
}

/// The string literals of a Rust file, up to its tests.
fn texts(file: &str) -> Vec<String> {
    let source = fs::read_to_string(repository(file)).unwrap();
    let source = source.split("#[cfg(test)]").next().unwrap();
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let (mut texts, mut rest) = (Vec::new(), code.as_str());
    while let Some((_, text)) = rest.split_once('"') {
        let end = text.char_indices().scan(false, |escaped, (at, character)| {
            let ends = character == '"' && !*escaped;
            *escaped = character == '\\' && !*escaped;
            Some((at, ends))
        });
        let end = end.filter(|(_, ends)| *ends).map(|(at, _)| at).next().unwrap();
        // If a line ends with a backslash, the literal continues with the first word of the next line.
        let parts: Vec<&str> = text[..end]
            .split("\\\n")
            .enumerate()
            .map(|(at, part)| if at > 0 { part.trim_start() } else { part })
            .collect();
        texts.push(parts.concat());
        rest = &text[end + 1..];
    }
    texts
}

/// The unknown commands and options in a text that `program` prints.
fn wrong_in(program: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    // Options outside a command belong to the program, or to a command that the text names.
    let mut outside = OPTIONS[program].clone();
    for part in text.split('`').skip(1).step_by(2) {
        let command = part.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        outside.extend(OPTIONS.get(&command).into_iter().flatten().cloned());
    }
    for (at, part) in text.split('`').enumerate() {
        let words: Vec<&str> = part.split_whitespace().collect();
        let named = words.first().filter(|word| at % 2 == 1 && PROGRAMS.contains(word));
        let place = match (named, words.get(1)) {
            (Some(named), Some(command)) => format!("{named} {command}"),
            (Some(named), None) => (*named).to_owned(),
            (None, _) => program.to_owned(),
        };
        let Some(options) = OPTIONS.get(&place).or_else(|| {
            // A command without its program's name, such as `infer --tolerant`.
            OPTIONS.get(&format!("{program} {}", words.first()?)).filter(|_| at % 2 == 1)
        }) else {
            wrong.push(format!("`{part}`: there is no such command"));
            continue;
        };
        let options = if at % 2 == 0 { &outside } else { options };
        let unknown = options_in(part).into_iter().filter(|option| !options.contains(option));
        wrong.extend(
            unknown
                .filter(|option| !FOREIGN.contains(&option.as_str()))
                .map(|option| format!("{option} in \"{part}\": {place} has no such option")),
        );
    }
    wrong
}

#[test]
fn every_command_and_option_that_advice_names_is_there() {
    let (mut wrong, mut named) = (Vec::new(), 0);
    for program in PROGRAMS {
        for text in texts(&format!("{program}/cli/src/advice.rs")) {
            named += options_in(&text).len();
            wrong.extend(wrong_in(program, &text));
        }
    }
    assert!(named > 40, "{named}: the texts were not found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_option_or_command_is_found() {
    assert!(wrong_in("runtime", "choose one with --tile, or `engine-builder build MODEL --size 64x64`").is_empty());
    for (program, text, expected) in [
        ("runtime", "choose one with --tyle", "--tyle"),
        ("runtime", "`engine-builder build --input-size 5`", "engine-builder build has no such option"),
        ("exporter", "`exporter look FILE` shows it", "no such command"),
    ] {
        let wrong = wrong_in(program, text);
        assert!(wrong.len() == 1 && wrong[0].contains(expected), "{text}: {wrong:?}");
    }
}
