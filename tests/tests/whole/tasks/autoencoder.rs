//! `runtime encode`, `decode` and `roundtrip` against the references (`tests/golden-diffusers`,
//! `tests/golden-video-vae`).

use end_to_end::{
    GoldenComponent, Outcome, THREADS, error_over_range, golden_components, golden_video_autoencoders, names_in,
    repository, run, small_engine, words,
};
use image::{ImageBuffer, Rgb};
use ndarray::{ArrayD, IxDyn};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tileforge::{Coding, ErrorKind, Latent, OpenOptions, Setup, Size, Terms};
use tileforge_contract::DataType;
use tileforge_engine::Engine;
use tileforge_runtime::host::{HostOptions, session_bytes};
use tileforge_runtime::tensor_file::{Contents, Stored, read, write};

/// The largest absolute error over the range of the reference's output, for values that were not stored in a file of
/// pixels.
const TOLERANCE: f32 = 2e-5;
/// The scaling factor of Stable Diffusion 1, which is the golden component's default.
const SCALING: f32 = 0.18215;

fn golden(name: &str) -> GoldenComponent {
    let all = golden_components().into_iter().chain(golden_video_autoencoders());
    all.into_iter().find(|golden| golden.name.starts_with(name)).unwrap()
}

fn command(verb: &str, engine: &Path, input: &Path, output: &Path, more: &[&dyn AsRef<OsStr>]) -> Outcome {
    let line = words(&[&verb, &"--engine", &engine, &"--input", &input, &"--output", &output]);
    run("runtime", line.into_iter().chain(words(more)))
}

fn latent(path: &Path) -> (ArrayD<f32>, BTreeMap<String, String>) {
    let Contents::Named { tensors, metadata } = read(path).unwrap() else { panic!("no names") };
    (tensors["latent"].tensor().unwrap().into_f32().unwrap(), metadata)
}

fn write_latent(path: &Path, values: &ArrayD<f32>) {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let stored = Stored { data_type: DataType::F32, shape: values.shape().to_vec(), bytes };
    write(path, &[("latent".into(), stored)], &BTreeMap::new()).unwrap();
}

/// An engine of a golden component for another size, `[height, width]` of its input.
fn engine(
    work: &Path,
    name: &str,
    golden: &GoldenComponent,
    input: &str,
    dims: &[usize],
    hints: &[(&str, &str)],
) -> PathBuf {
    let dims = dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
    small_engine(work, name, golden, &format!("{input}:{dims}").parse().unwrap(), hints)
}

/// The outputs of the graph that [`engine`] wrote.
fn graph_of(work: &Path, name: &str, inputs: &[(&str, &ArrayD<f32>)]) -> BTreeMap<String, ArrayD<f32>> {
    let path = work.join(format!("{name}.onnx"));
    let mut graph = end_to_end::Graph::open(&path, &Default::default()).unwrap();
    let inputs: Vec<_> = inputs.iter().map(|(name, values)| (*name, values.view())).collect();
    graph.run(&inputs).unwrap().into_iter().collect()
}

fn picture(width: u32, height: u32) -> ImageBuffer<Rgb<u8>, Vec<u8>> {
    ImageBuffer::from_fn(width, height, |x, y| Rgb([(x * 7 % 256) as u8, (y * 5 % 256) as u8, ((x * y) % 256) as u8]))
}

/// `[1, 3, height, width]` from −1 to 1.
fn pixels(picture: &ImageBuffer<Rgb<u8>, Vec<u8>>) -> ArrayD<f32> {
    let (width, height) = picture.dimensions();
    ArrayD::from_shape_fn(IxDyn(&[1, 3, height as usize, width as usize]), |place| {
        f32::from(picture.get_pixel(place[3] as u32, place[2] as u32)[place[1]]) / 255.0 * 2.0 - 1.0
    })
}

#[test]
fn a_decoded_latent_is_the_references_picture() {
    let work = tempfile::tempdir().unwrap();
    let golden = golden("vae/vae_decoder.0");
    let engine = small_engine(work.path(), "decoder", &golden, &golden.shapes(), &[]);
    let (input, output) = (work.path().join("latent.safetensors"), work.path().join("picture.png"));
    // The golden latent is the autoencoder's input; files have the diffusion model's scaled latents.
    write_latent(&input, &golden.inputs["latent_sample"].mapv(|value| value * SCALING));
    let told = command("decode", &engine, &input, &output, &[]).success().stdout;
    assert!(!told.contains("tiles") && !told.contains("extended"), "{told}");
    let found = image::open(&output).unwrap().into_rgb8();
    let expected = &golden.outputs["sample"];
    for (x, y, pixel) in found.enumerate_pixels() {
        for channel in 0..3 {
            let level = (expected[[0, channel, y as usize, x as usize]] / 2.0 + 0.5) * 255.0;
            let distance = (f32::from(pixel[channel]) - level.clamp(0.0, 255.0)).abs();
            assert!(distance <= 0.51, "{x} {y}: {} instead of {level}", pixel[channel]);
        }
    }
}

#[test]
fn an_encoded_picture_is_the_scaled_mean_or_a_sample_of_it() {
    let work = tempfile::tempdir().unwrap();
    let golden = golden("vae/vae_encoder.0");
    let engine = engine(work.path(), "encoder", &golden, "sample", &[1, 3, 16, 24], &[]);
    let [input, mean, sample] = ["in.png", "mean.safetensors", "sample.safetensors"].map(|name| work.path().join(name));
    let picture = picture(24, 16);
    picture.save(&input).unwrap();
    let _ = command("encode", &engine, &input, &mean, &[]).success();
    let (found, metadata) = latent(&mean);
    let parameters = &graph_of(work.path(), "encoder", &[("sample", &pixels(&picture))])["latent_parameters"];
    let expected = parameters.slice_axis(ndarray::Axis(1), (0..4).into()).mapv(|value| value * SCALING).into_dyn();
    assert!(error_over_range(&found, &expected) <= TOLERANCE);
    assert_eq!((metadata["width"].as_str(), metadata["height"].as_str()), ("24", "16"));
    // Two samples of one seed are equal, and differ from the mean by the noise times the deviation.
    let _ = command("encode", &engine, &input, &sample, &[&"--sample", &"7"]).success();
    let (drawn, _) = latent(&sample);
    let deviation = parameters.slice_axis(ndarray::Axis(1), (4..8).into()).mapv(|value| (0.5 * value).exp() * SCALING);
    let noise = (&drawn - &found) / deviation.into_dyn();
    let first: Vec<f32> = noise.iter().take(4).copied().collect();
    for (found, expected) in first.iter().zip(TORCH_SEED_7) {
        assert!((found - expected).abs() < 2e-3, "{found} instead of {expected}");
    }
    let _ = command("encode", &engine, &input, &mean, &[&"--sample", &"7"]).success();
    assert_eq!(fs::read(&mean).unwrap(), fs::read(&sample).unwrap());
    for threads in THREADS.map(|threads| threads.to_string()) {
        let _ = command("encode", &engine, &input, &mean, &[&"--sample", &"7", &"--threads", &threads]).success();
        assert!(fs::read(&mean).unwrap() == fs::read(&sample).unwrap(), "{threads} threads");
    }
}

/// The first numbers of `torch.randn(…, generator=torch.Generator("cpu").manual_seed(7))`, for at least 20 of them.
const TORCH_SEED_7: [f32; 4] = [-0.8201345, 0.3956312, 0.8989085, -1.3884039];

#[test]
fn a_picture_above_the_engines_size_goes_in_tiles() {
    let work = tempfile::tempdir().unwrap();
    let (encoder, decoder) = (golden("vae-no-attention/vae_encoder.0"), golden("vae-no-attention/vae_decoder.0"));
    let factor = encoder.inputs["sample"].shape()[2] / encoder.outputs["latent_parameters"].shape()[2];
    let side = 16 * factor;
    let small = engine(work.path(), "encoder", &encoder, "sample", &[1, 3, side, side], &[]);
    let back = engine(work.path(), "decoder", &decoder, "latent_sample", &[1, 4, 16, 16], &[]);
    let large_side = [36 * factor, 40 * factor];
    let whole = engine(work.path(), "whole", &encoder, "sample", &[1, 3, large_side[0], large_side[1]], &[]);
    let whole_back = engine(work.path(), "whole-back", &decoder, "latent_sample", &[1, 4, 36, 40], &[]);
    let input = work.path().join("in.png");
    picture(large_side[1] as u32 - 1, large_side[0] as u32 - 1).save(&input).unwrap();
    let [tiled, at_once] = ["tiled.safetensors", "whole.safetensors"].map(|name| work.path().join(name));
    let told = command("encode", &small, &input, &tiled, &[]).success().stdout;
    assert!(told.contains("tiles of") && told.contains("blended") && told.contains("extended and cut"), "{told}");
    let _ = command("encode", &whole, &input, &at_once, &[]).success();
    // Tiles change the normalisation: the result is close to the result of the whole picture, but not equal.
    let error = error_over_range(&latent(&tiled).0, &latent(&at_once).0);
    assert!(error > 1e-6 && error < 0.5, "{error}");
    let [one, two, one_picture] = ["one.png", "two.png", "no.png"].map(|name| work.path().join(name));
    let _ = command("decode", &back, &at_once, &one, &[]).success();
    let _ = command("decode", &whole_back, &at_once, &two, &[]).success();
    let [one, two] = [one, two].map(|path| image::open(path).unwrap().into_rgb8());
    assert_eq!(one.dimensions(), (large_side[1] as u32 - 1, large_side[0] as u32 - 1));
    assert_eq!(one.dimensions(), two.dimensions());
    // One engine has both halves of the whole checkpoint, at the requested size.
    let both = work.path().join("both");
    let folder = encoder.checkpoint.parent().unwrap();
    let profile = repository("profiles/cpu.yaml");
    let size = format!("{side}x{side}");
    let line = words(&[&"build", &folder, &"--profile", &profile, &"--size", &size, &"-o", &both]);
    let _ = run("engine-builder", line).success();
    assert_eq!(names_in(&both), ["decoder", "encoder", "manifest.json"]);
    let roundtrip = |more: &[&dyn AsRef<OsStr>]| {
        let line = words(&[&"roundtrip", &"--engine", &both, &"--input", &input]);
        run("runtime", line.into_iter().chain(words(more)))
    };
    let told = roundtrip(&[&"--json"]).success().json();
    assert!(told["psnr_db"].as_f64().unwrap() > 0.0 && told["encode"]["tiles"].as_u64().unwrap() > 4, "{told}");
    let _ = roundtrip(&[&"--minimum-psnr", &"90"]).failure(4, &["expected a PSNR of at least 90.00 dB"]);
    // Its parts are chosen by their task, their names, or their paths.
    let by_part = work.path().join("part.safetensors");
    let _ = command("encode", &both, &input, &tiled, &[]).success();
    for (engine, more) in
        [(both.clone(), &[&"--part" as &dyn AsRef<OsStr>, &"encoder"][..]), (both.join("encoder"), &[])]
    {
        let _ = command("encode", &engine, &input, &by_part, more).success();
        assert_eq!(fs::read(&by_part).unwrap(), fs::read(&tiled).unwrap());
    }
    let _ = command("encode", &both, &input, &by_part, &[&"--part", &"decoder"])
        .failure(1, &["expected an engine that encodes, found one that decodes"]);
    let _ = command("encode", &both, &input, &by_part, &[&"--part", &"unet"])
        .failure(2, &["no part `unet`; its parts are decoder, encoder"]);
    let _ = command("infer", &both, &input, &one_picture, &[])
        .failure(1, &["expected an engine of one network, found one of the parts decoder, encoder", "--engine"]);
    let line = words(&[&"roundtrip", &"--engine", &both.join("encoder"), &"--input", &input]);
    let _ = run("runtime", line).failure(1, &["expected an engine that decodes, found one that encodes"]);
    // An overlap of the whole tile is refused.
    let _ = command("encode", &small, &input, &tiled, &[&"--overlap", &"4096"]).failure(2, &["tiles:"]);
}

/// A YUV4MPEG2 stream of grey frames, so that colours survive exactly.
fn clip(frames: usize, width: usize, height: usize) -> Vec<u8> {
    let mut stream = format!("YUV4MPEG2 W{width} H{height} F25:1 C444 XCOLORRANGE=FULL\n").into_bytes();
    for frame in 0..frames {
        stream.extend(b"FRAME\n");
        stream.extend((0..width * height).map(|at| ((at % width) * 9 + (at / width) * 5 + frame * 23) as u8));
        stream.extend(vec![128; 2 * width * height]);
    }
    stream
}

/// The values of such a clip: `[1, 3, frames, height, width]` from −1 to 1.
fn clip_pixels(stream: &[u8], frames: usize, width: usize, height: usize) -> ArrayD<f32> {
    let start = stream.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let length = 6 + 3 * width * height;
    ArrayD::from_shape_fn(IxDyn(&[1, 3, frames, height, width]), |place| {
        let luma = stream[start + place[2] * length + 6 + place[3] * width + place[4]];
        f32::from(luma) / 255.0 * 2.0 - 1.0
    })
}

#[test]
fn a_clip_in_chunks_is_the_whole_clip() {
    let work = tempfile::tempdir().unwrap();
    let (encoder, decoder) = (golden("seedvr2/vae_encoder.1"), golden("seedvr2/vae_decoder.1"));
    let [channels, factor] = {
        let (pixels, latents) = (encoder.inputs["sample"].shape(), encoder.outputs["latent_parameters"].shape());
        [latents[1] / 2, pixels[3] / latents[3]]
    };
    let (width, height) = (3 * factor, 2 * factor);
    // The golden network halves time twice or less.
    let frames_per_latent = 4;
    let make = |name: &str, golden: &GoldenComponent, input: &str, dims: [usize; 5], chunk: &str| {
        engine(work.path(), name, golden, input, &dims, &[("chunk", chunk)])
    };
    let pixels = |frames| [1, 3, frames, height, width];
    let tile = [width, height];
    let latent_tile = [3, 2];
    let parts = [
        part("encoder_first", "encoder", tile, frames_per_latent + 1),
        part("encoder_next", "encoder", tile, frames_per_latent),
        part("decoder_first", "decoder", latent_tile, 1),
        part("decoder_next", "decoder", latent_tile, 2),
    ];
    let vae = engine_of_parts(work.path(), "vae", &encoder, &parts);
    let (first, next) = (vae.join("encoder_first"), vae.join("encoder_next"));
    // Eleven frames: they do not fill whole chunks.
    let (frames, latents) = (11, 4);
    let stream = clip(frames, width, height);
    let (input, output) = (work.path().join("in.y4m"), work.path().join("clip.safetensors"));
    fs::write(&input, &stream).unwrap();
    let told = command("encode", &vae, &input, &output, &[]).success().stdout;
    assert!(told.contains("11 frames of") && told.contains("3 chunks"), "{told}");
    let (found, metadata) = latent(&output);
    assert_eq!(found.shape(), [1, channels, latents, 2, 3]);
    assert_eq!(metadata["frames"], "11");
    // The whole clip at once, with its last frame repeated.
    let whole_frames = frames_per_latent * (latents - 1) + 1;
    let whole = make("whole", &encoder, "sample", pixels(whole_frames), "first");
    let mut extended = stream.clone();
    let last = stream[stream.len() - (6 + 3 * width * height)..].to_vec();
    (frames..whole_frames).for_each(|_| extended.extend(&last));
    let parameters = &graph_of(
        work.path(),
        "whole",
        &[("sample", &clip_pixels(&extended, whole_frames, width, height))],
    )["latent_parameters"];
    let expected = parameters.slice_axis(ndarray::Axis(1), (0..channels).into()).mapv(|value| value * 0.9152);
    assert!(error_over_range(&found, &expected.into_dyn()) <= TOLERANCE);
    assert!(whole.is_dir());

    // And back: chunks of one and of two latent frames, compared with all frames at once.
    let all = make("decode-whole", &decoder, "latent_sample", [1, channels, latents, 2, 3], "first");
    let decoded = |engine: &Path, name: &str| {
        let folder = work.path().join(name);
        let _ = command("decode", engine, &output, &folder, &[]).success();
        assert_eq!(names_in(&folder).len(), frames);
        let read = |name: &String| image::open(folder.join(name)).unwrap().into_rgb8().into_raw();
        names_in(&folder).iter().flat_map(read).collect::<Vec<u8>>()
    };
    let (chunks, at_once) = (decoded(&vae, "chunks"), decoded(&all, "at-once"));
    let worst = chunks.iter().zip(&at_once).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(worst <= 1, "{worst} levels");
    let stream = work.path().join("out.y4m");
    let _ = command("decode", &vae, &output, &stream, &[&"--rate", &"24:1"]).success();
    assert!(fs::read(&stream).unwrap().starts_with(format!("YUV4MPEG2 W{width} H{height} F24:1 ").as_bytes()));

    let roundtrip = words(&[&"roundtrip", &"--engine", &vae, &"--input", &input]);
    let told = run("runtime", roundtrip).success().stdout;
    assert!(told.contains("11 frames of") && told.contains("PSNR"), "{told}");

    // Weights that are equal in two parts are stored once.
    for half in ["encoder", "decoder"] {
        let inode = |chunk: &str| fs::metadata(vae.join(format!("{half}_{chunk}/model.weights"))).unwrap().ino();
        assert_eq!(inode("first"), inode("next"), "{half}");
    }
    let verified = run("runtime", words(&[&"verify", &"--engine", &vae, &"--json"])).success().json();
    assert!(verified["passed"] == true && verified["parts"].as_object().unwrap().len() == 4, "{verified}");

    // Without the part for later chunks, with the wrong part, and with parts that do not fit together.
    let none = work.path().join("none.safetensors");
    let _ = command("encode", &first, &input, &none, &[]).failure(1, &["more than 5 frames", "without --chunk"]);
    let _ = command("encode", &next, &input, &none, &[]).failure(1, &["an engine for the first chunk of a clip"]);
    let two = [part("a_first", "encoder", tile, 5), part("b_first", "encoder", tile, 9)];
    let two = engine_of_parts(work.path(), "two", &encoder, &two);
    let _ = command("encode", &two, &input, &none, &[])
        .failure(1, &["expected one encoder of pictures or clips among its parts, found a_first, b_first", "--part"]);
    let _ = command("decode", &two, &output, &none, &[]).failure(1, &["expected one decoder of", "found none"]);
    let named = work.path().join("b.zip");
    let _ = command("decode", &vae, &output, &named, &[]).failure(2, &["b.zip", "means a file"]);
    fs::write(&input, &fs::read(&input).unwrap()[..500]).unwrap();
    let _ = command("encode", &vae, &input, &none, &[]).failure(1, &["in.y4m: frame", "truncated"]);
    let small = picture(24, 16);
    let png = work.path().join("in.png");
    small.save(&png).unwrap();
    let _ = command("encode", &first, &png, &none, &[]).failure(2, &["expected a stream of frames"]);
    assert!(!none.exists() && !names_in(work.path()).iter().any(|name| name.contains("partial")));
}

/// A graph of a video autoencoder in a model file: its name, which ends in its chunk, and the size of its input.
fn part(name: &str, half: &str, [width, height]: [usize; 2], frames: usize) -> (String, Value) {
    let architecture = if half == "encoder" { "VideoAutoencoderKLEncoder" } else { "VideoAutoencoderKLDecoder" };
    let chunk = name.rsplit('_').next().unwrap();
    let graph = json!({
        "task": format!("vae_{half}"), "architecture": architecture, "checkpoint": "video.safetensors",
        // Tiles are height × width.
        "set": { "chunk": chunk }, "sizes": { "tiles": [format!("{height}x{width}")], "frames": frames },
    });
    (name.to_owned(), graph)
}

/// An engine of these parts, built from a model file.
fn engine_of_parts(work: &Path, name: &str, golden: &GoldenComponent, parts: &[(String, Value)]) -> PathBuf {
    let (model, engine) = (work.join(format!("{name}.yaml")), work.join(name));
    fs::copy(&golden.checkpoint, work.join("video.safetensors")).unwrap();
    let graphs: serde_json::Map<String, Value> = parts.iter().cloned().collect();
    let text = json!({
        "name": name, "description": "A test.", "licence": "MIT", "provenance": "A test.",
        "files": { "video.safetensors": {} }, "graphs": graphs,
    });
    fs::write(&model, text.to_string()).unwrap();
    let profile = repository("profiles/cpu.yaml");
    let line = words(&[&"build", &model, &"--profile", &profile, &"-o", &engine]);
    let _ = run("engine-builder", line).success();
    engine
}

#[test]
fn a_clip_in_tiles_keeps_the_caches_of_each() {
    let work = tempfile::tempdir().unwrap();
    let encoder = golden("seedvr2/vae_encoder.1");
    let (pixels, latents) = (encoder.inputs["sample"].shape(), encoder.outputs["latent_parameters"].shape());
    let factor = pixels[3] / latents[3];
    let side = 4 * factor;
    let make = |name: &str, frames: usize, chunk: &str| {
        engine(work.path(), name, &encoder, "sample", &[1, 3, frames, side, side], &[("chunk", chunk)])
    };
    let parts = [part("first", "encoder", [side, side], 5), part("next", "encoder", [side, side], 4)];
    let (vae, whole) = (engine_of_parts(work.path(), "vae", &encoder, &parts), make("whole", 9, "first"));
    let (width, height) = (6 * factor, 5 * factor);
    let input = work.path().join("in.y4m");
    fs::write(&input, clip(9, width, height)).unwrap();
    let [chunks, at_once] = ["chunks.safetensors", "whole.safetensors"].map(|name| work.path().join(name));
    let told = command("encode", &vae, &input, &chunks, &[&"--json"]).success().json();
    assert_eq!((&told["tiles"], &told["chunks"]), (&4.into(), &2.into()), "{told}");
    let _ = command("encode", &whole, &input, &at_once, &[]).success();
    let error = error_over_range(&latent(&chunks).0, &latent(&at_once).0);
    assert!(error <= TOLERANCE, "{error}");
}

/// Each tile of a clip is decoded like a clip of its own, at once; where tiles overlap, the result is between the
/// tiles' results.
#[test]
fn a_clip_is_decoded_in_tiles_and_chunks() {
    let work = tempfile::tempdir().unwrap();
    let decoder = golden("seedvr2/vae_decoder.1");
    let channels = decoder.inputs["latent_sample"].shape()[1];
    let (latents, frames, side) = (4, 13, 4);
    let parts = [("first", 1), ("next", 2)];
    let parts = parts.map(|(chunk, frames)| part(&format!("decoder_{chunk}"), "decoder", [side, side], frames));
    let vae = engine_of_parts(work.path(), "vae", &decoder, &parts);
    let shape = [1, channels, latents, side, side];
    let whole = engine(work.path(), "whole", &decoder, "latent_sample", &shape, &[("chunk", "first")]);
    let input = work.path().join("latent.safetensors");
    let decoded = |name: &str, engine: &Path| {
        let folder = work.path().join(name);
        let told = command("decode", engine, &input, &folder, &[&"--json"]).success().json();
        assert_eq!(names_in(&folder).len(), frames);
        let read = |name: &String| image::open(folder.join(name)).unwrap().into_rgb8();
        (
            names_in(&folder).iter().map(read).collect::<Vec<_>>(),
            ["tiles", "chunks"].map(|name| told[name].as_u64().unwrap()),
        )
    };
    let [height, width] = [5, 6];
    let large = ArrayD::from_shape_fn(IxDyn(&[1, channels, latents, height, width]), |place| {
        let [channel, frame, row, column] = [1, 2, 3, 4].map(|axis| place[axis]);
        ((channel * 7 + frame * 13 + row * 5 + column * 3) * 37 % 101) as f32 / 50.0 - 1.0
    });
    write_latent(&input, &large);
    let (found, counted) = decoded("tiles", &vae);
    assert_eq!(counted, [4, 3]);
    let factor = found[0].width() as usize / width;
    assert_eq!(found[0].dimensions(), ((width * factor) as u32, (height * factor) as u32));

    // Two tiles in each direction. They overlap because the clip is less than twice as large as a tile.
    let corners = [(0, 0), (0, width - side), (height - side, 0), (height - side, width - side)];
    let alone = corners.map(|(row, column)| {
        let rows = large.slice_axis(ndarray::Axis(3), (row as isize..(row + side) as isize).into());
        let tile = rows.slice_axis(ndarray::Axis(4), (column as isize..(column + side) as isize).into());
        write_latent(&input, &tile.to_owned().into_dyn());
        let (frames, counted) = decoded(&format!("alone-{row}-{column}"), &whole);
        assert_eq!(counted, [1, 1]);
        frames
    });
    let mut of_one_tile = 0;
    for (number, frame) in found.iter().enumerate() {
        for (x, y, pixel) in frame.enumerate_pixels() {
            let tiles: Vec<_> = (corners.iter().zip(&alone))
                .filter_map(|((row, column), alone)| {
                    let (x, y) = (x.checked_sub((column * factor) as u32)?, y.checked_sub((row * factor) as u32)?);
                    alone[number].get_pixel_checked(x, y)
                })
                .collect();
            of_one_tile += usize::from(tiles.len() == 1);
            for channel in 0..3 {
                let values = || tiles.iter().map(|tile| i16::from(tile[channel]));
                let range = values().min().unwrap() - 1..=values().max().unwrap() + 1;
                assert!(range.contains(&i16::from(pixel[channel])), "{number}: {x}, {y}: {pixel:?}, {tiles:?}");
            }
        }
    }
    assert_eq!(of_one_tile, frames * 4 * (height - side) * (width - side) * factor * factor);
}

/// A clip whose tiles memory does not hold beside those of later chunks has smaller ones from its first chunk on.
#[test]
fn a_clip_that_memory_does_not_hold_has_smaller_tiles() {
    let work = tempfile::tempdir().unwrap();
    let decoder = golden("seedvr2/vae_decoder.1");
    let channels = decoder.inputs["latent_sample"].shape()[1];
    let parts_of = |sides: &[usize]| {
        [("first", 1), ("next", 2)].map(|(chunk, frames)| {
            let (name, mut graph) = part(&format!("decoder_{chunk}"), "decoder", [sides[0]; 2], frames);
            graph["sizes"]["tiles"] = sides.iter().map(|side| format!("{side}x{side}")).collect();
            (name, graph)
        })
    };
    let [small, both] = [("small", &[4][..]), ("both", &[4, 6])]
        .map(|(name, sides)| engine_of_parts(work.path(), name, &decoder, &parts_of(sides)));
    let small_bytes = ["decoder_first", "decoder_next"].map(|part| {
        let engine = Engine::open(&small.join(part)).unwrap();
        session_bytes(engine.manifest(), &engine.manifest().graphs[0]).unwrap()
    });
    let (frames, side) = (3, 6);
    let values = (0..channels * frames * side * side).map(|at| (at * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let size = Size { width: side as u32, height: side as u32 };
    let latent = Latent { channels, frames: Some(frames), size, values, pixels: None, clip_frames: None };
    let decoded = |engine: &Path, memory: u64| {
        let memory = HostOptions { memory: Some(memory), ..HostOptions::default() };
        let host = Setup { memory, ..Setup::default() }.host().unwrap();
        let engine = tileforge::Engine::open(&host, engine, &OpenOptions::default()).unwrap();
        let decoder = engine.decoder(Coding::default()).unwrap();
        decoder.submit_clip(latent.clone(), Terms::default()).unwrap().wait()
    };
    let enough = small_bytes.iter().sum();
    let expected = decoded(&small, enough).unwrap();
    assert!(decoded(&both, enough).unwrap() == expected);
    assert!(decoded(&both, 100 * enough).unwrap() != expected, "the whole picture at once");
    assert_eq!(decoded(&both, enough - 1).unwrap_err().kind(), ErrorKind::DoesNotFit);
}

#[test]
fn a_clip_that_fails_or_is_cancelled_leaves_no_frames() {
    let work = tempfile::tempdir().unwrap();
    let decoder = golden("seedvr2/vae_decoder.1");
    let channels = decoder.inputs["latent_sample"].shape()[1];
    let parts = ["decoder_first", "decoder_next"].map(|name| part(name, "decoder", [3, 2], 1));
    let vae = engine_of_parts(work.path(), "vae", &decoder, &parts);
    let (input, folder) = (work.path().join("latent.safetensors"), work.path().join("frames"));
    let before = [names_in(work.path()), vec!["latent.safetensors".into()]].concat();
    let left = || {
        let mut expected = before.clone();
        expected.sort();
        assert_eq!(names_in(work.path()), expected);
    };
    // The values of the last latent frame are too large for the network, after others have been decoded.
    let latents = |frames: usize, last: f32| {
        ArrayD::from_shape_fn(IxDyn(&[1, channels, frames, 2, 3]), |place| {
            if place[2] + 1 == frames { last } else { (place[3] + place[4]) as f32 * 0.1 }
        })
    };
    write_latent(&input, &latents(6, 3e38));
    let _ = command("decode", &vae, &input, &folder, &[]).failure(1, &["finite"]);
    left();
    let stream = work.path().join("out.y4m");
    let _ = command("decode", &vae, &input, &stream, &[]).failure(1, &["finite"]);
    left();

    // A signal arrives while frames are being written.
    write_latent(&input, &latents(3000, 0.0));
    let line = words(&[&"decode", &"--engine", &vae, &"--input", &input, &"--output", &folder]);
    let mut child = end_to_end::command("runtime", line).stderr(std::process::Stdio::null()).spawn().unwrap();
    let is_begun = || {
        let partial = names_in(work.path()).into_iter().find(|name| name.contains("partial"));
        partial.is_some_and(|name| work.path().join(name).join("frames/000009.png").exists())
    };
    while !is_begun() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it was stopped");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let signalled = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    left();

    // Frames of two clips are not mixed.
    write_latent(&input, &latents(2, 0.0));
    fs::create_dir(&folder).unwrap();
    let decode = || command("decode", &vae, &input, &folder, &[]);
    let _ = decode().success();
    let frames = names_in(&folder);
    assert_eq!((frames.len(), frames[0].as_str()), (5, "000001.png"));
    let _ = decode().failure(2, &["frames: expected a new or an empty folder for the frames, found one that holds"]);
    assert_eq!(names_in(&folder), frames);
    let taken = work.path().join("taken");
    fs::write(&taken, "mine").unwrap();
    let _ = command("decode", &vae, &input, &taken, &[])
        .failure(2, &["taken: expected a new or an empty folder for the frames, found a file"]);
    assert_eq!(fs::read(&taken).unwrap(), b"mine");
}

#[test]
fn what_is_no_latent_is_refused_and_nothing_is_written() {
    let work = tempfile::tempdir().unwrap();
    let golden = golden("vae/vae_decoder.0");
    let engine = small_engine(work.path(), "decoder", &golden, &golden.shapes(), &[]);
    let (input, output) = (work.path().join("latent.safetensors"), work.path().join("out.png"));
    let refused = |shape: &[usize], value: f32, expected: &[&str]| {
        write_latent(&input, &ArrayD::from_elem(IxDyn(shape), value));
        let _ = command("decode", &engine, &input, &output, &[]).failure(1, expected);
    };
    refused(&[1, 3, 8, 8], 0.0, &["expected a latent picture of 4 channels, found a latent picture of 3 channels"]);
    refused(&[1, 4, 2, 8, 8], 0.0, &["found a latent clip of 4 channels"]);
    refused(&[4, 8, 8], 0.0, &["expected a latent [1, channels, height, width]", "found f32 [4, 8, 8]"]);
    refused(&[2, 4, 8, 8], 0.0, &["expected a latent [1, channels"]);
    refused(&[1, 4, 8, 8], f32::NAN, &["found NaN or infinity"]);
    let picture_path = work.path().join("in.png");
    picture(8, 8).save(&picture_path).unwrap();
    let _ =
        command("decode", &engine, &picture_path, &output, &[]).failure(1, &["in.png: expected a name that ends in"]);
    let _ = command("encode", &engine, &picture_path, &input, &[]).failure(1, &["expected an engine that encodes"]);
    let _ = command("encode", end_to_end::demo_engine(), &picture_path, &input, &[])
        .failure(1, &["expected pixels to a latent distribution"]);
    write_latent(&input, &golden.inputs["latent_sample"]);
    let _ = command("decode", &engine, &input, &work.path().join("out.y4m"), &[])
        .failure(2, &["expected a picture's name"]);
    let _ = command("decode", &engine, &input, &work.path().join("out.txt"), &[])
        .failure(1, &["expected a name that ends in"]);
    assert!(!names_in(work.path()).iter().any(|name| name.starts_with("out") || name.contains("partial")));
}

/// A film is encoded like the stream of its frames, and a latent is decoded to a film with the requested frame rate.
#[test]
fn clips_come_from_films_and_become_films() {
    let work = tempfile::tempdir().unwrap();
    let (encoder, decoder) = (golden("seedvr2/vae_encoder.1"), golden("seedvr2/vae_decoder.1"));
    let (pixels, latents) = (encoder.inputs["sample"].shape(), encoder.outputs["latent_parameters"].shape());
    let [channels, factor] = [latents[1] / 2, pixels[3] / latents[3]];
    let (width, height) = (3 * factor, 2 * factor);
    let whole = |name: &str, golden: &GoldenComponent, input: &str, dims: [usize; 5]| {
        engine(work.path(), name, golden, input, &dims, &[("chunk", "first")])
    };
    let encodes = whole("encodes", &encoder, "sample", [1, 3, 5, height, width]);
    let decodes = whole("decodes", &decoder, "latent_sample", [1, channels, 2, 2, 3]);
    let (stream, film) = (work.path().join("in.y4m"), work.path().join("in.mkv"));
    fs::write(&stream, clip(5, width, height)).unwrap();
    let mut ffmpeg = std::process::Command::new("ffmpeg");
    ffmpeg.args(["-loglevel", "error", "-color_range", "pc", "-i"]).arg(&stream).args([
        "-c:v",
        "ffv1",
        "-color_range",
        "pc",
    ]);
    assert!(ffmpeg.arg(&film).status().unwrap().success());
    let [of_stream, of_film] = [(&stream, "stream"), (&film, "film")].map(|(input, name)| {
        let output = work.path().join(format!("{name}.safetensors"));
        let _ = command("encode", &encodes, input, &output, &[]).success();
        output
    });
    assert_eq!(latent(&of_stream).0, latent(&of_film).0);
    let decoded = work.path().join("decoded.mp4");
    let _ = command("decode", &decodes, &of_film, &decoded, &[&"--rate", &"24:1"]).success();
    let mut ffprobe = std::process::Command::new("ffprobe");
    ffprobe.args(["-loglevel", "error", "-show_entries", "stream=codec_name,width,height,r_frame_rate,nb_frames"]);
    let told = ffprobe.args(["-of", "csv=p=0"]).arg(&decoded).output().unwrap().stdout;
    let told = String::from_utf8(told).unwrap();
    assert_eq!(told.trim(), format!("h264,{width},{height},24/1,5"));
    let refused = command("decode", &decodes, &of_film, &work.path().join("out.avi"), &[]);
    let _ = refused.failure(2, &["expected a film's name"]);
}
