//! Bad input gives a clear error and the documented exit code, and leaves nothing behind.

use end_to_end::{command, demo_engine, names_in, repository, run, words};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Exports `bytes` as a checkpoint, which must fail with the message `expected`.
fn refused_checkpoint(bytes: &[u8], expected: &[&str]) {
    let work = tempfile::tempdir().unwrap();
    let (path, out) = (work.path().join("model.safetensors"), work.path().join("model.onnx"));
    fs::write(&path, bytes).unwrap();
    let _ = run("exporter", words(&[&"export", &path, &"-o", &out]))
        .failure(1, &[&["model.safetensors"], expected].concat());
    assert_eq!(names_in(work.path()), ["model.safetensors"]);
}

fn checkpoint() -> Vec<u8> {
    fs::read(repository("tests/golden/rrdbnet-realesrgan-x2/checkpoint.safetensors")).unwrap()
}

/// The same checkpoint with another header.
fn with_header(change: impl Fn(String) -> String) -> Vec<u8> {
    let bytes = checkpoint();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = change(String::from_utf8(bytes[8..8 + length].to_vec()).unwrap());
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &bytes[8 + length..]].concat()
}

#[test]
fn damaged_checkpoints_are_refused() {
    let good = checkpoint();
    refused_checkpoint(&good[..good.len() - 100], &["truncated"]);
    refused_checkpoint(&good[..5], &["at least 8 bytes, found 5"]);
    refused_checkpoint(&[], &["at least 8 bytes, found 0"]);
    refused_checkpoint(
        &[&u64::MAX.to_le_bytes(), &good[8..]].concat(),
        &["its header should have 18446744073709551615 bytes"],
    );
    refused_checkpoint(
        &with_header(|header| header.replace("\"F32\"", "\"F31\"")),
        &["element type `F31` is not supported"],
    );
    refused_checkpoint(&with_header(|header| header.replacen('{', "[", 1)), &["does not begin with `{`"]);
    let mut not_text = good.clone();
    not_text[20] = 0xff;
    refused_checkpoint(&not_text, &["not UTF-8"]);
}

#[test]
fn a_graph_of_one_size_needs_its_shape() {
    let work = tempfile::tempdir().unwrap();
    let (path, out) = (repository("tests/golden/drct-x2/checkpoint.safetensors"), work.path().join("model.onnx"));
    let dynamic = run("exporter", words(&[&"export", &path, &"-o", &out]));
    let _ = dynamic.failure(2, &["of one size", "--shapes image:1x3x256x256"]);
    let small = run("exporter", words(&[&"export", &path, &"-o", &out, &"--shapes", &"image:1x3x1x64"]));
    let _ = small.failure(
        2,
        &["a height or width of 1 is too small to be extended to 4 by reflection; this model takes 3 and more"],
    );
    assert!(names_in(work.path()).is_empty());
}

#[test]
fn tensors_that_do_not_fit_are_all_listed() {
    // A renamed tensor is missing and left over. Another one has a wrong shape.
    let changed = with_header(|header| {
        let renamed = header.replace("\"conv_hr.bias\"", "\"conv_hr.sub_\"");
        let (before, after) = renamed.split_once("\"body.0.rdb2.conv2.weight\"").unwrap();
        format!("{before}\"body.0.rdb2.conv2.weight\"{}", after.replacen("[2,10,3,3]", "[2,10,9,1]", 1))
    });
    assert_ne!(changed, checkpoint());
    refused_checkpoint(
        &changed,
        &[
            "missing: `conv_hr.bias` [8]",
            "left over: `conv_hr.sub_`",
            "wrong shape: `body.0.rdb2.conv2.weight`: expected [2, 10, 3, 3], found [2, 10, 9, 1]",
            "RRDBNet",
        ],
    );
}

#[test]
fn an_unknown_architecture_names_the_nearest_candidate() {
    let renamed = with_header(|header| header.replace("\"conv_body.weight\"", "\"body_conv.weight\""));
    refused_checkpoint(
        &renamed,
        &["no known architecture fits", "nearest is RRDBNet: 1 of its", "missing: `conv_body.weight`", "inspect -v"],
    );
    // Two lines; only `-v` lists the other architectures.
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("model.safetensors");
    fs::write(&path, &renamed).unwrap();
    let short = run("exporter", words(&[&"inspect", &path])).failure(1, &[]);
    assert_eq!(short.stderr.lines().count(), 2, "{}", short.stderr);
    let long = run("exporter", words(&[&"inspect", &path, &"-v"])).failure(1, &["SwinIR: ", "found names such as "]);
    assert!(long.stderr.lines().count() > 12, "{}", long.stderr);
    let _ = run("exporter", words(&[&"inspect", &path, &"--quiet"])).failure(1, &["nearest is RRDBNet"]);
}

#[test]
fn inspection_says_what_else_a_file_is() {
    let work = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = work.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let picture = repository("tests/images/coffee.png");
    for (path, expected) in [
        (picture, &["this is a PNG picture; expected a checkpoint", "`runtime infer"][..]),
        (file("renamed.safetensors", b"\xff\xd8\xff\xe0\0\x10JFIF"), &["this is a JPEG picture"]),
        (file("x.gguf", b"GGUF\x03\0\0\0"), &["a GGUF file; expected the checkpoint that it was made from"]),
        (file("pointer.pth", b"version https://git-lfs.github.com/spec/v1\n"), &["Git LFS", "download it again"]),
        (file("page.ckpt", b"<!DOCTYPE html><html>"), &["a web page"]),
        (repository("models/compact-x4.yaml"), &["a text file", "`engine-builder build"]),
    ] {
        let outcome = run("exporter", words(&[&"inspect", &path])).failure(1, expected);
        assert!(outcome.stdout.is_empty() && outcome.stderr.lines().count() == 1, "{}", outcome.stderr);
    }
    let engine = words(&[&"inspect", &demo_engine()]);
    let _ = run("exporter", engine).failure(2, &["this is an engine", "`runtime inspect --engine"]);
    // A pipeline's folder, and one of the pipeline's networks.
    let pipeline = end_to_end::GoldenPipelines::read().write_folder(work.path(), "sd");
    let shown = run("exporter", words(&[&"inspect", &pipeline])).success().stdout;
    for expected in ["diffusion pipeline", "StableDiffusionPipeline", "vae_decoder ", "exporter export ", "unet "] {
        assert!(shown.contains(expected), "expected {expected} in: {shown}");
    }
    let all = run("exporter", words(&[&"inspect", &pipeline, &"--json"])).success().json();
    assert_eq!((&all["kind"], all["graphs"].as_array().unwrap().len()), (&"pipeline".into(), 4));
    let one = words(&[&"inspect", &pipeline, &"--component", &"unet", &"--json"]);
    assert_eq!(run("exporter", one).success().json()["architecture"], "UNet2DConditionModel");
    // A graph can be inspected, but not exported again.
    let graph = work.path().join("x4.onnx");
    let _ = run("exporter", words(&[&"export", &repository("models/compact-x4.safetensors"), &"-o", &graph])).success();
    let shown = run("exporter", words(&[&"inspect", &graph])).success().stdout;
    for expected in
        ["ONNX graph", "SRVGGNetCompact", "upscale", "image f32[batch,3,height,width]", "engine-builder build"]
    {
        assert!(shown.contains(expected), "expected {expected} in: {shown}");
    }
    let shown = run("exporter", words(&[&"inspect", &graph, &"--json"])).success().json();
    assert_eq!((&shown["kind"], &shown["architecture"]), (&"graph".into(), &"SRVGGNetCompact".into()));
    let again = words(&[&"export", &graph, &"-o", &work.path().join("again.onnx")]);
    let _ = run("exporter", again).failure(1, &["this is an ONNX graph", "it needs no export: `engine-builder build"]);
    let cut = file("cut.onnx", &fs::read(&graph).unwrap()[..1000]);
    let _ = run("exporter", words(&[&"inspect", &cut])).failure(1, &["cut.onnx", "not a valid ONNX model"]);
}

#[test]
fn a_text_of_any_length_gives_an_error_that_can_be_read() {
    let long = "a".repeat(5_000_000);
    let safetensors = |header: String| [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let tensor = |name: &str, dtype: &str, shape: &str| {
        safetensors(format!(r#"{{"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,0]}}}}"#))
    };
    let text = |text: &str| [b"X", (text.len() as u32).to_le_bytes().as_slice(), text.as_bytes()].concat();
    let magic = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".as_slice();
    let shape = format!("[0{}]", ",1".repeat(2_000_000));
    let index = format!(r#"{{"weight_map":{{"{long}":"{long}"}}}}"#).into_bytes();
    for (name, bytes) in [
        ("version.pt", [magic, b"\x80\x02", &text(&long), b"."].concat()),
        ("reference.pt", [magic, b"\x80\x02M\xe9\x03.\x80\x02}.\x80\x02(", &text(&long), b"NNNNtQ."].concat()),
        ("name.safetensors", tensor(&long, "F32", "[1]")),
        ("unknown.safetensors", tensor(&long, "F32", "[0]")),
        ("shape.safetensors", tensor("x", "F32", &shape)),
        ("dtype.safetensors", tensor("x", &long, "[0]")),
        ("key.safetensors", safetensors(format!(r#"{{"x":{{"{long}":1}}}}"#))),
        ("x.index.json", index),
    ] {
        let work = tempfile::tempdir().unwrap();
        let path = work.path().join(name);
        fs::write(&path, bytes).unwrap();
        let outcome = run("exporter", words(&[&"inspect", &path, &"-v"])).failure(1, &[name]);
        // Each value from the file takes at most one line. With -v, so does each of about forty architectures.
        assert!(outcome.stderr.len() < 20_000, "{name}: {} bytes", outcome.stderr.len());
    }
}

#[test]
fn wrong_options_exit_with_2() {
    let work = tempfile::tempdir().unwrap();
    let (model, out) = (repository("models/compact-x4.safetensors"), work.path().join("model.onnx"));
    let export = |more: &[&str]| {
        let arguments = words(&[&"export", &model, &"-o", &out]);
        run("exporter", arguments.into_iter().chain(more.iter().map(OsString::from)))
    };
    let _ = export(&["--shapes", "image:1x3x64"]).failure(2, &["expected BATCHx3xHEIGHTxWIDTH"]);
    let _ = export(&["--shapes", "picture:1x3x64x64"]).failure(2, &["no input `picture`"]);
    let _ = export(&["--shapes", "image=1"]).failure(2, &["image:1x3x256x256"]);
    let _ = export(&["--set", "depth=3"]).failure(2, &["no hyperparameter `depth`"]);
    let _ = export(&["--weights", "float"]).failure(2, &["--weights"]);
    let _ = run("exporter", ["export"]).failure(2, &["Usage"]);
    assert!(names_in(work.path()).is_empty());
}

#[test]
fn an_activation_that_nothing_tells_must_be_said() {
    let work = tempfile::tempdir().unwrap();
    let case = fs::read(repository("tests/golden/compact-relu-x2/checkpoint.safetensors")).unwrap();
    let length = u64::from_le_bytes(case[..8].try_into().unwrap()) as usize;
    let header = String::from_utf8(case[8..8 + length].to_vec()).unwrap().replace("\"activation\"", "\"activatiom\"");
    let path = work.path().join("model.safetensors");
    fs::write(&path, [&case[..8], header.as_bytes(), &case[8 + length..]].concat()).unwrap();
    let _ = run("exporter", words(&[&"inspect", &path]))
        .failure(1, &["do not tell ReLU from LeakyReLU", "--set activation=relu"]);
    let said = run("exporter", words(&[&"inspect", &path, &"--json", &"--set", &"activation=relu"])).success().json();
    assert_eq!(said["hyperparameters"]["activation"], "relu");
}

#[test]
fn shards_are_held_to_their_index() {
    let work = tempfile::tempdir().unwrap();
    let case = repository("tests/golden/rrdbnet-sharded-x4");
    for name in names_in(&case) {
        fs::copy(case.join(&name), work.path().join(&name)).unwrap();
    }
    let index = work.path().join("model.safetensors.index.json");
    let _ = run("exporter", words(&[&"inspect", &index])).success();
    let shard = names_in(work.path()).into_iter().find(|name| name.contains("00002")).unwrap();
    let bytes = fs::read(work.path().join(&shard)).unwrap();
    fs::remove_file(work.path().join(&shard)).unwrap();
    let _ = run("exporter", words(&[&"inspect", &index])).failure(1, &[&shard, "is missing"]);
    fs::write(work.path().join(&shard), bytes).unwrap();
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("conv_last.bias", "conv_lost.bias")).unwrap();
    let _ = run("exporter", words(&[&"inspect", &index])).failure(1, &["conv_l"]);
    fs::write(&index, text.replace(&shard, "../secret.safetensors")).unwrap();
    let _ = run("exporter", words(&[&"inspect", &index])).failure(1, &["must be beside the index"]);
}

/// Sends one picture through the demo engine, which must fail.
fn refused_image(name: &str, bytes: &[u8], more: &[&str], expected: &[&str]) {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (work.path().join(name), work.path().join("out.png"));
    fs::write(&input, bytes).unwrap();
    let arguments = words(&[&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output]);
    let _ = run("runtime", arguments.into_iter().chain(more.iter().map(OsString::from)))
        .failure(1, &[&[name], expected].concat());
    assert_eq!(names_in(work.path()), [name]);
}

#[test]
fn damaged_images_are_refused() {
    let photo = fs::read(repository("tests/images/coffee.png")).unwrap();
    refused_image("truncated.png", &photo[..photo.len() / 2], &[], &[]);
    let mut flipped = photo.clone();
    for byte in &mut flipped[photo.len() / 2..photo.len() / 2 + 64] {
        *byte ^= 0x55;
    }
    refused_image("flipped.png", &flipped, &[], &[]);
    refused_image("text.png", b"this is no image at all", &[], &[]);
    refused_image("empty.jpg", b"", &[], &[]);
    let jpeg = {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image::open(repository("tests/images/coffee.png"))
            .unwrap()
            .write_to(&mut bytes, image::ImageFormat::Jpeg)
            .unwrap();
        bytes.into_inner()
    };
    refused_image("truncated.jpg", &jpeg[..300], &[], &[]);
}

/// A PNG of a few bytes whose header declares gigabytes of pixels.
fn bomb(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 1, 1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&[0; 3]).unwrap();
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc32(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// PNG's checksum (<https://www.w3.org/TR/png-3/#D-CRCAppendix>).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 })
    })
}

#[test]
fn image_bombs_are_refused_before_they_go_off() {
    refused_image("bomb.png", &bomb(100_000, 100_000), &[], &["megapixels"]);
    refused_image("bomb.png", &bomb(u32::MAX, u32::MAX), &[], &[]);
    refused_image("large.png", &bomb(2000, 1000), &["--max-megapixels", "1"], &["megapixels"]);
}

#[test]
fn places_that_cannot_be_written_are_refused() {
    let input = repository("tests/images/coffee.png");
    let infer = |output: &Path| {
        run("runtime", words(&[&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output]))
    };
    let _ = infer(Path::new("/proc/out.png")).failure(1, &["/proc"]);
    let _ = infer(Path::new("/dev/null/out.png")).failure(1, &["/dev/null"]);
    let work = tempfile::tempdir().unwrap();
    let _ = infer(&work.path().join("out.xyz")).failure(2, &["xyz"]);
    assert!(names_in(work.path()).is_empty());
    let model = repository("models/compact-x4.safetensors");
    let _ = run("exporter", words(&[&"export", &model, &"-o", &"/proc/out.onnx"])).failure(1, &["/proc"]);
    let (file, profile) = (repository("models/compact-x4.yaml"), repository("profiles/cpu.yaml"));
    let _ = run("engine-builder", words(&[&"build", &file, &"--profile", &profile, &"-o", &"/proc/engine"]))
        .failure(1, &["/proc"]);
}

/// Runs a program with a limit on the size of files, so that a write fails in the middle, as if the disk were full.
fn with_small_disk(kibibytes: u32, program: &str, arguments: &[OsString]) -> (Option<i32>, String) {
    let program = command(program, [""; 0]).get_program().to_owned();
    let limit = format!("trap '' XFSZ; ulimit -f {kibibytes}; exec \"$0\" \"$@\"");
    let output = Command::new("bash").arg("-c").arg(limit).arg(program).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (repository("tests/images/coffee.png"), work.path().join("out.png"));
    let full = |arguments: &[&dyn AsRef<OsStr>], program: &str, kibibytes: u32| {
        let (code, talk) = with_small_disk(kibibytes, program, &words(arguments));
        assert_eq!(code, Some(1), "{program}: {talk}");
        assert!(talk.contains("File too large"), "{program}: {talk}");
        assert!(names_in(work.path()).is_empty(), "{program}: {:?}", names_in(work.path()));
    };
    full(&[&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output], "runtime", 100);
    let (model, file) = (repository("models/compact-x4.safetensors"), work.path().join("model.onnx"));
    full(&[&"export", &model, &"-o", &file, &"--weights", &"copy"], "exporter", 100);
    full(&[&"export", &model, &"-o", &file, &"--weights", &"inline"], "exporter", 100);
    let (model, profile, engine) =
        (repository("models/compact-x4.safetensors"), repository("profiles/cpu.yaml"), work.path().join("engine"));
    full(&[&"build", &model, &"--profile", &profile, &"-o", &engine], "engine-builder", 100);
    full(&[&"build", &model, &"--profile", &profile, &"-o", &engine], "engine-builder", 700);

    let elsewhere = tempfile::tempdir().unwrap();
    let (archive, tar) = (elsewhere.path().join("engine.tar"), work.path().join("engine.tar"));
    let _ = run("engine-builder", words(&[&"pack", &demo_engine(), &"-o", &archive])).success();
    full(&[&"pack", &demo_engine(), &"-o", &tar], "engine-builder", 100);
    full(&[&"unpack", &archive, &"-o", &engine], "engine-builder", 100);
    full(&[&"keygen", &"-o", &work.path().join("ours")], "engine-builder", 0);
}
