//! Requests of several callers at once, through the library: what they share changes nothing.

use end_to_end::{GoldenPipelines, THREADS};
use std::path::Path;
use tileforge_engine::Pipeline;
use tileforge_runtime::diffusion::{GenerateKind, GenerateRequest, Generated, Generator, GeneratorOptions, Settings};
use tileforge_runtime::host::{Host, HostOptions, Service, Terms};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Environment, Placement, SessionOptions};

/// Eight requests that differ in everything.
fn settings() -> Vec<Settings> {
    let of = |prompt: &str, steps: usize, scheduler: &str, guidance: f64, seed: u64, count: usize| Settings {
        steps,
        scheduler: Some(scheduler.into()),
        guidance,
        seed,
        count,
        ..Settings::new(prompt, GenerateKind::TextToImage, false)
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

fn service(engine: &Path, threads: usize) -> (Host, Service<Generator>) {
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
    let host = Host::new(&environment, HostOptions::default());
    let session = SessionOptions { threads: Some(threads), ..SessionOptions::default() };
    let placement = Placement { session, ..Placement::default() };
    let options = GeneratorOptions { placement, ..GeneratorOptions::default() };
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
        // With guidance a request has two rows in each step, and one of them asks for two pictures.
        let runs = host.metrics().runs;
        assert!(runs.keys().any(|rows| *rows > 4), "nothing was shared: {runs:?}");
        service.shutdown();
    }
}
