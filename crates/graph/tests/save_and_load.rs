//! A loaded model equals the saved one, wherever the weights are.
#![allow(clippy::unwrap_used)] // a test's way to fail

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tileforge_files::Digests;
use tileforge_graph::{
    Attribute, ConvOptions, DataType, LinkMethod, MappedFile, Model, TensorType, Trace, Weight, WeightStorage, Written,
    external_files, load, relocate_weights, save, save_sharing_weights, save_with_progress, to_text,
};

const DIMS: [usize; 4] = [16, 16, 3, 3];

/// A "checkpoint": 16 bytes of something else, then one convolution's weight.
fn checkpoint(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("checkpoint.bin");
    let values = (0..DIMS.iter().product::<usize>()).flat_map(|i| (i as f32 / 100.0).sin().to_le_bytes());
    fs::write(&path, [0_u8; 16].into_iter().chain(values).collect::<Vec<u8>>()).unwrap();
    path
}

/// Two convolutions: the mapped weight, and a computed one; with a small bias and a symbolic size.
fn model(checkpoint: &Path) -> Model {
    let file = MappedFile::open(checkpoint).unwrap();
    let weight = Weight::mapped(file, 16, DataType::F32, DIMS.to_vec()).unwrap();
    let trace = Trace::new("two_convolutions", 9, 20);
    let x = trace
        .input("x", TensorType::new(DataType::F32, ["batch".into(), 16.into(), "height".into(), 8.into()].map(symbol)));
    let bias = trace.weight("a.bias", Weight::zeros(DataType::F32, vec![16]).unwrap());
    let y = x.conv(&trace.weight("a.weight", weight.clone()), Some(&bias), &ConvOptions::same(3)).leaky_relu(0.1);
    let turned = trace.weight("b.weight", weight.transposed(&[1, 0, 2, 3]).unwrap());
    trace.output("y", &(y.conv(&turned, None, &ConvOptions::same(3)) + &x));
    let mut model = trace.finish().unwrap();
    model.metadata.insert("key".into(), "value".into());
    model
}

enum Size {
    Named(&'static str),
    Known(usize),
}

impl From<&'static str> for Size {
    fn from(name: &'static str) -> Self {
        Size::Named(name)
    }
}

impl From<usize> for Size {
    fn from(size: usize) -> Self {
        Size::Known(size)
    }
}

fn symbol(size: Size) -> tileforge_graph::Dim {
    match size {
        Size::Named(name) => tileforge_graph::Dim::symbol(name),
        Size::Known(size) => size.into(),
    }
}

fn assert_same(saved: &Model, path: &Path) {
    let loaded = load(path).unwrap();
    assert_eq!(to_text(&loaded), to_text(saved));
    assert_eq!((&loaded.metadata, &loaded.producer, loaded.ir_version), (&saved.metadata, &saved.producer, 9));
    for (name, weight) in &saved.weights {
        assert_eq!(loaded.weights[name].to_bytes().unwrap(), weight.to_bytes().unwrap(), "{name}");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn linking_copies_no_mapped_weight() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(folder.path());
    let model = model(&checkpoint);
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let report = save(&model, &out.join("m.onnx"), WeightStorage::Link).unwrap();
    assert_eq!(names(&out), ["m.checkpoint.bin", "m.onnx", "m.weights"]);
    assert_eq!((report.linked.len(), report.linked[0].method), (1, LinkMethod::HardLink));
    assert_eq!(fs::metadata(&checkpoint).unwrap().ino(), fs::metadata(out.join("m.checkpoint.bin")).unwrap().ino());
    assert_eq!(report.weights.as_ref().unwrap().1, 4 * 16 * 16 * 9);
    assert_same(&model, &out.join("m.onnx"));
    // Saves again, over the existing files.
    save(&model, &out.join("m.onnx"), WeightStorage::Link).unwrap();
    assert_eq!(names(&out), ["m.checkpoint.bin", "m.onnx", "m.weights"]);
    // Nothing has to be linked in the checkpoint's own folder.
    let report = save(&model, &folder.path().join("m.onnx"), WeightStorage::Link).unwrap();
    assert_eq!(report.linked[0].method, LinkMethod::InPlace);
    assert_same(&model, &folder.path().join("m.onnx"));
}

#[test]
fn a_linked_symbolic_link_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let real = checkpoint(folder.path());
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::symlink(&real, out.join("alias.bin")).unwrap();
    let model = model(&out.join("alias.bin"));
    save(&model, &out.join("m.onnx"), WeightStorage::Link).unwrap();
    assert!(!fs::symlink_metadata(out.join("m.alias.bin")).unwrap().is_symlink());
    assert_same(&model, &out.join("m.onnx"));
}

#[test]
fn copies_and_single_files_stand_alone() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(folder.path());
    let model = model(&checkpoint);
    for (name, storage) in [("copy", WeightStorage::Copy), ("inline", WeightStorage::Inline)] {
        let out = folder.path().join(name);
        fs::create_dir(&out).unwrap();
        save(&model, &out.join("m.onnx"), storage).unwrap();
        assert_eq!(names(&out).len(), if name == "copy" { 2 } else { 1 });
        assert_same(&model, &out.join("m.onnx"));
    }
}

#[test]
fn a_graph_can_take_its_weights_from_a_file_of_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let saved = model(&checkpoint(folder.path()));
    let [one, other] = ["one.onnx", "other.onnx"].map(|name| folder.path().join(name));
    save(&saved, &one, WeightStorage::Copy).unwrap();
    let relocated = relocate_weights(&fs::read(&one).unwrap(), &one, |location| format!("moved-{location}")).unwrap();
    assert_eq!(external_files(&relocated, &other).unwrap(), ["moved-one.weights".to_owned()].into());
    fs::write(&other, relocated).unwrap();
    fs::rename(folder.path().join("one.weights"), folder.path().join("moved-one.weights")).unwrap();
    assert_same(&saved, &other);
    assert!(relocate_weights(b"no graph", &one, |_| String::new()).is_err());
}

#[test]
fn the_weights_of_a_graph_go_with_it_and_those_of_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(&checkpoint(folder.path()));
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let graph = out.join("m.onnx");
    for (storage, expected) in [
        (WeightStorage::Copy, &["m.onnx", "m.weights"][..]),
        (WeightStorage::Inline, &["m.onnx"]),
        (WeightStorage::Copy, &["m.onnx", "m.weights"]),
    ] {
        save(&model, &graph, storage).unwrap();
        assert_eq!(names(&out), expected);
        assert_same(&model, &graph);
    }
    fs::remove_file(&graph).unwrap();
    fs::write(out.join("m.weights"), "somebody else's").unwrap();
    let error = save(&model, &graph, WeightStorage::Copy).unwrap_err().to_string();
    assert!(error.contains("m.weights: cannot write the weights"), "{error}");
    save(&model, &graph, WeightStorage::Inline).unwrap();
    assert_eq!(fs::read(out.join("m.weights")).unwrap(), b"somebody else's");
}

/// A model of several large weights: two ranges of a checkpoint, one of them used twice, and a computed one.
fn large_model(folder: &Path) -> Model {
    const ROWS: usize = 1500;
    let path = folder.join("large.bin");
    fs::write(&path, vec![1_u8; 2 * ROWS * ROWS * 4]).unwrap();
    let file = MappedFile::open(&path).unwrap();
    let trace = Trace::new("products", 9, 20);
    let mut x = trace.input("x", TensorType::new(DataType::F32, [1, ROWS]));
    for (name, part) in [("first", 0), ("second", 1), ("third", 0)] {
        let weight = Weight::mapped(file.clone(), (part * ROWS * ROWS * 4) as u64, DataType::F32, vec![ROWS, ROWS]);
        x = x.matmul(&trace.weight(&format!("{name}.weight"), weight.unwrap()));
    }
    let computed = Weight::mapped(file, 0, DataType::F32, vec![ROWS, ROWS]).unwrap().transposed(&[1, 0]).unwrap();
    trace.output("y", &x.matmul(&trace.weight("fourth.weight", computed)));
    trace.finish().unwrap()
}

#[test]
fn progress_rises_to_the_bytes_of_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let model = large_model(folder.path());
    let each = 1500 * 1500 * 4;
    for (name, storage, total) in [
        ("link", WeightStorage::Link, each),
        // The first and the third weight are one.
        ("copy", WeightStorage::Copy, 3 * each),
        ("inline", WeightStorage::Inline, 4 * each),
    ] {
        let mut reports: Vec<Written> = Vec::new();
        let path = folder.path().join(name).join("m.onnx");
        fs::create_dir(path.parent().unwrap()).unwrap();
        save_with_progress(&model, &path, storage, &Digests::default(), &mut |written| reports.push(written)).unwrap();
        assert_eq!(reports[0], Written { bytes: 0, total }, "{name}");
        assert_eq!(reports.last(), Some(&Written { bytes: total, total }), "{name}");
        assert!(reports.len() > 2, "{name}: {reports:?}");
        assert!(reports.windows(2).all(|pair| pair[0].bytes < pair[1].bytes && pair[1].total == total), "{name}");
        assert_same(&model, &path);
    }
}

#[test]
fn a_graph_that_only_points_into_a_checkpoint_has_no_progress() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(&checkpoint(folder.path()));
    let linked = Model { weights: model.weights.into_iter().filter(|(name, _)| name == "a.weight").collect(), ..model };
    let mut reports = Vec::new();
    let mut report = |written| reports.push(written);
    save_with_progress(&linked, &folder.path().join("m.onnx"), WeightStorage::Link, &Digests::default(), &mut report)
        .unwrap();
    assert_eq!(reports, []);
}

#[test]
fn a_graph_states_the_digest_of_its_weight_file() {
    use tileforge_graph::check_weight_files;
    let folder = tempfile::tempdir().unwrap();
    let model = model(&checkpoint(folder.path()));
    let at = |name: &str| folder.path().join(name);
    let digests = Digests::default();
    // Copied by the system from a mapped file, and streamed.
    let doubled = model.weights["a.weight"].rows_scaled(&[2.0; 16]).unwrap();
    let mut computed = model.clone();
    computed.weights.insert("a.weight".into(), doubled);
    for (name, model) in [("copied", &model), ("computed", &computed)] {
        let graph = at(&format!("{name}.onnx"));
        save(model, &graph, WeightStorage::Copy).unwrap();
        let files = check_weight_files(&graph, &digests).unwrap();
        let weights = at(&format!("{name}.weights"));
        let expected = digests.of(&weights).unwrap();
        assert_eq!(files.len(), 1);
        assert_eq!((files[0].bytes, files[0].sha256.clone()), (expected.bytes, Some(expected.sha256)), "{name}");
        let before = fs::read(&graph).unwrap();
        save(model, &graph, WeightStorage::Copy).unwrap();
        assert!(fs::read(&graph).unwrap() == before);
        // Another file of the same length in its place.
        fs::write(&weights, vec![0; expected.bytes as usize]).unwrap();
        let error = check_weight_files(&graph, &digests).unwrap_err().to_string();
        assert!(error.contains("exported with another file of this name: expected SHA-256"), "{error}");
        assert!(load(&graph).is_ok());
        fs::write(&weights, "short").unwrap();
        assert!(load(&graph).is_err());
    }
    // Computed weights beside a checkpoint that is not digested.
    save(&computed, &at("linked.onnx"), WeightStorage::LinkUndigested).unwrap();
    let files = check_weight_files(&at("linked.onnx"), &digests).unwrap();
    let stated: Vec<_> = files.iter().map(|file| (file.file.as_str(), file.sha256.is_some())).collect();
    assert!(stated.contains(&("linked.weights", true)), "{stated:?}");
    // Another program has rewritten the graph with its weights elsewhere: the record describes a file that is not used
    // and does not exist.
    let bytes = fs::read(at("linked.onnx")).unwrap();
    fs::rename(at("linked.weights"), at("moved.data")).unwrap();
    let moved = relocate_weights(&bytes, &at("linked.onnx"), |old| {
        if old == "linked.weights" { "moved.data".into() } else { old.into() }
    });
    fs::write(at("linked.onnx"), moved.unwrap()).unwrap();
    assert!(check_weight_files(&at("linked.onnx"), &digests).unwrap().iter().all(|file| file.file != "linked.weights"));
}

#[test]
fn models_of_one_network_share_their_weights() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(folder.path());
    let model = model(&checkpoint);
    let shapes = |size: usize| [("x".to_owned(), vec![1, 16, size, 8])].into();
    let (small, large) = (model.specialised(&shapes(8)).unwrap(), model.specialised(&shapes(32)).unwrap());
    assert_eq!(large.outputs[0].ty.to_string(), "f32[1,16,32,8]");
    let at = |name: &str| folder.path().join(name);
    let report =
        save_sharing_weights(&[(&small, &at("s.onnx")), (&large, &at("l.onnx"))], &at("shared.weights")).unwrap();
    assert_eq!(report.weights.unwrap().1, 2 * 4 * 16 * 16 * 9);
    assert_same(&small, &at("s.onnx"));
    assert_same(&large, &at("l.onnx"));
    let wrong = model.specialised(&[("x".to_owned(), vec![1, 15, 8, 8])].into()).unwrap_err().to_string();
    assert!(wrong.contains("it cannot become [1, 15, 8, 8]"), "{wrong}");
}

#[test]
fn a_failed_save_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(folder.path());
    let model = model(&checkpoint);
    let missing = folder.path().join("no such folder").join("m.onnx");
    assert!(save(&model, &missing, WeightStorage::Copy).is_err());
    fs::create_dir(folder.path().join("taken.onnx")).unwrap();
    for storage in [WeightStorage::Link, WeightStorage::Copy, WeightStorage::Inline] {
        let error = save(&model, &folder.path().join("taken.onnx"), storage).unwrap_err().to_string();
        assert!(error.contains("there is a folder of this name"), "{error}");
    }
    assert_eq!(names(folder.path()), ["checkpoint.bin", "taken.onnx"]);
}

#[test]
fn broken_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(folder.path());
    let path = folder.path().join("m.onnx");
    save(&model(&checkpoint), &path, WeightStorage::Copy).unwrap();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        if let Ok(model) = load(&path) {
            assert!(length > whole.len() / 2, "{length} bytes of {} give {}", whole.len(), to_text(&model));
        }
    }
    fs::write(&path, &whole).unwrap();
    fs::write(folder.path().join("m.weights"), [0; 100]).unwrap();
    assert!(load(&path).unwrap_err().to_string().contains("end past the file's 100 bytes"));
}

#[test]
fn the_first_error_sticks() {
    let trace = Trace::new("wrong", 9, 20);
    let x = trace.input("x", TensorType::new(DataType::F32, [1_usize, 3, 8, 8]));
    let weight = trace.weight("layer.weight", Weight::zeros(DataType::F32, vec![4, 5, 3, 3]).unwrap());
    let y = x.conv(&weight, None, &ConvOptions::same(3));
    let _ = (&y + &x).depth_to_space(7).dims::<4>();
    trace.output("y", &y);
    let error = trace.finish().unwrap_err().to_string();
    assert!(error.starts_with("node `layer/Conv` (Conv): the weight f32[4,5,3,3]"), "{error}");
}

#[test]
fn unknown_attributes_survive() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = model(&checkpoint(folder.path()));
    model.nodes[0].attributes.insert("note".into(), Attribute::Floats(vec![0.5, 2.0]));
    let path = folder.path().join("m.onnx");
    save(&model, &path, WeightStorage::Inline).unwrap();
    assert_eq!(load(&path).unwrap().nodes[0].attributes["note"], Attribute::Floats(vec![0.5, 2.0]));
}
