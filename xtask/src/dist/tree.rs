//! The files of a release, and archives of them.

use flate2::{Compression, GzBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Write};
use tar::{Builder, EntryType, Header};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// The entry at a path.
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
    /// Entries are sorted, belong to root, and have one date, so that the same files give the same bytes. The
    /// compression is gzip because the smallest Debian and Ubuntu have neither zstd nor xz.
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

    /// A zip archive for Windows. `root` is the folder that holds everything.
    ///
    /// As [`Tree::archive`], the same files give the same bytes. Zip archives have no time zone: the date is in UTC.
    pub(super) fn zip(&self, root: &str, seconds: u64) -> Result<Vec<u8>, String> {
        let failed = |error: &dyn std::fmt::Display| format!("the archive of {root}: {error}");
        let seconds = i64::try_from(seconds).map_err(|error| failed(&error))?;
        let date = jiff::Timestamp::from_second(seconds).map_err(|error| failed(&error))?;
        let date = date.to_zoned(jiff::tz::TimeZone::UTC);
        let part = |number: i8| u8::try_from(number).unwrap_or_default();
        let date = DateTime::from_date_and_time(
            u16::try_from(date.year()).unwrap_or_default(),
            part(date.month()),
            part(date.day()),
            part(date.hour()),
            part(date.minute()),
            part(date.second()),
        );
        // Zip dates begin in 1980; an earlier date becomes the first one.
        let date = date.unwrap_or_default();
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for (path, entry) in &self.0 {
            let (mode, content) = match entry {
                Entry::File(content) => (0o644, content),
                Entry::Program(content) => (0o755, content),
                Entry::Link(to) => return Err(failed(&format!("{path} is a link to {to}, which it cannot hold"))),
            };
            let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
            let options = options.compression_level(Some(9)).last_modified_time(date).unix_permissions(mode);
            archive.start_file(format!("{root}/{path}"), options).map_err(|error| failed(&error))?;
            archive.write_all(content).map_err(|error| failed(&error))?;
        }
        Ok(archive.finish().map_err(|error| failed(&error))?.into_inner())
    }
}

/// Appends a file, a link, or a folder (`None`) to a tar archive.
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

/// Compresses without a name or a date.
pub(super) fn gzip(content: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut compressed = GzBuilder::new().write(Vec::new(), Compression::best());
    compressed.write_all(content)?;
    compressed.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test's way to fail

    use super::*;
    use std::io::Read;
    use zip::ZipArchive;

    #[test]
    fn a_zip_archive_is_sorted_dated_and_the_same_each_time() {
        let mut tree = Tree::default();
        tree.add("bin/runtime.exe", Entry::Program(vec![7; 10_000]));
        tree.file("README.md", "read");
        // 2026-01-02, 03:04:05 UTC; zip archives store seconds in steps of two.
        let made = tree.zip("root", 1_767_323_045).unwrap();
        assert!(made == tree.zip("root", 1_767_323_045).unwrap() && made.len() < 2000);
        let mut archive = ZipArchive::new(Cursor::new(made)).unwrap();
        let mut names = Vec::new();
        for index in 0..archive.len() {
            let mut file = archive.by_index(index).unwrap();
            let date = file.last_modified().unwrap();
            let (year, minute, second) = (date.year(), date.minute(), date.second());
            assert_eq!((year, date.month(), date.day(), date.hour(), minute, second), (2026, 1, 2, 3, 4, 4));
            let mut content = Vec::new();
            file.read_to_end(&mut content).unwrap();
            names.push((
                String::from_utf8(file.name_raw().to_vec()).unwrap(),
                file.unix_mode().unwrap() & 0o777,
                content.len(),
            ));
        }
        let expected = [("root/README.md".to_owned(), 0o644, 4), ("root/bin/runtime.exe".to_owned(), 0o755, 10_000)];
        assert_eq!(names, expected);
        tree.add("link", Entry::Link("README.md".into()));
        assert!(tree.zip("root", 0).unwrap_err().contains("link is a link to README.md"));
    }
}
