//! Files of `torch.save` give the same results as their safetensors counterparts, and no code of them is run.

use end_to_end::{Graph, golden_cases, names_in, repository, run, words};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tileforge_exporter::{Checkpoint, Shapes, export};
use tileforge_graph::{WeightStorage, save, to_text};
use tileforge_session::SessionOptions;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The files of `tests/golden-torch`, each with the name of its counterpart in `tests/golden`.
fn cases() -> Vec<(PathBuf, String)> {
    let folder = repository("tests/golden-torch");
    let case = |name: &String| {
        let case: serde_json::Value =
            serde_json::from_slice(&fs::read(folder.join(name).join("case.json")).ok()?).unwrap();
        let text = |key: &str| case[key].as_str().unwrap().to_owned();
        Some((folder.join(name).join(text("file")), text("twin")))
    };
    names_in(&folder).iter().filter(|name| folder.join(name).is_dir()).filter_map(case).collect()
}

/// Exports with the weights beside the graph, and returns the folder and the graph as text.
fn exported(checkpoint: &Checkpoint, shapes: &Shapes, storage: WeightStorage) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let model = export(checkpoint, shapes, &BTreeMap::new()).unwrap().model;
    save(&model, &folder.path().join("model.onnx"), storage).unwrap();
    (folder, to_text(&model))
}

#[test]
fn graphs_weights_and_pixels_are_those_of_the_safetensors_twin() {
    let (cases, golden) = (cases(), golden_cases());
    assert!(cases.len() >= 18, "only {} cases", cases.len());
    for (path, twin) in &cases {
        let golden = golden.iter().find(|golden| golden.name.starts_with(&format!("{twin}/"))).unwrap();
        let shapes = Shapes::of("image", golden.image.shape());
        let (ours, theirs) = (Checkpoint::open(path).unwrap(), Checkpoint::open(&golden.checkpoint).unwrap());
        let (copied, text) = exported(&ours, &shapes, WeightStorage::Copy);
        let (expected, expected_text) = exported(&theirs, &shapes, WeightStorage::Copy);
        assert_eq!(text, expected_text, "{}", path.display());
        assert_eq!(names_in(copied.path()), names_in(expected.path()));
        for name in names_in(copied.path()) {
            let bytes = |folder: &Path| fs::read(folder.join(&name)).unwrap();
            assert!(bytes(copied.path()) == bytes(expected.path()), "{}: {name} differs", path.display());
        }
        // A graph that points into the original file gives the same pixels.
        let (linked, _) = exported(&ours, &shapes, WeightStorage::Link);
        let pixels = |folder: &Path| {
            let mut graph = Graph::open(&folder.join("model.onnx"), &SessionOptions::default()).unwrap();
            graph.run(&[("image", golden.image.view())]).unwrap().remove(0).1
        };
        let bits = |folder: &Path| pixels(folder).iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        assert!(bits(linked.path()) == bits(expected.path()), "{}: the pixels differ", path.display());
    }
}

#[test]
fn a_graph_points_into_a_pth_file() {
    let work = tempfile::tempdir().unwrap();
    let (source, checkpoint) = (repository("tests/golden-torch/realesrgan/RealESRGAN.pth"), work.path().join("in"));
    fs::create_dir(&checkpoint).unwrap();
    let (checkpoint, out) = (checkpoint.join("RealESRGAN.pth"), work.path().join("out"));
    fs::copy(&source, &checkpoint).unwrap();
    fs::create_dir(&out).unwrap();
    let done = run("exporter", words(&[&"export", &checkpoint, &"-o", &out.join("model.onnx")])).success();
    assert!(done.stderr.contains("no weight was copied"), "{}", done.stderr);
    assert_eq!(names_in(&out), ["model.RealESRGAN.pth", "model.onnx"]);
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&out.join("model.RealESRGAN.pth")), inode(&checkpoint));
    // Tensors of the older format and compressed tensors have no alignment, so their weights are copied.
    for case in ["views-legacy/model.pth", "compressed/model.pth"] {
        let out = work.path().join(case.replace('/', "-"));
        fs::create_dir(&out).unwrap();
        let path = repository("tests/golden-torch").join(case);
        let _ = run("exporter", words(&[&"export", &path, &"-o", &out.join("model.onnx")])).success();
        assert!(names_in(&out).contains(&"model.weights".to_owned()), "{case}");
    }
}

#[test]
fn inspection_names_what_is_set_aside() {
    let path = repository("tests/golden-torch/lightning/last.ckpt");
    let shown = run("exporter", words(&[&"inspect", &path, &"--json"])).success().json();
    assert_eq!(shown["stripped_prefix"], "state_dict.");
    assert_eq!(shown["set_aside"], serde_json::json!(["callbacks", "optimizer_states", "codes"]));
    let text = run("exporter", words(&[&"inspect", &path])).success().stdout;
    assert!(text.contains("callbacks, optimizer_states, codes"), "{text}");
}

#[test]
fn engines_are_built_from_pth_files() {
    let work = tempfile::tempdir().unwrap();
    let path = repository("tests/golden-torch/basicsr/net_g_latest.pth");
    let profile = repository("tests/profiles/small-tiles.yaml");
    let done = end_to_end::build_engine(work.path(), &path, &profile, &[]);
    let _ = done.success();
    assert_eq!(end_to_end::manifest_in(work.path())["model"]["architecture"], "SRVGGNetCompact");
    end_to_end::assert_verified(work.path());
}

#[test]
fn folders_with_bin_files_are_components() {
    let work = tempfile::tempdir().unwrap();
    let source = repository("tests/golden-torch/sharded");
    for name in names_in(&source).iter().filter(|name| name.as_str() != "case.json") {
        fs::copy(source.join(name), work.path().join(name)).unwrap();
    }
    let shown = run("exporter", words(&[&"inspect", &work.path(), &"--json"])).success().json();
    assert_eq!((&shown["architecture"], shown["files"].as_array().unwrap().len()), (&"RRDBNet".into(), 2));
}

/// An archive as `torch.save` writes it, with this pickle.
fn archive(pickle: &[u8], more: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, data) in [("data.pkl", pickle)].iter().chain(more) {
        zip.start_file(format!("archive/{name}"), SimpleFileOptions::default().compression_method(method)).unwrap();
        zip.write_all(data).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// Exports a file of these bytes. The export must fail with the message `expected` and leave nothing behind.
fn refused(bytes: &[u8], expected: &[&str]) {
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("model.pth");
    fs::write(&path, bytes).unwrap();
    for command in ["inspect", "export"] {
        let mut arguments = words(&[&command, &path]);
        if command == "export" {
            arguments.extend(words(&[&"-o", &work.path().join("model.onnx")]));
        }
        let _ = run("exporter", arguments).failure(1, &[&["model.pth"], expected].concat());
    }
    assert_eq!(names_in(work.path()), ["model.pth"]);
}

fn stored(pickle: &[u8]) -> Vec<u8> {
    archive(pickle, &[], CompressionMethod::Stored)
}

/// A file of the older format with this pickle of tensors.
fn legacy(pickle: &[u8]) -> Vec<u8> {
    let magic = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    [magic.as_slice(), b"\x80\x02M\xe9\x03.", b"\x80\x02}.", pickle, b"\x80\x02]."].concat()
}

#[test]
fn pickles_that_call_functions_are_refused_and_run_nothing() {
    let work = tempfile::tempdir().unwrap();
    let proof = work.path().join("proof");
    let command = format!("touch {}", proof.display());
    let with_length = |text: &str| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let call = |global: &str, argument: &str| {
        [b"\x80\x02c", global.as_bytes(), b"\nX", &with_length(argument), b"\x85R."].concat()
    };
    for (global, name) in [
        ("os\nsystem", "os.system"),
        ("posix\nsystem", "posix.system"),
        ("builtins\nexec", "builtins.exec"),
        ("__builtin__\neval", "__builtin__.eval"),
        ("subprocess\nPopen", "subprocess.Popen"),
        ("torch\nload", "torch.load"),
        ("torch.storage\n_load_from_bytes", "torch.storage._load_from_bytes"),
        ("torch.nn.modules.container\nSequential", "torch.nn.modules.container.Sequential"),
        ("numpy.core.multiarray\n_reconstruct", "numpy.core.multiarray._reconstruct"),
    ] {
        let pickle = call(global, &command);
        refused(&stored(&pickle), &[&format!("asks for `{name}`"), "nothing was run"]);
        refused(&legacy(&pickle), &[&format!("asks for `{name}`"), "nothing was run"]);
    }
    // Other ways to name a function: from strings on the stack, and with the opcode that calls it at once.
    let from_stack = [b"\x80\x04\x8c\x02os\x8c\x06system\x93X", with_length(&command).as_slice(), b"\x85R."].concat();
    refused(&stored(&from_stack), &["asks for `os.system`"]);
    let at_once = [b"(X", with_length(&command).as_slice(), b"ios\nsystem\n."].concat();
    refused(&stored(&at_once), &["asks for `os.system`"]);
    refused(&stored(b"\x80\x02(cos\nsystem\nX\x01\0\0\0ao."), &["asks for `os.system`"]);
    // Opcodes that look functions up elsewhere, and attributes of objects that are not dictionaries.
    refused(&stored(b"\x80\x02\x82\x01."), &["opcode EXT1"]);
    refused(&stored(b"\x80\x02Pid\n."), &["opcode PERSID"]);
    refused(&stored(b"\x80\x02)}b."), &["expected attributes of a dictionary, found a tuple"]);
    refused(&stored(b"\x80\x02X\x06\0\0\0system)R."), &["expected a class or a function, found a text"]);
    refused(&stored(b"\x80\x02X\x06\0\0\0moduleq\x01(h\x01tQ."), &["expected the five parts of a storage"]);
    // A bare pickle, which `torch.save` never writes.
    refused(&call("os\nsystem", &command), &["a pickle that `torch.save` did not write"]);
    assert!(!proof.exists());
}

#[test]
fn bombs_and_deep_stacks_are_refused() {
    refused(&stored(&[b'('; 100_000]), &["more than 1000 open collections"]);
    refused(&stored(&[[b'N'; 5_000_000].as_slice(), b"."].concat()), &["more than 4000000 values"]);
    // A list in a list in a list …, and the same tuple in a tuple twice, and so on: 2^100 items.
    let deep = [b"]".repeat(900_000), b"a".repeat(899_999), b".".to_vec()].concat();
    refused(&stored(&deep), &["expected a dictionary of tensors, found a list"]);
    let doubled = [b"}X\x01\0\0\0aN".as_slice(), &b"q\x01h\x01\x86".repeat(100), b"s."].concat();
    refused(&stored(&doubled), &["expected a dictionary of tensors, found none in it"]);
    // A list that contains itself.
    refused(&stored(b"}X\x01\0\0\0a]q\x01h\x01as."), &["found none in it"]);
    // A compressed pickle of 200 MB, in a file of 200 KB.
    let bomb = archive(&vec![b'N'; 200_000_000], &[], CompressionMethod::Deflated);
    assert!(bomb.len() < 1_000_000);
    refused(&bomb, &["more than 67108864 bytes"]);
    refused(&stored(b"\x80\x02X\xff\xff\xff\xffabc"), &["expected 4294967295 more bytes, found 3", "truncated"]);
    refused(&stored(b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc"), &["truncated"]);
}

/// A dictionary of one tensor, `conv.weight`, with these numbers.
fn one_tensor(elements: u8, first: u8, dims: &[u8], strides: &[u8]) -> Vec<u8> {
    let numbers = |numbers: &[u8]| {
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| [b'K', *number]).collect();
        [b"(", numbers.as_slice(), b"t"].concat()
    };
    [
        b"\x80\x02}X\x0b\0\0\0conv.weightctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n",
        b"X\x01\0\0\0\x30X\x03\0\0\0cpuK".as_slice(),
        &[elements],
        b"tQK",
        &[first],
        &numbers(dims),
        &numbers(strides),
        b"\x89}tRs.",
    ]
    .concat()
}

/// The same tensor with its flags, as PyTorch writes them if one is set.
fn one_tensor_with(bits: &[u8]) -> Vec<u8> {
    let pickle = one_tensor(6, 0, &[2, 3], &[3, 1]);
    let end = pickle.len() - 4;
    [&pickle[..end], bits, &pickle[end..]].concat()
}

fn text(text: &str) -> Vec<u8> {
    [b"X", (text.len() as u32).to_le_bytes().as_slice(), text.as_bytes()].concat()
}

#[test]
fn the_negative_bit_turns_the_sign() {
    let values = [0.0_f32, 1.0, -2.0, 3.5, f32::INFINITY, 1e-40];
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("model.pth");
    let read = |pickle: &[u8], method| {
        fs::write(&path, archive(pickle, &[("data/0", &data)], method)).unwrap();
        Checkpoint::open(&path).unwrap().tensors()["conv.weight"].clone()
    };
    let negative = [b"}".as_slice(), &text("neg"), b"\x88s"].concat();
    let expected = values.map(|value| (-value).to_bits());
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let weight = read(&one_tensor_with(&negative), method);
        let bits: Vec<u32> = weight.to_f32s().unwrap().iter().map(|value| value.to_bits()).collect();
        assert_eq!((bits.as_slice(), weight.dims()), (expected.as_slice(), &[2, 3][..]));
        // The weight differs from the file's bytes, so no graph may point to them.
        assert!(weight.file_range().is_none());
    }
    // `_rebuild_tensor_v3` has the element type before the flags.
    let name = b"_rebuild_tensor_v2";
    let place = one_tensor_with(b"").windows(name.len()).position(|found| found == name).unwrap() + name.len() - 1;
    let mut typed = one_tensor_with(&[b"ctorch\nfloat32\n".as_slice(), &negative].concat());
    typed[place] = b'3';
    assert_eq!(read(&typed, CompressionMethod::Stored).to_f32s().unwrap()[2], 2.0);
    // No flags, in each possible form.
    for bits in [b"".as_slice(), b"N", b"}"] {
        assert_eq!(read(&one_tensor_with(bits), CompressionMethod::Stored).to_f32s().unwrap()[2], -2.0);
    }
    let file = |pickle: &[u8]| archive(pickle, &[("data/0", &data)], CompressionMethod::Stored);
    let with = |name: &str, value: &[u8]| file(&one_tensor_with(&[b"}", text(name).as_slice(), value, b"s"].concat()));
    refused(&with("conj", b"\x88"), &["conjugate bit", "resolve_conj()"]);
    refused(&with("backend", b"\x88"), &["has the bit `backend`, which is not known"]);
    refused(&with("neg", b"\x89"), &["expected true for a bit of a tensor, found a truth value"]);
    refused(&with("neg", b"K\x01"), &["expected true for a bit of a tensor, found the integer 1"]);
    refused(&file(&one_tensor_with(b"K\x01")), &["expected the bits of a tensor as a dictionary"]);
    let mut whole = one_tensor_with(&negative);
    let place = whole.windows(12).position(|found| found == b"FloatStorage").unwrap();
    whole.splice(place..place + 12, *b"IntStorage");
    refused(&file(&whole), &["negative bit is set, and its elements are i32", "resolve_neg()"]);
}

#[test]
fn two_entries_of_one_name_are_refused() {
    let pickle = one_tensor(6, 0, &[2, 3], &[3, 1]);
    let (ours, theirs) = ([1; 24], [2; 24]);
    let mut twins = archive(&pickle, &[("data/0", &ours), ("data/1", &theirs)], CompressionMethod::Stored);
    let (name, other) = (b"archive/data/0", b"archive/data/1");
    let places: Vec<usize> = (0..twins.len() - name.len()).filter(|at| twins[*at..].starts_with(other)).collect();
    assert_eq!(places.len(), 2);
    places.iter().for_each(|at| twins[*at..][..name.len()].copy_from_slice(name));
    refused(&twins, &["two entries of one name", "`torch.save`"]);
    // PyTorch compares names case-insensitively.
    let cases = archive(&pickle, &[("data/0", &ours), ("DATA/0", &theirs)], CompressionMethod::Stored);
    refused(&cases, &["two entries of one name"]);
}

/// Sets the CRC-32 of an entry, or of all, in both of its headers. Returns how many were set.
fn set_crc32(archive: &mut [u8], entry: &str, crc32: impl Fn(u32) -> u32) -> usize {
    let mut set = 0;
    for (signature, place, length, name) in [(b"PK\x01\x02", 16, 28, 46), (b"PK\x03\x04", 14, 26, 30)] {
        for at in 0..archive.len() - 4 {
            if !archive[at..].starts_with(signature) {
                continue;
            }
            let length = usize::from(u16::from_le_bytes([archive[at + length], archive[at + length + 1]]));
            if entry.is_empty() || &archive[at + name..at + name + length] == entry.as_bytes() {
                let field: &mut [u8; 4] = (&mut archive[at + place..at + place + 4]).try_into().unwrap();
                *field = crc32(u32::from_le_bytes(*field)).to_le_bytes();
                set += 1;
            }
        }
    }
    set
}

#[test]
fn a_damaged_entry_is_named_before_anything_is_written() {
    let good = fs::read(repository("tests/golden-torch/realesrgan/RealESRGAN.pth")).unwrap();
    let tensors = tileforge_exporter::checkpoint::parse_torch(&good).unwrap().tensors;
    let tensor = tensors.values().max_by_key(|tensor| tensor.place.length).unwrap();
    let work = tempfile::tempdir().unwrap();
    let path = work.path().join("model.pth");
    let export = |bytes: &[u8], weights: &str| {
        fs::write(&path, bytes).unwrap();
        let out = work.path().join("model.onnx");
        run("exporter", words(&[&"export", &path, &"-o", &out, &"--weights", &weights]))
    };
    let named = format!("the entry `{}` is damaged: expected the CRC-32 ", tensor.storage);
    let mut damaged = good.clone();
    damaged[tensor.place.offset as usize + 100] ^= 1;
    for weights in ["link", "copy", "inline"] {
        let _ = export(&damaged, weights).failure(1, &["model.pth", &named, "download the file again"]);
        assert_eq!(names_in(work.path()), ["model.pth"], "{weights}");
    }
    // Only data that is read is compared: `inspect` reads only the headers.
    let _ = run("exporter", words(&[&"inspect", &path])).success();
    // Compressed entries, and the pickle itself.
    let packed = fs::read(repository("tests/golden-torch/compressed/model.pth")).unwrap();
    let tensors = tileforge_exporter::checkpoint::parse_torch(&packed).unwrap().tensors;
    let tensor = tensors.values().find(|tensor| tensor.place.compressed.is_some()).unwrap();
    let mut damaged = packed.clone();
    assert_eq!(set_crc32(&mut damaged, &tensor.storage, |crc32| crc32 ^ 1), 2);
    let named = format!("the entry `{}` is damaged", tensor.storage);
    let _ = export(&damaged, "copy").failure(1, &[&named]);
    let folder = tensor.storage.split('/').next().unwrap();
    let mut damaged = packed;
    let _ = set_crc32(&mut damaged, &format!("{folder}/data.pkl"), |crc32| crc32 ^ 1);
    refused(&damaged, &["data.pkl` is damaged"]);
    // Files without checksums have zeros in their places.
    let mut without = good;
    assert!(set_crc32(&mut without, "", |_| 0) > 4);
    let _ = export(&without, "link").success();
}

#[test]
fn tensors_beyond_their_storage_are_refused() {
    let file = |pickle: &[u8], data: &[u8]| archive(pickle, &[("data/0", data)], CompressionMethod::Stored);
    let data = [0; 24];
    // The same file with valid numbers is a checkpoint of an unknown network.
    refused(
        &file(&one_tensor(6, 0, &[2, 3], &[3, 1]), &data),
        &["no known architecture", "none has one of their names"],
    );
    refused(&file(&one_tensor(6, 1, &[2, 3], &[3, 1]), &data), &["ends past the 6 elements of its storage"]);
    refused(&file(&one_tensor(6, 0, &[2, 3], &[200, 1]), &data), &["ends past the 6 elements"]);
    refused(&file(&one_tensor(6, 0, &[200, 200], &[0, 0]), &data), &["repeats the 6 elements of its storage"]);
    refused(&file(&one_tensor(6, 0, &[2, 3], &[1]), &data), &["2 sizes and 1 strides"]);
    refused(&file(&one_tensor(7, 0, &[2, 3], &[3, 1]), &data), &["should have 7 elements and has 24 bytes"]);
    refused(&file(&one_tensor(6, 0, &[1; 65], &[1; 65]), &data), &["expected at most 64 sizes, found 65"]);
    let missing = stored(&one_tensor(6, 0, &[2, 3], &[3, 1]));
    refused(&missing, &["tensor `conv.weight`: the storage `0`, which it needs, is missing"]);
}

#[test]
fn damaged_files_are_refused() {
    let good = fs::read(repository("tests/golden-torch/realesrgan/RealESRGAN.pth")).unwrap();
    refused(&good[..good.len() - 30], &["truncated or damaged"]);
    refused(&good[..2000], &["truncated or damaged"]);
    let legacy = fs::read(repository("tests/golden-torch/esrgan-legacy/RRDB_ESRGAN_x4.pth")).unwrap();
    refused(&legacy[..legacy.len() - 30], &["is truncated; download the file again"]);
    refused(&archive(b"", &[], CompressionMethod::Stored), &["truncated"]);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("photos/one.png", SimpleFileOptions::default()).unwrap();
    refused(&zip.finish().unwrap().into_inner(), &["without `data.pkl`"]);
    let code = archive(b"\x80\x02}.", &[("code/__torch__.py", b"pass")], CompressionMethod::Stored);
    refused(&code, &["TorchScript", "torch.jit.load"]);
    refused(&stored(b"\x80\x02}."), &["expected a dictionary of tensors, found none in it"]);
    refused(&stored(b"\x80\x02K\x01."), &["expected a dictionary of tensors, found the integer 1"]);
}
