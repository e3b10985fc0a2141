//! Containers, by the endings of names.

use std::path::Path;

/// Endings of films that are read.
const READ: [&str; 21] = [
    "3gp", "asf", "avi", "flv", "ivf", "m2ts", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "mts", "mxf", "nut", "ogm",
    "ogv", "ts", "vob", "webm", "wmv",
];

/// Demuxers that open only the file that they are given. Playlists, lists of parts and patterns of names are excluded:
/// with them, a file could make ffmpeg open other files.
pub(crate) const DEMUXERS: &str = "matroska,mov,avi,mpegts,mpeg,asf,flv,ogg,mxf,ivf,nut";

/// A container format for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// `.mkv`.
    Matroska,
    /// `.mp4` and `.m4v`.
    Mp4,
    /// `.mov`.
    QuickTime,
    /// `.webm`.
    WebM,
}

/// The endings of films that are written, for messages.
pub const WRITTEN: &str = ".mkv, .mp4, .m4v, .mov or .webm";

fn ending(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

/// Whether a name has the ending of a film that is read.
pub fn is_film(path: &Path) -> bool {
    ending(path).is_some_and(|ending| READ.contains(&ending.as_str()))
}

impl Container {
    /// The container for a name's ending; `None` for other names.
    pub fn of_name(path: &Path) -> Option<Self> {
        match ending(path)?.as_str() {
            "mkv" => Some(Self::Matroska),
            "mp4" | "m4v" => Some(Self::Mp4),
            "mov" => Some(Self::QuickTime),
            "webm" => Some(Self::WebM),
            _ => None,
        }
    }

    /// The name of ffmpeg's muxer.
    pub(crate) fn muxer(self) -> &'static str {
        match self {
            Self::Matroska => "matroska",
            Self::Mp4 => "mp4",
            Self::QuickTime => "mov",
            Self::WebM => "webm",
        }
    }

    /// The default encoder.
    pub(crate) fn encoder(self) -> &'static str {
        match self {
            Self::Matroska | Self::Mp4 | Self::QuickTime => "libx264",
            Self::WebM => "libvpx-vp9",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_read_and_written() {
        for name in ["a.mkv", "A.MP4", "x/y.webm", "é.ts"] {
            assert!(is_film(Path::new(name)), "{name}");
        }
        for name in ["a.png", "mkv", ".mkv", "a.m3u8", "a.y4m", "a.gif", "-", "a.txt"] {
            assert!(!is_film(Path::new(name)), "{name}");
        }
        assert_eq!(Container::of_name(Path::new("a.MKV")), Some(Container::Matroska));
        assert_eq!(Container::of_name(Path::new("a.avi")), None);
    }
}
