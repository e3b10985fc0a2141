//! Streams of frames through an engine: raw samples and YUV4MPEG2, in and out.

use end_to_end::{Outcome, command, demo_engine, engine_of, names_in, repository, run, words};
use image::RgbImage;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `runtime infer` with `input` on standard input and frames on standard output.
fn piped(input: &[u8], more: &[&str]) -> Output {
    let arguments = words(&[&"infer", &"--engine", &demo_engine(), &"--input", &"-", &"--output", &"-"]);
    let mut command = command("runtime", arguments.into_iter().chain(more.iter().map(OsString::from)));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // The program may stop reading early. The rest is discarded.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

fn succeeded(output: Output) -> (Vec<u8>, String) {
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{talk}");
    (output.stdout, talk)
}

fn refused(output: Output, code: i32, expected: &[&str]) -> Vec<u8> {
    let talk = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{talk}");
    expected.iter().for_each(|words| assert!(talk.contains(words), "expected `{words}` in: {talk}"));
    output.stdout
}

fn photo(left: u32) -> RgbImage {
    image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(left, 50, 60, 44).into_rgb8()
}

/// The same picture as a file, sent through the same engine.
fn as_file(picture: impl Into<image::DynamicImage>) -> image::DynamicImage {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.png"), folder.path().join("out.png"));
    picture.into().save(&input).unwrap();
    let _ = run("runtime", words(&[&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output]))
        .success();
    image::open(&output).unwrap()
}

fn largest_difference(one: &[u8], other: &[u8]) -> u8 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(one, other)| one.abs_diff(*other)).max().unwrap()
}

#[test]
fn raw_frames_are_those_of_files() {
    let frames = [photo(100), photo(200), photo(300)];
    let input = frames.iter().flat_map(|frame| frame.as_raw()).copied().collect::<Vec<u8>>();
    let (output, talk) = succeeded(piped(&input, &["--raw", "rgb24:60x44", "--json", "--quiet"]));
    let expected = frames.into_iter().flat_map(|frame| as_file(frame).into_rgb8().into_raw()).collect::<Vec<u8>>();
    assert!(output == expected);
    let report: serde_json::Value = serde_json::from_str(&talk).unwrap();
    assert_eq!((&report["files"][0]["frames"], &report["files"][0]["size"]["width"]), (&3.into(), &240.into()));
}

#[test]
fn raw_samples_of_16_bits_have_the_order_that_was_said() {
    let picture = image::DynamicImage::from(photo(100)).into_rgb16();
    let little: Vec<u8> = picture.as_raw().iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let big: Vec<u8> = picture.as_raw().iter().flat_map(|sample| sample.to_be_bytes()).collect();
    let (from_little, _) = succeeded(piped(&little, &["--raw", "rgb48le:60x44"]));
    let (from_big, _) = succeeded(piped(&big, &["--raw", "rgb48be:60x44"]));
    let expected = as_file(picture).into_rgb16();
    let samples = |bytes: &[u8], sample: fn([u8; 2]) -> u16| {
        bytes.as_chunks().0.iter().map(|&bytes| sample(bytes)).collect::<Vec<_>>()
    };
    assert!(samples(&from_little, u16::from_le_bytes) == *expected.as_raw());
    assert!(samples(&from_big, u16::from_be_bytes) == *expected.as_raw());
    let (eight, _) = succeeded(piped(&little, &["--raw", "rgb48le:60x44", "--bit-depth", "8"]));
    assert_eq!(eight.len(), 240 * 176 * 3);
}

/// A stream of 4:4:4 frames in BT.601, limited range.
fn y4m(parameters: &str, frames: &[RgbImage]) -> Vec<u8> {
    let mut stream = format!("YUV4MPEG2 W60 H44 {parameters}\n").into_bytes();
    for frame in frames {
        stream.extend_from_slice(b"FRAME\n");
        let luma = |[r, g, b]: [f64; 3]| 0.299 * r + 0.587 * g + 0.114 * b;
        let planes: [&dyn Fn([f64; 3]) -> f64; 3] = [
            &|pixel| 16.0 + 219.0 / 255.0 * luma(pixel),
            &|pixel| 128.0 + 224.0 / 255.0 * (pixel[2] - luma(pixel)) / 1.772,
            &|pixel| 128.0 + 224.0 / 255.0 * (pixel[0] - luma(pixel)) / 1.402,
        ];
        for plane in planes {
            stream.extend(frame.pixels().map(|pixel| plane(pixel.0.map(f64::from)).round() as u8));
        }
    }
    stream
}

/// The first line and the frames of a 4:4:4 stream.
fn parsed(stream: &[u8]) -> (String, Vec<RgbImage>) {
    let end = stream.iter().position(|&byte| byte == b'\n').unwrap();
    let (line, mut rest) = (String::from_utf8(stream[..end].to_vec()).unwrap(), &stream[end + 1..]);
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (planes, later) = rest.strip_prefix(b"FRAME\n").unwrap().split_at(3 * 240 * 176);
        frames.push(RgbImage::from_fn(240, 176, |x, y| {
            let code = |plane: usize| f64::from(planes[plane * 240 * 176 + (y * 240 + x) as usize]);
            let (luma, cb, cr) = ((code(0) - 16.0) / 219.0, (code(1) - 128.0) / 224.0, (code(2) - 128.0) / 224.0);
            let (r, b) = (luma + 1.402 * cr, luma + 1.772 * cb);
            let g = (luma - 0.299 * r - 0.114 * b) / 0.587;
            image::Rgb([r, g, b].map(|value| (255.0 * value).round().clamp(0.0, 255.0) as u8))
        }));
        rest = later;
    }
    (line, frames)
}

#[test]
fn y4m_frames_keep_their_number_and_their_parameters() {
    let frames = [photo(100), photo(200)];
    let (output, talk) = succeeded(piped(&y4m("F30000:1001 Ip A1:1 C444 XCOLORRANGE=LIMITED", &frames), &[]));
    assert!(talk.contains("2 frames of 240×176"), "{talk}");
    let (line, found) = parsed(&output);
    assert_eq!(line, "YUV4MPEG2 W240 H176 F30000:1001 Ip A1:1 C444 XCOLORRANGE=LIMITED");
    assert_eq!(found.len(), 2);
    for (found, frame) in found.iter().zip(&frames) {
        // Input and output were rounded to 8 bits of luma and chroma.
        let (_, rounded) = parsed_small(&y4m("C444", std::slice::from_ref(frame)));
        let expected = as_file(rounded).into_rgb8();
        let largest = largest_difference(found.as_raw(), expected.as_raw());
        assert!(largest <= 4, "{largest}");
    }
}

/// The first frame of a stream of 60×44 pixels, in RGB.
fn parsed_small(stream: &[u8]) -> (usize, RgbImage) {
    let start = stream.windows(6).position(|bytes| bytes == b"FRAME\n").unwrap() + 6;
    let planes = &stream[start..];
    let picture = RgbImage::from_fn(60, 44, |x, y| {
        let code = |plane: usize| f64::from(planes[plane * 60 * 44 + (y * 60 + x) as usize]);
        let (luma, cb, cr) = ((code(0) - 16.0) / 219.0, (code(1) - 128.0) / 224.0, (code(2) - 128.0) / 224.0);
        let (r, b) = (luma + 1.402 * cr, luma + 1.772 * cb);
        image::Rgb(
            [r, (luma - 0.299 * r - 0.114 * b) / 0.587, b].map(|value| (255.0 * value).round().clamp(0.0, 255.0) as u8),
        )
    });
    (start, picture)
}

#[test]
fn grey_frames_are_those_of_grey_files() {
    let grey = image::DynamicImage::from(photo(100)).into_luma8();
    let header = b"YUV4MPEG2 W60 H44 F25:1 Cmono XCOLORRANGE=FULL\nFRAME\n";
    let (output, _) = succeeded(piped(&[&header[..], grey.as_raw()].concat(), &[]));
    let samples = output.strip_prefix(b"YUV4MPEG2 W240 H176 F25:1 Cmono XCOLORRANGE=FULL\nFRAME\n").unwrap();
    assert!(largest_difference(samples, as_file(grey).into_luma8().as_raw()) <= 1);
}

#[test]
fn odd_sizes_and_subsampled_chroma_fit() {
    for (space, bytes, larger) in [
        ("420jpeg", 5 * 3 + 2 * 3 * 2, 20 * 12 + 2 * 10 * 6),
        ("420mpeg2", 5 * 3 + 2 * 3 * 2, 20 * 12 + 2 * 10 * 6),
        ("422", 5 * 3 + 2 * 3 * 3, 20 * 12 + 2 * 10 * 12),
        ("420p10 XYSCSS=420P10", 2 * (5 * 3 + 2 * 3 * 2), 2 * (20 * 12 + 2 * 10 * 6)),
    ] {
        let header = format!("YUV4MPEG2 W5 H3 F25:1 C{space}\n");
        let stream = [header.as_bytes(), b"FRAME\n", &vec![0x01; bytes][..], b"FRAME\n", &vec![0x02; bytes]].concat();
        let (output, _) = succeeded(piped(&stream, &[]));
        let line = header.replace("W5 H3", "W20 H12");
        assert_eq!(output.len(), line.len() + 2 * (6 + larger), "{space}");
        assert!(output.starts_with(line.as_bytes()));
    }
}

#[test]
fn files_of_frames_appear_when_they_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.y4m"), folder.path().join("out.y4m"));
    let stream = y4m("F24:1 C444", &[photo(100)]);
    std::fs::write(&input, &stream).unwrap();
    let infer = |output: &Path| {
        run("runtime", words(&[&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output]))
    };
    let _ = infer(&output).success();
    assert_eq!(std::fs::read(&output).unwrap(), succeeded(piped(&stream, &[])).0);
    std::fs::remove_file(&output).unwrap();
    std::fs::write(&input, &stream[..stream.len() - 1]).unwrap();
    let _ = infer(&output).failure(1, &["in.y4m: frame 1: truncated"]);
    assert_eq!(names_in(folder.path()), ["in.y4m"]);
}

#[test]
fn frames_do_not_wait_for_those_behind_them() {
    let (_folder, batched) = engine_of(&repository("models/compact-x4.safetensors"), "tests/profiles/batched.yaml");
    let more = words(&[&"--raw", &"rgb24:60x44", &"--input", &"-", &"--output", &"-"]);
    let mut command = command("runtime", words(&[&"infer", &"--engine", &batched]).into_iter().chain(more));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    // Two tiles for each frame, and four in a run: the third frame fills half a run.
    let frames = [photo(100), photo(200), photo(300)];
    for frame in &frames {
        stdin.write_all(frame.as_raw()).unwrap();
    }
    let mut made = vec![0; 3 * 240 * 176 * 3];
    stdout.read_exact(&mut made).unwrap();
    // Frames before a damaged frame are not lost either.
    stdin.write_all(photo(150).as_raw()).unwrap();
    stdin.write_all(&[0; 10]).unwrap();
    drop(stdin);
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 240 * 176 * 3);
    let _ = refused(child.wait_with_output().unwrap(), 1, &["standard input: frame 5: truncated"]);
}

#[test]
fn a_signal_ends_the_wait_for_frames() {
    for more in [&[][..], &["--raw", "rgb24:60x44"]] {
        let arguments = words(&[&"infer", &"--engine", &demo_engine(), &"--input", &"-", &"--output", &"-"]);
        let mut command = command("runtime", arguments.into_iter().chain(more.iter().map(OsString::from)));
        command
            .env("RUST_LOG", "tileforge_runtime=debug")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // By then, the program has waited for some time, or is about to wait.
        std::thread::sleep(std::time::Duration::from_millis(700));
        let signalled = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(signalled.success());
        // Standard input stays open until the program has ended.
        let stdin = child.stdin.take();
        assert!(refused(child.wait_with_output().unwrap(), 130, &["stopped before the end"]).is_empty());
        drop(stdin);
    }
}

#[test]
fn streams_go_into_a_folder_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two, output) = (folder.path().join("a.y4m"), folder.path().join("b.y4m"), folder.path().join("out"));
    std::fs::write(&one, y4m("F24:1 C444", &[photo(100), photo(150)])).unwrap();
    std::fs::write(&two, y4m("F24:1 C444", &[photo(200)])).unwrap();
    let made = run(
        "runtime",
        words(&[&"infer", &"--engine", &demo_engine(), &"--input", &one, &two, &"--output", &output, &"--json"]),
    );
    let report = made.success().json();
    assert_eq!((&report["files"][0]["frames"], &report["files"][1]["frames"]), (&2.into(), &1.into()), "{report}");
    assert_eq!(names_in(&output), ["a.y4m", "b.y4m"]);
    // A damaged stream does not affect the others, and has no output.
    std::fs::write(&one, &y4m("F24:1 C444", &[photo(100), photo(150)])[..9000]).unwrap();
    std::fs::remove_dir_all(&output).unwrap();
    let failed =
        run("runtime", words(&[&"infer", &"--engine", &demo_engine(), &"--input", &one, &two, &"--output", &output]));
    let _ = failed.failure(1, &["a.y4m: frame 2: truncated", "1 of 2 pictures failed"]);
    assert_eq!(names_in(&output), ["b.y4m"]);
}

#[test]
fn damaged_streams_say_which_frame() {
    let whole = y4m("F24:1 C444", &[photo(100), photo(200)]);
    let kept = refused(
        piped(&whole[..whole.len() - 5], &[]),
        1,
        &["standard input: frame 2: truncated: expected 7920 bytes, found 7915"],
    );
    assert_eq!(parsed(&kept).1.len(), 1);
    let garbled = [&whole[..], b"FRANK\n"].concat();
    let _ = refused(piped(&garbled, &[]), 1, &["frame 3: expected a line that begins with FRAME"]);
    let _ = refused(piped(&[0; 100], &["--raw", "rgb24:4x4"]), 1, &["frame 3: truncated: expected 48 bytes, found 4"]);
    let _ = refused(piped(b"", &[]), 1, &["found an empty stream"]);
    let _ = refused(piped(b"", &["--raw", "rgb24:4x4"]), 1, &["expected frames, found none"]);
    let _ = refused(piped(b"YUV4MPEG2 W4 H4 C444\n", &[]), 1, &["expected frames, found none"]);
    let _ = refused(piped(b"YUV4MPEG2 W4 H4 It C444\n", &[]), 1, &["deinterlace"]);
    // A stream that does not begin like frames is read as a picture.
    let _ = refused(piped(b"\x89PNG\r\n\x1a\n and more", &[]), 1, &["standard input: a truncated or damaged PNG"]);
    let _ = refused(piped(b"neither this nor that", &[]), 1, &["expected a PNG, JPEG", "found something else"]);
    let _ = refused(piped(b"YUV4MPEG2 W99999 H99999 C444\n", &[]), 1, &["--max-megapixels"]);
}

#[test]
fn options_that_do_not_go_together_are_usage() {
    let usage = |arguments: &[&dyn AsRef<OsStr>], expected: &str| {
        let engine = words(&[&"infer", &"--engine", &demo_engine()]);
        let _ = run("runtime", engine.into_iter().chain(words(arguments))).failure(2, &[expected]);
    };
    let photo = repository("tests/images/coffee.png");
    usage(&[&"--raw", &"rgb24:4x4", &"--input", &"-", &"--output", &"large.png"], "frames become a stream");
    usage(&[&"--input", &"-", &photo, &"--output", &"-"], "goes alone");
    usage(&[&"--input", &"a.y4m", &"--output", &"b.mp4"], "YUV4MPEG2 frames are no .mp4");
    usage(&[&"--input", &"a.y4m", &"--output", &"b.mkv"], "ffmpeg -i - out.mkv");
    usage(&[&"--input", &"a.rgb", &"--raw", &"rgb24:4x4", &"--output", &"b.y4m"], "raw frames are no .y4m");
    usage(&[&"--input", &photo, &photo, &"--output", &"all.zip"], ".zip means a file");
    usage(&[&"--input", &photo, &"--output", &"b.jpg", &"--format", &"png"], "--format asks for PNG");
    usage(&[&"--input", &"-", &"--output", &"-", &"--raw", &"rgb24:4x4", &"--srgb"], "--srgb");
    usage(&[&"--input", &"a.y4m", &"--output", &"-", &"--bit-depth", &"16"], "--bit-depth");
    usage(&[&"--input", &"-", &"--output", &"-", &"--raw", &"rgb24:4x4", &"--matrix", &"bt709"], "--matrix");
    usage(&[&"--input", &"-", &"--output", &"-", &"--raw", &"yuv420p:4x4"], "expected one of gray");
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let (input, outputs) = (work.path().join("in"), work.path().join("out"));
    std::fs::create_dir(&input).unwrap();
    std::fs::create_dir(&outputs).unwrap();
    photo(100).save(input.join("in.png")).unwrap();
    std::fs::write(input.join("in.y4m"), y4m("F24:1 C444", &[photo(100), photo(200)])).unwrap();
    std::fs::write(input.join("in.rgb"), photo(100).into_raw()).unwrap();
    // Limits the size of files to so many KiB, with an error instead of a signal. The first limit allows a part of the
    // output.
    for limit in ["4", "0"] {
        for (from, to) in [
            ("in.png", "out.tif"),
            ("in.png", "out.png"),
            ("in.png", "out.jpg"),
            ("in.y4m", "out.y4m"),
            ("in.rgb", "out.rgb"),
        ] {
            let limited = "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"";
            let arguments = words(&[
                &"infer",
                &"--engine",
                &demo_engine(),
                &"--input",
                &input.join(from),
                &"--output",
                &outputs.join(to),
            ]);
            let raw: &[&str] = if from == "in.rgb" { &["--raw", "rgb24:60x44"] } else { &[] };
            let infer = command("runtime", arguments);
            let mut shell = Command::new("bash");
            shell.args(["-c", limited, limit]).arg(infer.get_program()).args(infer.get_args()).args(raw);
            let _ = Outcome::of(&mut shell).failure(1, &[&format!("{to}: cannot write"), "File too large"]);
            assert!(names_in(&outputs).is_empty(), "{to}: {:?}", names_in(&outputs));
        }
    }
    // The output has no name, but can fail: a device that is always full.
    let arguments =
        words(&[&"infer", &"--engine", &demo_engine(), &"--input", &input.join("in.y4m"), &"--output", &"-"]);
    let mut full = command("runtime", arguments);
    let output = full.stdout(std::fs::File::create("/dev/full").unwrap()).output().unwrap();
    let _ = refused(output, 1, &["standard output: cannot write", "No space left on device"]);
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let arguments =
        words(&[&"infer", &"--engine", &demo_engine(), &"--input", &"-", &"--output", &"-", &"--raw", &"rgb24:60x44"]);
    let mut child = command("runtime", arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let frame = photo(100).into_raw();
    let feeder = std::thread::spawn(move || while stdin.write_all(&frame).is_ok() {});
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(1), String::new()));
}
