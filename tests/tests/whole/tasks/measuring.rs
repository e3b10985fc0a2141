//! `runtime verify`, `doctor` and `bench` with engines of every task except upscaling, which has its own tests.

use end_to_end::{
    GoldenComponent, Outcome, golden_components, golden_systems, golden_video_autoencoders, names_in,
    run_with_cache_in, small_engine, words,
};
use serde_json::json;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Small networks: one of each task, one of a clip's later chunks, and one of frames with the previous output.
fn networks(work: &Path) -> Vec<(GoldenComponent, &'static [(&'static str, &'static str)])> {
    let mut all = golden_components();
    all.extend(golden_video_autoencoders());
    all.extend(golden_systems(work));
    let wanted: [(&str, &[(&str, &str)]); 7] = [
        ("vae/vae_encoder.0", &[]),
        ("vae/vae_decoder.0", &[]),
        ("seedvr2/vae_decoder.1", &[("chunk", "next")]),
        ("RGBDDepth", &[]),
        ("DepthAnything", &[]),
        ("GPUStressTestModel", &[]),
        ("SimpleOptimizedUNet", &[]),
    ];
    let mut take = |of: &dyn Fn(&GoldenComponent) -> bool| {
        let position = all.iter().position(of).unwrap();
        all.swap_remove(position)
    };
    let mut taken: Vec<_> =
        wanted.into_iter().map(|(name, hints)| (take(&|golden| golden.name.starts_with(name)), hints)).collect();
    for graph in ["unet", "text_encoder"] {
        taken.push((
            take(&|golden| {
                golden.graph == graph && !golden.name.starts_with("lora") && !golden.name.starts_with("single-file")
            }),
            &[],
        ));
    }
    taken
}

fn runtime(work: &Path, command: &str, engine: &Path, more: &[&dyn AsRef<OsStr>]) -> Outcome {
    run_with_cache_in(work, "runtime", words(&[&command, &"--engine", &engine]).into_iter().chain(words(more)))
}

const FEW: [&dyn AsRef<OsStr>; 6] = [&"--runs", &"2", &"--warm-up", &"1", &"--passes", &"1"];

#[test]
fn every_task_is_verified_judged_and_measured() {
    let work = tempfile::tempdir().unwrap();
    for (number, (golden, hints)) in networks(work.path()).into_iter().enumerate() {
        let engine = small_engine(work.path(), &format!("engine-{number}"), &golden, &golden.shapes(), hints);
        let verified = runtime(work.path(), "verify", &engine, &[&"--json"]).success().json();
        assert_eq!(verified["passed"], true, "{}: {verified}", golden.name);
        let judged = runtime(work.path(), "doctor", &engine, &[]).success().stdout;
        assert!(judged.contains(": fits cpu") && judged.contains("nodes  "), "{}: {judged}", golden.name);
        let measured = runtime(work.path(), "bench", &engine, &[&FEW[..], &[&"--json"]].concat()).success().json();
        let figures = [&measured["runs_per_second"], &measured["latency"]["p50_ms"]];
        assert!(figures.iter().all(|figure| figure.as_f64().unwrap() > 0.0), "{}: {measured}", golden.name);
        assert_eq!(measured["provider"], "cpu", "{}", golden.name);
    }
}

#[test]
fn figures_of_graphs_are_saved_compared_profiled_and_swept() {
    let work = tempfile::tempdir().unwrap();
    let (golden, _) = networks(work.path()).into_iter().find(|(golden, _)| golden.name.starts_with("RGBD")).unwrap();
    let engine = small_engine(work.path(), "engine", &golden, &golden.shapes(), &[]);
    let bench = |more: &[&dyn AsRef<OsStr>]| runtime(work.path(), "bench", &engine, &[&FEW[..], more].concat());
    let base = work.path().join("base.json");
    let told = bench(&[&"--save", &base]).success().stdout;
    assert!(told.contains("runs/s") && told.contains("inverse_depth [1, 1, "), "{told}");
    // Time is not tested: one threshold accepts any speed, the other accepts none.
    let _ = bench(&[&"--compare", &base, &"--threshold", &"0"]).success();
    let _ = bench(&[&"--compare", &base, &"--threshold", &"100"]).failure(4, &["expected a speed of at least"]);
    let _ = bench(&[&"--compare", &base, &"--streams", &"2"]).failure(2, &["of another setting"]);

    let profile = bench(&[&"--profile", &"--json"]).success().json();
    assert_eq!((&profile["runs"], profile["operators"].as_array().unwrap().is_empty()), (&json!(2), false));

    let report = work.path().join("report");
    let swept = bench(&[&"--sweep", &"--report", &report]).success().stdout;
    assert_eq!(swept.matches("| engine | ").count(), 4, "a heading, and three numbers of streams: {swept}");
    assert_eq!(names_in(&report), ["sweep.json", "sweep.md", "sweep.svg"]);
    assert!(fs::read_to_string(report.join("sweep.svg")).unwrap().starts_with("<svg"));

    // Refused: options for tiles of pictures, sizes without a graph, and figures and engines of another kind.
    let _ = bench(&[&"--batch", &"1"]).failure(2, &["--batch is for upscalers"]);
    let _ =
        bench(&[&"--size", &"9x9"]).failure(2, &["the engine has no graph for 9×9", "choose one of them with --size"]);
    let _ = bench(&[&"--engine", &end_to_end::demo_engine(), &"--sweep"]).failure(2, &["sweep them apart"]);
    let _ = runtime(work.path(), "bench", end_to_end::demo_engine(), &[&FEW[..], &[&"--compare", &base]].concat())
        .failure(2, &["base.json: not figures of --save"]);
}
