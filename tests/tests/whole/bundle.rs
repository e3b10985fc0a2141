//! Packed engines: the same bytes every time, complete or refused, and signed.

use end_to_end::{
    Outcome, build_engine, command, copied_engine, demo_engine, names_in, new_key, repository, run, words,
};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;

fn pack(engine: &Path, archive: &Path) -> Outcome {
    run("engine-builder", words(&[&"pack", &engine, &"-o", &archive]))
}

fn unpack(archive: &Path, engine: &Path) -> Outcome {
    run("engine-builder", words(&[&"unpack", &archive, &"-o", &engine]))
}

fn sign(engine: &Path, key: &Path) -> Outcome {
    run("engine-builder", words(&[&"sign", &engine, &"--key", &key]))
}

fn flip(path: &Path, position: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[position] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let work = tempfile::tempdir().unwrap();
    // In another folder, and under a name of the same length, so that the manifest has the same length.
    let engine = work.path().join("elsewhere").join("engine");
    let (model, profile) = (repository("models/compact-x4.safetensors"), repository("tests/profiles/small-tiles.yaml"));
    let _ = run("engine-builder", words(&[&"build", &model, &"--profile", &profile, &"-o", &engine])).success();
    assert_eq!(names_in(&engine), names_in(demo_engine()));
    for name in names_in(&engine) {
        assert!(fs::read(engine.join(&name)).unwrap() == fs::read(demo_engine().join(&name)).unwrap(), "{name}");
    }
    let [one, other] = ["one.tar", "other.tar"].map(|name| work.path().join(name));
    let _ = pack(demo_engine(), &one).success();
    let _ = pack(&engine, &other).success();
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap());
}

#[test]
fn the_same_inputs_give_the_same_bytes_in_8_bits() {
    let profile = repository("tests/profiles/small-tiles.yaml");
    let model = repository("models/compact-x4.safetensors");
    let built = [(); 2].map(|()| {
        let work = tempfile::tempdir().unwrap();
        // Speed gates are off, because no test may depend on time. Each build measures activations itself.
        let text = fs::read_to_string(&profile)
            .unwrap()
            .replace("psnr_db: 100", "psnr_db: 40")
            .replace("cosine: 0.999999", "cosine: 0.99\n  speed: 0");
        let profile = work.path().join("small-tiles.yaml");
        fs::write(&profile, text.replace("precision: fp32", "precision: int8")).unwrap();
        let _ = build_engine(work.path(), &model, &profile, &[]).success();
        work
    });
    let [one, other] = built.each_ref().map(|work| work.path().join("engine"));
    for name in names_in(&one) {
        assert!(fs::read(one.join(&name)).unwrap() == fs::read(other.join(&name)).unwrap(), "{name}");
    }
    assert_eq!(names_in(&one), names_in(&other));
}

#[test]
fn what_is_packed_is_unpacked() {
    let work = tempfile::tempdir().unwrap();
    let (archive, engine) = (work.path().join("engine.tar"), work.path().join("unpacked"));
    let _ = pack(demo_engine(), &archive).success();
    let _ = unpack(&archive, &engine).success();
    for name in names_in(demo_engine()) {
        assert!(fs::read(engine.join(&name)).unwrap() == fs::read(demo_engine().join(&name)).unwrap(), "{name}");
    }
    let _ = run("runtime", words(&[&"verify", &"--engine", &engine])).success();
    // Unpacking again replaces the engine. It replaces nothing else.
    let _ = unpack(&archive, &engine).success();
    fs::remove_file(engine.join("manifest.json")).unwrap();
    let _ = unpack(&archive, &engine).failure(1, &["is not empty and holds no engine"]);
    assert_eq!(names_in(work.path()), ["engine.tar", "unpacked"]);
    // Other tar programs can read the archive.
    let listed = std::process::Command::new("tar").arg("-tf").arg(&archive).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.starts_with("engine/manifest.json\n") && listed.contains("engine/model.weights\n"), "{listed}");
}

#[test]
fn an_altered_byte_in_any_file_is_refused_by_its_name() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let verify = || run("runtime", words(&[&"verify", &"--engine", &engine]));
    for name in names_in(&engine) {
        let path = engine.join(&name);
        let whole = fs::read(&path).unwrap();
        // A changed digit in a digest of the manifest is found. Values that do not concern files are protected only by
        // a signature.
        let text = String::from_utf8_lossy(&whole);
        let middle = if name == "manifest.json" { text.rfind("sha256\": \"").unwrap() + 12 } else { whole.len() / 2 };
        flip(&path, middle);
        let _ = verify().failure(1, &[]);
        if name != "manifest.json" {
            let _ = verify().failure(1, &[&name, "expected SHA-256"]);
            let _ = pack(&engine, &work.path().join("engine.tar")).failure(1, &[&name, "expected SHA-256"]);
        }
        fs::write(&path, whole).unwrap();
    }
    assert_eq!(names_in(work.path()), ["engine"]);
}

#[test]
fn an_altered_archive_is_refused_and_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let (archive, engine) = (work.path().join("engine.tar"), work.path().join("engine"));
    let _ = pack(demo_engine(), &archive).success();
    let whole = fs::read(&archive).unwrap();
    let refused = |bytes: &[u8], expected: &[&str]| {
        fs::write(&archive, bytes).unwrap();
        let _ = unpack(&archive, &engine).failure(1, expected);
        assert_eq!(names_in(work.path()), ["engine.tar"]);
    };
    // Each entry has a header of 512 bytes before its content.
    let header_of = |name: &str| whole.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
    for name in names_in(demo_engine()).iter().filter(|name| *name != "manifest.json") {
        let mut altered = whole.clone();
        altered[header_of(&format!("engine/{name}")) + 512 + 40] ^= 1;
        refused(&altered, &[name, "expected SHA-256"]);
    }
    refused(&whole[..whole.len() / 2], &["engine.tar"]);
    refused(&whole[..700], &["engine.tar"]);
    refused(b"", &["expected manifest.json first"]);
    refused(&b"no tar at all, but long enough for a header of 512 bytes ".repeat(20), &["not a whole tar file"]);
    // Without the last file: its header and everything after it are replaced by the end of an archive.
    let last = names_in(demo_engine()).pop().unwrap();
    let mut cut = whole[..header_of(&format!("engine/{last}"))].to_vec();
    cut.extend([0; 1024]);
    refused(&cut, &[&last, "listed in the manifest, but missing"]);
    let twice = [&whole[..header_of(&format!("engine/{last}"))], &whole[header_of("engine/model.weights")..]].concat();
    refused(&twice, &["model.weights", "it is there twice"]);
}

#[test]
fn whatever_byte_of_an_archive_is_altered_the_engine_is_the_same_or_refused() {
    let work = tempfile::tempdir().unwrap();
    let (archive, engine) = (work.path().join("engine.tar"), work.path().join("engine"));
    let _ = pack(demo_engine(), &archive).success();
    let whole = fs::read(&archive).unwrap();
    // Every third byte of the first header and of the beginning of the manifest, then single bytes at regular
    // distances.
    let positions = (0..2000).step_by(3).chain((2000..whole.len()).step_by(whole.len() / 200));
    for position in positions {
        let mut altered = whole.clone();
        altered[position] ^= 0x41;
        fs::write(&archive, altered).unwrap();
        if tileforge_engine::archive::unpack(&archive, &engine, None).is_err() {
            assert_eq!(names_in(work.path()), ["engine.tar"], "byte {position}");
            continue;
        }
        for name in names_in(demo_engine()).iter().filter(|name| *name != "manifest.json") {
            assert!(
                fs::read(engine.join(name)).unwrap() == fs::read(demo_engine().join(name)).unwrap(),
                "byte {position}: {name}"
            );
        }
        fs::remove_dir_all(&engine).unwrap();
    }
}

#[test]
fn entries_that_leave_the_folder_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let (archive, engine) = (work.path().join("engine.tar"), work.path().join("engine"));
    let _ = pack(demo_engine(), &archive).success();
    let mut whole = fs::read(&archive).unwrap();
    let name = b"engine/model.weights";
    let header = whole.windows(name.len()).position(|window| window == name).unwrap();
    let evil = b"../../el/../weights\0";
    whole[header..header + evil.len()].copy_from_slice(evil);
    // The header's checksum: the sum of its bytes, with its own field counted as spaces.
    whole[header + 148..header + 156].fill(b' ');
    let sum: u32 = whole[header..header + 512].iter().map(|byte| u32::from(*byte)).sum();
    whole[header + 148..header + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    fs::write(&archive, whole).unwrap();
    let _ = unpack(&archive, &engine).failure(1, &["expected files ENGINE/NAME", "../../el/../weights"]);
    assert_eq!(names_in(work.path()), ["engine.tar"]);
}

#[test]
fn only_engines_signed_with_the_key_are_opened() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let [private, public] = new_key(work.path(), "ours");
    let [_, foreign] = new_key(work.path(), "theirs");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&private), 0o600);
    let _ = run("engine-builder", words(&[&"keygen", &"-o", &work.path().join("ours")]))
        .failure(1, &["ours.key", "the file exists"]);

    let output = work.path().join("out.png");
    let input = repository("tests/images/coffee.png");
    let verify = |key: &Path| run("runtime", words(&[&"verify", &"--engine", &engine, &"--require-signature", &key]));
    let infer = |key: &Path| {
        let arguments = words(&[
            &"infer",
            &"--engine",
            &engine,
            &"--input",
            &input,
            &"--output",
            &output,
            &"--require-signature",
            &key,
        ]);
        run("runtime", arguments)
    };
    let doctor = |key: &Path| run("runtime", words(&[&"doctor", &"--engine", &engine, &"--require-signature", &key]));
    let bench = |key: &Path| {
        let line = words(&[&"bench", &"--engine", &engine, &"--require-signature", &key]);
        let few = ["--size", "24x24", "--runs", "1", "--warm-up", "0", "--passes", "1"];
        run("runtime", line.into_iter().chain(few.map(Into::into)))
    };
    for unsigned in [verify(&public), doctor(&public), bench(&public)] {
        let _ = unsigned.failure(1, &["manifest.sig", "a signature is required, and there is none"]);
    }
    let _ = sign(&engine, &private).success();
    for signed in [verify(&public), doctor(&public), bench(&public)] {
        let _ = signed.success();
    }
    let _ = infer(&public).success();
    let _ = run("engine-builder", words(&[&"verify", &engine, &"--require-signature", &public])).success();
    fs::remove_file(&output).unwrap();
    // Signing again gives the same bytes (RFC 8032).
    let signature = fs::read(engine.join("manifest.sig")).unwrap();
    let _ = sign(&engine, &private).success();
    assert_eq!(fs::read(engine.join("manifest.sig")).unwrap(), signature);

    for refused in [
        verify(&foreign),
        infer(&foreign),
        doctor(&foreign),
        bench(&foreign),
        run("engine-builder", words(&[&"verify", &engine, &"--require-signature", &foreign])),
    ] {
        let _ = refused.failure(1, &["manifest.sig", "not one of this key"]);
    }
    let _ = verify(&private).failure(1, &["ours.key", "found a private key"]);
    let _ = verify(&engine.join("model.weights")).failure(1, &["expected an Ed25519 public key"]);
    let _ = sign(&engine, &public).failure(1, &["ours.pub", "expected an Ed25519 private key"]);
    flip(&engine.join("manifest.sig"), 5);
    let _ = verify(&public).failure(1, &["manifest.sig", "not one of this key"]);
    fs::write(engine.join("manifest.sig"), &signature[1..]).unwrap();
    let _ = verify(&public).failure(1, &["expected the 64 bytes of a signature"]);
    fs::write(engine.join("manifest.sig"), &signature).unwrap();
    // The signature is checked before anything is parsed.
    let manifest = fs::read(engine.join("manifest.json")).unwrap();
    fs::write(engine.join("manifest.json"), "no JSON").unwrap();
    let _ = verify(&public).failure(1, &["manifest.sig", "not one of this key"]);
    let mut altered = manifest.clone();
    let gate = String::from_utf8(manifest.clone()).unwrap().find("\"floor\": 1").unwrap() + 9;
    altered[gate] = b'9';
    fs::write(engine.join("manifest.json"), altered).unwrap();
    let _ = verify(&public).failure(1, &["not one of this key"]);
    fs::write(engine.join("manifest.json"), &manifest).unwrap();
    flip(&engine.join("model.weights"), 1000);
    let _ = verify(&public).failure(1, &["model.weights", "expected SHA-256"]);
    assert!(!output.exists());
}

#[test]
fn a_signature_travels_with_the_engine() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let [private, public] = new_key(work.path(), "ours");
    let [_, foreign] = new_key(work.path(), "theirs");
    let (archive, unpacked) = (work.path().join("engine.tar"), work.path().join("unpacked"));
    let unpack = |key: &Path| {
        run("engine-builder", words(&[&"unpack", &archive, &"-o", &unpacked, &"--require-signature", &key]))
    };
    let _ = pack(&engine, &archive).success();
    let _ = unpack(&public).failure(1, &["manifest.sig", "a signature is required, and there is none"]);
    let _ = sign(&engine, &private).success();
    let _ = pack(&engine, &archive).success();
    let _ = unpack(&foreign).failure(1, &["manifest.sig", "not one of this key"]);
    assert!(!unpacked.exists());
    let _ = unpack(&public).success();
    let _ = run("runtime", words(&[&"verify", &"--engine", &unpacked, &"--require-signature", &public])).success();
}

#[test]
fn a_box_without_the_builder_unpacks_verifies_and_runs() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let [private, public] = new_key(work.path(), "ours");
    let [_, foreign] = new_key(work.path(), "theirs");
    let (archive, engines) = (work.path().join("engine.tar"), work.path().join("engines"));
    let unpacked = engines.join("one");
    fs::create_dir(&engines).unwrap();
    let unpack = |to: &Path, key: &Path, more: &[&dyn AsRef<std::ffi::OsStr>]| {
        let line = words(&[&"unpack", &archive, &"-o", &to, &"--require-signature", &key]);
        run("runtime", line.into_iter().chain(words(more)))
    };
    let _ = pack(&engine, &archive).success();
    let _ = unpack(&unpacked, &public, &[]).failure(1, &["manifest.sig", "there is none", "--require-signature"]);
    let _ = sign(&engine, &private).success();
    let _ = pack(&engine, &archive).success();
    let _ = unpack(&unpacked, &foreign, &[]).failure(1, &["manifest.sig", "not one of this key"]);
    assert!(!unpacked.exists());
    let told = unpack(&unpacked, &public, &[]).success();
    assert_eq!(told.stdout.trim(), unpacked.to_str().unwrap());
    let _ = run("runtime", words(&[&"verify", &"--engine", &unpacked, &"--require-signature", &public])).success();
    // A second engine shares its files with the first.
    let second = engines.join("two");
    let _ = unpack(&second, &public, &[&"--share", &engines]).success();
    let inode = |folder: &Path| fs::metadata(folder.join("model.weights")).unwrap().ino();
    assert_eq!(inode(&unpacked), inode(&second));
    // An archive that was altered on the way does not change the older engine.
    flip(&archive, 300_000);
    let _ = unpack(&unpacked, &public, &[]).failure(1, &["engine.tar"]);
    let _ = run("runtime", words(&[&"verify", &"--engine", &unpacked])).success();
}

#[test]
fn killed_at_any_point_there_is_no_half_engine() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let [private, public] = new_key(work.path(), "ours");
    let (archive, packed, unpacked) =
        (work.path().join("engine.tar"), work.path().join("packed.tar"), work.path().join("unpacked"));
    let _ = pack(&engine, &archive).success();
    let killed = |arguments: &[&dyn AsRef<std::ffi::OsStr>], microseconds: u64| {
        let mut child =
            command("engine-builder", words(arguments)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(microseconds));
        child.kill().unwrap();
        child.wait().unwrap();
    };
    for microseconds in [0, 500, 1000, 2000, 3000, 4000, 5000, 6000, 8000, 10_000, 15_000, 20_000] {
        killed(&[&"unpack", &archive, &"-o", &unpacked], microseconds);
        if unpacked.exists() {
            let _ = run("runtime", words(&[&"verify", &"--engine", &unpacked])).success();
            fs::remove_dir_all(&unpacked).unwrap();
        }
        killed(&[&"pack", &engine, &"-o", &packed], microseconds);
        if packed.exists() {
            assert!(fs::read(&packed).unwrap() == fs::read(&archive).unwrap());
            fs::remove_file(&packed).unwrap();
        }
        killed(&[&"sign", &engine, &"--key", &private], microseconds);
        if engine.join("manifest.sig").exists() {
            let _ = run("engine-builder", words(&[&"verify", &engine, &"--require-signature", &public])).success();
            fs::remove_file(engine.join("manifest.sig")).unwrap();
        }
    }
    // A leftover folder does no harm.
    let _ = unpack(&archive, &unpacked).success();
    let _ = sign(&engine, &private).success();
}

#[test]
fn the_same_weights_are_stored_once() {
    let work = tempfile::tempdir().unwrap();
    let (archive, engines) = (work.path().join("engine.tar"), work.path().join("engines"));
    let _ = pack(demo_engine(), &archive).success();
    let unpack = |name: &str| {
        let engine = engines.join(name).join("compact");
        let _ = run("engine-builder", words(&[&"unpack", &archive, &"-o", &engine, &"--share", &engines])).success();
        engine
    };
    let [one, two] = ["one", "two"].map(unpack);
    let inode = |engine: &Path, name: &str| fs::metadata(engine.join(name)).unwrap().ino();
    assert_eq!(inode(&one, "model.weights"), inode(&two, "model.weights"));
    assert_ne!(inode(&one, "manifest.json"), inode(&two, "manifest.json"));
    // Leftovers of a killed command do no harm.
    fs::write(one.join("model.weights.linking"), "x").unwrap();
    let again = unpack("two");
    assert_eq!(inode(&one, "model.weights"), inode(&again, "model.weights"));
    assert_eq!(names_in(&two), names_in(demo_engine()));
    fs::remove_file(one.join("model.weights.linking")).unwrap();
    // A replaced engine no longer uses the shared file, and a damaged file is not linked to.
    fs::remove_file(one.join("model.weights")).unwrap();
    fs::copy(two.join("model.weights"), one.join("model.weights")).unwrap();
    flip(&one.join("model.weights"), 1000);
    fs::remove_dir_all(&two).unwrap();
    let three = unpack("three");
    assert_ne!(inode(&one, "model.weights"), inode(&three, "model.weights"));
    let _ = run("runtime", words(&[&"verify", &"--engine", &three])).success();
    let _ = run("runtime", words(&[&"verify", &"--engine", &one])).failure(1, &["model.weights"]);
    // The file of an unfinished engine is not linked to either.
    let unfinished = engines.join(".tileforge-AbCdEf123456.partial");
    fs::rename(&three, &unfinished).unwrap();
    let four = unpack("four");
    assert_ne!(inode(&unfinished, "model.weights"), inode(&four, "model.weights"));
}

#[test]
fn differences_are_named() {
    let work = tempfile::tempdir().unwrap();
    let engine = copied_engine(work.path());
    let diff = |more: &[&str]| {
        let arguments = words(&[&"diff", &demo_engine(), &engine]);
        run("engine-builder", arguments.into_iter().chain(more.iter().map(Into::into)))
    };
    assert_eq!(diff(&[]).success().stdout, "the engines are equal\n");
    let manifest = fs::read_to_string(engine.join("manifest.json")).unwrap();
    fs::write(engine.join("manifest.json"), manifest.replace("\"tolerance\": 0.0001", "\"tolerance\": 0.5")).unwrap();
    assert_eq!(diff(&[]).success().stdout, "selftest.tolerance: 0.0001 → 0.5\n");
    let json = diff(&["--json"]).success().json();
    assert_eq!(json[0]["key"], "selftest.tolerance", "{json}");
    flip(&engine.join("model.weights"), 7);
    let _ = diff(&[]).failure(1, &["model.weights", "expected SHA-256"]);
}
