//! Code for one operating system is in pairs: `unix.rs` and `windows.rs`, or the folders `unix/` and `windows/`,
//! beside each other in a folder that is named for its purpose. One file chooses between the two. No other file names
//! a system.

use end_to_end::{repository, rust_files};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Names of one system: modules of the standard library, crates, and files of the system.
const NAMES: [&str; 14] = [
    "std::os::unix",
    "std::os::linux",
    "std::os::fd",
    "std::os::windows",
    "tokio::signal::unix",
    "tokio::signal::windows",
    "rustix::",
    "libc::",
    "nix::",
    "signal_hook",
    "sd_notify",
    "windows_sys",
    "\"/proc/",
    "\"/sys/",
];

/// Words for systems in conditional compilation.
const CONDITIONS: [&str; 6] = ["unix", "windows", "target_os", "target_family", "target_env", "target_vendor"];

const SYSTEMS: [&str; 2] = ["unix", "windows"];

/// The program text: without comments, and without the tests at the end.
fn text_of(text: &str) -> String {
    let end = ["mod tests {", "pub(crate) mod tests {", "mod tests;", "#[path"]
        .iter()
        .filter_map(|tests| text.find(&format!("#[cfg(test)]\n{tests}")))
        .min();
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text[..end.unwrap_or(text.len())].lines().map(code).collect::<Vec<_>>().join("\n")
}

/// The conditional compilation in a line: the content of the brackets of `cfg(…)`, `cfg!(…)` and `cfg_attr(…)`.
fn conditions(line: &str) -> impl Iterator<Item = &str> {
    ["cfg(", "cfg!(", "cfg_attr("].into_iter().flat_map(move |start| line.split(start).skip(1))
}

fn names_a_system(condition: &str) -> bool {
    let words = condition.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.into_iter().any(|word| CONDITIONS.contains(&word))
}

/// Whether a line has a name that does not begin inside another name, as `nix::` does in `unix::`.
fn names(line: &str, name: &str) -> bool {
    let begins = |at: usize| !line[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    line.match_indices(name).any(|(at, _)| begins(at))
}

/// Whether a line chooses between the two sides of a pair: it declares one of them, or re-exports its items.
fn chooses(condition: &str, next: &str) -> bool {
    SYSTEMS.iter().any(|system| {
        let next = next.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
        condition.trim() == format!("#[cfg({system})]")
            && (next == format!("mod {system};") || next == format!("use {system}::*;"))
    })
}

/// Whether a file is one side of a pair: it, or a folder above it, has a system's name, and the other side exists.
fn is_side(path: &Path) -> bool {
    let whole = |folder: &Path| SYSTEMS.iter().all(|system| folder.join(system).with_extension("rs").is_file());
    let named = |path: &Path| path.file_stem().is_some_and(|stem| SYSTEMS.iter().any(|system| stem == *system));
    path.ancestors().any(|place| named(place) && place.parent().is_some_and(whole))
}

/// The faults of a file outside of pairs.
fn faults(path: &Path, text: &str) -> Vec<String> {
    let text = text_of(text);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let fault = |what: &str| format!("{}:{}: {what}", path.display(), number + 1);
        found.extend(NAMES.iter().filter(|name| names(line, name)).map(|name| fault(name)));
        let next = lines.get(number + 1).copied().unwrap_or_default();
        if conditions(line).any(names_a_system) && !chooses(line, next) {
            found.push(fault(line));
        }
    }
    found
}

/// The files of one side of a pair, relative to the folder that holds both: `.rs`, and the files in the folder of its
/// name.
fn side(folder: &Path, system: &str) -> BTreeSet<PathBuf> {
    let mut files = Vec::new();
    if folder.join(system).is_dir() {
        rust_files(&folder.join(system), &mut files);
    }
    files.into_iter().map(|file| file.strip_prefix(folder.join(system)).unwrap().to_owned()).collect()
}

#[test]
fn only_pairs_name_a_system() {
    let root = repository("");
    let mut sources: Vec<PathBuf> =
        fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    for program in ["exporter", "engine-builder", "runtime", "server"] {
        sources.extend([root.join(program).join("src"), root.join(program).join("cli/src")]);
    }
    sources.extend(["python/src", "xtask/src"].map(|folder| root.join(folder)));
    let (mut found, mut pairs) = (Vec::new(), 0);
    for src in &sources {
        let mut files = Vec::new();
        rust_files(src, &mut files);
        for file in files {
            let path = file.strip_prefix(src).unwrap();
            let is_test = |part: &std::ffi::OsStr| ["tests", "tests.rs", "testing.rs"].iter().any(|name| part == *name);
            if !path.iter().any(is_test) && !is_side(&file) {
                let shown = file.strip_prefix(&root).unwrap().display().to_string();
                let faults = faults(path, &fs::read_to_string(&file).unwrap());
                found.extend(faults.into_iter().map(|fault| format!("{shown}: {fault}")));
            }
            // The exporter's `windows.rs` is about the windows of attention, and is not part of a pair.
            if file.file_name().is_some_and(|name| name == "unix.rs") {
                let folder = file.parent().unwrap();
                assert!(is_side(&file), "{folder:?}");
                let [unix, windows] = SYSTEMS.map(|system| side(folder, system));
                // Windows has system calls for which Unix uses the standard library.
                let missing: Vec<_> = unix.iter().filter(|file| file.iter().count() == 1).collect();
                assert!(missing.iter().all(|file| windows.contains(*file)), "{folder:?}: {missing:?} {windows:?}");
                pairs += 1;
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    assert!(pairs >= 7, "{pairs}");
}

#[test]
fn a_name_of_a_system_is_found() {
    let in_file = |path: &str, text: &str| faults(Path::new(path), text).len();
    let src = repository("crates/files/src");
    assert!(["system/unix.rs", "system/windows/calls/file.rs"].iter().all(|side| is_side(&src.join(side))));
    assert!(!is_side(&src.join("system.rs")) && !is_side(&repository("exporter/src/nn/windows.rs")));
    for text in [
        "use std::os::unix::fs::MetadataExt;",
        "let file = rustix::fs::open(path)?;",
        "let text = fs::read_to_string(\"/proc/self/status\");",
        "#[cfg(unix)]\nfn one() {}",
        "#[cfg(windows)]\nuse other::*;",
        "if cfg!(target_os = \"linux\") {}",
        "#[cfg(not(all(feature = \"x\", windows)))]\nmod unix;",
        "#[cfg_attr(unix, path = \"x.rs\")]\nmod one;",
    ] {
        assert_eq!(in_file("a.rs", text), 1, "{text}");
    }
    for text in [
        "#[cfg(unix)]\nmod unix;\n#[cfg(windows)]\nmod windows;\n#[cfg(unix)]\npub(crate) use unix::*;",
        "// std::os::unix\nfn one() {}",
        "#[cfg(feature = \"unixes\")]\nfn one() {}",
        "#[cfg(target_arch = \"x86_64\")]\nfn one() {}",
        "fn one() {}\n#[cfg(test)]\nmod tests {\n    use std::os::unix::fs::symlink;\n}",
    ] {
        assert_eq!(in_file("a.rs", text), 0, "{text}");
    }
}
