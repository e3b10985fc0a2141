//! Finds the pictures to compare: two files, or the files of equal names in two folders.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tileforge_image::Format;

use super::super::failure::Failure;
use super::likeness::MOST_NAMES;

/// The most levels of folders, so that a loop of mounts ends.
const MOST_DEPTH: usize = 32;

/// Two pictures.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// Their name in both folders; `None` for two files.
    pub(super) name: Option<PathBuf>,
    pub(super) one: PathBuf,
    pub(super) other: PathBuf,
}

/// The pairs of two files, or of two folders, sorted by name.
pub(super) fn pairs(one: &Path, other: &Path) -> Result<Vec<Pair>, Failure> {
    match (one.is_dir(), other.is_dir()) {
        (false, false) => return Ok(vec![Pair { name: None, one: one.into(), other: other.into() }]),
        (true, true) => {}
        (is_folder, _) => {
            let (folder, file) = if is_folder { (one, other) } else { (other, one) };
            let (folder, file) = (folder.display(), file.display());
            return Err(Failure::Usage(format!(
                "expected two pictures or two folders, found the folder {folder} and {file}"
            )));
        }
    }
    let (ones, others) = (pictures_in(one)?, pictures_in(other)?);
    let missing = [(one, &others - &ones), (other, &ones - &others)];
    let missing: Vec<String> = missing.iter().filter(|(_, names)| !names.is_empty()).map(lacking).collect();
    if !missing.is_empty() {
        return Err(Failure::Partly(format!(
            "{}\ncompare folders with pictures of the same names",
            missing.join("\n")
        )));
    }
    Ok(ones.into_iter().map(|name| Pair { one: one.join(&name), other: other.join(&name), name: Some(name) }).collect())
}

fn lacking((folder, names): &(&Path, BTreeSet<PathBuf>)) -> String {
    let shown: Vec<String> = names.iter().take(MOST_NAMES).map(|name| name.display().to_string()).collect();
    let more = names.len().saturating_sub(MOST_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}: expected the pictures of the other folder, but lacks {}{more}", folder.display(), shown.join(", "))
}

/// The names of all pictures in a folder and the folders in it.
pub(crate) fn pictures_in(folder: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut names = BTreeSet::new();
    let mut left = vec![PathBuf::new()];
    while let Some(inner) = left.pop() {
        let place = folder.join(&inner);
        let failed = |source| Failure::file(&place, "read the folder", source);
        if inner.components().count() > MOST_DEPTH {
            return Err(Failure::Usage(format!(
                "{}: expected at most {MOST_DEPTH} folders in folders",
                place.display()
            )));
        }
        for entry in fs::read_dir(&place).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = inner.join(entry.file_name());
            if entry.path().is_dir() {
                // A link may lead back here.
                if entry.file_type().map_err(failed)?.is_symlink() {
                    let link = entry.path();
                    return Err(Failure::Usage(format!("{}: expected no link to a folder", link.display())));
                }
                left.push(name);
            } else if Format::read_under(&name).is_some() {
                names.insert(name);
            }
        }
    }
    if names.is_empty() {
        return Err(Failure::Usage(format!(
            "{}: expected pictures ({}) in this folder, found none",
            folder.display(),
            Format::READ_ENDINGS
        )));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    fn text(one: &Path, other: &Path) -> String {
        match pairs(one, other) {
            Err(Failure::Usage(text) | Failure::Partly(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pictures_of_one_name_are_pairs() {
        let (one, other) = (folder(&["b.png", "in/a.JPG", "notes.txt"]), folder(&["in/a.JPG", "b.png"]));
        let (one, other) = (one.path(), other.path());
        let names: Vec<PathBuf> = pairs(one, other).unwrap().into_iter().filter_map(|pair| pair.name).collect();
        assert_eq!(names, ["b.png", "in/a.JPG"].map(PathBuf::from));
        let file = one.join("b.png");
        assert_eq!(pairs(&file, &file).unwrap(), [Pair { name: None, one: file.clone(), other: file.clone() }]);
        assert!(text(one, &file).contains("expected two pictures or two folders, found the folder"));
        assert!(text(&file, one).contains("expected two pictures or two folders, found the folder"));
    }

    #[test]
    fn a_picture_without_a_partner_is_an_error() {
        let (one, other) = (folder(&["a.png", "b.png"]), folder(&["a.png", "c.png"]));
        let found = text(one.path(), other.path());
        assert!(found.contains("lacks b.png") && found.contains("lacks c.png"), "{found}");
        let names: Vec<String> = (0..13).map(|number| format!("{number:02}.png")).collect();
        let many = folder(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(text(many.path(), other.path()).contains("lacks 00.png, 01.png"));
        assert!(text(many.path(), other.path()).contains("09.png and 3 more"));
        assert!(text(folder(&["a.txt"]).path(), other.path()).contains("found none"));
        std::os::unix::fs::symlink(one.path(), one.path().join("loop")).unwrap();
        assert!(text(one.path(), other.path()).contains("expected no link to a folder"));
    }
}
