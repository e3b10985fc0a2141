//! Paths that are longer than most functions of Windows accept.
//!
//! The standard library does the same for its own calls. Our programs have no manifest that asks Windows for long
//! paths, because Windows honours it only if an administrator has allowed it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf, Prefix};

/// A folder has to leave room for a name of twelve characters below `MAX_PATH`, which is 260.
const MOST_UNITS: usize = 247;

/// A path in the form that functions of Windows accept: a long path becomes absolute and begins with `\\?\`.
pub(super) fn for_windows(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    if absolute.as_os_str().encode_wide().count() <= MOST_UNITS {
        return Ok(path.to_owned());
    }
    let Some(Component::Prefix(prefix)) = absolute.components().next() else { return Ok(absolute) };
    Ok(match prefix.kind() {
        Prefix::Disk(_) => with_prefix(r"\\?\", absolute.as_os_str()),
        Prefix::UNC(server, share) => {
            let share = Path::new(server).join(share);
            // Without the root, so that the rest is joined to the share.
            let rest = absolute.components().skip_while(|part| !matches!(part, Component::Normal(_)));
            with_prefix(r"\\?\UNC\", share.as_os_str()).join(rest.collect::<PathBuf>())
        }
        // The path has such a prefix already, or is a device.
        _ => absolute,
    })
}

fn with_prefix(prefix: &str, path: &OsStr) -> PathBuf {
    let mut text = OsString::from(prefix);
    text.push(path);
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_paths_get_a_prefix() {
        let long = r"\a folder with a name".repeat(20);
        let prefixed = |path: &str| for_windows(Path::new(path)).unwrap().into_os_string().into_string().unwrap();
        assert_eq!(prefixed(r"C:\short\name"), r"C:\short\name");
        assert_eq!(prefixed("name"), "name");
        assert_eq!(prefixed(&format!("C:{long}")), format!(r"\\?\C:{long}"));
        assert_eq!(prefixed(&format!(r"C:{long}\..\x").replace('\\', "/")), {
            let (above, _) = long.rsplit_once('\\').unwrap();
            format!(r"\\?\C:{above}\x")
        });
        assert_eq!(prefixed(&format!(r"\\server\share{long}")), format!(r"\\?\UNC\server\share{long}"));
        assert_eq!(prefixed(&format!(r"\\?\C:{long}")), format!(r"\\?\C:{long}"));
    }
}
