//! NVIDIA's Jetson modules, whose libraries come with JetPack.
//!
//! What JetPack's releases hold is in docs/releases.md, with its sources.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// A Jetson module, and the release of its system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Jetson {
    /// The board's name, such as "NVIDIA Jetson AGX Orin Developer Kit".
    pub board: String,
    /// The release of Jetson Linux (L4T), such as (36, 4); `None` if the system does not report it.
    pub release: Option<(u32, u32)>,
}

impl Jetson {
    /// The first major release of Jetson Linux with CUDA 13: it is part of JetPack 7.
    pub const OLDEST_RELEASE: u32 = 38;

    /// Looks for a Jetson in the system's files below `root`; `None` if this is another machine.
    pub fn read(root: &Path) -> Option<Self> {
        let release = fs::read_to_string(root.join("etc/nv_tegra_release")).ok();
        // The device tree's texts end with a NUL.
        let board = fs::read_to_string(root.join("proc/device-tree/model")).unwrap_or_default();
        let board = board.trim_end_matches('\0').trim();
        if release.is_none() && !board.contains("Jetson") {
            return None;
        }
        let board = if board.is_empty() { "a Jetson" } else { board };
        Some(Self { board: board.into(), release: release.as_deref().and_then(numbers) })
    }

    /// Whether the system is too old for ONNX Runtime's GPU builds, which need CUDA 13.
    pub fn is_too_old(&self) -> bool {
        self.release.is_some_and(|(major, _)| major < Self::OLDEST_RELEASE)
    }
}

/// The release in a line such as `# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64`.
fn numbers(text: &str) -> Option<(u32, u32)> {
    let major = text.trim_start().strip_prefix("# R")?.split(' ').next()?;
    let (_, revision) = text.split_once("REVISION: ")?;
    let minor = revision.split(['.', ',']).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_in_the_first_line() {
        let orin = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8\n";
        assert_eq!(numbers(orin), Some((36, 4)));
        assert_eq!(numbers("# R39 (release), REVISION: 2, GCID: 1"), Some((39, 2)));
        assert_eq!((numbers(""), numbers("# R36 (release)"), numbers("R36 REVISION: 4.3")), (None, None, None));
    }

    #[test]
    fn a_jetson_is_known_by_its_files() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Jetson::read(root.path()), None);
        let write = |path: &str, text: &str| {
            fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
            fs::write(root.path().join(path), text).unwrap();
        };
        write("proc/device-tree/model", "Raspberry Pi 5\0");
        assert_eq!(Jetson::read(root.path()), None);
        write("proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0");
        let found = Jetson::read(root.path()).unwrap();
        assert_eq!((found.board.as_str(), found.release), ("NVIDIA Jetson AGX Orin Developer Kit", None));
        assert!(!found.is_too_old());
        write("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 1\n");
        let found = Jetson::read(root.path()).unwrap();
        assert!(found.release == Some((36, 4)) && found.is_too_old());
    }
}
