//! Films in parts: finished parts survive when the program is killed.

use super::*;
use end_to_end::names_in;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A film of 600 frames with sound and a variable frame rate.
fn long(work: &Work) -> PathBuf {
    work.film(
        "in.mkv",
        "-f lavfi -i testsrc2=size=32x24:rate=25:duration=36 -f lavfi -i sine=duration=36 -vf \
         select='not(eq(mod(n\\,3)\\,1))',setpts=PTS+1/TB -fps_mode vfr -c:v libx264 -pix_fmt yuv420p -c:a aac",
    )
}

fn parts_in(work: &Work) -> usize {
    let folder = work.path("large.mkv.part");
    if folder.exists() { names_in(&folder).iter().filter(|name| name.ends_with(".nut")).count() } else { 0 }
}

#[test]
fn what_is_finished_survives_a_kill() {
    let work = Work::new();
    let input = long(&work);
    let options = ["--resume", "--encoder-options", "preset=ultrafast"];
    // In one run, under another name.
    let whole = work.enlarged(&input, "whole.mkv", &options);
    assert_eq!(times(&input).len(), 600);
    assert_eq!(times(&input), times(&whole));
    assert_eq!(track_digest(&input, 1), track_digest(&whole, 1));
    let mut child =
        work.command(&input, "large.mkv", &options).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while parts_in(&work) < 3 && started.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    let _ = child.wait().unwrap();
    assert!(!work.path("large.mkv").exists() && parts_in(&work) >= 3, "{:?}", names_in(work.0.path()));
    let resumed = work.enlarge(&input, "large.mkv", &[&options[..], &["--json"]].concat()).success();
    assert!(resumed.stderr.contains("goes on behind frame 250"), "{}", resumed.stderr);
    assert_eq!(resumed.json()["files"][0]["frames"], 350);
    assert_eq!(std::fs::read(work.path("large.mkv")).unwrap(), std::fs::read(&whole).unwrap());
    assert!(!work.path("large.mkv.part").exists());
    // Finished films are skipped.
    let again = work.enlarge(&input, "large.mkv", &options).success();
    assert!(again.stderr.contains("1 is finished"), "{}", again.stderr);
}

#[test]
fn parts_of_something_else_are_made_again() {
    let work = Work::new();
    let input = long(&work);
    let interrupted = |more: &[&str]| {
        let options = [&["--resume", "--encoder-options", "preset=ultrafast"], more].concat();
        let mut child =
            work.command(&input, "large.mkv", &options).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while parts_in(&work) < 3 && started.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // After a signal that asks the program to end, finished parts are also kept.
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(130));
    };
    interrupted(&[]);
    let other = ["--resume", "--lossless"];
    let made = work.enlarge(&input, "large.mkv", &other).success();
    assert!(!made.stderr.contains("goes on"), "{}", made.stderr);
    assert_eq!(times(&work.path("large.mkv")), times(&input));
    assert_eq!(picture(&work.path("large.mkv"))["codec_name"], "ffv1");
    assert!(!work.path("large.mkv.part").exists());
}

#[test]
fn tags_survive_the_joining_of_parts() {
    let work = Work::new();
    let input = work.film(
        "in.mkv",
        "-f lavfi -i testsrc2=size=32x24:rate=25:duration=11 -pix_fmt yuv420p10le -c:v ffv1 -level 3 -vf \
         setparams=colorspace=bt2020nc:color_primaries=bt2020:color_trc=arib-std-b67:range=tv -aspect 16:9",
    );
    for (output, more) in [
        ("large.mkv", &["--lossless"][..]),
        ("large.mp4", &["--codec", "libx265", "--encoder-options", "preset=ultrafast"]),
    ] {
        let output = work.enlarged(&input, output, &[&["--resume"], more].concat());
        for tag in ["color_range", "color_space", "color_primaries", "color_transfer", "pix_fmt", "sample_aspect_ratio"]
        {
            assert_eq!(picture(&input)[tag], picture(&output)[tag], "{} {tag}", output.display());
        }
        assert_eq!(times(&input), times(&output));
    }
}
