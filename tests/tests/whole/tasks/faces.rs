//! `runtime infer` with engines that restore an aligned face: pictures of one size.

use super::inpaint::{read_floats, write_floats};
use end_to_end::{GoldenComponent, build_engine, golden_retouches, manifest_in, run, words};
use std::fs;
use std::path::PathBuf;

fn golden(case: &str) -> GoldenComponent {
    golden_retouches().into_iter().find(|golden| golden.name.starts_with(&format!("{case}/"))).unwrap()
}

const PROFILE: &str = "name: faces\nprovider: cpu\nprecision: fp32\ntasks:\n  upscale: { tiles: [16x16, 64x64, 128x128], \
                       batch: [1, 2], largest_run: 64x64 }\nfloors: { psnr_db: 100, cosine: 0.999999 }\n";

#[test]
fn a_face_is_that_of_the_reference_and_has_one_size() {
    for case in ["gfpgan", "restoreformer"] {
        let work = tempfile::tempdir().unwrap();
        let golden = golden(case);
        let profile = work.path().join("faces.yaml");
        fs::write(&profile, PROFILE).unwrap();
        let _ = build_engine(work.path(), &golden.checkpoint, &profile, &[]).success();
        // The network has one size, whatever tiles the profile has.
        let manifest = manifest_in(work.path());
        let graphs: Vec<&str> =
            manifest["graphs"].as_array().unwrap().iter().map(|graph| graph["file"].as_str().unwrap()).collect();
        assert_eq!(graphs, ["model-1x3x32x32.onnx", "model-2x3x32x32.onnx"], "{case}");

        let engine = work.path().join("engine");
        let (input, output) = (work.path().join("face.tif"), work.path().join("restored.tif"));
        // The network's values are from −1 to 1.
        let samples = |values: &ndarray::ArrayD<f32>| {
            let first = values.index_axis(ndarray::Axis(0), 0).mapv(|value| value.mul_add(0.5, 0.5));
            first.permuted_axes(ndarray::IxDyn(&[1, 2, 0])).iter().copied().collect::<Vec<f32>>()
        };
        write_floats(&input, [32, 32], &samples(&golden.inputs["image"]));
        let infer = |input: &PathBuf, output: &PathBuf| {
            run("runtime", words(&[&"infer", &"--engine", &engine, &"--input", input, &"--output", output]))
        };
        let _ = infer(&input, &output).success();
        let expected = samples(&golden.outputs["upscaled"]);
        let range = golden.outputs["upscaled"]
            .iter()
            .fold([f32::MAX, f32::MIN], |[low, high], value| [low.min(*value), high.max(*value)]);
        let allowed = 2e-5 * (range[1] - range[0]);
        for (found, expected) in read_floats(&output).iter().zip(&expected) {
            assert!((found - expected.clamp(0.0, 1.0)).abs() <= allowed, "{case}: {found} instead of {expected}");
        }

        for [width, height] in [[31, 32], [64, 64], [8, 8]] {
            let other = work.path().join("other.tif");
            write_floats(&other, [width, height], &vec![0.5; (3 * width * height) as usize]);
            let size = format!("found {width}×{height}");
            let texts =
                ["expected a picture of 32×32, the one size that the network takes", &size, "an aligned crop of"];
            let _ = infer(&other, &work.path().join("no.tif")).failure(1, &texts);
            assert!(!work.path().join("no.tif").exists());
        }
    }
}
