//! Films through ffmpeg: only the picture changes.

mod colours;
mod hostile;
mod refused;
mod resumed;
mod times;
mod tracks;

use end_to_end::{Outcome, command, demo_engine, words};
use serde_json::Value as Json;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for the test's films.
struct Work(tempfile::TempDir);

impl Work {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A film that ffmpeg makes with these arguments, which are split at spaces.
    fn film(&self, name: &str, arguments: &str) -> PathBuf {
        let path = self.path(name);
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-nostdin", "-loglevel", "error", "-y"]).current_dir(self.0.path());
        let output = command.args(arguments.split_whitespace()).arg(&path).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        path
    }

    /// The command that enlarges a film.
    fn command(&self, input: &Path, output: &str, more: &[&str]) -> Command {
        infer(demo_engine(), input, &self.path(output), more)
    }

    fn enlarge(&self, input: &Path, output: &str, more: &[&str]) -> Outcome {
        Outcome::of(&mut self.command(input, output, more))
    }

    /// The enlarged film.
    fn enlarged(&self, input: &Path, output: &str, more: &[&str]) -> PathBuf {
        let _ = self.enlarge(input, output, more).success();
        self.path(output)
    }
}

fn infer(engine: &Path, input: &Path, output: &Path, more: &[&str]) -> Command {
    let arguments = words(&[&"infer", &"--engine", &engine, &"--input", &input, &"--output", &output]);
    command("runtime", arguments.into_iter().chain(more.iter().map(OsString::from)))
}

/// The output of one of ffmpeg's programs.
fn printed(program: &str, arguments: &[&dyn AsRef<OsStr>]) -> String {
    let output = Command::new(program).args(["-hide_banner", "-loglevel", "error"]).args(words(arguments)).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What ffprobe reports about a film.
fn probed(film: &Path, asked: &[&str]) -> Json {
    let mut arguments: Vec<&dyn AsRef<OsStr>> = vec![&"-print_format", &"json", &"-show_streams", &"-show_format"];
    arguments.extend(asked.iter().map(|word| word as &dyn AsRef<OsStr>));
    arguments.push(&film);
    serde_json::from_str(&printed("ffprobe", &arguments)).unwrap()
}

/// The picture track.
fn picture(film: &Path) -> Json {
    let probed = probed(film, &[]);
    let is_picture = |stream: &&Json| stream["codec_type"] == "video" && stream["disposition"]["attached_pic"] == 0;
    probed["streams"].as_array().unwrap().iter().find(is_picture).unwrap().clone()
}

/// The times of all frames of the picture in milliseconds.
fn times(film: &Path) -> Vec<i64> {
    let probed = probed(film, &["-select_streams", "v:0", "-show_frames", "-show_entries", "frame=pts_time"]);
    let frames = probed["frames"].as_array().unwrap();
    let time = |frame: &Json| frame["pts_time"].as_str().unwrap().parse::<f64>().unwrap();
    frames.iter().map(|frame| (time(frame) * 1000.0).round() as i64).collect()
}

/// The digest of all bytes of a track's packets.
fn track_digest(film: &Path, track: usize) -> String {
    let map = format!("0:{track}");
    printed("ffmpeg", &[&"-i", &film, &"-map", &map, &"-c", &"copy", &"-f", &"streamhash", &"-"])
}

/// The samples of all frames of the picture.
fn samples(film: &Path, pixel_format: &str) -> Vec<u8> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-nostdin", "-loglevel", "error", "-i"]).arg(film);
    command.args(["-map", "0:v:0", "-fps_mode", "passthrough", "-pix_fmt", pixel_format, "-f", "rawvideo", "-"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Ten frames that differ.
const MOVING: &str = "-f lavfi -i testsrc2=size=60x44:rate=25:duration=0.4";
