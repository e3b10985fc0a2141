//! Unsuitable inputs are refused with clear messages, before any work.

use super::case;
use end_to_end::{
    edit_manifest, list_again, names_in, repository, restoration_engine as engine, restoration_model as model, run,
    run_with_cache_in, words,
};
use serde_json::json;
use std::fs;
use std::path::Path;

#[test]
fn what_does_not_fit_is_refused_before_any_work() {
    let case = case("overlap-1");
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let engine = engine(work.path(), case.fact("transformer"), 2, &[[4, 6]]);
    let frames = at("frames.y4m");
    let made = std::process::Command::new("ffmpeg")
        .args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=60x40:duration=0.3:rate=10"])
        .arg(&frames)
        .status();
    assert!(made.unwrap().success());
    let noise = case.noise_file(work.path());
    let (output, noise) = (at("out.y4m"), noise.to_str().unwrap());
    let infer = |engine: &Path, more: &[&str]| {
        let line = words(&[&"infer", &"--engine", &engine, &"--input", &frames, &"--output", &output]);
        run("runtime", line.into_iter().chain(more.iter().map(Into::into)))
    };
    for (code, more, expected) in [
        (2, &["--size", "33"][..], "the engine has no graph for 49×33, only for 48×32"),
        (2, &["--size", "1x40"], "frames of 60×40 become 1×40, and a result has at least two rows and columns"),
        (
            2,
            &["--frame-overlap", "5"],
            "expected batches that share fewer frames than the 5 that the engine takes together, found 5",
        ),
        (2, &["--size", "0"], "expected the length of the shorter side, or a size"),
        (2, &["--colour", "sepia"], "expected one of lab, wavelet"),
        (2, &["--blend", "linear"], "--blend does not go with an engine that restores"),
        (2, &["--tile", "64x64"], "--tile does not go with an engine that restores"),
        (2, &["--resume"], "--resume does not go with a film"),
        (2, &["--seed", "1", "--noise", noise], "cannot be used with"),
        (2, &["--target-fps", "30"], "--target-fps is for real-time networks; this one is for restoration"),
        (1, &["--noise", "gone.npy"], "gone.npy"),
    ] {
        let _ = infer(&engine, more).failure(code, &[expected]);
        assert!(!output.exists(), "{more:?}");
    }
    let _ = infer(end_to_end::demo_engine(), &["--seed", "1"]).failure(2, &["--seed is for engines that restore"]);
    // Noise of another size.
    let other = tempfile::tempdir().unwrap();
    let noise = self::case("up").noise_file(other.path());
    let _ = infer(&engine, &["--noise", noise.to_str().unwrap()]).failure(
        1,
        &["noise: expected noise of 4 channels, 2 latent frames and 6×4, found noise of 4 channels, 3 latent frames"],
    );
    assert!(!output.exists());
    // A part of a pipeline can be opened as an engine, but no part can restore alone.
    let line = words(&[&"infer", &"--engine", &engine, &"--part", &"transformer", &frames, &"-o", &output]);
    assert!(!run("runtime", line).stderr.contains("internal"));
}

#[test]
fn networks_and_texts_of_others_are_refused_at_build() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let path = model(work.path(), "transformer-3b.safetensors", 2, &[[4, 6]]);
    let profile = repository("tests/profiles/small-tiles.yaml");
    let build = |model: &Path, more: &[&str]| {
        let line = words(&[&"build", &model, &"--profile", &profile, &"-o", &at("engine")]);
        run_with_cache_in(work.path(), "engine-builder", line.into_iter().chain(more.iter().map(Into::into)))
    };
    let text = fs::read_to_string(&path).unwrap();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replace(from, to)).unwrap();
    };
    with(r#"{"text":"pos_emb.pt"}"#, r#"{"text":"other.pt"}"#);
    let _ = build(&path, &[]).failure(1, &["the text `other.pt` is not among its `files`"]);
    with(r#"{"text":"pos_emb.pt"}"#, r#"{"text":"vae.safetensors"}"#);
    let _ = build(&path, &[]).failure(1, &["expected the states of a text, found", "tensors"]);
    // A text of another width.
    with("", "");
    let bytes = [0; 7 * 4];
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1, 7], &bytes).unwrap();
    safetensors::serialize_to_file([("states", view)], None, &at("pos_emb.pt")).unwrap();
    let _ = fs::remove_file(at("pos_emb.pt.sha256"));
    let _ = build(&path, &[]).failure(1, &["expected one tensor [tokens, 20] of f32, f16 or bf16", "found f32 [1, 7]"]);
    // An autoencoder alone.
    let mut alone: serde_json::Value = serde_json::from_str(&text).unwrap();
    alone["graphs"].as_object_mut().unwrap().remove("transformer");
    fs::write(&path, alone.to_string()).unwrap();
    let _ = build(&path, &[]).failure(1, &["expected one graph of a transformer that restores latent clips"]);
    assert!(!at("engine").exists());
}

/// Engines with parts that do not fit are refused with clear messages, before anything is made.
#[test]
fn parts_that_do_not_fit_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let engine = engine(work.path(), "transformer-3b.safetensors", 2, &[[4, 6]]);
    let input = work.path().join("frame.rgb");
    fs::write(&input, [7; 48 * 32 * 3]).unwrap();
    // The parts of another autoencoder, which has another number of frames for a latent frame.
    let folder = repository("tests/golden-video-vae/all-temporal");
    let weights = names_in(&folder).into_iter().find(|name| !name.contains("golden")).unwrap();
    let (profile, others) = (repository("tests/profiles/small-tiles.yaml"), work.path().join("others"));
    let line = words(&[
        &"build",
        &folder.join(weights),
        &"--profile",
        &profile,
        &"-o",
        &others,
        &"--size",
        &"48x32",
        &"--frames",
        &"1",
    ]);
    let _ = run_with_cache_in(work.path(), "engine-builder", line).success();
    let infer = |engine: &Path| {
        let output = work.path().join("out.rgb");
        let line = words(&[
            &"infer",
            &"--engine",
            &engine,
            &"--raw",
            &"rgb24:48x32",
            &"--input",
            &input,
            &"--output",
            &output,
        ]);
        let outcome = run("runtime", line);
        assert!(!output.exists(), "{}", outcome.stderr);
        outcome
    };
    let replaced = |name: &str, parts: &[&str]| {
        let other = work.path().join(name);
        end_to_end::copy_folder(&engine, &other);
        for part in parts {
            fs::remove_dir_all(other.join(part)).unwrap();
            if others.join(part).exists() {
                end_to_end::copy_folder(&others.join(part), &other.join(part));
            }
        }
        list_again(&other);
        other
    };
    let other = replaced("decoder", &["decoder_first", "decoder_next"]);
    let refused = infer(&other).failure(1, &["the decoder: expected pixels of 3 channels, and latents of 4 channels"]);
    println!("{}", refused.stderr);
    let verify = run("runtime", words(&[&"verify", &"--engine", &other]));
    let _ = verify.failure(1, &["the decoder: expected pixels of 3 channels"]);
    let without = replaced("without", &["transformer"]);
    let _ = infer(&without).failure(1, &["expected one transformer that restores latent clips among its parts"]);
    // Contracts that contradict the graphs.
    for (part, tensors, axis, expected) in [
        ("decoder_first", "outputs", json!({ "frames": { "step": 4, "offset": -7 } }), "an axis of at least 1"),
        ("transformer", "outputs", json!({ "channels": 2 }), "the contract is not kept"),
    ] {
        let other = replaced(&format!("lies-{part}"), &[]);
        edit_manifest(&other.join(part), |manifest| {
            let axes = manifest["contract"][tensors][0]["axes"].as_array_mut().unwrap();
            let (key, _) = axis.as_object().unwrap().iter().next().unwrap();
            let place = axes.iter_mut().find(|axis| axis.get(key).is_some()).unwrap();
            *place = axis.clone();
        });
        list_again(&other);
        let _ = infer(&other).failure(1, &["not a valid engine manifest", expected]);
    }
}
