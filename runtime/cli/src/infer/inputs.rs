//! Finds the pictures of the inputs: files, patterns and folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tileforge_image::Format;
use tileforge_terminal::counted;

use super::super::failure::Failure;

/// The most levels of folders. A file system may be mounted into itself.
const LEVELS_MAXIMUM: usize = 64;

/// A picture.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) input: PathBuf,
    /// Its folder, relative to the given folder.
    pub(super) within: PathBuf,
    /// It was found in a folder, and not named itself.
    pub(super) is_listed: bool,
}

/// The inputs, with patterns and folders replaced by the pictures that they stand for, sorted by name. `avoided` is
/// where outputs go. Skipped files and links of folders are added to `left_out`.
pub(super) fn found(
    inputs: &[PathBuf],
    recursive: bool,
    avoided: Option<&Path>,
    left_out: &mut Vec<String>,
) -> Result<Vec<Found>, Failure> {
    let mut all = Vec::new();
    let mut listing =
        Listing { recursive, avoided, found: Vec::new(), not_read: BTreeMap::new(), films: BTreeMap::new(), links: 0 };
    for input in inputs {
        let named = |input| Found { input, within: PathBuf::new(), is_listed: false };
        if is_pattern(input) {
            all.extend(matching(input)?.into_iter().map(named));
        } else if !input.is_dir() {
            all.push(named(input.clone()));
        } else {
            listing.list(input)?;
            if listing.found.is_empty() {
                let deeper = if recursive { "" } else { "; --recursive looks into its folders, too" };
                return Err(Failure::Usage(format!(
                    "{}: expected pictures ({}) in this folder, found none{}{deeper}",
                    input.display(),
                    Format::READ_ENDINGS,
                    listing.rest()
                )));
            }
            all.append(&mut listing.found);
        }
    }
    left_out.extend(listing.left_out());
    Ok(all)
}

/// A name with the wildcards of a shell, and no file of that very name.
pub(super) fn is_pattern(input: &Path) -> bool {
    input.to_str().is_some_and(|text| text.contains(['*', '?', '['])) && !input.exists()
}

/// The files that match a pattern, sorted by name.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, Failure> {
    let refused = |problem: &dyn std::fmt::Display| Failure::Usage(format!("{}: {problem}", pattern.display()));
    let paths = glob::glob(&pattern.to_string_lossy()).map_err(|error| refused(&error))?;
    let mut found = paths.collect::<Result<Vec<PathBuf>, _>>().map_err(|error| refused(&error))?;
    found.retain(|path| path.is_file());
    if found.is_empty() { Err(refused(&"expected files of this pattern, found none")) } else { Ok(found) }
}

struct Listing<'l> {
    recursive: bool,
    avoided: Option<&'l Path>,
    found: Vec<Found>,
    /// How many files there are of each ending that is not read.
    not_read: BTreeMap<String, usize>,
    /// How many films there are of each ending. Films are named themselves.
    films: BTreeMap<String, usize>,
    /// Links that lead out of the folder.
    links: usize,
}

impl Listing<'_> {
    fn list(&mut self, folder: &Path) -> Result<(), Failure> {
        let root = folder.canonicalize().map_err(|source| Failure::file(folder, "read the folder", source))?;
        self.list_within(folder, &root, Path::new(""), 0)
    }

    /// Lists a folder, and its subfolders if requested: files first, all sorted by name.
    fn list_within(&mut self, folder: &Path, root: &Path, within: &Path, level: usize) -> Result<(), Failure> {
        let failed = |source| Failure::file(folder, "read the folder", source);
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(failed)?;
        let mut entries: Vec<_> = entries.into_iter().map(|entry| (entry.path(), entry.file_type())).collect();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut folders = Vec::new();
        for (path, kind) in entries {
            let kind = kind.map_err(failed)?;
            if kind.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                self.add(path, kind.is_symlink().then_some(root), within);
            }
        }
        if !self.recursive || level == LEVELS_MAXIMUM {
            return Ok(());
        }
        for path in folders {
            let name = path.file_name().unwrap_or_default();
            // Hidden folders belong to programs and are skipped. Folders behind links are never entered.
            let is_output = self.avoided.is_some_and(|avoided| path.canonicalize().is_ok_and(|real| real == avoided));
            if !is_output && !name.as_encoded_bytes().starts_with(b".") {
                self.list_within(&path, root, &within.join(name), level + 1)?;
            }
        }
        Ok(())
    }

    /// Adds a file, if it is a picture. `linked` is the folder that a link may not leave.
    fn add(&mut self, path: PathBuf, linked: Option<&Path>, within: &Path) {
        if Format::read_under(&path).is_none() {
            let ending = || path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
            if Format::is_not_read(&path) {
                *self.not_read.entry(ending()).or_default() += 1;
            } else if tileforge_film::is_film(&path) {
                *self.films.entry(ending()).or_default() += 1;
            }
            return;
        }
        let leaves = |root: &Path| !path.canonicalize().is_ok_and(|real| real.starts_with(root));
        // A listing of a single folder has always included the files behind its links, so only recursive listings
        // leave them out.
        if self.recursive && linked.is_some_and(leaves) {
            self.links += 1;
            return;
        }
        self.found.push(Found { input: path, within: within.to_owned(), is_listed: true });
    }

    fn left_out(&self) -> Vec<String> {
        let of = |(ending, count): (&String, &usize)| {
            format!("{count} .{ending}, which {} not read", if *count == 1 { "is" } else { "are" })
        };
        let film = |(ending, count): (&String, &usize)| {
            format!("{} .{ending}: give {} by name", counted(*count, "film"), if *count == 1 { "it" } else { "them" })
        };
        let mut all: Vec<String> = self.not_read.iter().map(of).chain(self.films.iter().map(film)).collect();
        match self.links {
            0 => {}
            1 => all.push("1 link out of the folder".into()),
            links => all.push(format!("{links} links out of the folder")),
        }
        all
    }

    /// Describes what was found instead of pictures.
    fn rest(&self) -> String {
        let rest = self.left_out();
        if rest.is_empty() { String::new() } else { format!(" but {}", rest.join(", ")) }
    }
}
