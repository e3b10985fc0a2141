//! Where a program's own files are, which were installed with it.

use std::path::{Path, PathBuf};

/// The source tree that this crate was compiled in. A released program has none, because on its user's machine this
/// path may belong to another account: `cargo xtask dist` sets the variable.
const SOURCE_TREE: Option<&str> =
    source_tree(option_env!("TILEFORGE_RELEASE"), concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));

const fn source_tree(release: Option<&str>, tree: &'static str) -> Option<&'static str> {
    match release {
        Some(_) => None,
        None => Some(tree),
    }
}

/// The source tree that this program was built in; `None` in a release.
pub fn built_in() -> Option<&'static Path> {
    SOURCE_TREE.map(Path::new)
}

/// The folders of this name that may have come with the program: beside the executable, in `../share/tileforge`, where
/// releases have them, and in the source tree that it was built in. They need not exist.
pub fn installed(name: &str) -> Vec<PathBuf> {
    around(&executable_folder(), built_in(), name)
}

/// The folder of the executable. Links are followed, so that a link in another folder finds the program's files.
pub fn executable_folder() -> PathBuf {
    let executable = std::env::current_exe().and_then(|path| crate::real_path(&path)).unwrap_or_default();
    executable.parent().map(Path::to_owned).unwrap_or_default()
}

fn around(folder: &Path, tree: Option<&Path>, name: &str) -> Vec<PathBuf> {
    let beside = [folder.join(name), folder.join("../share/tileforge").join(name)];
    beside.into_iter().chain(tree.map(|tree| tree.join(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_looks_only_where_it_was_installed() {
        assert_eq!(source_tree(Some("0.1.0"), "/tree"), None);
        assert_eq!(source_tree(None, "/tree"), Some("/tree"));
        let released = ["/opt/t/bin/models", "/opt/t/bin/../share/tileforge/models"].map(PathBuf::from);
        assert_eq!(around(Path::new("/opt/t/bin"), None, "models"), released);
        let built = around(Path::new("/opt/t/bin"), Some(Path::new("/tree")), "models");
        assert_eq!(built[2..], [PathBuf::from("/tree/models")]);
        assert!(SOURCE_TREE.is_none_or(|tree| Path::new(tree).join("crates/files").is_dir()));
    }
}
