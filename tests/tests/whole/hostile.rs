//! Hostile files, names and numbers: each is refused with a clear error, without a panic, without waiting, and within
//! bounded memory.

use end_to_end::{command, copied_engine, demo_engine, names_in, new_key, repository, run, words};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time that any of these commands may take. Unoptimised test builds are slow.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The exit code, or the signal as a negative number, and the output.
fn ended(mut child: Child) -> (i32, String) {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    let mut pipe = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut talk = Vec::new();
        pipe.read_to_end(&mut talk).unwrap();
        String::from_utf8_lossy(&talk).into_owned()
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > TIME_LIMIT {
            child.kill().unwrap();
            panic!("still running after {TIME_LIMIT:?}: {}", reader.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    (status.code().unwrap_or_else(|| -status.signal().unwrap()), reader.join().unwrap())
}

fn started(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs a program that must fail in time with these words.
fn refused(program: &str, arguments: &[&dyn AsRef<OsStr>], code: i32, expected: &str) {
    let (found, talk) = ended(started(&mut command(program, words(arguments))));
    let shown: Vec<OsString> = words(arguments);
    assert_eq!(found, code, "{program} {shown:?}: {talk}");
    assert!(talk.contains(expected), "{program} {shown:?}: expected `{expected}` in: {talk}");
}

fn pipe_at(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

const CHECKPOINT: &str = "models/compact-x4.safetensors";

#[test]
fn a_number_is_finite_and_in_range() {
    let picture = repository("tests/images/coffee.png");
    for number in ["nan", "inf", "NaN", "1e999", "1e9"] {
        let gain: [&dyn AsRef<OsStr>; 7] =
            [&"evaluate", &"--engine", &"none", &"--input", &picture, &"--minimum-gain", &number];
        refused("runtime", &gain, 2, "expected a number from -100 to 100");
        let threshold: [&dyn AsRef<OsStr>; 5] = [&"bench", &"--engine", &"none", &"--threshold", &number];
        refused("runtime", &threshold, 2, "expected a number from 0 to 100");
    }
    let threads: [&dyn AsRef<OsStr>; 7] =
        [&"infer", &"--engine", &"none", &"--input", &picture, &"--output=x.png", &"--threads=5000"];
    refused("runtime", &threads, 2, "expected a number from 1 to");
}

#[test]
fn a_picture_below_its_tile_is_not_called_exact() {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (work.path().join("in.png"), work.path().join("out.png"));
    let exact = |width, height| {
        image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(0, 0, width, height).save(&input).unwrap();
        let arguments =
            words(&[&"infer", &"--json", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output]);
        let report = run("runtime", arguments).success().json();
        let file = &report["files"][0];
        (file["exact"].as_bool().unwrap(), file["tile"]["width"].as_u64().unwrap())
    };
    // The engine has tiles of 24² and 96².
    assert_eq!(exact(64, 65), (false, 96));
    assert_eq!(exact(96, 95), (false, 96));
    assert_eq!(exact(24, 24), (true, 24));
    assert_eq!(exact(96, 96), (true, 96));
}

#[test]
fn a_damaged_picture_is_refused_or_read_with_a_warning() {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (work.path().join("in.png"), work.path().join("out.png"));
    image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(0, 0, 96, 96).save(&input).unwrap();
    let whole = fs::read(&input).unwrap();
    fs::write(&input, &whole[..whole.len() - 20]).unwrap();
    let infer: [&dyn AsRef<OsStr>; 7] =
        [&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output];
    refused("runtime", &infer, 1, "`infer --tolerant` goes on");
    assert_eq!(names_in(work.path()), ["in.png"]);
    let tolerated = run("runtime", words(&infer).into_iter().chain(["--tolerant".into()])).success();
    assert!(tolerated.stderr.contains("a truncated or damaged PNG file"), "{}", tolerated.stderr);
    assert_eq!(names_in(work.path()), ["in.png", "out.png"]);
}

#[test]
fn names_that_are_not_utf_8_work() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| work.path().join(OsStr::from_bytes(name));
    let (input, output) = (at(b"in-\xff.png"), at(b"out-\xfe.png"));
    let picture = image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(0, 0, 24, 24);
    picture.save(work.path().join("in.png")).unwrap();
    fs::rename(work.path().join("in.png"), &input).unwrap();
    let infer = words(&[&"infer", &"--json", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output]);
    let report = run("runtime", infer.clone()).success().json();
    assert!(report["files"][0]["input"].as_str().unwrap().ends_with("in-\u{fffd}.png"), "{report}");
    assert!(output.exists());
    // The report of a failure, too.
    fs::write(&input, b"no picture").unwrap();
    assert_eq!(run("runtime", infer).code, 1);

    let checkpoint = at(b"model-\xff.safetensors");
    fs::copy(repository(CHECKPOINT), &checkpoint).unwrap();
    let found = run("exporter", words(&[&"inspect", &"--json", &checkpoint])).success().json();
    assert!(found["path"].as_str().unwrap().contains("model-\u{fffd}"), "{found}");
    let graph = at(b"graph-\xff.onnx");
    let _ = run("exporter", words(&[&"export", &checkpoint, &"-o", &graph, &"--weights", &"copy"])).success();
    let _ = run("engine-builder", words(&[&"lint", &"--target=tensorrt-10", &graph])).success();
    let engine = copied_engine(work.path());
    let renamed = at(b"engine-\xff");
    fs::rename(engine, &renamed).unwrap();
    let _ = run("runtime", words(&[&"inspect", &"--json", &"--engine", &renamed])).success();
}

#[test]
fn nothing_waits_for_a_pipe_or_reads_a_device() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let output = at("out.png");
    for name in ["pipe.safetensors", "pipe.safetensors.index.json", "pipe.onnx", "pipe.png", "pipe.yaml", "pipe.tar"] {
        pipe_at(&at(name));
    }
    let found = "expected a regular file, found a named pipe";
    refused("exporter", &[&"inspect", &at("pipe.safetensors")], 1, found);
    refused("exporter", &[&"inspect", &at("pipe.safetensors.index.json")], 1, found);
    refused("engine-builder", &[&"lint", &"--target=tensorrt-10", &at("pipe.onnx")], 1, found);
    refused("engine-builder", &[&"unpack", &at("pipe.tar"), &"-o", &at("engine")], 1, found);
    let profile = repository("profiles/cpu.yaml");
    for model in ["pipe.yaml", "pipe.safetensors", "pipe.onnx"] {
        refused("engine-builder", &[&"build", &at(model), &"--profile", &profile, &"-o", &at("engine")], 1, found);
    }
    let model = repository(CHECKPOINT);
    refused("engine-builder", &[&"build", &model, &"--profile", &at("pipe.yaml"), &"-o", &at("engine")], 1, found);
    let infer = |input: PathBuf| {
        let arguments: [&dyn AsRef<OsStr>; 7] =
            [&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output];
        refused("runtime", &arguments, 1, "expected a regular file, found a");
    };
    std::os::unix::fs::symlink("/dev/zero", at("zero.png")).unwrap();
    infer(at("zero.png"));
    std::os::unix::fs::symlink("/dev/zero", at("zero.safetensors")).unwrap();
    refused("exporter", &[&"inspect", &at("zero.safetensors")], 1, "expected a regular file, found a device");

    // Configuration, LoRA, manifest, signature, key.
    let folder = at("component");
    fs::create_dir(&folder).unwrap();
    fs::copy(repository(CHECKPOINT), folder.join("model.safetensors")).unwrap();
    pipe_at(&folder.join("config.json"));
    let (code, talk) = ended(started(&mut command("exporter", words(&[&"inspect", &folder]))));
    assert!(code <= 1, "{talk}");
    refused("runtime", &[&"inspect", &"--engine", &at("pipe.png")], 1, "not a folder");
    let engine = copied_engine(work.path());
    pipe_at(&engine.join("manifest.sig"));
    let key = repository("rustfmt.toml");
    refused("runtime", &[&"verify", &"--engine", &engine, &"--require-signature", &at("pipe.yaml")], 1, found);
    refused("runtime", &[&"verify", &"--engine", &engine, &"--require-signature", &key], 1, "public key");
    fs::remove_file(engine.join("manifest.json")).unwrap();
    pipe_at(&engine.join("manifest.json"));
    refused("runtime", &[&"verify", &"--engine", &engine], 1, found);
}

/// Runs a program that may have `bytes` of address space.
fn within(bytes: u64, program: &str, arguments: &[&dyn AsRef<OsStr>]) -> (i32, String) {
    let template = command(program, words(arguments));
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--as={bytes}")).arg("--").arg(template.get_program()).args(template.get_args());
    limited.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
    ended(started(&mut limited))
}

/// The memory that a program may use in addition to the mappings of ONNX Runtime and the system's libraries.
const MEMORY: u64 = 1 << 30;
/// The size of those mappings, with a thread for each processor.
const LIBRARIES: u64 = 1 << 30;

/// Runs a program within its memory limit. It must fail cleanly with these words.
fn bounded(program: &str, arguments: &[&dyn AsRef<OsStr>], expected: &str) {
    let (code, talk) = within(MEMORY + LIBRARIES, program, arguments);
    let shown = words(arguments);
    assert_eq!(code, 1, "{program} {shown:?}: {talk}");
    assert!(talk.contains(expected), "{program} {shown:?}: expected `{expected}` in: {talk}");
}

/// A field of a protobuf message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}

/// An ONNX model with this content of its graph.
fn onnx(graph: &[u8]) -> Vec<u8> {
    // The versions of the format and of the operators.
    [&[8, 8][..], &field(8, &[16, 17]), &field(7, graph)].concat()
}

/// A node of an ONNX graph.
fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[u8]) -> Vec<u8> {
    let inputs: Vec<u8> = inputs.iter().flat_map(|name| field(1, name.as_bytes())).collect();
    field(1, &[inputs, field(2, output.as_bytes()), field(4, operator.as_bytes()), attributes.to_vec()].concat())
}

/// An input or output of type float with these dimensions: numbers, or names.
fn port(kind: u8, name: &str, dims: &[&str]) -> Vec<u8> {
    let dim = |dim: &&str| match dim.parse::<u64>() {
        Ok(mut number) => {
            let mut content = vec![8];
            while number >= 0x80 {
                content.push(number as u8 | 0x80);
                number >>= 7;
            }
            content.push(number as u8);
            field(1, &content)
        }
        Err(_) => field(1, &field(2, dim.as_bytes())),
    };
    let shape: Vec<u8> = dims.iter().flat_map(dim).collect();
    let tensor = [vec![8, 1], field(2, &shape)].concat();
    field(kind, &[field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat())
}

/// The attribute `axis` with the value 0.
fn axis() -> Vec<u8> {
    field(5, &[field(1, b"axis"), vec![0x18, 0], vec![0xa0, 1, 2]].concat())
}

#[test]
fn hostile_graphs_are_refused_within_bounded_memory() {
    let work = tempfile::tempdir().unwrap();
    let graph = work.path().join("hostile.onnx");
    let lint = |content: Vec<u8>, expected: &str| {
        fs::write(&graph, onnx(&content)).unwrap();
        bounded("engine-builder", &[&"lint", &"--target=tensorrt-10", &graph], expected);
        let output = work.path().join("converted.onnx");
        bounded("engine-builder", &[&"convert", &graph, &"--precision=fp16", &"-o", &output], expected);
        assert!(!output.exists());
    };
    // Millions of empty nodes.
    lint([10, 0].repeat(20 << 20), "found more");
    // A constant that doubles with every node. The error names the file and the node.
    let constant = field(5, &[vec![8, 1, 0x10, 7], field(8, b"c0"), field(9, &[0; 8])].concat());
    let doubled = (0..40).flat_map(|at| {
        let input = format!("c{at}");
        node("Concat", &[input.as_str(); 2], &format!("c{}", at + 1), &axis())
    });
    let ports = [port(11, "x", &["1"]), port(12, "c40", &["1"])].concat();
    let doubling: Vec<u8> = ports.into_iter().chain(constant).chain(doubled).collect();
    assert!(doubling.len() < 2000);
    lint(doubling, "is a constant of");
    lint(port(11, "x", &["18446744073709551615", "9223372036854775807"]), "hostile.onnx");
    let loops = [port(11, "x", &["1"]), port(12, "y", &["1"]), node("Add", &["x", "y"], "y", &[])].concat();
    lint(loops, "it reads its own output `y`");

    // Any text is a valid name of a dimension.
    for dim in ["n/0", "0*n", "n+99999999999999999999", "n/18446744073709551615"] {
        let content = [port(11, "x", &["1", dim]), node("Relu", &["x"], "y", &[]), port(12, "y", &["1", dim])].concat();
        fs::write(&graph, onnx(&content)).unwrap();
        let (code, talk) = within(MEMORY, "engine-builder", &[&"lint", &"--target=tensorrt-10", &graph]);
        assert!(code == 0 || code == 1 || code == 4, "{dim}: {code} {talk}");
        assert!(!talk.contains("panicked"), "{dim}: {talk}");
    }
}

#[test]
fn shapes_that_no_memory_holds_are_refused_before_anything_is_measured() {
    let work = tempfile::tempdir().unwrap();
    let graph = work.path().join("model.onnx");
    for shape in ["1x3x100000x100000", "1x3x16384x16384", "1000000x3x64x64"] {
        let shapes = format!("image:{shape}");
        let checkpoint = repository(CHECKPOINT);
        let export: [&dyn AsRef<OsStr>; 6] = [&"export", &checkpoint, &"-o", &graph, &"--shapes", &shapes];
        let (code, talk) = within(MEMORY, "exporter", &export);
        assert_eq!(code, 0, "{shape}: {talk}");
        let profile = repository("profiles/cpu.yaml");
        let engine = work.path().join("engine");
        bounded("engine-builder", &[&"build", &graph, &"--profile", &profile, &"-o", &engine], "of memory left");
        assert!(!engine.exists());
    }
}

/// A header of a tar file's entry.
fn tar_header(name: &str, kind: u8, length: u64) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    // A length in base 256 has its highest bit set.
    header[124] = 0x80;
    header[128..136].copy_from_slice(&length.to_be_bytes());
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar  \0");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[test]
fn archives_signatures_and_sparse_files_are_refused_within_bounded_memory() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    for kind in [b'L', b'K', b'x', b'g'] {
        let mut archive = fs::File::create(at("bomb.tar")).unwrap();
        archive.write_all(&tar_header("././@LongLink", kind, 3 << 30)).unwrap();
        archive.set_len(4 << 30).unwrap();
        for program in ["engine-builder", "runtime"] {
            bounded(program, &[&"unpack", &at("bomb.tar"), &"-o", &at("engine")], "names and attributes of at most");
        }
    }
    let engine = copied_engine(work.path());
    let [_, public] = new_key(work.path(), "ours");
    fs::File::create(engine.join("manifest.sig")).unwrap().set_len(5 << 30).unwrap();
    bounded("runtime", &[&"verify", &"--engine", &engine, &"--require-signature", &public], "manifest.sig");
    fs::File::create(engine.join("manifest.json")).unwrap().set_len(5 << 30).unwrap();
    bounded("runtime", &[&"verify", &"--engine", &engine], "manifest.json");
    for (name, program, command) in [
        ("sparse.yaml", "engine-builder", "build"),
        ("sparse.safetensors", "exporter", "inspect"),
        ("sparse.safetensors.index.json", "exporter", "inspect"),
        ("sparse.onnx", "engine-builder", "build"),
    ] {
        fs::File::create(at(name)).unwrap().set_len(64 << 30).unwrap();
        let profile = repository("profiles/cpu.yaml");
        let (file, output) = (at(name), at("engine-of-sparse"));
        let mut arguments: Vec<&dyn AsRef<OsStr>> = vec![&command, &file];
        if command == "build" {
            arguments.extend([&"--profile" as &dyn AsRef<OsStr>, &profile, &"-o", &output]);
        }
        let (code, talk) = within(MEMORY + LIBRARIES, program, &arguments);
        assert_eq!(code, 1, "{name}: {talk}");
    }
}

/// A JPEG of one colour, `side` × `side`, with all of its data: one bit for each coefficient that matters.
fn flat_jpeg(side: u16, progressive: bool) -> Vec<u8> {
    let [high, low] = side.to_be_bytes();
    let marker = if progressive { 0xc2 } else { 0xc0 };
    // One component, its table of ones, and a code of one bit for "no difference" and "end of block".
    let mut jpeg = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    jpeg.extend([1; 64]);
    jpeg.extend([0xff, marker, 0, 11, 8, high, low, high, low, 1, 1, 0x11, 0]);
    for class in [0x00, 0x10] {
        jpeg.extend([0xff, 0xc4, 0, 20, class, 1]);
        jpeg.extend([0; 15]);
        jpeg.push(0);
    }
    let end = if progressive { 0 } else { 63 };
    jpeg.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, end, 0]);
    let blocks = usize::from(side).div_ceil(8).pow(2);
    let bits = if progressive { blocks } else { 2 * blocks };
    jpeg.extend(vec![0; bits.div_ceil(8)]);
    jpeg.extend([0xff, 0xd9]);
    jpeg
}

#[test]
fn picture_bombs_are_refused_within_bounded_memory() {
    let work = tempfile::tempdir().unwrap();
    let output = work.path().join("out.png");
    let refused = |name: &str, bytes: &[u8]| {
        let input = work.path().join(name);
        fs::write(&input, bytes).unwrap();
        bounded(
            "runtime",
            &[&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output],
            &format!("{name}: "),
        );
        assert!(!output.exists());
    };
    // Dimensions without data, and dimensions with all data.
    let mut large = flat_jpeg(64, false);
    let header = large.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    large[header + 5..header + 9].copy_from_slice(&[0x4e, 0x20, 0x4e, 0x20]);
    refused("claims.jpg", &large);
    refused("beyond.jpg", &flat_jpeg(65_500, false));
    refused("progressive.jpg", &flat_jpeg(19_900, true));
    // A WebP of the largest size without data.
    let size = (16_383_u32 | 16_383 << 14).to_le_bytes();
    let data = [&[0x2f][..], &size, &[0x88, 0x88, 8, 7, 0x10, 0x11, 0x11, 0x11]].concat();
    let webp = [
        &b"RIFF"[..],
        &(data.len() as u32 + 13).to_le_bytes(),
        b"WEBPVP8L",
        &(data.len() as u32).to_le_bytes(),
        &data,
        &[0],
    ]
    .concat();
    refused("claims.webp", &webp);
    // A colour profile that inflates to a gigabyte is ignored: the picture itself is complete.
    let sparse = work.path().join("sparse.jpg");
    let mut file = fs::File::create(&sparse).unwrap();
    file.write_all(&[0xff, 0xd8, 0xff, 0xe0]).unwrap();
    file.set_len(50 << 30).unwrap();
    bounded(
        "runtime",
        &[&"infer", &"--engine", &demo_engine(), &"--input", &sparse, &"--output", &output],
        "has to be read whole",
    );
}

#[test]
fn a_name_that_no_engine_can_have_is_refused_first() {
    let work = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let (model, profile, engine) = (repository(CHECKPOINT), repository("profiles/cpu.yaml"), work.path().join("a:b"));
    let arguments: [&dyn AsRef<OsStr>; 6] = [&"build", &model, &"--profile", &profile, &"-o", &engine];
    refused("engine-builder", &arguments, 1, "expected a name without `:`");
    assert!(begun.elapsed() < Duration::from_secs(20) && names_in(work.path()).is_empty());
}

/// If a file is truncated while a program has mapped it, the error names the file.
#[test]
fn a_checkpoint_that_is_cut_while_it_is_read_is_named() {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("model.safetensors");
    // The header is at the end of a large file's first part, and reading it takes a while: it has a long list of
    // tensors.
    let names: Vec<String> =
        (0..400_000).map(|at| format!("\"t{at}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}")).collect();
    let header = format!("{{{}}}", names.join(","));
    let mut killed = 0;
    for delay in (0..40).map(|step| Duration::from_millis(5 * step)) {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        fs::write(&path, &bytes).unwrap();
        let child = started(&mut command("exporter", words(&[&"inspect", &path])));
        std::thread::sleep(delay);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let (code, talk) = ended(child);
        assert_eq!(code, 1, "{talk}");
        if talk.contains("made this file shorter while it was in use") {
            assert!(talk.contains("model.safetensors: another program"), "{talk}");
            killed += 1;
        }
    }
    assert!(killed > 0, "no run was hit while it read the file");
}
