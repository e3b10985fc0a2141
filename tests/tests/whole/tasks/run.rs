//! `runtime run`: tensors from files through engines of every kind.

use end_to_end::{
    GoldenComponent, Outcome, error_over_range, golden_components, golden_systems, names_in, run, small_engine, words,
};
use ndarray::ArrayD;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tileforge_contract::DataType;
use tileforge_runtime::tensor_file::{Contents, Stored, read, write};

/// Largest absolute error over the range of the reference's output.
const TOLERANCE: f32 = 2e-5;

fn stored(array: &ArrayD<f32>) -> Stored {
    let bytes = array.iter().flat_map(|value| value.to_le_bytes()).collect();
    Stored { data_type: DataType::F32, shape: array.shape().to_vec(), bytes }
}

/// Tokens are integers, which golden files store as floats.
fn inputs(golden: &GoldenComponent) -> Vec<(String, Stored)> {
    let of = |(name, array): (&String, &ArrayD<f32>)| {
        let mut stored = stored(array);
        if name == "input_ids" {
            stored.data_type = DataType::I64;
            stored.bytes = array.iter().flat_map(|value| (*value as i64).to_le_bytes()).collect();
        }
        (name.clone(), stored)
    };
    golden.inputs.iter().map(of).collect()
}

fn array(stored: &Stored) -> ArrayD<f32> {
    stored.tensor().unwrap().into_f32().unwrap()
}

fn run_tensors(engine: &Path, input: &Path, output: &Path) -> Outcome {
    run("runtime", words(&[&"run", &"--engine", &engine, &"--input", &input, &"--output", &output]))
}

fn named(path: &Path) -> BTreeMap<String, Stored> {
    match read(path).unwrap() {
        Contents::Named { tensors, .. } => tensors,
        Contents::Single(_) => panic!("no names"),
    }
}

#[test]
fn golden_tensors_of_every_kind_give_the_references_outputs() {
    let work = tempfile::tempdir().unwrap();
    let checkpoints = tempfile::tempdir().unwrap();
    let mut all: Vec<GoldenComponent> = golden_components();
    all.extend(golden_systems(checkpoints.path()));
    let mut tasks = BTreeMap::new();
    // One component for each graph.
    for golden in
        all.into_iter().filter(|golden| !golden.name.starts_with("lora") && !golden.name.starts_with("single-file"))
    {
        tasks.entry(golden.graph.clone()).or_insert(golden);
    }
    assert_eq!(tasks.len(), 6, "{:?}", tasks.keys());
    for (number, golden) in tasks.values().enumerate() {
        let mut shapes = golden.shapes();
        if golden.graph == "text_encoder" {
            shapes = "input_ids:1x77".parse().unwrap();
            if golden.inputs["input_ids"].shape() != [1, 77] {
                shapes = golden.shapes();
            }
        }
        let engine = small_engine(work.path(), &format!("engine-{number}"), golden, &shapes, &[]);
        for ending in ["safetensors", "npz"] {
            let (input, output) =
                (work.path().join("in").with_extension(ending), work.path().join(format!("o.{ending}")));
            write(&input, &inputs(golden), &BTreeMap::new()).unwrap();
            let told = run_tensors(&engine, &input, &output).success().stdout;
            let found = named(&output);
            for (name, expected) in &golden.outputs {
                let error = error_over_range(&array(&found[name]), expected);
                assert!(error <= TOLERANCE, "{} {name}: {error}", golden.name);
                assert!(told.contains(&format!("\n  {name}: f32 ")), "{told}");
            }
        }
    }
}

/// The decoder of a small autoencoder, and its golden data.
fn decoder(work: &Path) -> (GoldenComponent, std::path::PathBuf) {
    let golden = golden_components().into_iter().find(|golden| golden.name.starts_with("vae/vae_decoder")).unwrap();
    let engine = small_engine(work, "decoder", &golden, &golden.shapes(), &[]);
    (golden, engine)
}

#[test]
fn one_tensor_needs_no_name() {
    let work = tempfile::tempdir().unwrap();
    let (golden, engine) = decoder(work.path());
    let (input, output) = (work.path().join("latent.npy"), work.path().join("pixels.npy"));
    write(&input, &inputs(&golden), &BTreeMap::new()).unwrap();
    let _ = run_tensors(&engine, &input, &output).success();
    let Contents::Single(found) = read(&output).unwrap() else { panic!("names") };
    assert!(error_over_range(&array(&found), &golden.outputs["sample"]) <= TOLERANCE);
}

#[test]
fn previous_frames_are_zeros_where_they_are_left_out() {
    let work = tempfile::tempdir().unwrap();
    let checkpoints = tempfile::tempdir().unwrap();
    let all = golden_systems(checkpoints.path());
    let golden = all.iter().find(|golden| golden.name == "GPUStressTestModel-tiny/0.golden.safetensors").unwrap();
    let engine = small_engine(work.path(), "frames", golden, &golden.shapes(), &[]);
    let (input, output) = (work.path().join("in.safetensors"), work.path().join("out.safetensors"));
    // The first golden frame has zeros as its previous frame.
    let mut tensors = inputs(golden);
    tensors.retain(|(name, _)| name != "previous_frame");
    write(&input, &tensors, &BTreeMap::new()).unwrap();
    let told = run_tensors(&engine, &input, &output).success().stdout;
    assert!(told.contains("with zeros for previous_frame"), "{told}");
    assert!(error_over_range(&array(&named(&output)["output_frame"]), &golden.outputs["output_frame"]) <= TOLERANCE);
    // A .npy file holds one tensor, not a frame and a timestep.
    let single = work.path().join("in.npy");
    write(&single, &tensors[..1], &BTreeMap::new()).unwrap();
    let _ = run_tensors(&engine, &single, &output).failure(1, &["in.npy", "holds one tensor", "frame, timestep"]);
}

#[test]
fn wrong_tensors_are_refused_and_nothing_is_written() {
    let work = tempfile::tempdir().unwrap();
    let (golden, engine) = decoder(work.path());
    let output = work.path().join("out.safetensors");
    let [(name, good)] = inputs(&golden).try_into().unwrap();
    assert_eq!(name, "latent_sample");
    let input = work.path().join("in.safetensors");
    let other = |change: &dyn Fn(&mut Stored)| {
        let mut stored = good.clone();
        change(&mut stored);
        stored
    };
    let shape = good.shape.clone();
    let half = other(&|stored| {
        stored.data_type = DataType::F16;
        stored.bytes.truncate(stored.bytes.len() / 2);
    });
    let double = other(&|stored| {
        stored.data_type = DataType::F64;
        stored.bytes = stored.bytes.repeat(2);
    });
    let smaller = other(&|stored| {
        stored.shape = vec![shape[0], shape[1], shape[2] * shape[3], 1];
    });
    let flat = other(&|stored| stored.shape = vec![shape.iter().product()]);
    let narrow = other(&|stored| stored.shape = vec![shape[0], shape[1] / 2, shape[2] * 2, shape[3]]);
    for (tensors, expected) in [
        (vec![("latent", &good)], &["latent: expected only the engine's inputs (latent_sample)", "inspect"][..]),
        (vec![], &["latent_sample: expected a tensor of this name"]),
        (vec![("latent_sample", &good), ("more", &good)], &["more: expected only the engine's inputs"]),
        (vec![("latent_sample", &half)], &["latent_sample: expected elements of f32, found elements of f16"]),
        (vec![("latent_sample", &double)], &["latent_sample: expected elements of f32, found elements of f64"]),
        (vec![("latent_sample", &smaller)], &["the engine has no graph for latent_sample", "it has some for:"]),
        (vec![("latent_sample", &flat)], &["latent_sample", "batch, 4 channels, height, width"]),
        (vec![("latent_sample", &narrow)], &["latent_sample", "4 channels"]),
    ] {
        let tensors: Vec<_> = tensors.into_iter().map(|(name, stored)| (name.to_owned(), stored.clone())).collect();
        write(&input, &tensors, &BTreeMap::new()).unwrap();
        let _ = run_tensors(&engine, &input, &output).failure(1, expected);
    }
    write(&input, &[(name, good)], &BTreeMap::new()).unwrap();
    let bytes = fs::read(&input).unwrap();
    fs::write(&input, &bytes[..bytes.len() - 1]).unwrap();
    let _ =
        run_tensors(&engine, &input, &output).failure(1, &["in.safetensors: not a safetensors file, or a truncated"]);
    let _ = run_tensors(&engine, &work.path().join("none.npz"), &output).failure(1, &["none.npz: cannot read"]);
    let _ =
        run_tensors(&engine, &input, &work.path().join("out.txt")).failure(1, &["ends in .safetensors, .npz or .npy"]);
    assert!(names_in(work.path()).iter().all(|name| !name.starts_with("out") && !name.contains("partial")));
}
