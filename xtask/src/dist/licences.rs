//! The licence texts of the packages that the programs are compiled from.

use super::at::at;
use super::components::{Component, Components};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// A list of all packages with their licences, then every text once, with the names of its packages.
pub(super) fn of(components: &Components) -> Result<String, String> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for component in components.of_others() {
        let name = format!("{} {}", component.name, component.version);
        // Writing to a String never fails.
        let _ = writeln!(list, "{name}: {}", component.licence);
        for text in of_one(component)? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let mut texts: Vec<(String, Vec<String>)> = texts.into_iter().collect();
    // The texts with the most packages first.
    texts.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let rule = "-".repeat(80);
    let texts = texts.into_iter().map(|(text, names)| format!("\n{rule}\n{}\n{rule}\n\n{text}\n", names.join(", ")));
    let head = "The programs of Tileforge contain these packages, with these licences. Their texts follow.";
    Ok(format!("{head}\n\n{list}{}", texts.collect::<String>()))
}

/// The licence texts in a package; if it has none, the standard texts of its stated licences.
fn of_one(component: &Component) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    for file in component.folder.as_deref().map(files).transpose()?.unwrap_or_default() {
        let text = fs::read(&file).map_err(|error| at(&file, &error))?;
        texts.push(plain(&String::from_utf8_lossy(&text)));
    }
    if !texts.is_empty() {
        return Ok(texts);
    }
    let place = |problem: String| format!("{} {}: {problem}", component.name, component.version);
    let expression = spdx::Expression::parse(&component.licence).map_err(|error| place(error.to_string()))?;
    let texts = expression.requirements().map(|requirement| {
        let id = requirement.req.license.id();
        let id =
            id.ok_or_else(|| place(format!("it has no licence text, and {} has no standard one", component.licence)))?;
        Ok(plain(id.text()))
    });
    texts.collect()
}

/// The files of a package that hold licences and notices, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for entry in folder.read_dir().map_err(|error| at(folder, &error))? {
        let entry = entry.map_err(|error| at(folder, &error))?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let beginnings = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
        // Some packages also have licence reports with such names.
        let is_text = [".TOML", ".JSON", ".RS", ".HBS"].iter().all(|end| !name.ends_with(end));
        if !(is_text && beginnings.iter().any(|beginning| name.starts_with(beginning))) {
            continue;
        }
        // A folder LICENSES holds only licence texts (<https://reuse.software>).
        if entry.path().is_dir() {
            let texts = entry.path().read_dir().map_err(|error| at(&entry.path(), &error))?;
            found.extend(texts.flatten().map(|text| text.path()).filter(|text| text.is_file()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// A text without invisible differences, so that equal texts are found.
fn plain(text: &str) -> String {
    text.trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
        .trim_matches('\n')
        .into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::*;
    use std::collections::BTreeSet;

    fn component(name: &str, licence: &str, folder: Option<&Path>) -> (String, Component) {
        let component = Component {
            name: name.into(),
            version: "1.0.0".into(),
            licence: licence.into(),
            folder: folder.map(Path::to_owned),
            sha256: None,
            ours: name == "ours",
            depends_on: BTreeSet::new(),
        };
        (name.into(), component)
    }

    #[test]
    fn equal_texts_stand_there_once_and_missing_ones_are_the_standard_ones() {
        let work = tempfile::tempdir().unwrap();
        let folder = |name: &str, file: &str, text: &str| {
            let folder = work.path().join(name);
            fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
            fs::write(folder.join(file), text).unwrap();
            folder
        };
        let (one, two) =
            (folder("one", "LICENSE-MIT", "the text\r\n"), folder("two", "LICENSES/mit.txt", "the text\n"));
        fs::write(one.join("license.toml"), "no text").unwrap();
        let parts = [
            component("one", "MIT", Some(&one)),
            component("two", "MIT", Some(&two)),
            component("bare", "Zlib", None),
            component("ours", "MIT", None),
        ];
        let text = of(&Components(parts.into())).unwrap();
        assert!(text.contains("\none 1.0.0, two 1.0.0\n") && text.matches("the text").count() == 1, "{text}");
        assert!(text.contains("bare 1.0.0: Zlib") && text.contains("without any express or implied"), "{text}");
        assert!(!text.contains("ours") && !text.contains("no text"), "{text}");
        let unknown = Components([component("odd", "LicenseRef-own", None)].into());
        assert!(of(&unknown).unwrap_err().contains("odd 1.0.0: it has no licence text"));
    }
}
