//! A film that cannot be made is refused with a reason, and nothing is left behind.

use super::*;
use end_to_end::names_in;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn refused(work: &Work, input: &Path, more: &[&str], expected: &[&str]) {
    let before = names_in(work.0.path());
    let _ = work.enlarge(input, "refused.mkv", more).failure(1, expected);
    assert_eq!(names_in(work.0.path()), before);
}

fn plain(work: &Work) -> PathBuf {
    work.film("plain.mkv", &format!("{MOVING} -f lavfi -i sine=duration=0.4 -c:v libx264 -pix_fmt yuv420p -c:a aac"))
}

#[test]
fn damaged_films_are_named_before_any_work() {
    let work = Work::new();
    let whole = std::fs::read(plain(&work)).unwrap();
    let with = |name: &str, bytes: &[u8]| {
        let path = work.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    refused(
        &work,
        &with("cut.mkv", &whole[..whole.len() * 2 / 3]),
        &[],
        &["cut.mkv: truncated or damaged", "--tolerant"],
    );
    refused(&work, &with("empty.mkv", b""), &[], &["empty.mkv", "expected a film that ffmpeg can read"]);
    refused(&work, &with("noise.mkv", &[0x5a; 5000]), &[], &["noise.mkv", "expected a film that ffmpeg can read"]);
    refused(&work, &work.path("missing.mkv"), &[], &["missing.mkv: cannot open", "No such file"]);
    let mp4 = std::fs::read(work.film("plain.mp4", "-i plain.mkv -c copy")).unwrap();
    refused(&work, &with("cut.mp4", &mp4[..mp4.len() / 2]), &[], &["cut.mp4", "moov atom not found"]);
    // On request, the undamaged part of a film can be processed.
    let outcome = work.enlarge(&work.path("cut.mkv"), "left.mkv", &["--tolerant", "--lossless"]).success();
    assert!(outcome.stderr.contains("cut.mkv: truncated or damaged"), "{}", outcome.stderr);
    let frames = times(&work.path("left.mkv")).len();
    assert!((1..10).contains(&frames), "{frames}");
}

#[test]
fn damage_within_the_picture_stops_it() {
    let work = Work::new();
    let input = work.film("in.mkv", &format!("{MOVING} -c:v ffv1 -level 3 -slicecrc 1 -g 1 -pix_fmt yuv420p"));
    let mut bytes = std::fs::read(&input).unwrap();
    let middle = bytes.len() * 2 / 3;
    bytes[middle..middle + 40].fill(0x55);
    std::fs::write(&input, bytes).unwrap();
    refused(&work, &input, &[], &["in.mkv: cannot be decoded to its end", "--tolerant"]);
    let outcome = work.enlarge(&input, "left.mkv", &["--tolerant", "--lossless"]).success();
    assert!(outcome.stderr.contains("cannot be decoded to its end"), "{}", outcome.stderr);
}

#[test]
fn pictures_that_are_not_read_are_refused_with_what_helps() {
    let work = Work::new();
    let interlaced = work.film(
        "interlaced.mkv",
        &format!(
            "{MOVING} -vf tinterlace=interleave_top,setfield=tff -c:v libx264 -flags +ilme+ildct -pix_fmt yuv420p"
        ),
    );
    refused(&work, &interlaced, &[], &["interlaced.mkv", "bwdif"]);
    // The filter that the message names helps.
    let _ = work.film("OUT.mkv", "-i interlaced.mkv -map 0 -c copy -c:v ffv1 -vf bwdif");
    let _ = work.enlarged(&work.path("OUT.mkv"), "progressive.mkv", &["--lossless"]);
    let alpha = work.film("alpha.mov", &format!("{MOVING} -pix_fmt yuva444p10le -c:v prores_ks"));
    refused(&work, &alpha, &[], &["alpha.mov", "yuva444p", "transparency"]);
    let sound = work.film("sound.mkv", "-f lavfi -i sine=duration=0.2 -c:a flac");
    refused(&work, &sound, &[], &["sound.mkv: expected a film with a picture track, found track 0, sound (flac)"]);
    let cover = work.film("cover.png", "-f lavfi -i color=red:size=30x30 -frames:v 1");
    let covered = work
        .film("covered.mp4", "-i sound.mkv -i cover.png -map 0 -map 1 -c:a aac -c:v copy -disposition:v attached_pic");
    refused(&work, &covered, &[], &["covered.mp4: expected a film with a picture track", "a cover picture"]);
    let odd = work.film(
        "matrix.mkv",
        &format!("{MOVING} -pix_fmt yuv444p -c:v libx264 -bsf:v h264_metadata=matrix_coefficients=8"),
    );
    refused(&work, &odd, &[], &["matrix.mkv", "the matrix ycgco"]);
    drop(cover);
}

#[test]
fn names_and_options_that_do_not_go_are_usage() {
    let work = Work::new();
    let input = plain(&work);
    let usage = |output: &str, more: &[&str], expected: &[&str]| {
        let _ = work.enlarge(&input, output, more).failure(2, expected);
    };
    for output in ["large.y4m", "large.png", "large.avi", "large", "large.rgb"] {
        usage(output, &[], &[output, "a film becomes a film", ".mkv, .mp4"]);
    }
    let _ = Outcome::of(&mut infer(demo_engine(), &input, Path::new("-"), &[])).failure(2, &["a film becomes a film"]);
    let _ = Outcome::of(&mut infer(demo_engine(), &input, &input, &[])).failure(2, &["plain.mkv"]);
    usage("large.mkv", &["--bit-depth", "8"], &["--pixel-format"]);
    usage("large.mkv", &["--srgb"], &["--srgb"]);
    usage("large.mkv", &["--format", "png"], &["--format"]);
    usage("large.mkv", &["--codec", "a/b"], &["--codec"]);
    usage("large.mkv", &["--lossless", "--crf", "3"], &["--lossless", "--crf"]);
    let photo = end_to_end::repository("tests/images/coffee.png");
    let _ = Outcome::of(&mut infer(demo_engine(), &photo, &work.path("a.png"), &["--codec", "libx265"]))
        .failure(2, &["--codec is for films"]);
    let _ = Outcome::of(&mut infer(demo_engine(), &photo, &work.path("a.mp4"), &[])).failure(2, &["a.mp4"]);
    usage("large.mkv", &["--quality", "50"], &["--quality is for outputs in JPEG"]);
    for (name, options) in [("a.png", ["--quality", "50"]), ("a.jpg", ["--png-compression", "fast"])] {
        let _ = Outcome::of(&mut infer(demo_engine(), &photo, &work.path(name), &options)).failure(2, &[options[0]]);
    }
}

/// A folder with programs of these names and texts, as the only folder on PATH.
fn programs(work: &Work, all: &[(&str, &str)]) -> PathBuf {
    let folder = work.path(&format!("bin{}", all.iter().map(|(_, text)| text.len()).sum::<usize>()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in all {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

const NEW: &str = "echo ffmpeg version 6.0";

#[test]
fn ffmpeg_that_is_missing_or_too_old_is_named_before_any_work() {
    let work = Work::new();
    let input = plain(&work);
    for (all, expected) in [
        (&[][..], &["its program ffmpeg is not on PATH", "apt install ffmpeg"][..]),
        (&[("ffmpeg", NEW)], &["its program ffprobe is not on PATH", "apt install ffmpeg"]),
        (&[("ffmpeg", "echo ffmpeg version 4.4.2-0ubuntu0 Copyright")], &["expected ffmpeg 5.1 or later, found 4.4"]),
        (&[("ffmpeg", NEW), ("ffprobe", "echo ffprobe version 3.2")], &["expected ffprobe 5.1 or later, found 3.2"]),
        (&[("ffmpeg", "echo hello")], &["expected ffmpeg 5.1 or later, found a program that says `hello`"]),
    ] {
        let started = Instant::now();
        let mut command = work.command(&input, "refused.mkv", &[]);
        let _ = Outcome::of(command.env("PATH", programs(&work, all))).failure(1, expected);
        assert!(started.elapsed() < Duration::from_secs(30) && !work.path("refused.mkv").exists());
    }
}

/// The path of a program of this machine.
fn real(program: &str) -> String {
    let output = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_program_that_is_killed_or_fails_in_the_middle_leaves_nothing() {
    let work = Work::new();
    let input = work.film("in.mkv", "-f lavfi -i testsrc2=size=60x44:rate=25:duration=4 -c:v ffv1 -pix_fmt yuv420p");
    let (ffmpeg, ffprobe) = (real("ffmpeg"), real("ffprobe"));
    let probe = format!("exec {ffprobe} \"$@\"");
    // The decoder writes to pipe:1, and the encoder reads pipe:0. The encoder's trial run writes one frame.
    let wrapped = |when: &str, then: &str| {
        format!(
            "case \"$*\" in -version|*encoder=*|*' -t 0.05 '*) exec {ffmpeg} \"$@\";; *'{when}'*) {then};; *) exec {ffmpeg} \"$@\";; esac"
        )
    };
    let cut = format!("{ffmpeg} \"$@\" | head -c 100000; kill -9 $$");
    let dead = "head -c 1000000 >/dev/null; echo the encoder broke >&2; kill -9 $$";
    let wordy = "yes a long complaint | head -c 5000000 >&2; exit 7";
    for (when, then, expected) in [
        ("pipe:1", cut.as_str(), &["in.mkv", "ffmpeg was ended by signal 9"][..]),
        ("pipe:0", dead, &["refused.mkv: cannot be written", "signal 9", "the encoder broke"]),
        ("pipe:0", wordy, &["refused.mkv: cannot be written", "exit code 7", "a long complaint", "bytes …"]),
        ("pipe:1", "echo no decoder >&2; exit 3", &["in.mkv", "no decoder", "exit code 3"]),
    ] {
        let folder = programs(&work, &[("ffmpeg", &wrapped(when, then)), ("ffprobe", &probe)]);
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let before = names_in(work.0.path());
        let mut command = work.command(&input, "refused.mkv", &["--lossless"]);
        let _ = Outcome::of(command.env("PATH", path)).failure(1, expected);
        assert_eq!(names_in(work.0.path()), before, "{then}");
    }
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let work = Work::new();
    let input = work.film("in.mkv", "-f lavfi -i testsrc2=size=60x44:rate=25:duration=2 -c:v ffv1 -pix_fmt yuv420p");
    std::fs::create_dir(work.path("out")).unwrap();
    for more in [&[][..], &["--resume"]] {
        let infer = work.command(&input, "out/large.mkv", &[&["--lossless"], more].concat());
        let limited = "trap '' XFSZ; ulimit -f 400; exec \"$@\"";
        let mut shell = Command::new("bash");
        shell.args(["-c", limited, "sh"]).arg(infer.get_program()).args(infer.get_args());
        shell.envs(infer.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let _ =
            Outcome::of(&mut shell).failure(1, &["large.mkv: cannot be written", "larger than this process may write"]);
        assert!(!work.path("out/large.mkv").exists());
        if more.is_empty() {
            assert!(names_in(&work.path("out")).is_empty(), "{:?}", names_in(&work.path("out")));
        }
    }
}

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    let work = Work::new();
    let input = work.film("in.mkv", "-f lavfi -i testsrc2=size=128x96:rate=25:duration=20 -c:v ffv1 -pix_fmt yuv420p");
    let mut command = work.command(&input, "large.mkv", &[]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = || names_in(work.0.path()).iter().any(|name| name.ends_with(".partial"));
    let started = Instant::now();
    while !begun() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(1500));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{talk}");
    assert_eq!(names_in(work.0.path()), ["in.mkv"], "{talk}");
}
