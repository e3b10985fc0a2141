//! The dependencies between crates: data flows one way, and docs/architecture.md has the list.

use end_to_end::repository;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

/// The crates of the product, and the crates that each may depend on.
const MAY_KNOW: [(&str, &[&str]); 20] = [
    ("contract", &[]),
    ("files", &[]),
    ("terminal", &["contract", "files"]),
    ("image", &["files"]),
    ("film", &["files", "image"]),
    ("graph", &["contract", "files"]),
    ("engine", &["contract", "files"]),
    ("registry", &["engine", "files"]),
    ("kernels", &[]),
    ("session", &["contract", "engine", "files", "graph", "kernels"]),
    ("tensorrt", &["contract", "graph"]),
    ("exporter", &["contract", "files", "graph"]),
    ("exporter-cli", &["contract", "exporter", "files", "graph", "terminal"]),
    (
        "engine-builder",
        &["contract", "engine", "exporter", "files", "graph", "image", "registry", "runtime", "session", "tensorrt"],
    ),
    (
        "engine-builder-cli",
        &[
            "contract",
            "engine",
            "engine-builder",
            "exporter",
            "files",
            "graph",
            "image",
            "registry",
            "session",
            "tensorrt",
            "terminal",
        ],
    ),
    ("runtime", &["contract", "engine", "files", "image", "session"]),
    // The host is reached only through the facade.
    ("python", &[]),
    ("server", &[]),
    ("server-cli", &["server", "terminal"]),
    (
        "runtime-cli",
        &["contract", "engine", "files", "film", "image", "registry", "runtime", "session", "tensorrt", "terminal"],
    ),
];

/// The crates of this tree, from Cargo's metadata.
fn packages() -> Vec<Json> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]).current_dir(repository(""));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Json = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The dependencies of a crate, without those of its tests.
fn built_with(package: &Json) -> impl Iterator<Item = &Json> {
    package["dependencies"].as_array().unwrap().iter().filter(|dependency| dependency["kind"].is_null())
}

/// Each crate of the product with its dependencies.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let short = |name: &Json| name.as_str().unwrap().strip_prefix("tileforge-").map(str::to_owned);
    let crates = packages();
    let known = |package: &Json| built_with(package).filter_map(|dependency| short(&dependency["name"])).collect();
    crates.iter().filter_map(|package| Some((short(&package["name"])?, known(package)))).collect()
}

/// Adds a crate of the library with its dependencies on other authors' packages, and below it the crates that it is
/// built with.
fn add_to_tree(packages: &[Json], name: &str, indents: [&str; 2], shown: &mut BTreeSet<String>, tree: &mut String) {
    let package = packages.iter().find(|package| package["name"] == name).unwrap();
    let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
    for dependency in built_with(package).filter(|dependency| dependency["optional"] == false) {
        let name = dependency["name"].as_str().unwrap();
        let target = dependency["target"].as_str().unwrap_or_default();
        if name.starts_with("tileforge-") {
            own.insert(name);
        } else {
            let place = match target {
                "" => "",
                _ if target.contains("windows") && !target.contains("not") => " (Windows)",
                _ => " (Unix)",
            };
            others.insert(format!("{name}{place}"));
        }
    }
    let [first, rest] = indents;
    if !shown.insert(name.to_owned()) {
        *tree += &format!("    {first}{name} (as above)\n");
        return;
    }
    let others = if others.is_empty() { "–".into() } else { others.into_iter().collect::<Vec<_>>().join(", ") };
    *tree += &format!("    {first}{name}: {others}\n");
    let last = own.iter().next_back().copied();
    for child in own {
        let [branch, below] = if Some(child) == last { ["└── ", "    "] } else { ["├── ", "│   "] };
        add_to_tree(packages, child, [&format!("{rest}{branch}"), &format!("{rest}{below}")], shown, tree);
    }
}

#[test]
fn the_document_shows_the_tree_of_the_library() {
    let mut tree = String::new();
    add_to_tree(&packages(), "tileforge", ["", ""], &mut BTreeSet::new(), &mut tree);
    let document = fs::read_to_string(repository("docs/dependencies.md")).unwrap();
    assert!(document.contains(&tree), "docs/dependencies.md: expected these lines:\n{tree}");
}

#[test]
fn no_crate_knows_more_than_it_may() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        MAY_KNOW.iter().map(|(name, known)| (*name, known.iter().copied().collect())).collect();
    for (name, known) in arrows() {
        let may = allowed.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not in the table of this test"));
        let too_much: Vec<_> = known.iter().filter(|other| !may.contains(other.as_str())).collect();
        assert!(too_much.is_empty(), "{name} may not know of {too_much:?}");
    }
}

#[test]
fn the_document_shows_the_crates_as_they_are() {
    let lines = arrows().into_iter().map(|(name, known)| {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        format!("    {name:<18} → {}\n", if known.is_empty() { "–" } else { &known })
    });
    let expected: String = lines.collect();
    let document = fs::read_to_string(repository("docs/architecture.md")).unwrap();
    assert!(document.contains(&expected), "docs/architecture.md: expected these lines:\n{expected}");
}
