//! The programs of ffmpeg.

use std::fmt;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// The oldest version that the tests run with: the version of Debian 12.
const LEAST: Version = Version { major: 5, minor: 1 };

/// From this version on, the input's time base has a name. 7.1 still accepts the number, and 9.0 does not.
const TIME_BASE_HAS_A_NAME: Version = Version { major: 7, minor: 0 };

/// ffmpeg and ffprobe, found and new enough.
#[derive(Clone, Copy, Debug)]
pub struct Programs {
    /// The version of ffmpeg; `None`: a build between versions.
    ffmpeg: Option<Version>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

impl Programs {
    /// Looks for both on PATH.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::TooOld`], [`Error::Start`].
    pub fn find() -> Result<Self> {
        let ffmpeg = check("ffmpeg")?;
        check("ffprobe")?;
        Ok(Self { ffmpeg })
    }

    /// The value of `-enc_time_base` with which frames keep the input's time base.
    pub(crate) fn time_base_of_input(self) -> &'static str {
        if self.ffmpeg.is_some_and(|found| found < TIME_BASE_HAS_A_NAME) { "-1" } else { "demux" }
    }

    /// A command for ffmpeg that prints only errors and never prompts.
    pub(crate) fn ffmpeg(self) -> Command {
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-nostdin", "-nostats", "-loglevel", "error"]);
        command
    }

    /// A command for ffprobe that prints only errors.
    pub(crate) fn ffprobe(self) -> Command {
        let mut command = Command::new("ffprobe");
        command.args(["-hide_banner", "-loglevel", "error"]);
        command
    }
}

/// The version of a program, checked to be new enough; `None`: a build between versions.
fn check(program: &'static str) -> Result<Option<Version>> {
    let least = LEAST.to_string();
    let output = Command::new(program).arg("-version").stdin(Stdio::null()).output().map_err(|source| {
        if source.kind() == ErrorKind::NotFound {
            Error::Missing { program, least: least.clone() }
        } else {
            Error::Start { program, source }
        }
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    match version(&text) {
        Some(Some(found)) if found < LEAST => Err(Error::TooOld { program, least, found: found.to_string() }),
        Some(found) => Ok(found),
        None => {
            let first = text.lines().next().unwrap_or_default().chars().take(80).collect::<String>();
            Err(Error::TooOld { program, least, found: format!("a program that says `{first}`") })
        }
    }
}

/// The version of the first line, as in `ffmpeg version 5.1.9-0+deb12u1 Copyright …`; `Some(None)`: a build between
/// versions, whose number is that of a change (`N-112042-g…`).
fn version(text: &str) -> Option<Option<Version>> {
    let mut words = text.lines().next()?.split(' ');
    let word = (words.next()?.starts_with("ff") && words.next()? == "version").then(|| words.next())??;
    if word.starts_with("N-") || word.starts_with("git-") {
        return Some(None);
    }
    let mut numbers = word.trim_start_matches('n').split(|letter: char| !letter.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    Some(Some(Version { major, minor: numbers.next().and_then(|minor| minor.parse().ok()).unwrap_or(0) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_many_forms() {
        let of = |text: &str| version(text).map(|found| found.map(|found| (found.major, found.minor)));
        assert_eq!(of("ffmpeg version 5.1.9-0+deb12u1 Copyright (c) 2000-2026"), Some(Some((5, 1))));
        assert_eq!(of("ffprobe version n7.0 Copyright\nbuilt with gcc"), Some(Some((7, 0))));
        assert_eq!(of("ffmpeg version 8 Copyright"), Some(Some((8, 0))));
        assert_eq!(of("ffmpeg version N-112042-g1234567 Copyright"), Some(None));
        assert_eq!(of("ffmpeg version 4.4.2-0ubuntu0.22.04.1 Copyright"), Some(Some((4, 4))));
        assert!(LEAST > Version { major: 4, minor: 4 } && LEAST < Version { major: 10, minor: 0 });
        for other in ["", "avconv version 11", "ffmpeg", "ffmpeg version", "ffmpeg version x"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn the_time_base_of_what_is_read_has_a_name_in_newer_versions() {
        let of = |ffmpeg| Programs { ffmpeg }.time_base_of_input();
        assert_eq!(of(Some(LEAST)), "-1");
        assert_eq!(of(Some(Version { major: 7, minor: 1 })), "demux");
        assert_eq!(of(None), "demux");
    }
}
