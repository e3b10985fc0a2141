//! Films and names that attempt something else.

use super::*;

#[test]
fn names_are_names_whatever_they_contain() {
    let work = Work::new();
    let film = work.film("plain.mkv", &format!("{MOVING} -c:v ffv1 -pix_fmt yuv420p"));
    for name in [
        "-y.mkv",
        "100%d.mkv",
        "a:b.mkv",
        "concat:a|b.mkv",
        "http:x.mkv",
        "é 'x\" $(id).mkv",
        "[0:v].mkv",
        "file:x.mkv",
    ] {
        std::fs::copy(&film, work.path(name)).unwrap();
        let output = format!("large {name}");
        // Relative names, as people type them.
        let arguments =
            words(&[&"infer", &"--engine", &demo_engine(), &"--lossless", &"--output", &output, &"--", &name]);
        let _ = Outcome::of(command("runtime", arguments).current_dir(work.0.path())).success();
        assert_eq!(picture(&work.path(&output))["width"], 240, "{name}");
        let same = format!("--output=-{name}");
        let arguments = words(&[&"infer", &"--engine", &demo_engine(), &"--lossless", &same, &"--", &name]);
        let _ = Outcome::of(command("runtime", arguments).current_dir(work.0.path())).success();
        assert!(work.path(&format!("-{name}")).exists(), "{name}");
    }
}

#[test]
fn a_playlist_opens_no_other_file() {
    let work = Work::new();
    let film = work.film("secret.mkv", &format!("{MOVING} -c:v ffv1 -pix_fmt yuv420p"));
    let ts = work.film("secret.ts", &format!("{MOVING} -c:v libx264 -pix_fmt yuv420p"));
    let hls = format!("#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{}\n#EXT-X-ENDLIST\n", ts.display());
    let list = format!("ffconcat version 1.0\nfile {}\n", film.display());
    let mpd = "<?xml version=\"1.0\"?><MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" type=\"static\"></MPD>".to_owned();
    for (name, text) in [("hls", hls), ("list", list), ("mpd", mpd)] {
        for ending in ["mkv", "mp4", "ts"] {
            let input = work.path(&format!("{name}.{ending}"));
            std::fs::write(&input, &text).unwrap();
            let _ =
                work.enlarge(&input, "refused.mkv", &[]).failure(1, &[name, "expected a film that ffmpeg can read"]);
        }
    }
    std::fs::create_dir(work.path("folder.mkv")).unwrap();
    let refused = work.enlarge(&work.path("folder.mkv"), "refused.mkv", &[]);
    assert_ne!(refused.code, 0);
    let _ = Command::new("mkfifo").arg(work.path("pipe.mkv")).status().unwrap();
    let _ = work.enlarge(&work.path("pipe.mkv"), "refused.mkv", &[]).failure(1, &["expected a film in a regular file"]);
}

#[test]
fn a_film_that_changes_its_size_is_refused_there() {
    let work = Work::new();
    // Two films of MPEG-2 one after the other form a film whose size changes.
    let one = work.film("one.ts", "-f lavfi -i testsrc2=size=64x48:rate=25:duration=0.4 -c:v mpeg2video -bf 0");
    let two = work.film(
        "two.ts",
        "-f lavfi -i testsrc2=size=80x48:rate=25:duration=0.4 -c:v mpeg2video -bf 0 -output_ts_offset 0.4",
    );
    let both = [std::fs::read(one).unwrap(), std::fs::read(two).unwrap()].concat();
    std::fs::write(work.path("both.ts"), both).unwrap();
    let refused = work.enlarge(&work.path("both.ts"), "refused.mkv", &["--tolerant", "--lossless"]);
    let _ = refused.failure(1, &["both.ts", "the film changes its size here", "scale="]);
    assert!(!work.path("refused.mkv").exists());
}

#[test]
fn a_film_without_frames_is_an_error() {
    let work = Work::new();
    let input = work.film(
        "none.mkv",
        "-f lavfi -i testsrc2=size=64x48:rate=25:duration=0.4 -f lavfi -i sine=d=1 -c:v ffv1 -c:a flac",
    );
    let none = work.film("in.mkv", "-i none.mkv -c copy -bsf:v noise=drop=1");
    let refused = work.enlarge(&none, "refused.mkv", &[]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("in.mkv") && !work.path("refused.mkv").exists(), "{}", refused.stderr);
    drop(input);
}

#[test]
fn odd_sizes_go_where_the_encoder_takes_them() {
    let work = Work::new();
    // The engine that takes four pixels for one gives even sizes; a factor of three does not.
    let input = work.film("in.mkv", "-f lavfi -i testsrc=size=61x45:rate=25:duration=0.2 -pix_fmt yuv420p -c:v ffv1");
    let output = work.enlarged(&input, "even.mp4", &["--encoder-options", "preset=ultrafast"]);
    assert_eq!((&picture(&output)["width"], &picture(&output)["height"]), (&244.into(), &180.into()));
    let refused = work.enlarge(&input, "odd.mp4", &["--outscale", "3"]);
    let _ = refused.failure(1, &["odd.mp4", "divisible by 2", "--pixel-format yuv444p"]);
    let output = work.enlarged(&input, "odd.mp4", &["--outscale", "3", "--pixel-format", "yuv444p"]);
    assert_eq!((&picture(&output)["width"], &picture(&output)["height"]), (&183.into(), &135.into()));
    let output = work.enlarged(&input, "odd.mkv", &["--outscale", "3", "--lossless"]);
    assert_eq!((&picture(&output)["width"], &picture(&output)["pix_fmt"]), (&183.into(), &"yuv420p".into()));
}

#[test]
fn a_full_disk_keeps_finished_parts_alone() {
    let work = Work::new();
    let disk = work.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let input = work.film("in.mkv", "-f lavfi -i testsrc2=size=32x24:rate=25:duration=28 -c:v ffv1 -pix_fmt yuv420p");
    // A disk with space for two parts of 250 frames of 1.8 MB each. Only the shell and its programs see it.
    let on_disk = |script: &str, more: &[&str]| {
        let infer = work.command(&input, "disk/large.mkv", &[&["--lossless"], more].concat());
        let script = format!("mount -t tmpfs -o size=4m disk \"$0\" || exit 9; {script}");
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--map-root-user", "sh", "-c", &script]).arg(&disk);
        shell.arg(infer.get_program()).args(infer.get_args()).env("LC_ALL", "C");
        shell.envs(infer.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Outcome::of(&mut shell)
    };
    let full = ["large.mkv: cannot be written", "No space left on device"];
    let left = on_disk("\"$@\"; code=$?; ls -A \"$0\"; exit $code", &[]).failure(1, &full);
    assert_eq!(left.stdout, "");
    // The disk has more space in the second run.
    let twice = "\"$@\" && exit 8; ls -A \"$0\"; mount -o remount,size=40m \"$0\" || exit 9; \"$@\" >/dev/null; \
                 code=$?; ls -A \"$0\"; cp \"$0/large.mkv\" \"$0.mkv\"; exit $code";
    let resumed = on_disk(twice, &["--resume"]).success();
    assert_eq!(resumed.stdout, "large.mkv.part\n.tileforge-outputs.jsonl\nlarge.mkv\n");
    for words in [&full[..], &["goes on behind frame 250"]].concat() {
        assert!(resumed.stderr.contains(words), "{}", resumed.stderr);
    }
    let whole = work.enlarged(&input, "whole.mkv", &["--lossless", "--resume"]);
    assert_eq!(std::fs::read(work.path("disk.mkv")).unwrap(), std::fs::read(whole).unwrap());
}
