//! `runtime infer` with real-time networks, against the reference's frames (`tests/golden-systems`).

use end_to_end::{GoldenComponent, Outcome, THREADS, golden_systems, names_in, run, small_engine, words};
use image::{ImageBuffer, Rgb};
use ndarray::ArrayD;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The golden frames of a network, in order.
fn golden(work: &Path, network: &str) -> Vec<GoldenComponent> {
    let mut all = golden_systems(work);
    all.retain(|golden| golden.name.starts_with(network));
    assert_eq!(all.len(), 4);
    all
}

fn engine(work: &Path, golden: &GoldenComponent) -> PathBuf {
    small_engine(work, "engine", golden, &golden.shapes(), &[])
}

fn infer(engine: &Path, input: &Path, output: &Path, more: &[&dyn AsRef<OsStr>]) -> Outcome {
    let line = words(&[&"infer", &"--engine", &engine, &"--input", &input, &"--output", &output]);
    run("runtime", line.into_iter().chain(words(more)))
}

/// 16-bit samples of frames `[1, 3, height, width]` whose values are in this range.
fn samples(frame: &ArrayD<f32>, [low, high]: [f32; 2]) -> Vec<u8> {
    let (height, width) = (frame.shape()[2], frame.shape()[3]);
    let mut bytes = Vec::new();
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let level = ((frame[[0, channel, y, x]] - low) / (high - low) * 65_535.0 + 0.5) as u16;
                bytes.extend(level.to_le_bytes());
            }
        }
    }
    bytes
}

/// The network's outputs for frames of whole levels: one run after the other, each with the previous output.
fn reference(
    golden: &GoldenComponent,
    work: &Path,
    frames: &[Vec<u8>],
    range: [f32; 2],
    timesteps: &[f32],
) -> Vec<ArrayD<f32>> {
    let graph = work.join("engine.onnx");
    let mut session = end_to_end::Graph::open(&graph, &Default::default()).unwrap();
    let shape = golden.inputs["frame"].shape().to_vec();
    let mut previous = ArrayD::<f32>::zeros(shape.clone());
    let mut all = Vec::new();
    for bytes in frames {
        let level = |place: &[usize]| {
            let at = ((place[2] * shape[3] + place[3]) * 3 + place[1]) * 2;
            f32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])) / 65_535.0 * (range[1] - range[0]) + range[0]
        };
        let frame = ArrayD::from_shape_fn(shape.clone(), |place| level(&[place[0], place[1], place[2], place[3]]));
        for step in timesteps {
            let step = ArrayD::from_elem(vec![1], *step);
            let mut inputs = vec![("frame", frame.view()), ("timestep", step.view())];
            if golden.inputs.contains_key("previous_frame") {
                inputs.push(("previous_frame", previous.view()));
            }
            previous = session.run(&inputs).unwrap().remove(0).1;
        }
        all.push(previous.clone());
    }
    all
}

#[test]
fn frames_are_those_of_the_network_with_its_own_output_fed_back() {
    for (network, range) in [("GPUStressTestModel", [0.0, 1.0]), ("SimpleOptimizedUNet", [-1.0, 1.0])] {
        let work = tempfile::tempdir().unwrap();
        let golden = golden(work.path(), network);
        let engine = engine(work.path(), &golden[0]);
        let frames: Vec<Vec<u8>> = golden.iter().map(|golden| samples(&golden.inputs["frame"], range)).collect();
        let shape = golden[0].inputs["frame"].shape().to_vec();
        let (input, output) = (work.path().join("in.rgb"), work.path().join("out.rgb"));
        fs::write(&input, frames.concat()).unwrap();
        let raw = format!("rgb48le:{}x{}", shape[3], shape[2]);
        for (option, value, timesteps) in
            [("--timestep", "70", &[70.0][..]), ("--timesteps", "40,30,20,10,0", &[40.0, 30.0, 20.0, 10.0, 0.0])]
        {
            let told = infer(&engine, &input, &output, &[&"--raw", &raw, &option, &value, &"--json"]).success().json();
            assert_eq!(
                (&told["frames"], &told["dropped"], &told["runs_per_frame"]),
                (&4.into(), &0.into(), &timesteps.len().into()),
                "{told}"
            );
            let figures = ["p50_ms", "p95_ms", "p99_ms", "frames_per_second"].map(|name| told[name].as_f64().unwrap());
            assert!(
                figures.iter().all(|figure| *figure > 0.0) && figures.is_sorted_by(|a, b| a <= b || *b == figures[3])
            );
            let found = fs::read(&output).unwrap();
            let expected = reference(&golden[0], work.path(), &frames, range, timesteps);
            let expected: Vec<u8> = expected.iter().flat_map(|frame| samples(frame, range)).collect();
            assert_eq!(found.len(), expected.len());
            // In each of a frame's runs, the engine may round as its gates allow (100 dB). Random weights amplify a
            // difference 40 times with each frame of five runs, so only the first frame can be compared.
            let frames = if timesteps.len() > 1 && golden[0].inputs.contains_key("previous_frame") { 1 } else { 4 };
            let level = |bytes: &[u8]| i32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
            let pairs = found.chunks(2).zip(expected.chunks(2)).take(found.len() / 2 * frames / 4);
            let squares: Vec<f64> = pairs.map(|(a, b)| f64::from(level(a) - level(b)).powi(2)).collect();
            let mean = squares.iter().sum::<f64>() / squares.len() as f64;
            let allowed = 65_535.0 * 1e-5 * timesteps.len() as f64;
            assert!(mean.sqrt() <= allowed, "{network} {value}: {} levels of 65,535", mean.sqrt());
        }
    }
}

/// The first golden frame has zeros as its previous frame: it is the reference's own output.
#[test]
fn the_first_frame_is_the_references() {
    let work = tempfile::tempdir().unwrap();
    let golden = golden(work.path(), "GPUStressTestModel");
    let first = &golden[0];
    let steps = [first.inputs["timestep"].iter().next().copied().unwrap()];
    let engine_folder = engine(work.path(), first);
    assert!(engine_folder.is_dir());
    let mut session = end_to_end::Graph::open(&work.path().join("engine.onnx"), &Default::default()).unwrap();
    let zeros = ArrayD::<f32>::zeros(first.inputs["frame"].shape().to_vec());
    let step = ArrayD::from_elem(vec![1], steps[0]);
    let inputs = [("frame", first.inputs["frame"].view()), ("timestep", step.view()), ("previous_frame", zeros.view())];
    let found = session.run(&inputs).unwrap().remove(0).1;
    assert!(end_to_end::error_over_range(&found, &first.outputs["output_frame"]) <= 2e-5);
}

#[test]
fn frames_of_any_size_keep_it_in_every_form() {
    let work = tempfile::tempdir().unwrap();
    let golden = golden(work.path(), "SimpleOptimizedUNet");
    let engine = engine(work.path(), &golden[0]);
    // YUV4MPEG2, through standard input and output.
    let mut stream = b"YUV4MPEG2 W50 H34 F30:1 C444\n".to_vec();
    for frame in 0..5_u8 {
        stream.extend(b"FRAME\n");
        stream.extend((0..50 * 34 * 3).map(|at: u32| (at % 200) as u8 + frame));
    }
    let path = work.path().join("in.y4m");
    fs::write(&path, &stream).unwrap();
    let output = work.path().join("out.y4m");
    let told = infer(&engine, &path, &output, &[]).success().stdout;
    assert!(told.contains("5 frames of 50×34, computed at"), "{told}");
    let made = fs::read(&output).unwrap();
    assert_eq!(made.len(), stream.len());
    assert!(made.starts_with(b"YUV4MPEG2 W50 H34 F30:1 C444\n") && made != stream);
    let standard =
        end_to_end::command("runtime", words(&[&"infer", &"--engine", &engine, &"--input", &"-", &"--output", &"-"]))
            .stdin(fs::File::open(&path).unwrap())
            .output()
            .unwrap();
    assert!(standard.status.success());
    assert!(standard.stdout == made);
    for threads in THREADS.map(|threads| threads.to_string()) {
        let _ = infer(&engine, &path, &output, &[&"--threads", &threads]).success();
        assert!(fs::read(&output).unwrap() == made, "{threads} threads");
    }
    // A folder of pictures.
    let [frames, shown] = ["frames", "shown"].map(|name| work.path().join(name));
    fs::create_dir(&frames).unwrap();
    for number in 0..3_u8 {
        let picture = ImageBuffer::from_fn(20, 12, |x, y| Rgb([(x * 9) as u8, (y * 20) as u8, number * 80]));
        picture.save(frames.join(format!("{number}.png"))).unwrap();
    }
    let told = infer(&engine, &frames, &shown, &[]).success().stdout;
    assert!(told.contains("3 frames of 20×12"), "{told}");
    assert_eq!(names_in(&shown), ["0.png", "1.png", "2.png"]);
    assert_eq!(image::open(shown.join("1.png")).unwrap().to_rgb8().dimensions(), (20, 12));
}

#[test]
fn frames_without_time_are_dropped_or_waited_for() {
    let work = tempfile::tempdir().unwrap();
    let golden = golden(work.path(), "SimpleOptimizedUNet");
    let engine = engine(work.path(), &golden[0]);
    let (input, output) = (work.path().join("in.rgb"), work.path().join("out.rgb"));
    let length = 64 * 48 * 3;
    fs::write(&input, (0..40 * length).map(|at| (at / length * 5) as u8).collect::<Vec<_>>()).unwrap();
    let paced = |fps: &str, late: &str| {
        let line: [&dyn AsRef<OsStr>; 7] =
            [&"--raw", &"rgb24:64x48", &"--target-fps", &fps, &"--late", &late, &"--json"];
        infer(&engine, &input, &output, &line).success().json()
    };
    // No processor computes ten thousand frames in a second.
    let dropped = paced("10000", "drop");
    let count = |told: &serde_json::Value, name: &str| told[name].as_u64().unwrap();
    assert!(count(&dropped, "frames") == 40 && count(&dropped, "dropped") > 0, "{dropped}");
    let made = fs::read(&output).unwrap();
    assert_eq!(made.len(), 40 * length, "a dropped frame shows the last result again");
    let waited = paced("10000", "wait");
    assert!(count(&waited, "dropped") == 0 && count(&waited, "late") > 0, "{waited}");
    // 40 frames at 200 a second are due within 195 ms.
    let paced = paced("200", "wait");
    assert!(paced["seconds"].as_f64().unwrap() >= 0.19, "{paced}");
}

#[test]
fn wrong_options_and_frames_are_refused_and_nothing_is_written() {
    let work = tempfile::tempdir().unwrap();
    let golden = golden(work.path(), "GPUStressTestModel");
    let engine = engine(work.path(), &golden[0]);
    let (input, output) = (work.path().join("in.rgb"), work.path().join("out.rgb"));
    fs::write(&input, vec![7; 2 * 32 * 16 * 3 - 1]).unwrap();
    let refused = |more: &[&dyn AsRef<OsStr>], code: i32, expected: &[&str]| {
        let raw: [&dyn AsRef<OsStr>; 2] = [&"--raw", &"rgb24:32x16"];
        let _ = infer(&engine, &input, &output, &[&raw, more].concat()).failure(code, expected);
    };
    refused(&[], 1, &["in.rgb: frame 2: truncated: expected 1536 bytes, found 1535"]);
    refused(&[&"--timestep", &"200"], 1, &["timestep: expected timesteps from 0 to 100, found 200"]);
    refused(&[&"--timestep", &"5", &"--timesteps", &"1,2"], 2, &["cannot be used with"]);
    refused(&[&"--late", &"drop"], 2, &["--target-fps"]);
    refused(&[&"--tile", &"64x64"], 2, &["the engine has no tiles of 64×64, only of 32×16"]);
    refused(&[&"--overlap", &"4"], 2, &["--overlap does not go with a real-time network"]);
    refused(&[&"--depth", &"map.png"], 2, &["--depth is for engines that give depth", "this one is for realtime"]);
    let _ = infer(end_to_end::demo_engine(), &input, &output, &[&"--timestep", &"5", &"--raw", &"rgb24:32x16"])
        .failure(2, &["--timestep is for real-time networks", "upscale"]);
    assert!(!names_in(work.path()).iter().any(|name| name.starts_with("out") || name.contains("partial")));
}

/// A film is played like the stream of its frames: in the same order, each once.
#[test]
fn a_film_is_played_like_the_stream_of_its_frames() {
    let work = tempfile::tempdir().unwrap();
    let golden = golden(work.path(), "GPUStressTestModel");
    let engine = engine(work.path(), &golden[0]);
    let (film, shown) = (work.path().join("in.mkv"), work.path().join("shown.mkv"));
    // The second half repeats one picture, whose outputs still differ.
    let source = "testsrc2=size=48x32:rate=25:duration=0.4,select=lt(n\\,5),tpad=stop_mode=clone:stop=5";
    let arguments = ["-loglevel", "error", "-f", "lavfi", "-i", source, "-pix_fmt", "yuv444p", "-c:v", "ffv1"];
    assert!(Command::new("ffmpeg").args(arguments).arg(&film).status().unwrap().success());
    let told = infer(&engine, &film, &shown, &[&"--lossless", &"--json"]).success().json();
    assert_eq!(told["frames"], 10, "{told}");
    let stream = |film: &Path, name: &str| {
        let path = work.path().join(name);
        let arguments = ["-pix_fmt", "yuv444p", "-fps_mode", "passthrough"];
        let mut command = Command::new("ffmpeg");
        command.args(["-loglevel", "error", "-i"]).arg(film).args(arguments).arg(&path);
        assert!(command.status().unwrap().success());
        path
    };
    let expected = work.path().join("expected.y4m");
    let _ = infer(&engine, &stream(&film, "in.y4m"), &expected, &[]).success();
    let frames = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        let first = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        bytes[first..].to_vec()
    };
    assert!(frames(&stream(&shown, "shown.y4m")) == frames(&expected));
}
