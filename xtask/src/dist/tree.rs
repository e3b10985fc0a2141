//! The files of a release, and the tar archive of them.

use flate2::{Compression, GzBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use tar::{Builder, EntryType, Header};

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A file that everybody may read.
    File(Vec<u8>),
    /// A file that everybody may execute.
    Program(Vec<u8>),
    /// A symbolic link to this path.
    Link(String),
}

/// Files by their paths, which are relative and have `/` between their parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree(pub(super) BTreeMap<String, Entry>);

impl Tree {
    pub(super) fn add(&mut self, path: impl Into<String>, entry: Entry) {
        self.0.insert(path.into(), entry);
    }

    pub(super) fn file(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.add(path, Entry::File(content.into()));
    }

    /// The bytes of all files together.
    pub(super) fn bytes(&self) -> u64 {
        let content = self.0.values().map(|entry| match entry {
            Entry::File(content) | Entry::Program(content) => content.len() as u64,
            Entry::Link(_) => 0,
        });
        content.sum()
    }

    /// A compressed tar archive. `root` is the folder that holds everything, or `.`.
    ///
    /// Entries are sorted, belong to root, and have one date, so that the same files give the same bytes. It is gzip
    /// because the smallest Debian and Ubuntu have neither zstd nor xz.
    pub(super) fn archive(&self, root: &str, seconds: u64) -> Result<Vec<u8>, String> {
        let paths = self.0.keys().flat_map(|path| path.match_indices('/').map(move |(end, _)| &path[..end]));
        let folders: BTreeSet<&str> = paths.collect();
        let mut entries: BTreeMap<&str, Option<&Entry>> = folders.into_iter().map(|folder| (folder, None)).collect();
        entries.extend(self.0.iter().map(|(path, entry)| (path.as_str(), Some(entry))));
        let mut archive = Builder::new(Vec::new());
        let failed = |error: std::io::Error| format!("the archive of {root}: {error}");
        append(&mut archive, &format!("{root}/"), None, seconds).map_err(failed)?;
        for (path, entry) in entries {
            let slash = if entry.is_none() { "/" } else { "" };
            append(&mut archive, &format!("{root}/{path}{slash}"), entry, seconds).map_err(failed)?;
        }
        gzip(&archive.into_inner().map_err(failed)?).map_err(failed)
    }
}

/// Appends a file, a link, or a folder (`None`).
fn append(archive: &mut Builder<Vec<u8>>, path: &str, entry: Option<&Entry>, seconds: u64) -> std::io::Result<()> {
    let (kind, mode, content): (_, _, &[u8]) = match entry {
        None => (EntryType::Directory, 0o755, &[]),
        Some(Entry::File(content)) => (EntryType::Regular, 0o644, content),
        Some(Entry::Program(content)) => (EntryType::Regular, 0o755, content),
        Some(Entry::Link(_)) => (EntryType::Symlink, 0o777, &[]),
    };
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(seconds);
    header.set_size(content.len() as u64);
    match entry {
        Some(Entry::Link(to)) => archive.append_link(&mut header, path, to),
        _ => archive.append_data(&mut header, path, content),
    }
}

/// Compressed without a name or a date.
pub(super) fn gzip(content: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut compressed = GzBuilder::new().write(Vec::new(), Compression::best());
    compressed.write_all(content)?;
    compressed.finish()
}
