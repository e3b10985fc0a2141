//! Exported video autoencoders give the same outputs as the reference, for a whole video and for the same video in
//! chunks.

use end_to_end::{GoldenComponent, Graph, error_over_range, golden_video_autoencoders, names_in, run, words};
use ndarray::{ArrayD, ArrayViewD, Axis, Slice, concatenate};
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_exporter::arch::{Keys, detect_task, registry};
use tileforge_exporter::nn::{Parameters, Scope};
use tileforge_exporter::{Checkpoint, Shapes, export_task};
use tileforge_graph::{DataType, Trace, WeightStorage, save};
use tileforge_session::SessionOptions;

/// Largest absolute error over the range of the reference's output.
const TOLERANCE: f32 = 2e-5;
/// Largest absolute difference between a video and its chunks, over the range.
const CHUNK_TOLERANCE: f32 = 1e-5;
/// The axis of the frames.
const TIME: Axis = Axis(2);

fn golden() -> Vec<GoldenComponent> {
    let all = golden_video_autoencoders();
    assert!(all.len() >= 14, "only {} golden inputs", all.len());
    all
}

/// The graph of a golden checkpoint for one chunk, with fixed or with dynamic input shapes.
fn session(golden: &GoldenComponent, chunk: &str, shapes: &Shapes, storage: WeightStorage) -> Graph {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
    let hints = BTreeMap::from([("chunk".to_owned(), chunk.to_owned())]);
    let export = export_task(&checkpoint, Some(golden.graph.parse().unwrap()), shapes, &hints);
    save(&export.unwrap_or_else(|e| panic!("{} {chunk}: {e}", golden.name)).model, &path, storage).unwrap();
    tileforge_graph::load(&path).unwrap_or_else(|e| panic!("{}: {e}", golden.name));
    Graph::open(&path, &SessionOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", golden.name))
}

fn only<T>(map: &BTreeMap<String, T>) -> (&str, &T) {
    assert_eq!(map.len(), 1);
    map.first_key_value().map(|(name, value)| (name.as_str(), value)).unwrap()
}

/// The results of a session for a chunk: the output of this name, and the caches as inputs for the next chunk.
fn give(session: &mut Graph, video: (&str, ArrayViewD<'_, f32>), kept: &Kept, output: &str) -> (ArrayD<f32>, Kept) {
    let inputs: Vec<_> =
        std::iter::once(video).chain(kept.iter().map(|(name, value)| (name.as_str(), value.view()))).collect();
    let mut outputs: BTreeMap<String, ArrayD<f32>> = session.run(&inputs).unwrap().into_iter().collect();
    let made = outputs.remove(output).unwrap();
    let kept: Kept =
        outputs.into_iter().map(|(name, value)| (name.strip_prefix("next_").unwrap().to_owned(), value)).collect();
    (made, kept)
}

type Kept = BTreeMap<String, ArrayD<f32>>;

fn dims(shape: &[usize]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

#[test]
fn whole_videos_match_the_reference() {
    for golden in &golden() {
        let ((input, video), (output, expected)) = (only(&golden.inputs), only(&golden.outputs));
        let fixed: Shapes = format!("{input}:{}", dims(video.shape())).parse().unwrap();
        for (shapes, storage) in [(fixed, WeightStorage::Link), (Shapes::default(), WeightStorage::Copy)] {
            let mut session = session(golden, "first", &shapes, storage);
            let (found, kept) = give(&mut session, (input, video.view()), &Kept::new(), output);
            let error = error_over_range(&found, expected);
            println!("{:<45} {:<22} {} caches {error:.1e}", golden.name, dims(video.shape()), kept.len());
            assert!(error <= TOLERANCE, "{}: {error}", golden.name);
        }
    }
}

/// The tested divisions of a video: the frames of the first chunk, then of the later chunks.
fn cuts(golden: &GoldenComponent, frames: usize) -> Vec<Vec<usize>> {
    // The counts are in latent frames. For an encoder, each stands for several frames of the video.
    let checkpoint = Checkpoint::open(&golden.checkpoint).unwrap();
    let network = detect_task(&checkpoint, Some(golden.graph.parse().unwrap()), &BTreeMap::new()).unwrap();
    let pixels = network.contract().inputs.iter().find_map(|input| input.frames()).unwrap();
    let factor = pixels.step;
    let latent = (frames - 1) / factor + 1;
    let cuts = (1..latent).flat_map(|first| {
        let rest = latent - first;
        [vec![first, rest], [vec![first], vec![1; rest]].concat()]
    });
    let of_video = |(i, frames): (usize, usize)| if i == 0 { (frames - 1) * factor + 1 } else { frames * factor };
    cuts.map(|cut| cut.into_iter().enumerate().map(of_video).collect()).collect()
}

#[test]
fn chunks_give_what_the_whole_video_gives() {
    let mut tried = 0;
    for golden in &golden() {
        let ((input, video), (output, expected)) = (only(&golden.inputs), only(&golden.outputs));
        let cuts = cuts(golden, video.len_of(TIME));
        if cuts.is_empty() {
            continue;
        }
        let [mut first, mut next] =
            ["first", "next"].map(|chunk| session(golden, chunk, &Shapes::default(), WeightStorage::Copy));
        let (whole, _) = give(&mut first, (input, video.view()), &Kept::new(), output);
        for cut in cuts {
            let (mut start, mut kept, mut parts) = (0, Kept::new(), Vec::new());
            for frames in &cut {
                let part = video.slice_axis(TIME, Slice::from(start..start + frames));
                let session = if start == 0 { &mut first } else { &mut next };
                let (made, left) = give(session, (input, part), &kept, output);
                parts.push(made);
                kept = left;
                start += frames;
            }
            assert_eq!(start, video.len_of(TIME));
            let joined = concatenate(TIME, &parts.iter().map(|part| part.view()).collect::<Vec<_>>()).unwrap();
            let (apart, error) = (error_over_range(&joined, &whole), error_over_range(&joined, expected));
            println!("{:<45} {cut:?}: {apart:.1e} from the whole, {error:.1e} from the reference", golden.name);
            assert!(apart <= CHUNK_TOLERANCE && error <= TOLERANCE, "{} {cut:?}: {apart}, {error}", golden.name);
            tried += 1;
        }
    }
    assert!(tried >= 30, "only {tried} cuts");
}

/// A graph of fixed shapes for each kind of chunk, as in engines.
#[test]
fn chunks_of_fixed_shapes_give_it_too() {
    for golden in golden().iter().filter(|golden| golden.name.starts_with("seedvr2/")) {
        let ((input, video), (output, expected)) = (only(&golden.inputs), only(&golden.outputs));
        let factor = if golden.graph == "vae_encoder" { 4 } else { 1 };
        let frames = video.len_of(TIME);
        if frames <= factor {
            continue;
        }
        let [first, rest] = [video.slice_axis(TIME, Slice::from(..1)), video.slice_axis(TIME, Slice::from(1..))];
        let shapes = |part: &ArrayViewD<'_, f32>| format!("{input}:{}", dims(part.shape())).parse::<Shapes>().unwrap();
        let (made, kept) = give(
            &mut session(golden, "first", &shapes(&first), WeightStorage::Link),
            (input, first),
            &Kept::new(),
            output,
        );
        let (more, _) =
            give(&mut session(golden, "next", &shapes(&rest), WeightStorage::Link), (input, rest), &kept, output);
        let joined = concatenate(TIME, &[made.view(), more.view()]).unwrap();
        assert!(error_over_range(&joined, expected) <= TOLERANCE, "{}", golden.name);
    }
}

/// The published checkpoint, `ema_vae_fp16.safetensors`, has 250 tensors; the reference counts their elements.
#[test]
fn the_published_size_is_the_reference_s() {
    let mut all = 0;
    for (name, elements) in [("VideoAutoencoderKLEncoder", 100_046_496), ("VideoAutoencoderKLDecoder", 150_601_731)] {
        let entry = registry().iter().find(|entry| entry.name == name).unwrap();
        let (_, network) = entry.presets().into_iter().find(|(preset, _)| *preset == "seedvr2").unwrap();
        let parameters = Parameters::declared_only();
        let trace = Trace::new(name, 9, 20);
        network.build(&Scope::root(&trace, &parameters), &Shapes::default()).unwrap();
        trace.finish().unwrap();
        assert_eq!(parameters.elements(), elements, "{name}");
        all += parameters.declarations().len();
    }
    assert_eq!(all, 250);
}

#[test]
fn videos_and_images_are_told_apart() {
    let of =
        |folder: &str, file: &str| Checkpoint::open(end_to_end::repository(&format!("tests/{folder}/{file}"))).unwrap();
    let found = |checkpoint: &Checkpoint, task: &str| {
        let network = detect_task(checkpoint, Some(task.parse().unwrap()), &BTreeMap::new()).unwrap();
        network.architecture().to_owned()
    };
    let (video, image) = (
        of("golden-video-vae", "seedvr2/ema_vae.safetensors"),
        of("golden-diffusers", "vae/diffusion_pytorch_model.safetensors"),
    );
    assert_eq!(found(&video, "vae_encoder"), "VideoAutoencoderKLEncoder");
    assert_eq!(found(&video, "vae_decoder"), "VideoAutoencoderKLDecoder");
    assert_eq!(found(&image, "vae_encoder"), "AutoencoderKLEncoder");
    assert_eq!(found(&image, "vae_decoder"), "AutoencoderKLDecoder");
    assert_eq!(Keys::new(&video, &BTreeMap::new()).dims::<5>("encoder.conv_in.weight").unwrap(), [4, 3, 3, 3, 3]);
    assert!(video.tensors().values().all(|weight| weight.data_type() == DataType::F16));
}

#[test]
fn wrong_requests_say_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model.onnx");
    let video = end_to_end::repository("tests/golden-video-vae/seedvr2/ema_vae.safetensors");
    let image = end_to_end::repository("tests/golden-diffusers/vae/diffusion_pytorch_model.safetensors");
    let cache = "cache.encoder.conv_in";
    let cases: &[(&Path, &str, &str, &[&str])] = &[
        (&video, "first", "sample:1x3x8x16x16", &["4*FRAMES-3", "8 is no multiple of 4 plus 1", "5 or 9"]),
        (&video, "next", "sample:1x3x5x16x16", &["4*FRAMES", "5 is no multiple of 4"]),
        (&video, "first", "sample:1x3x5x12x16", &["12 is no multiple of 8"]),
        (&video, "first", "sample:1x3x16x16", &["BATCHx3x4*FRAMES-3x8*HEIGHTx8*WIDTH"]),
        (&video, "next", &format!("{cache}:1x2x3x16x16"), &["the sizes of the caches follow from those of the video"]),
        (&video, "next", &format!("sample:1x3x4x16x16,{cache}:1x1x3x16x16"), &["expected 1x2x3x16x16"]),
        (&video, "first", &format!("{cache}:1x2x3x16x16"), &["no input `cache.encoder.conv_in`"]),
        (&video, "middle", "sample:1x3x5x16x16", &["invalid value 'middle'", "possible values: first, next"]),
        (&image, "next", "sample:1x3x16x16", &["AutoencoderKLEncoder has no hyperparameter `chunk`"]),
    ];
    for (checkpoint, chunk, shapes, said) in cases {
        let arguments = words(&[
            &"export",
            checkpoint,
            &"--component",
            &"vae_encoder",
            &"--chunk",
            chunk,
            &"--shapes",
            shapes,
            &"-o",
            &out,
        ]);
        let _ = run("exporter", arguments).failure(2, said);
        assert!(names_in(folder.path()).is_empty(), "{chunk} {shapes}");
    }
    let arguments = words(&[&"export", &video, &"-o", &out]);
    let _ = run("exporter", arguments).failure(2, &["--component vae_encoder"]);
}
