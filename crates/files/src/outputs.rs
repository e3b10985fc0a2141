//! Checks that outputs do not overwrite inputs.
//!
//! Weights are memory-mapped and written while they are read, so an output that is also an input destroys the input.
//! Every program calls [`check`] before it writes.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::system::state::Identity;

/// Why an output may not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Collision {
    /// The output is the same file as an input, perhaps under another name.
    #[error("{}: this output is the input {}; give another output", output.display(), input.display())]
    Same {
        /// The output.
        output: PathBuf,
        /// The input.
        input: PathBuf,
    },
    /// The output lies in a folder that is read.
    #[error("{}: this output is in the input {}; give another output", output.display(), input.display())]
    InInput {
        /// The output.
        output: PathBuf,
        /// The input folder.
        input: PathBuf,
    },
    /// The output is a folder that holds an input.
    #[error("{}: this output would replace the input {}; give another output", output.display(), input.display())]
    HoldsInput {
        /// The folder that would be replaced.
        output: PathBuf,
        /// The input.
        input: PathBuf,
    },
    /// Two outputs have the same path.
    #[error("{}: two outputs would have this name; give another output", output.display())]
    Twice {
        /// The path.
        output: PathBuf,
    },
}

/// Checks that no output is an input, lies in an input folder, or is a folder that holds an input, and that no two
/// outputs have the same place. Files are compared by device and inode, so links and other spellings of a path are
/// found.
///
/// A path that does not exist is compared by the place that it would have.
///
/// # Errors
/// The first [`Collision`].
pub fn check(outputs: &[&Path], inputs: &[&Path]) -> Result<(), Collision> {
    // Inspect each file only once, because a program may have many thousand.
    let (mut read, mut holders) = (Places::default(), HashMap::new());
    for input in inputs {
        let place = place_of(input);
        if let Some(identity) = identity(input) {
            holders.extend(around(&place).into_iter().map(|folder| (folder, *input)));
            read.identities.insert(identity, input);
        }
        read.places.insert(place, input);
    }
    let mut written = HashSet::new();
    for output in outputs {
        let (place, identity) = (place_of(output), identity(output));
        let path = || output.to_path_buf();
        if let Some(input) = read.find(&place, identity) {
            return Err(Collision::Same { output: path(), input: input.to_owned() });
        }
        if let Some(input) = around(&place).iter().find_map(|folder| read.identities.get(folder)) {
            return Err(Collision::InInput { output: path(), input: input.to_path_buf() });
        }
        if let Some(input) = identity.and_then(|identity| holders.get(&identity)) {
            return Err(Collision::HoldsInput { output: path(), input: input.to_path_buf() });
        }
        // Outputs are renamed to their places, so two names of one file are two outputs.
        if !written.insert(place) {
            return Err(Collision::Twice { output: path() });
        }
    }
    Ok(())
}

/// Files by identity and by place.
#[derive(Default)]
struct Places<'p> {
    identities: HashMap<Identity, &'p Path>,
    places: HashMap<PathBuf, &'p Path>,
}

impl<'p> Places<'p> {
    fn find(&self, place: &Path, identity: Option<Identity>) -> Option<&'p Path> {
        identity.and_then(|identity| self.identities.get(&identity)).or_else(|| self.places.get(place)).copied()
    }
}

fn identity(path: &Path) -> Option<Identity> {
    Identity::of_path(path).ok()
}

/// The folders that contain a place.
fn around(place: &Path) -> Vec<Identity> {
    place.ancestors().skip(1).filter_map(identity).collect()
}

/// The absolute path that a file has or would have. Links are resolved in the part that exists; the rest stays
/// unchanged.
fn place_of(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for existing in absolute.ancestors() {
        if let Ok(real) = existing.canonicalize() {
            let rest = absolute.strip_prefix(existing).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    absolute
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn checked(output: &Path, input: &Path) -> Result<(), Collision> {
        check(&[output], &[input])
    }

    #[cfg(windows)]
    #[test]
    fn an_output_is_no_input_in_any_spelling() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let input = path("input");
        fs::write(&input, "x").unwrap();
        fs::hard_link(&input, path("hard")).unwrap();
        for output in [input.clone(), path("INPUT"), path("hard"), path("./input"), input.canonicalize().unwrap()] {
            assert!(matches!(checked(&output, &input), Err(Collision::Same { .. })), "{output:?}");
        }
        assert_eq!(checked(&path("new"), &input), Ok(()));
    }

    #[cfg(unix)]
    #[test]
    fn an_output_is_no_input_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let input = path("input");
        fs::write(&input, "x").unwrap();
        fs::hard_link(&input, path("hard")).unwrap();
        std::os::unix::fs::symlink(&input, path("soft")).unwrap();
        std::os::unix::fs::symlink(folder.path(), path("around")).unwrap();
        let same = [input.clone(), path("hard"), path("soft"), path("around/input"), path("./input")];
        for output in &same {
            assert!(matches!(checked(output, &input), Err(Collision::Same { .. })), "{output:?}");
        }
        fs::write(path("other"), "x").unwrap();
        assert_eq!(checked(&path("other"), &input), Ok(()));
        assert_eq!(checked(&path("new"), &input), Ok(()));
        // The code that reads an input reports if it does not exist.
        assert_eq!(checked(&path("new"), &path("missing")), Ok(()));
        assert!(matches!(checked(&path("around/new"), &path("new")), Err(Collision::Same { .. })));
    }

    #[test]
    fn an_output_neither_lies_in_an_input_nor_holds_one() {
        let folder = tempfile::tempdir().unwrap();
        let engine = folder.path().join("engine");
        fs::create_dir(&engine).unwrap();
        let inside = engine.join("file");
        assert!(matches!(checked(&inside, &engine), Err(Collision::InInput { .. })));
        assert!(matches!(checked(&engine.join("new/deep"), &engine), Err(Collision::InInput { .. })));
        fs::write(&inside, "x").unwrap();
        assert!(matches!(checked(&engine, &inside), Err(Collision::HoldsInput { .. })));
        assert_eq!(checked(&folder.path().join("engine.tar"), &engine), Ok(()));
    }

    #[test]
    fn two_outputs_have_two_names() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["x.weights", "./x.weights"].map(|name| folder.path().join(name));
        assert_eq!(check(&[&one, &other], &[]), Err(Collision::Twice { output: other.clone() }));
        assert_eq!(check(&[&one, &folder.path().join("y")], &[]), Ok(()));
    }
}
