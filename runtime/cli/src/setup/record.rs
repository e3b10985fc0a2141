//! What `runtime setup` has installed in a folder.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tileforge_files::{Digests, unfinished};

/// The file that lists what is installed. Releases have it, too.
pub(super) const FILE: &str = "tileforge-setup.json";

/// SHA-256 digests by paths relative to the folder, with `/` between names.
pub(super) type Files = BTreeMap<String, String>;

/// The files of one wheel or folder.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Origin {
    /// The wheel's SHA-256; `None` for a folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
    pub(super) files: Files,
}

/// Everything that is installed, by the names of wheels, or the paths of folders.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Record {
    pub(super) origins: BTreeMap<String, Origin>,
}

impl Record {
    /// The record of a folder; empty if there is none, or if it is not valid.
    pub(super) fn read(folder: &Path) -> Self {
        let text = tileforge_files::read_text(&folder.join(FILE), tileforge_files::TEXT_MAXIMUM_BYTES);
        let record: Self = text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        // The file is not trusted: paths in it may not lead outside the folder.
        let is_plain = |path: &String| path.split('/').all(tileforge_files::is_plain);
        if record.origins.values().all(|origin| origin.files.keys().all(is_plain)) { record } else { Self::default() }
    }

    /// Without origins of which a file is missing or changed.
    pub(super) fn whole(mut self, folder: &Path, digests: &Digests) -> Self {
        let same = |(path, sha256): (&String, &String)| {
            digests.of(&folder.join(path)).is_ok_and(|found| found.sha256 == *sha256)
        };
        self.origins.retain(|_, origin| !origin.files.is_empty() && origin.files.iter().all(same));
        self
    }

    /// Adds an origin. Removes origins that share a file with it.
    pub(super) fn replace(&mut self, name: String, new: Origin) {
        self.origins.retain(|_, origin| origin.files.keys().all(|path| !new.files.contains_key(path)));
        self.origins.insert(name, new);
    }

    /// All files of all origins.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.origins.values().flat_map(|origin| origin.files.keys().map(String::as_str))
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), String> {
        let place = folder.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        let written = unfinished::write(&place, format!("{text}\n").as_bytes());
        written.map_err(|error| format!("{}: cannot write: {error}", place.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_or_missing_is_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let digests = Digests::default();
        let mut record = Record::default();
        for name in ["a", "b", "c"] {
            write(name, name);
            let sha256 = digests.of(&folder.path().join(name)).unwrap().sha256;
            let files = Files::from([(name.to_owned(), sha256)]);
            record.origins.insert(format!("{name}.whl"), Origin { sha256: Some("0".into()), files });
        }
        record.write(folder.path()).unwrap();
        let read = Record::read(folder.path());
        assert_eq!(read, record);
        write("b", "other");
        std::fs::remove_file(folder.path().join("c")).unwrap();
        let whole = read.whole(folder.path(), &Digests::default());
        assert_eq!(whole.origins.keys().collect::<Vec<_>>(), ["a.whl"]);
    }

    #[test]
    fn a_record_that_leads_elsewhere_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(folder.path()), Record::default());
        for text in ["{}", "[]", r#"{ "origins": { "a": { "files": { "../x": "0" } } } }"#] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            assert_eq!(Record::read(folder.path()), Record::default(), "{text}");
        }
    }
}
