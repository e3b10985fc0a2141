//! Requests of several callers at once, through the library: shared runs change nothing.

use end_to_end::{
    GoldenPipelines, THREADS, demo_engine, golden_components, golden_systems, list_again, run_with_cache_in, words,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use tileforge::{Colour, ErrorKind, OpenOptions, Picture, PixelData, Priority, Setup, Upscale};
use tileforge_contract::Provider;
use tileforge_engine::{Engine, Pipeline};
use tileforge_image::{Format, ImageReader, ImageWriter, Limits, RowSource, Size};
use tileforge_runtime::autoencoder::{CodingOptions, DecodeRequest, Decoder, Latent};
use tileforge_runtime::depth::Estimate;
use tileforge_runtime::diffusion::{
    Family, GenerateKind, GenerateRequest, Generated, Generator, GeneratorOptions, Settings,
};
use tileforge_runtime::host::{Handle, Host, HostOptions, Service, Terms};
use tileforge_runtime::upscale::{UpscaleOptions, UpscaleRequest, Upscaler};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Environment, Placement, SessionOptions};

/// Eight requests with different values of every setting.
fn settings() -> Vec<Settings> {
    let of = |prompt: &str, steps: usize, scheduler: &str, guidance: f64, seed: u64, count: usize| Settings {
        steps,
        scheduler: Some(scheduler.into()),
        guidance,
        seed,
        count,
        ..Settings::new(prompt, GenerateKind::TextToImage, Family::StableDiffusion)
    };
    vec![
        of("a red fox", 4, "EulerDiscreteScheduler", 4.0, 1, 1),
        of("a house by the sea", 7, "DDIMScheduler", 7.5, 2, 1),
        of("snow", 5, "DPMSolverMultistepScheduler", 1.0, 3, 1),
        of("(a cat:1.3) and a dog", 6, "EulerAncestralDiscreteScheduler", 3.0, 4, 1),
        of("a bicycle", 3, "UniPCMultistepScheduler", 9.0, 5, 2),
        of("", 8, "PNDMScheduler", 2.0, 6, 1),
        of("a boat", 4, "LMSDiscreteScheduler", 1.0, 7, 1),
        of("an old tree", 6, "HeunDiscreteScheduler", 5.0, 8, 1),
    ]
}

fn host() -> Host {
    Host::new(&Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap()), HostOptions::default())
}

fn placement(threads: usize) -> Placement {
    let session = SessionOptions { threads: Some(threads), ..SessionOptions::default() };
    Placement { session, ..Placement::default() }
}

fn service(engine: &Path, threads: usize) -> (Host, Service<Generator>) {
    let host = host();
    let options = GeneratorOptions { placement: placement(threads), ..GeneratorOptions::default() };
    let generator = Generator::new(&host, &Pipeline::open(engine).unwrap(), options).unwrap();
    let service = Service::new(&host, generator, 8);
    (host, service)
}

fn bits(made: &Generated) -> Vec<u32> {
    let latents = made.latents.iter().flat_map(|latent| &latent.values);
    latents.chain(made.pictures.iter().flat_map(|picture| &picture.samples)).map(|value| value.to_bits()).collect()
}

#[test]
fn pictures_that_share_runs_of_a_network_are_those_that_each_gives_alone() {
    let work = tempfile::tempdir().unwrap();
    let engine = GoldenPipelines::read().engine_with(work.path(), "sd", &["--batch", "4"]);
    let mut alone: Option<Vec<Vec<u32>>> = None;
    for threads in THREADS {
        let (_, service) = service(&engine, threads);
        let one = |settings: Settings| {
            bits(&service.submit(GenerateRequest::new(settings), Terms::default()).unwrap().wait().unwrap())
        };
        let each: Vec<Vec<u32>> = settings().into_iter().map(one).collect();
        assert!(alone.get_or_insert_with(|| each.clone()) == &each, "{threads} threads, each alone");
        drop(service);

        let (host, service) = self::service(&engine, threads);
        let all: Vec<_> = settings()
            .into_iter()
            .map(|settings| service.submit(GenerateRequest::new(settings), Terms::default()).unwrap())
            .collect();
        for ((number, handle), expected) in all.into_iter().enumerate().zip(&each) {
            let made = bits(&handle.wait().unwrap());
            assert!(made == *expected, "{threads} threads: request {number} is another one beside the others");
        }
        // With guidance, a request has two rows in each step, and one of the requests is for two pictures.
        let runs = host.metrics().runs;
        assert!(runs.keys().any(|rows| *rows > 4), "nothing was shared: {runs:?}");
        service.shutdown();
    }
}

/// A profile for a network of `sd` alone, for several latents of 8×8 in a run.
const NETWORK: &str = "\
name: network
provider: cpu
precision: fp32
tasks:
  unet: { tiles: [8x8], batch: [1, 2, 4] }
floors:
  psnr_db: 100
  cosine: 0.999999
";

/// The engine of `sd` with a network that takes one timestep for all samples of a run, as older engines have.
fn engine_with_a_shared_timestep(work: &Path) -> PathBuf {
    let engine = GoldenPipelines::read().engine_with(work, "sd", &["--batch", "4"]);
    let (profile, unet) = (work.join("network.yaml"), engine.join("unet"));
    std::fs::write(&profile, NETWORK).unwrap();
    std::fs::remove_dir_all(&unet).unwrap();
    let from = words(&[&"build", &work.join("sd.folder/unet"), &"--set", &"timestep=shared"]);
    let line = from.into_iter().chain(words(&[&"--profile", &profile, &"-o", &unet]));
    let _ = run_with_cache_in(work, "engine-builder", line).success();
    list_again(&engine);
    engine
}

fn upscaler(host: &Host) -> Service<Upscaler> {
    let options = UpscaleOptions { placement: placement(2), ..UpscaleOptions::default() };
    Service::new(host, Upscaler::new(host, &Engine::open(demo_engine()).unwrap(), options).unwrap(), 1)
}

/// A large picture of many tiles.
fn photo(upscaler: &Upscaler, output: &Path) -> UpscaleRequest {
    let input = output.with_extension("bmp");
    image::RgbImage::from_fn(3000, 3000, |x, y| image::Rgb([x as u8, y as u8, 9])).save(&input).unwrap();
    let reader = ImageReader::open(&input, &Limits::default()).unwrap();
    let header = upscaler.output_of(reader.header()).unwrap();
    let writer = ImageWriter::create(output, Format::Png, header).unwrap();
    UpscaleRequest::opened(reader, writer)
}

#[test]
fn a_network_with_one_timestep_for_a_run_shares_runs_at_equal_timesteps_alone() {
    let work = tempfile::tempdir().unwrap();
    let engine = engine_with_a_shared_timestep(work.path());
    let manifest = Engine::open(&engine.join("unet")).unwrap().manifest().clone();
    assert!(manifest.graphs.iter().all(|graph| graph.inputs["timestep"].is_empty()), "{:?}", manifest.graphs);
    assert_eq!(manifest.batches_change_no_byte, Some(true));
    // Four requests have the same timesteps, and the others have others at most of their steps.
    let equal = [("a red fox", 11), ("snow", 12), ("a boat", 13), ("", 14)].map(|(prompt, seed)| Settings {
        steps: 6,
        scheduler: Some("EulerDiscreteScheduler".into()),
        guidance: 4.0,
        seed,
        ..Settings::new(prompt, GenerateKind::TextToImage, Family::StableDiffusion)
    });
    let others = settings().into_iter().filter(|settings| settings.count == 1);
    let requests: Vec<Settings> = equal.into_iter().chain(others).collect();
    let made = |together: bool| {
        let (host, service) = service(&engine, 2);
        let submit = |settings: Settings| service.submit(GenerateRequest::new(settings), Terms::default()).unwrap();
        let made: Vec<Vec<u32>> = if together {
            // Tiles of another engine take longer than a step is prepared, so that steps of several requests wait.
            let held = upscaler(&host);
            let background = Terms { priority: Priority::Background, ..Terms::default() };
            let holding = held.submit(photo(held.task(), &work.path().join("large.png")), background).unwrap();
            let all: Vec<_> = requests.iter().cloned().map(submit).collect();
            let made = all.into_iter().map(|handle| bits(&handle.wait().unwrap())).collect();
            holding.cancel();
            assert!(holding.wait().is_err(), "the device was free");
            made
        } else {
            requests.iter().cloned().map(|settings| bits(&submit(settings).wait().unwrap())).collect()
        };
        let most = host.metrics().runs.keys().copied().max();
        service.shutdown();
        (made, most)
    };
    // With guidance, a request has two rows in each step.
    let (alone, most) = made(false);
    assert_eq!(most, Some(2));
    // Rows that shared a run at another timestep than their own would become others. Where no two requests happened to
    // be at the same step, they come again.
    let is_shared = (0..20).any(|_| {
        let (together, most) = made(true);
        for (number, (found, expected)) in together.iter().zip(&alone).enumerate() {
            assert!(found == expected, "request {number} is another one beside the others");
        }
        most == Some(4)
    });
    assert!(is_shared, "nothing was shared");
}

/// 10 times the logarithm of the squared range over the mean squared error.
fn psnr_db(found: &[f32], expected: &[f32]) -> f64 {
    let wide = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
    let (found, expected) = (wide(found), wide(expected));
    let [least, most] = [f64::min, f64::max].map(|of| expected.iter().copied().reduce(of).unwrap());
    let squares = found.iter().zip(&expected).map(|(found, expected)| (found - expected).powi(2));
    let error = squares.sum::<f64>() / expected.len() as f64;
    10.0 * ((most - least).powi(2) / error).log10()
}

#[test]
fn where_kernels_round_otherwise_in_a_batch_runs_are_shared_only_if_that_is_allowed() {
    let work = tempfile::tempdir().unwrap();
    let engine = GoldenPipelines::read().engine_with(work.path(), "sd", &["--batch", "4"]);
    let made = |allows_rounding: bool, together: bool| {
        let host = host();
        let placement = Placement { provider: Some(Provider::OpenVino), ..placement(2) };
        let options = GeneratorOptions { placement, ..GeneratorOptions::default() };
        let generator = Generator::new(&host, &Pipeline::open(&engine).unwrap(), options).unwrap();
        let service = Service::new(&host, generator, 8);
        let submit = |settings: Settings| {
            let terms = Terms { allows_rounding, ..Terms::default() };
            service.submit(GenerateRequest::new(settings), terms).unwrap()
        };
        let latents = |handle: Handle<Generated>| -> Vec<f32> {
            let made = handle.wait().unwrap();
            assert_eq!(made.statistics.assigned[0].provider, Provider::OpenVino.onnxruntime_name());
            made.latents.iter().flat_map(|latent| latent.values.clone()).collect()
        };
        let made: Vec<Vec<f32>> = if together {
            let all: Vec<_> = settings().into_iter().map(submit).collect();
            all.into_iter().map(latents).collect()
        } else {
            settings().into_iter().map(|settings| latents(submit(settings))).collect()
        };
        let runs = host.metrics().runs;
        service.shutdown();
        (made, runs.keys().any(|rows| *rows > 4))
    };
    let (alone, shared) = made(true, false);
    assert!(!shared);
    let (apart, shared) = made(false, true);
    assert!(!shared && apart == alone, "another rounding was not allowed");
    let (together, shared) = made(true, true);
    assert!(shared, "nothing was shared");
    for (number, (found, expected)) in together.iter().zip(&alone).enumerate() {
        let db = psnr_db(found, expected);
        assert!(db >= 90.0, "request {number}: {db:.1} dB");
    }
}

/// A decoder of pictures, with graphs for several latents of 32×32.
const DECODER: &str = "\
name: together
provider: cpu
precision: fp32
tasks:
  vae_decoder: { tiles: [32x32], batch: [1, 2, 4] }
floors:
  psnr_db: 100
  cosine: 0.999999
";

#[test]
fn latents_that_share_runs_of_a_decoder_are_the_pictures_that_each_gives_alone() {
    let work = tempfile::tempdir().unwrap();
    let (profile, engine) = (work.path().join("together.yaml"), work.path().join("decoder"));
    std::fs::write(&profile, DECODER).unwrap();
    let golden = golden_components().into_iter().find(|golden| golden.name.starts_with("vae/vae_decoder.0")).unwrap();
    let from = words(&[&"build", &golden.checkpoint, &"--component", &golden.graph]);
    let line = from.into_iter().chain(words(&[&"--profile", &profile, &"-o", &engine]));
    let _ = run_with_cache_in(work.path(), "engine-builder", line).success();
    let engine = Engine::open(&engine).unwrap();
    let latent = |number: u32| Latent {
        channels: 4,
        frames: None,
        size: Size { width: 32, height: 32 },
        values: (0..4 * 32 * 32).map(|index| ((index * (number + 3) * 7) % 41) as f32 / 20.0 - 1.0).collect(),
        pixels: None,
        clip_frames: None,
    };
    for threads in THREADS {
        let host = host();
        let options = CodingOptions { placement: placement(threads), ..CodingOptions::default() };
        let decoder = Decoder::new(&host, &engine, None, options).unwrap();
        let service = Service::new(&host, decoder, 10);
        // All requests that are processed at the same time wait for each other before they run.
        let submit = |number: u32, barrier: Arc<Barrier>| {
            let made = Arc::new(Mutex::new(Vec::new()));
            let sink = made.clone();
            let request = DecodeRequest::new(
                move || {
                    barrier.wait();
                    Ok(latent(number))
                },
                move |pixels| {
                    sink.lock().unwrap().extend(pixels.samples.iter().map(|value| value.to_bits()));
                    Ok(())
                },
            );
            (service.submit(request, Terms::default()).unwrap(), made)
        };
        let finished = |(handle, made): (Handle<_>, Arc<Mutex<Vec<u32>>>)| {
            let _ = handle.wait().unwrap();
            std::mem::take(&mut *made.lock().unwrap())
        };
        let each: Vec<_> = (0..10).map(|number| finished(submit(number, Arc::new(Barrier::new(1))))).collect();
        assert_eq!(host.metrics().runs.keys().collect::<Vec<_>>(), [&1]);
        // On a busy machine, each may have run before the next one comes; then they come again.
        let is_shared = (0..20).any(|_| {
            let barrier = Arc::new(Barrier::new(5));
            let all: Vec<_> = (0..10).map(|number| submit(number, barrier.clone())).collect();
            let together: Vec<_> = all.into_iter().map(finished).collect();
            assert!(together == each, "{threads} threads: a picture is another one beside the others");
            host.metrics().runs.keys().any(|latents| *latents > 1)
        });
        assert!(is_shared, "nothing was shared: {:?}", host.metrics().runs);
        service.shutdown();
    }
}

/// Pictures of 42×70 in a network of depth, one or two in a run.
const DEPTH: &str = "\
name: depth
provider: cpu
precision: fp32
tasks:
  depth: { tiles: [42x70], batch: [1, 2] }
floors:
  psnr_db: 100
  cosine: 0.999999
";

#[test]
fn pictures_that_share_a_run_of_a_network_of_depth_have_the_depth_that_each_has_alone() {
    let work = tempfile::tempdir().unwrap();
    let (profile, engine) = (work.path().join("depth.yaml"), work.path().join("depth"));
    std::fs::write(&profile, DEPTH).unwrap();
    let golden = golden_systems(work.path()).into_iter().find(|golden| golden.name.starts_with("DepthAnything"));
    let line = words(&[&"build", &golden.unwrap().checkpoint, &"--profile", &profile, &"-o", &engine]);
    let _ = run_with_cache_in(work.path(), "engine-builder", line).success();
    let picture = |size: Size, number: u32| {
        let sample = |index: u32| ((index * (number + 3) * 7) % 251) as u8;
        let samples: Vec<u8> = (0..3 * size.pixels() as u32).map(sample).collect();
        let data = PixelData::Eight(&samples);
        Picture::from_pixels(tileforge::Pixels { size, colour: Colour::Rgb, data, stride: None }).unwrap()
    };
    for threads in THREADS {
        let host = Setup::default().host().unwrap();
        let placement = Placement { streams: Some(1), ..placement(threads) };
        let open = |engine: &Path| tileforge::Engine::open(&host, engine, &OpenOptions::default()).unwrap();
        let estimator = open(&engine).depth(placement.clone()).unwrap();
        let submit = |number: u32| {
            estimator.submit(picture(Size { width: 70, height: 42 }, number), None, Terms::default()).unwrap()
        };
        let bits = |made: tileforge::Request<Estimate>| -> Vec<u32> {
            made.wait().unwrap().values.iter().map(|value| value.to_bits()).collect()
        };
        let each: Vec<_> = (0..9).map(|number| bits(submit(number))).collect();
        assert_eq!(host.metrics().runs.keys().collect::<Vec<_>>(), [&1]);
        assert!(each[0].len() == 70 * 42 && each[0] != each[1]);
        // While a tile of another engine runs, which takes longer than to open a picture, several come together.
        let upscaler = open(demo_engine()).upscaler(Upscale { placement, ..Upscale::default() }).unwrap();
        let terms = Terms { priority: Priority::Background, ..Terms::default() };
        let holding = upscaler.submit(picture(Size { width: 3000, height: 3000 }, 0), terms).unwrap();
        while holding.progress().done == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let all: Vec<_> = (0..9).map(submit).collect();
        let together: Vec<_> = all.into_iter().map(bits).collect();
        holding.cancel();
        assert!(together == each, "{threads} threads: a picture has another depth beside the others");
        let runs = host.metrics().runs;
        assert!(runs.contains_key(&2), "nothing was shared: {runs:?}");
        assert_eq!(holding.wait().unwrap_err().kind(), ErrorKind::Cancelled);
    }
}
