//! The facade: engines and pictures as a user's own program uses them.

use end_to_end::{
    GoldenPipelines, LocalRegistry, demo_engine, golden_systems, golden_video_autoencoders, repository, run,
    small_engine, words,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tileforge::{
    Cancel, Coding, Colour, Depth, Engine, ErrorKind, Format, Generate, Host, Latent, Limits, OpenOptions, Picture,
    PixelData, Pixels, Placement, RealtimeOptions, Setup, Size, Terms, Upscale,
};

fn host(cache: Option<PathBuf>) -> Host {
    Setup { cache, ..Setup::default() }.host().unwrap()
}

fn open(host: &Host, source: impl AsRef<Path>) -> tileforge::Result<Engine> {
    Engine::open(host, source, &OpenOptions::default())
}

/// A cut of the photo, as a file.
fn photo(work: &Path) -> PathBuf {
    let path = work.join("photo.png");
    image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(100, 50, 120, 90).save(&path).unwrap();
    path
}

/// Blocks on a future with the smallest possible runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Signal(Mutex<bool>, Condvar);
    impl Wake for Signal {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }
    }
    let signal = Arc::new(Signal(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(signal.clone());
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut woken = signal.0.lock().unwrap();
        while !*woken {
            woken = signal.1.wait(woken).unwrap();
        }
        *woken = false;
    }
}

#[test]
fn pictures_of_every_kind_become_what_the_command_makes_of_the_file() {
    let work = tempfile::tempdir().unwrap();
    let (input, output) = (photo(work.path()), work.path().join("command.png"));
    let line = words(&[&"infer", &"--engine", &demo_engine(), &"--input", &input, &"--output", &output]);
    let _ = run("runtime", line).success();
    let expected = Picture::open(&output).unwrap();

    let host = host(None);
    let upscaler = open(&host, demo_engine()).unwrap().upscaler(Upscale::default()).unwrap();
    let file = Picture::open(&input).unwrap();
    assert_eq!(
        (file.size(), file.colour(), file.depth()),
        (Size { width: 120, height: 90 }, Colour::Rgb, Depth::Eight)
    );
    assert!(upscaler.upscale(file.clone()).unwrap().to_eight() == expected.to_eight());
    let bytes = Picture::from_bytes(&fs::read(&input).unwrap()).unwrap();
    let read = Picture::from_reader(fs::File::open(&input).unwrap(), &Limits::default()).unwrap();
    assert!(bytes == file && read == file);

    // Rows with padding behind them, of each type of sample.
    let eight = file.to_eight();
    let padded: Vec<u8> = eight.chunks(360).flat_map(|row| row.iter().copied().chain([7; 13])).collect();
    let of = |data, stride| Picture::from_pixels(Pixels { size: file.size(), colour: file.colour(), data, stride });
    assert!(of(PixelData::Eight(&padded), Some(373)).unwrap().to_eight() == eight);
    let sixteen: Vec<u16> = eight.iter().map(|sample| u16::from(*sample) * 257).collect();
    let floats: Vec<f32> = eight.iter().map(|sample| f32::from(*sample) / 255.0).collect();
    for deep in [of(PixelData::Sixteen(&sixteen), None).unwrap(), of(PixelData::Float(&floats), None).unwrap()] {
        assert!(deep.to_eight() == eight, "{deep:?}");
        let large = upscaler.upscale(deep.clone()).unwrap();
        assert_eq!(large.depth(), deep.depth());
        let far = large.to_eight().iter().zip(expected.to_eight()).map(|(one, other)| one.abs_diff(other)).max();
        assert!(far <= Some(1), "{deep:?}: {far:?}");
    }

    // And from files again.
    let large = upscaler.upscale(file).unwrap();
    assert!(Picture::from_bytes(&large.encode(Format::Png).unwrap()).unwrap().to_eight() == large.to_eight());
    assert!(Picture::from_bytes(&large.encode(Format::Jpeg).unwrap()).unwrap().size() == large.size());
    large.write(work.path().join("large.tif")).unwrap();
    assert!(Picture::open(work.path().join("large.tif")).unwrap().to_eight() == large.to_eight());
}

#[test]
fn requests_are_awaited_cancelled_and_refused_with_a_kind() {
    let host = host(None);
    let engine = open(&host, demo_engine()).unwrap();
    let upscaler = engine.upscaler(Upscale::default()).unwrap();
    let grey = |width: u32, height: u32| {
        let samples = vec![100; (width * height) as usize];
        let (size, colour) = (Size { width, height }, Colour::Grey);
        Picture::from_pixels(Pixels { size, colour, data: PixelData::Eight(&samples), stride: None }).unwrap()
    };
    let small = block_on(upscaler.submit(grey(30, 20), Terms::default()).unwrap()).unwrap();
    assert_eq!(small.size(), Size { width: 120, height: 80 });

    let cancel = Cancel::new();
    let large = upscaler.submit(grey(6000, 6000), &cancel).unwrap();
    while large.progress().done == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let asked = std::time::Instant::now();
    cancel.cancel();
    assert_eq!(large.wait().unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(asked.elapsed() < std::time::Duration::from_secs(5), "{:?}", asked.elapsed());

    let kind = |result: tileforge::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(open(&host, "/nowhere/engine").map(drop)), ErrorKind::InvalidInput);
    assert_eq!(kind(open(&host, "oci://registry/two words:1").map(drop)), ErrorKind::InvalidInput);
    assert_eq!(kind(engine.depth(Placement::default()).map(drop)), ErrorKind::InvalidInput);
    assert_eq!(kind(engine.inpainter(Placement::default()).map(drop)), ErrorKind::InvalidInput);
    assert_eq!(kind(engine.generator(Default::default()).map(drop)), ErrorKind::InvalidInput);
    let gpu = Placement { provider: Some(tileforge::Provider::Cuda), ..Placement::default() };
    assert_eq!(
        kind(engine.upscaler(Upscale { placement: gpu, ..Upscale::default() }).map(drop)),
        ErrorKind::DoesNotFit
    );
    assert_eq!(kind(Picture::from_bytes(b"no picture").map(drop)), ErrorKind::InvalidInput);
    assert_eq!(kind(Picture::open("/nowhere/photo.png").map(drop)), ErrorKind::InvalidInput);
    let of = |width, height, data: &[f32], stride| {
        let (size, data) = (Size { width, height }, PixelData::Float(data));
        Picture::from_pixels(Pixels { size, colour: Colour::Rgb, data, stride }).map(drop)
    };
    for (result, expected) in [
        (of(2, 2, &[0.0; 11], None), "pixels: expected 12 samples for 2×2, found 11"),
        (of(2, 2, &[0.0; 12], Some(5)), "pixels: expected a stride of at least 6 samples, one row, found 5"),
        (of(0, 2, &[], None), "pixels: expected at least one pixel, found 0×2"),
        (of(1, 1, &[0.0, f32::NAN, 0.0], None), "pixels: expected finite samples, found NaN"),
        (of(u32::MAX, u32::MAX, &[0.0; 3], Some(usize::MAX)), "pixels: expected more than there can be samples for"),
    ] {
        let error = result.unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    let tensors = engine.tensors(Placement::default()).unwrap();
    assert_eq!(kind(tensors.run(BTreeMap::new()).map(drop)), ErrorKind::InvalidInput);
}

#[test]
fn archives_and_registries_are_opened_once_and_kept() {
    let work = tempfile::tempdir().unwrap();
    let (archive, cache) = (work.path().join("engine.tar"), work.path().join("cache"));
    let _ = run("engine-builder", words(&[&"pack", &demo_engine(), &"-o", &archive])).success();
    let without = host(None);
    assert!(open(&without, &archive).unwrap_err().to_string().contains("cache"));

    let host = host(Some(cache.clone()));
    let name = open(&host, &archive).unwrap().name().to_owned();
    let kept: Vec<_> = fs::read_dir(cache.join("archives")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let written = fs::metadata(kept[0].join("manifest.json")).unwrap().modified().unwrap();
    assert_eq!(open(&host, &archive).unwrap().name(), name);
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::metadata(kept[0].join("manifest.json")).unwrap().modified().unwrap(), written);

    let registry = LocalRegistry::start(false);
    let reference = registry.reference("compact:1.0");
    let _ = run("engine-builder", words(&[&"push", &demo_engine(), &reference])).success();
    let engine = open(&host, &reference).unwrap();
    let upscaler = engine.upscaler(Upscale::default()).unwrap();
    let large = upscaler.upscale(Picture::open(photo(work.path())).unwrap()).unwrap();
    assert_eq!(large.size(), Size { width: 480, height: 360 });
}

#[test]
fn a_pipeline_makes_pictures_and_its_parts_code_them() {
    let work = tempfile::tempdir().unwrap();
    let directory = GoldenPipelines::read().engine(work.path(), "sd");
    let host = host(None);
    let engine = open(&host, &directory).unwrap();
    assert_eq!(engine.task(), None);
    let generator = engine.generator(Default::default()).unwrap();
    let settings = tileforge::diffusion::Settings {
        steps: 3,
        seed: 5,
        ..generator.settings("a fox", tileforge::diffusion::GenerateKind::TextToImage)
    };
    let made = generator.generate(settings.clone()).unwrap();
    assert_eq!((made.pictures.len(), made.pictures[0].size()), (1, generator.sizes()[0]));
    let decoder = engine.decoder(Default::default()).unwrap();
    assert!(decoder.decode(made.latents[0].clone()).unwrap() == made.pictures[0]);
    // The fields of a latent are public, so they may contradict each other.
    let short = Latent { values: made.latents[0].values[1..].to_vec(), ..made.latents[0].clone() };
    let refused = decoder.decode(short).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let expected = "latent_sample: expected 256 values for 4 channels of 8×8, found 255";
    assert_eq!(refused.to_string(), expected);
    let latent = engine.encoder(Default::default()).unwrap().encode(made.pictures[0].clone()).unwrap();
    assert_eq!((latent.channels, latent.size), (made.latents[0].channels, made.latents[0].size));
    let changed = generator.submit_from(settings, made.pictures[0].clone(), None, Terms::default()).unwrap();
    assert_eq!(changed.wait().unwrap().pictures[0].size(), made.pictures[0].size());
    assert_eq!(engine.upscaler(Upscale::default()).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn previews_come_between_the_steps_and_change_no_pixel() {
    let work = tempfile::tempdir().unwrap();
    let directory = GoldenPipelines::read().engine(work.path(), "sd");
    let generator = open(&host(None), &directory).unwrap().generator(Default::default()).unwrap();
    assert!(!generator.needs_mask() && generator.scheduler().ends_with("Scheduler"), "{}", generator.scheduler());
    let size = generator.sizes()[0];
    let settings = |kind| tileforge::diffusion::Settings {
        steps: 5,
        seed: 5,
        strength: 1.0,
        size: Some(size),
        // One evaluation for each step.
        scheduler: Some("EulerDiscreteScheduler".into()),
        ..generator.settings("a fox", kind)
    };
    let grey = |value: u8| {
        let samples = vec![value; size.pixels() as usize];
        let data = PixelData::Eight(&samples);
        Picture::from_pixels(Pixels { size, colour: Colour::Grey, data, stride: None }).unwrap()
    };
    let text = || Generate::new(settings(tileforge::diffusion::GenerateKind::TextToImage));
    let start = || Generate::new(settings(tileforge::diffusion::GenerateKind::ImageToImage)).from_picture(grey(99));
    for (request, every, expected) in [
        (&text as &dyn Fn() -> Generate, 1, &[1, 2, 3, 4][..]),
        (&text, 2, &[2, 4]),
        (&text, 9, &[]),
        (&start, 2, &[2, 4]),
        (&|| start().with_mask(grey(255)), 3, &[3]),
    ] {
        let shown = Arc::new(Mutex::new(Vec::new()));
        let keep = shown.clone();
        let watched = request().with_previews(every, move |steps, picture| keep.lock().unwrap().push((steps, picture)));
        let watched = generator.send(watched, Terms::default()).unwrap().wait().unwrap();
        let alone = generator.send(request(), Terms::default()).unwrap().wait().unwrap();
        assert!(watched.pictures == alone.pictures);
        let shown = shown.lock().unwrap();
        assert_eq!(shown.iter().map(|(steps, _)| *steps).collect::<Vec<_>>(), expected);
        assert!(shown.iter().all(|(_, picture)| picture.size() == size && *picture != alone.pictures[0]));
    }
    // A request that is cancelled in the middle shows no more previews.
    let (cancel, count) = (Cancel::new(), Arc::new(Mutex::new(0)));
    let (ending, counted) = (cancel.clone(), count.clone());
    let request = text().with_previews(1, move |_, _| {
        *counted.lock().unwrap() += 1;
        ending.cancel();
    });
    let ended = generator.send(request, &cancel).unwrap().wait().unwrap_err();
    assert_eq!((ended.kind(), *count.lock().unwrap()), (ErrorKind::Cancelled, 1));
}

/// Frames whose colours move.
fn frames(count: usize, size: Size) -> Vec<Picture> {
    let frame = |number: usize| {
        let sample = |at: usize| ((at * 7 + at / 50 + number * 31) * 257) as u16;
        let samples: Vec<u16> = (0..size.pixels() as usize * 3).map(sample).collect();
        let data = PixelData::Sixteen(&samples);
        Picture::from_pixels(Pixels { size, colour: Colour::Rgb, data, stride: None }).unwrap()
    };
    (0..count).map(frame).collect()
}

#[test]
fn a_stream_gives_a_frame_for_each_and_ends_when_nobody_takes_them() {
    let work = tempfile::tempdir().unwrap();
    let golden = golden_systems(work.path()).into_iter().find(|golden| golden.name.starts_with("GPUStressTestModel"));
    let golden = golden.unwrap();
    let engine = small_engine(work.path(), "engine", &golden, &golden.shapes(), &[]);
    let shape = golden.inputs["frame"].shape();
    let size = Size { width: shape[3] as u32, height: shape[2] as u32 };

    let host = host(None);
    let all = frames(9, size);
    let player = open(&host, &engine).unwrap().player(RealtimeOptions::default()).unwrap();
    let first: Vec<Picture> = player.play(all.clone(), Terms::default()).unwrap().map(Result::unwrap).collect();
    assert_eq!(first.len(), 9);
    assert!(first.iter().all(|frame| frame.size() == size));
    // Each frame depends on the previous one: the same frames give the same stream, and other first frames give
    // another.
    let again: Vec<Picture> = player.play(all.clone(), Terms::default()).unwrap().map(Result::unwrap).collect();
    assert!(again == first);
    let later: Vec<Picture> = player.play(all[1..].to_vec(), Terms::default()).unwrap().map(Result::unwrap).collect();
    assert!(later[0] != first[1]);
    // Runs of a stream that has a session of its own count as all others.
    let metrics = host.metrics();
    assert_eq!((metrics.runs.get(&1), metrics.failed), (Some(&26), 0));
    assert!(metrics.run_seconds > 0.0);
    let took = player.play(all.clone(), Terms::default()).unwrap().finish().unwrap();
    assert_eq!((took.frames, took.dropped, took.size), (9, 0, size));

    let mut none = player.play([], Terms::default()).unwrap();
    let error = none.next().unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::InvalidInput, "expected at least one frame, found none")
    );
    assert!(none.next().is_none() && none.next().is_none());
    // A stream without an end holds its session until it is dropped.
    let endless = std::iter::repeat(all[0].clone());
    let mut stream = player.play(endless.clone(), Terms::default()).unwrap();
    assert!(stream.next().unwrap().unwrap() == first[0]);
    drop(stream);
    let stream = player.play(endless, Terms::default()).unwrap();
    stream.cancel();
    let ended = stream.map(|frame| frame.map(drop)).find_map(Result::err).unwrap();
    assert_eq!(ended.kind(), ErrorKind::Cancelled);
    assert_eq!(player.play(all, Terms::default()).unwrap().count(), 9);
}

#[test]
fn clips_become_latents_and_frames_again() {
    let work = tempfile::tempdir().unwrap();
    let all = golden_video_autoencoders();
    let golden = |name: &str| all.iter().find(|golden| golden.name.starts_with(name)).unwrap();
    let (encoder, decoder) = (golden("seedvr2/vae_encoder.1"), golden("seedvr2/vae_decoder.1"));
    let first = [("chunk", "first")];
    let engines = [("encoder", encoder), ("decoder", decoder)].map(|(name, golden)| {
        let engine = small_engine(work.path(), name, golden, &golden.shapes(), &first);
        open(&host(None), engine).unwrap()
    });
    let shape = encoder.inputs["sample"].shape();
    let size = Size { width: shape[4] as u32, height: shape[3] as u32 };
    let clip = frames(shape[2], size);
    let [coder, maker] = engines;
    let coder = coder.encoder(Coding::default()).unwrap();
    let latent = coder.submit_clip(clip.clone(), Terms::default()).unwrap().wait().unwrap();
    let again = coder.submit_clip(clip, Terms::default()).unwrap().wait().unwrap();
    assert!(latent.values == again.values);
    let none = coder.submit_clip([], Terms::default()).unwrap().wait().unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput, "{none}");
    let maker = maker.decoder(Coding::default()).unwrap();
    let frames = maker.submit_clip(latent.clone(), Terms::default()).unwrap().wait().unwrap();
    assert!(!frames.is_empty() && frames.iter().all(|frame| frame.colour() == Colour::Rgb));
    for (refused, expected) in [
        (Latent { frames: Some(0), values: Vec::new(), ..latent.clone() }, "at least one channel, frame and pixel"),
        (Latent { values: Vec::new(), ..latent.clone() }, &format!("{} values for", latent.values.len())),
    ] {
        let error = maker.submit_clip(refused, Terms::default()).unwrap().wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(&format!(": expected {expected}")), "{error}");
    }
    let one = maker.submit(latent, Terms::default()).unwrap().wait();
    assert!(one.is_err() == (frames.len() > 1), "one picture is not several");
}

#[test]
fn the_readme_shows_the_example_that_is_compiled() {
    let [readme, example] =
        ["README.md", "crates/tileforge/examples/enlarge.rs"].map(|name| fs::read_to_string(repository(name)).unwrap());
    assert!(readme.contains(&format!("```rust\n{example}```")));
    assert!(example.lines().count() <= 18);
}
