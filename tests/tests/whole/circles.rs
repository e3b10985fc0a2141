//! The dependencies between the files of a crate have no cycles: each file can be read after the files that it uses. A
//! module that declares its children and re-exports their items does not depend on them.

use end_to_end::{repository, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's path in its crate: `["host", "queue"]`; empty for the crate's root.
type Module = Vec<String>;

/// A crate's modules that have their own files.
struct Crate {
    files: BTreeMap<Module, PathBuf>,
    sources: BTreeMap<Module, Source>,
}

/// The names that a file uses of its own crate.
#[derive(Default)]
struct Source {
    /// Paths from the crate's root that it uses.
    uses: Vec<Vec<String>>,
    /// Re-exported names with their paths from the crate's root; `*` for all of a module.
    exports: Vec<(String, Vec<String>)>,
    /// The names of its own items.
    items: BTreeSet<String>,
}

/// The module of a file below `src`.
fn module_of(file: &Path) -> Module {
    let mut module: Module = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// The program text: without comments, and without the tests at the end.
fn text_of(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let tests = ["mod tests {", "pub(crate) mod tests {"].map(|tests| format!("#[cfg(test)]\n{tests}"));
    let end = tests.iter().filter_map(|tests| text.find(tests)).min().unwrap_or(text.len());
    let text = &text[..end];
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

/// The names of the items in a text.
fn items_of(text: &str) -> BTreeSet<String> {
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
    let mut items = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
        for pair in words.windows(2).filter(|pair| kinds.contains(&pair[0])) {
            items.insert(pair[1].to_owned());
        }
    }
    items
}

/// The paths of a tree of imports, each with its name: `a::{b, c::d as e}` is `b` of `a::b` and `e` of `a::c::d`.
fn expanded(tree: &str) -> Vec<(String, Vec<String>)> {
    let tree = tree.trim();
    let Some((before, rest)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
        let path: Vec<String> =
            path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
        let last = path.last().cloned().unwrap_or_default();
        return vec![(name.map_or(last, ToOwned::to_owned), path)];
    };
    let prefix: Vec<String> =
        before.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
    let inner = &rest[..rest.rfind('}').unwrap_or(rest.len())];
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let paths = parts.into_iter().filter(|part| !part.trim().is_empty()).flat_map(expanded);
    paths.map(|(name, path)| (name, [prefix.clone(), path].concat())).collect()
}

/// A path from the crate's root; `None` for a path of another crate.
fn absolute(module: &Module, path: &[String]) -> Option<Vec<String>> {
    let (first, mut rest) = path.split_first()?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => module.split_last()?.1.to_vec(),
        _ => return None,
    };
    while let Some((next, more)) = rest.split_first().filter(|(next, _)| *next == "super") {
        let _ = next;
        base.pop();
        rest = more;
    }
    Some([&base, rest].concat())
}

fn read(module: &Module, path: &Path, children: &BTreeSet<String>) -> Source {
    let mut source = Source::default();
    // Modules within generated files refer to each other by `super`.
    if fs::read_to_string(path).unwrap().lines().take(2).any(|line| line.contains("@generated")) {
        return source;
    }
    let text = text_of(path);
    source.items = items_of(&text);
    let mut rest = text.as_str();
    let mut elsewhere = String::new();
    while let Some(at) = rest.find("use ") {
        let starts = rest[..at].chars().next_back().is_none_or(|before| before.is_whitespace());
        let Some(length) = rest[at..].find(';').filter(|_| starts) else {
            elsewhere.push_str(&rest[..at + 4]);
            rest = &rest[at + 4..];
            continue;
        };
        let line = rest[..at].rfind('\n').map_or(0, |end| end + 1);
        let is_export = rest[line..at].trim_start().starts_with("pub");
        for (name, path) in expanded(&rest[at + 4..at + length]) {
            let own = path.first().is_some_and(|first| children.contains(first));
            let found = if own { Some([module.as_slice(), path.as_slice()].concat()) } else { absolute(module, &path) };
            let Some(found) = found else { continue };
            if is_export {
                source.exports.push((name, found));
            } else {
                source.uses.push(found);
            }
        }
        elsewhere.push_str(&rest[..line]);
        rest = &rest[at + length..];
    }
    elsewhere.push_str(rest);
    let own = children.iter().map(|child| format!("{child}::"));
    for start in ["crate::", "super::", "self::"].map(ToOwned::to_owned).into_iter().chain(own) {
        for (at, _) in elsewhere.match_indices(&start) {
            if elsewhere[..at]
                .chars()
                .next_back()
                .is_some_and(|before| before.is_alphanumeric() || ":_".contains(before))
                // Who may see an item is no dependency.
                || elsewhere[..at].ends_with("pub(in ")
            {
                continue;
            }
            let end = elsewhere[at..].find(|letter: char| !letter.is_alphanumeric() && !":_".contains(letter));
            let path = &elsewhere[at..at + end.unwrap_or(elsewhere.len() - at)];
            let path: Vec<String> = path.split("::").map(ToOwned::to_owned).filter(|part| !part.is_empty()).collect();
            let is_own = path.first().is_some_and(|first| children.contains(first));
            let found = if is_own { Some([module.as_slice(), &path].concat()) } else { absolute(module, &path) };
            source.uses.extend(found);
        }
    }
    source
}

impl Crate {
    fn read(src: &Path) -> Self {
        let mut paths = Vec::new();
        rust_files(src, &mut paths);
        let is_test = |path: &&PathBuf| {
            let below = path.strip_prefix(src).unwrap();
            !below.iter().any(|part| part == "tests" || part == "tests.rs" || part == "testing.rs")
        };
        let files: BTreeMap<Module, PathBuf> = paths
            .iter()
            .filter(is_test)
            .map(|path| (module_of(path.strip_prefix(src).unwrap()), path.clone()))
            .collect();
        let children = |module: &Module| {
            let below = files.keys().filter(|other| other.len() > module.len() && other.starts_with(module));
            below.map(|other| other[module.len()].clone()).collect::<BTreeSet<_>>()
        };
        let sources =
            files.iter().map(|(module, path)| (module.clone(), read(module, path, &children(module)))).collect();
        Self { files, sources }
    }

    /// The module whose file defines a path's item, after all re-exports.
    fn home(&self, path: &[String], hops: usize) -> Option<Module> {
        let module =
            (0..=path.len()).rev().map(|length| path[..length].to_vec()).find(|at| self.files.contains_key(at))?;
        let Some(name) = path.get(module.len()).filter(|_| hops < 8) else { return Some(module) };
        let exports = &self.sources[&module].exports;
        let behind = &path[module.len() + 1..];
        if let Some((_, to)) = exports.iter().find(|(export, _)| export == name) {
            return self.home(&[to.as_slice(), behind].concat(), hops + 1);
        }
        // A name that is not its own may come with all of another module.
        let all = exports.iter().filter(|(export, _)| export == "*" && !self.sources[&module].items.contains(name));
        let there = all.filter_map(|(_, to)| {
            let to = to.split_last()?.1;
            let home = self.home(&[to, &path[module.len()..]].concat(), hops + 1)?;
            self.sources[&home].items.contains(name).then_some(home)
        });
        Some(there.into_iter().next().unwrap_or(module))
    }

    /// The modules that each module depends on.
    fn arrows(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of = |(module, source): (&'_ Module, &'_ Source)| -> BTreeSet<Module> {
            source.uses.iter().filter_map(|path| self.home(path, 0)).filter(|home| home != module).collect()
        };
        self.sources.iter().map(|(module, source)| (module, of((module, source)))).collect()
    }

    /// The cycles: sets of modules that can be reached from each other, each set once.
    fn circles(&self) -> Vec<BTreeSet<Module>> {
        let arrows = self.arrows();
        let reached = |from: &Module| {
            let (mut all, mut next) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = next.pop() {
                for to in arrows.get(&module).into_iter().flatten() {
                    if all.insert(to.clone()) {
                        next.push(to.clone());
                    }
                }
            }
            all
        };
        let all: BTreeMap<&Module, BTreeSet<Module>> = arrows.keys().map(|module| (*module, reached(module))).collect();
        let mut circles: Vec<BTreeSet<Module>> = Vec::new();
        for (module, reached) in &all {
            let own: BTreeSet<Module> = reached.iter().filter(|to| all[to].contains(*module)).cloned().collect();
            if own.len() > 1 && !circles.contains(&own) {
                circles.push(own);
            }
        }
        circles
    }
}

#[test]
fn no_file_knows_of_one_that_knows_of_it() {
    let root = repository("");
    let mut sources: Vec<PathBuf> =
        fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    let programs =
        ["exporter", "engine-builder", "runtime", "server"].map(|name| [root.join(name), root.join(name).join("cli")]);
    sources.extend(
        programs
            .into_iter()
            .flatten()
            .chain(["python", "xtask"].map(|name| root.join(name)))
            .map(|folder| folder.join("src")),
    );
    let mut found: BTreeSet<(String, String)> = BTreeSet::new();
    for src in &sources {
        let read = Crate::read(src);
        assert!(!read.files.is_empty(), "{}", src.display());
        for circle in read.circles() {
            let files = circle.iter().map(|module| read.files[module].strip_prefix(src).unwrap().display().to_string());
            let folder = src.strip_prefix(&root).unwrap().display().to_string();
            found.insert((folder, files.collect::<Vec<_>>().join(" ")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn circles_are_found_through_what_modules_hand_on() {
    let work = tempfile::tempdir().unwrap();
    let write = |files: &[(&str, &str)]| {
        let src = work.path().join(files.len().to_string());
        for (name, text) in files {
            let path = src.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Crate::read(&src).circles().into_iter().map(|circle| circle.into_iter().collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let module =
        |path: &str| -> Module { path.split("::").filter(|part| !part.is_empty()).map(ToOwned::to_owned).collect() };
    // The root re-exports the items of `a` and `b`, and these do not depend on each other.
    let plain = [
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;"),
        ("a.rs", "pub struct A;"),
        ("b.rs", "use crate::A;\npub struct B(A);"),
    ];
    assert!(write(&plain).is_empty());
    // `a` takes `B` from the root, which re-exports it from `b`, which takes `A`.
    let circle = [plain[0], ("a.rs", "use crate::{B};\npub struct A(B);"), plain[2], ("c.rs", "// use crate::A;")];
    assert_eq!(write(&circle), [[module("a"), module("b")]]);
    // A child that uses its parent's own item, and a parent that uses the child's item.
    let nested = [
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod b;\nuse b::B;\npub struct A;\nfn f(_: B) {}"),
        ("a/b.rs", "pub struct B;\nfn g(_: super::A) {}\n#[cfg(test)]\nmod tests {\n    use super::*;\n}"),
        ("c.rs", "use crate::a;"),
        ("d.rs", ""),
    ];
    assert_eq!(write(&nested), [[module("a"), module("a::b")]]);
    // A parent that calls a child's function by its path.
    let called = [nested[0], ("a/mod.rs", "mod b;\npub struct A;\nfn f() {\n    b::g();\n}"), nested[2], ("c.rs", "")];
    assert_eq!(write(&[&called[..], &[nested[4], ("e.rs", "")]].concat()), [[module("a"), module("a::b")]]);
    // Names that come with all of a module, or under another name.
    let handed = [
        ("lib.rs", "mod a;\nmod b;\npub use a::*;\npub use b::B as C;"),
        ("a.rs", "pub struct A;\nfn f(_: crate::C) {}"),
        ("b.rs", "use crate::A;\npub struct B(A);"),
        ("c.rs", ""),
        ("d.rs", ""),
        ("e.rs", ""),
        ("f.rs", ""),
    ];
    assert_eq!(write(&handed), [[module("a"), module("b")]]);
}
