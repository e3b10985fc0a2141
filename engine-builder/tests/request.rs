//! Builds and rebuilds from another program, without a command line.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tileforge_contract::Precision;
use tileforge_engine::Engine;
use tileforge_engine_builder::rebuild::{Ingredient, RebuildRequest, Unrecorded, rebuild};
use tileforge_engine_builder::request::{
    BuildRequest, BuiltEngine, CalibrationRequest, PipelineOption, PipelineRequest, PrecisionChoice, PreparedBuild,
    RequestError,
};
use tileforge_engine_builder::{Error, Plans, Progress, Silent};
use tileforge_image::Size;
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};

fn environment() -> Environment {
    Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap())
}

const PLANS: Plans = Plans { program: None, jobs: 1 };

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A request for a checkpoint in `folder`.
fn request(folder: &Path) -> BuildRequest {
    let model = folder.join("compact-x4.safetensors");
    if !model.exists() {
        fs::copy(repository("models/compact-x4.safetensors"), &model).unwrap();
    }
    BuildRequest {
        model,
        sizes: vec![Size { width: 24, height: 16 }],
        profiles: vec![repository("tests/profiles/small-tiles.yaml").to_str().unwrap().to_owned()],
        ..BuildRequest::default()
    }
}

/// The received notes.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn begin(&self, _: &str, _: usize) {}

    fn step(&self) {}

    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

#[test]
fn an_engine_is_built_and_made_again_by_functions() {
    let work = tempfile::tempdir().unwrap();
    let (environment, output) = (environment(), work.path().join("engine"));
    let prepared = PreparedBuild::new(request(work.path()), &environment, &PLANS, &Silent).unwrap();
    let [target] = prepared.targets() else { panic!("expected one profile") };
    assert_eq!((prepared.name(), target.profile()), ("compact-x4", "small-tiles"));
    assert_eq!(target.recipe().sizes, [[24, 16]]);
    let built = prepared.build(target, &environment, &PLANS, &Silent, &output).unwrap();
    assert_eq!(built.directory(), output);
    let BuiltEngine::One(built) = built else { panic!("expected an engine of one network") };
    assert_eq!(Engine::open(&output).unwrap().manifest(), &built.manifest);
    let again = RebuildRequest { engine: output.clone(), folders: vec![work.path().into()], ..Default::default() };
    let again = RebuildRequest { profile: Some(request(work.path()).profiles.remove(0)), ..again };
    let rebuilt = rebuild(&again, &environment, &PLANS, &Silent).unwrap();
    assert_eq!((rebuilt.name.as_str(), rebuilt.engine.directory()), ("compact-x4", output.as_path()));
    assert_eq!(rebuilt.differences, ["all files are the same as before"]);
    // Another file with the name of the engine's checkpoint.
    let mut weights = fs::read(work.path().join("compact-x4.safetensors")).unwrap();
    let last = weights.len() - 1;
    weights[last] ^= 1;
    fs::write(work.path().join("compact-x4.safetensors"), weights).unwrap();
    let changed = rebuild(&again, &environment, &PLANS, &Silent).unwrap_err();
    assert!(matches!(&changed, Error::ChangedSource { changes } if changes.len() == 1), "{changed}");
    let notes = Notes::default();
    let allowed =
        RebuildRequest { allows_changed_source: true, output: Some(work.path().join("new")), ..again.clone() };
    let rebuilt = rebuild(&allowed, &environment, &PLANS, &notes).unwrap();
    assert!(rebuilt.differences.iter().any(|line| line.starts_with("SHA-256 of the checkpoint: ")));
    assert!(notes.0.lock().unwrap()[0].contains("compact-x4.safetensors: expected SHA-256"));
    // The checkpoint is missing.
    fs::remove_file(work.path().join("compact-x4.safetensors")).unwrap();
    let missing = rebuild(&again, &environment, &PLANS, &Silent).unwrap_err();
    let is_model = matches!(&missing, Error::Ingredient { ingredient: Ingredient::Model, .. });
    assert!(is_model && missing.to_string().starts_with("compact-x4.safetensors: the engine was made of it"));
}

#[test]
fn the_fastest_precision_is_measured_once() {
    // The speed on a small tile depends on the machine, so the test sets the speed floor.
    for (speed, chosen, said) in
        [(0, Precision::Int8, "times as fast as fp32"), (1000, Precision::Fp32, "a gate is missed")]
    {
        let work = tempfile::tempdir().unwrap();
        let (environment, output, notes) = (environment(), work.path().join("engines/fast"), Notes::default());
        let profile = work.path().join("small-tiles.yaml");
        let stated = fs::read_to_string(repository("tests/profiles/small-tiles.yaml")).unwrap();
        fs::write(&profile, stated.replace("floors:", &format!("floors:\n  speed: {speed}"))).unwrap();
        let profile = profile.to_str().unwrap().to_owned();
        // Only INT8 has a layer that is left out by default, and is calibrated.
        let pictures = work.path().join("pictures");
        fs::create_dir(&pictures).unwrap();
        fs::copy(repository("tests/images/coffee.png"), pictures.join("coffee.png")).unwrap();
        let calibration = CalibrationRequest { all_layers: true, folder: Some(pictures.clone()), ..Default::default() };
        let request = request(work.path());
        let request = BuildRequest {
            precision: PrecisionChoice::Fastest,
            calibration,
            profiles: vec![profile.clone()],
            ..request
        };
        let prepared = PreparedBuild::new(request, &environment, &PLANS, &notes).unwrap();
        let built = prepared.build(&prepared.targets()[0], &environment, &PLANS, &notes, &output).unwrap();
        let BuiltEngine::One(built) = built else { panic!("expected an engine of one network") };
        assert_eq!(built.manifest.precision, chosen);
        let notes = notes.0.into_inner().unwrap();
        assert!(notes.iter().any(|note| note.starts_with("int8: ") && note.contains(said)), "{chosen}: {notes:?}");
        let recipe = built.manifest.recipe.as_ref().unwrap();
        let is_int8 = chosen == Precision::Int8;
        assert_eq!(recipe.precision, Some(chosen));
        assert_eq!((recipe.calibration.all_layers, recipe.calibration.folder.is_some()), (is_int8, is_int8));
        assert_eq!(Engine::open(&output).unwrap().manifest().files, built.manifest.files);
        assert_eq!(fs::read_dir(output.parent().unwrap()).unwrap().count(), 1, "what was slower is gone");
        let again = RebuildRequest {
            engine: output,
            folders: vec![work.path().into()],
            profile: Some(profile),
            calibration: Some(pictures).filter(|_| is_int8),
            ..Default::default()
        };
        let rebuilt = rebuild(&again, &environment, &PLANS, &Silent).unwrap();
        assert_eq!(rebuilt.differences, ["all files are the same as before"]);
    }
}

#[test]
fn options_that_do_not_go_together_are_refused_before_anything_is_built() {
    let work = tempfile::tempdir().unwrap();
    let environment = environment();
    let refused = |change: &dyn Fn(&mut BuildRequest)| {
        let mut request = request(work.path());
        change(&mut request);
        PreparedBuild::new(request, &environment, &PLANS, &Silent).map(drop).unwrap_err()
    };
    let error = refused(&|request| request.profiles.clear());
    assert!(matches!(error, Error::Request(RequestError::NoProfile)), "{error}");
    let error = refused(&|request| {
        request.pipeline = PipelineRequest { variant: Some("fp16".into()), tokens: vec![77], ..Default::default() };
    });
    assert!(matches!(error, Error::Request(RequestError::OfPipelines(PipelineOption::Tokens))), "{error}");
    let error = refused(&|request| request.precision = PrecisionChoice::Only(Precision::Fp8));
    assert!(matches!(error, Error::Precision { .. }), "{error}");
    let error = refused(&|request| {
        request.profiles = vec!["cpu".into(), "rtx4090".into()];
        request.precision = PrecisionChoice::Fastest;
    });
    let elsewhere = RequestError::FastestElsewhere { profile: "rtx4090".into() };
    assert!(matches!(&error, Error::Request(found) if *found == elsewhere), "{error}");
    let error = refused(&|request| request.component = Some("nose".into()));
    assert!(matches!(error, Error::Component { .. }), "{error}");
    let error = refused(&|request| {
        let folder = Some(work.path().join("missing"));
        request.calibration = CalibrationRequest { folder, ..Default::default() };
    });
    assert!(matches!(error, Error::File { .. }), "{error}");
    // A manifest without a recipe lacks facts that the caller must give.
    let old = work.path().join("old");
    fs::create_dir(&old).unwrap();
    fs::write(old.join("manifest.json"), r#"{ "schema": 1, "precision": "fp32" }"#).unwrap();
    let request = RebuildRequest { engine: old.clone(), ..Default::default() };
    for (request, missing) in [
        (request.clone(), Unrecorded::Files { schema: 1 }),
        (RebuildRequest { output: Some(work.path().join("new")), ..request }, Unrecorded::Model),
    ] {
        let error = rebuild(&request, &environment, &PLANS, &Silent).map(drop).unwrap_err();
        assert!(matches!(&error, Error::Unrecorded { missing: found, .. } if *found == missing), "{error}");
    }
    assert!(!work.path().join("new").exists());
}
