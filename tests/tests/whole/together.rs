//! Requests of several callers at once, through the library: shared runs change nothing.

use end_to_end::{GoldenPipelines, THREADS, golden_components, run_with_cache_in, words};
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};
use tileforge_contract::Provider;
use tileforge_engine::{Engine, Pipeline};
use tileforge_image::Size;
use tileforge_runtime::autoencoder::{CodingOptions, DecodeRequest, Decoder, Latent};
use tileforge_runtime::diffusion::{
    Family, GenerateKind, GenerateRequest, Generated, Generator, GeneratorOptions, Settings,
};
use tileforge_runtime::host::{Handle, Host, HostOptions, Service, Terms};
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
        let barrier = Arc::new(Barrier::new(5));
        let all: Vec<_> = (0..10).map(|number| submit(number, barrier.clone())).collect();
        let together: Vec<_> = all.into_iter().map(finished).collect();
        assert!(together == each, "{threads} threads: a picture is another one beside the others");
        let runs = host.metrics().runs;
        assert!(runs.keys().any(|latents| *latents > 1), "nothing was shared: {runs:?}");
        service.shutdown();
    }
}
