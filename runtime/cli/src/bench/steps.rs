//! Measures a diffusion pipeline: the time of pictures for several numbers of steps.

use std::fmt;

use serde::{Deserialize, Serialize};
use tileforge_contract::Provider;
use tileforge_engine::Pipeline;
use tileforge_image::Size;
use tileforge_runtime::diffusion::{
    GenerateKind, GenerateRequest, GenerateStatistics, Generator, GeneratorOptions, Seconds, Settings, Start,
};
use tileforge_runtime::host::{Cancel, Host, HostOptions, Service};
use tileforge_runtime::percentiles::percentile;
use tileforge_runtime::pixels::Pixels;
use tileforge_runtime::{Error, Result};
use tileforge_session::peak_memory_bytes;
use tileforge_session::{Assigned, Environment, Placement};
use tileforge_terminal::counted;

use super::chart;
use super::measure::{memory_text, threads_of, with_most_used};

/// The prompt; the time does not depend on it.
const PROMPT: &str = "a red fox in the snow";

/// What is measured.
pub(super) struct Wanted {
    /// Numbers of steps.
    pub(super) steps: Vec<usize>,
    /// Numbers of pictures made together.
    pub(super) counts: Vec<usize>,
    /// The pictures' size; `None`: the engine's largest.
    pub(super) size: Option<Size>,
    /// Runs of a single step before anything is measured, for each number of pictures.
    pub(super) warm_up: u32,
    /// Runs that are measured, for each number of steps and of pictures.
    pub(super) runs: u32,
}

/// The figures of a pipeline in one setting.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) engine: String,
    /// The precisions of its parts, each once.
    pub(super) precisions: Vec<String>,
    /// The provider of most of the network's nodes.
    pub(super) provider: Provider,
    /// The device of that provider.
    pub(super) device: String,
    pub(super) size: String,
    pub(super) scheduler: String,
    pub(super) guidance: f64,
    /// Threads of each session on the CPU.
    pub(super) threads: usize,
    pub(super) runs: u32,
    pub(super) rows: Vec<Row>,
    /// Over all rows: the number of pictures divided by the sum of times.
    pub(super) pictures_per_second: f64,
    /// The median of the rows.
    pub(super) step_ms: f64,
    pub(super) session_seconds: f64,
    pub(super) peak_memory_bytes: Option<u64>,
    /// Peak memory of all processes on the GPUs that it runs on, after the warm-up.
    pub(super) device_memory_bytes: Option<u64>,
}

/// Pictures that are made together, in so many steps. Seconds are medians of the runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    steps: usize,
    pictures: usize,
    text_seconds: f64,
    /// Encoding of the picture and the mask, for a network that fills masked parts.
    encode_seconds: f64,
    /// One evaluation of the network, for all pictures.
    step_seconds: f64,
    denoise_seconds: f64,
    decode_seconds: f64,
    total_seconds: f64,
}

/// The name of the files of the report.
pub(super) const REPORT: &str = "steps";

impl Measured {
    /// The seconds of each row, as SVG.
    pub(super) fn chart(&self) -> String {
        let bar = |row: &Row| {
            let pictures = counted(row.pictures, "picture");
            (format!("{}, {}, {pictures}", self.engine, counted(row.steps, "step")), row.total_seconds)
        };
        chart::bars("Seconds", &self.rows.iter().map(bar).collect::<Vec<_>>())
    }

    /// What figures must share to be comparable.
    pub(super) fn setting(&self) -> String {
        let Self { precisions, provider, device, size, scheduler, guidance, threads, rows, .. } = self;
        let row = |row: &Row| format!("{}×{}", row.pictures, row.steps);
        let rows = rows.iter().map(row).collect::<Vec<_>>().join(", ");
        format!(
            "{} on {provider} ({device}), {size}, {scheduler}, guidance {guidance}, pictures and steps {rows}, {}",
            precisions.join(" and "),
            counted(*threads, "thread")
        )
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "engine              {}: {}", self.engine, self.setting())?;
        writeln!(formatter, "sessions            {:.2} s to open", self.session_seconds)?;
        writeln!(formatter, "{}\n", memory_text(self.peak_memory_bytes, self.device_memory_bytes))?;
        writeln!(
            formatter,
            "| steps | pictures | texts s | one step s | all steps s | decoding s | total s |\n\
             |---:|---:|---:|---:|---:|---:|---:|"
        )?;
        let rows = self.rows.iter().map(ToString::to_string).collect::<Vec<_>>();
        write!(formatter, "{}", rows.join("\n"))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, pictures, text_seconds, step_seconds, denoise_seconds, decode_seconds, .. } = self;
        write!(
            formatter,
            "| {steps} | {pictures} | {text_seconds:.3} | {step_seconds:.4} | {denoise_seconds:.3} | \
             {decode_seconds:.3} | {:.3} |",
            self.total_seconds
        )
    }
}

/// Makes pictures with every number of steps and of pictures.
pub(super) fn measure(
    environment: &Environment,
    pipeline: &Pipeline,
    placement: &Placement,
    wanted: &Wanted,
) -> Result<Measured> {
    let options = GeneratorOptions { placement: placement.clone(), ..GeneratorOptions::default() };
    let host = Host::new(environment, HostOptions::default());
    let service = Service::new(&host, Generator::new(&host, pipeline, options)?, 1);
    let generator = service.task();
    let kind = if generator.needs_mask() { GenerateKind::Inpainting } else { GenerateKind::TextToImage };
    let defaults = Settings { size: wanted.size, ..generator.settings(PROMPT, kind) };
    let size = wanted.size.or(generator.sizes().last().copied()).ok_or_else(|| Error::Internal("bench".into()))?;
    let generate = |steps: usize, count: usize| -> Result<GenerateStatistics> {
        let request = GenerateRequest::new(Settings { steps, count, ..defaults.clone() });
        let request = match kind {
            GenerateKind::Inpainting => {
                let plain =
                    move |level: f32| Pixels { size, channels: 3, samples: vec![level; size.pixels() as usize * 3] };
                request.from_start(move || Ok(Start::Picture(plain(0.5)))).with_mask(move || Ok(plain(1.0)))
            }
            _ => request,
        };
        Ok(service.submit(request, &Cancel::new())?.wait()?.statistics)
    };
    for count in &wanted.counts {
        (0..wanted.warm_up).try_for_each(|_| generate(1, *count).map(|_| ()))?;
    }
    let gpus = if generator.location().provider.is_on_processor() { &[][..] } else { placement.gpus() };
    let (made, device_memory_bytes) = with_most_used(gpus, || {
        let settings = wanted.counts.iter().flat_map(|count| wanted.steps.iter().map(move |steps| (*steps, *count)));
        let row = |(steps, count)| {
            let runs = (0..wanted.runs).map(|_| generate(steps, count)).collect::<Result<Vec<_>>>()?;
            Ok((Row::of(steps, count, &runs), runs))
        };
        settings.map(row).collect::<Result<Vec<_>>>()
    });
    let (rows, runs): (Vec<Row>, Vec<Vec<GenerateStatistics>>) = made?.into_iter().unzip();
    let last = runs.iter().flatten().last().ok_or_else(|| Error::Internal("bench".into()))?;
    let provider = Assigned::most(&last.assigned).unwrap_or(generator.location().provider);
    let mut precisions: Vec<String> = pipeline.parts().map(|(_, part)| part.manifest().precision.to_string()).collect();
    precisions.sort_unstable();
    precisions.dedup();
    Ok(Measured {
        engine: pipeline.manifest().name.clone(),
        precisions,
        provider,
        device: environment.probe().device_name(provider, placement.gpus()[0]),
        size: last.size.to_string(),
        scheduler: last.scheduler.clone(),
        guidance: defaults.guidance,
        threads: threads_of(generator.threads()),
        runs: wanted.runs,
        pictures_per_second: rows.iter().map(|row| row.pictures as f64).sum::<f64>()
            / rows.iter().map(|row| row.total_seconds).sum::<f64>(),
        step_ms: median(rows.iter().map(|row| row.step_seconds * 1e3).collect()),
        rows,
        session_seconds: generator.location().opening.as_secs_f64(),
        peak_memory_bytes: peak_memory_bytes(),
        device_memory_bytes: device_memory_bytes.filter(|_| !provider.is_on_processor()),
    })
}

impl Row {
    fn of(steps: usize, pictures: usize, runs: &[GenerateStatistics]) -> Self {
        let of = |stage: fn(&Seconds) -> f64| median(runs.iter().map(|run| stage(&run.seconds)).collect());
        Self {
            steps,
            pictures,
            text_seconds: of(|seconds| seconds.text),
            encode_seconds: of(|seconds| seconds.encode),
            step_seconds: median(runs.iter().flat_map(|run| run.seconds.evaluations.iter().copied()).collect()),
            denoise_seconds: of(|seconds| seconds.denoise),
            decode_seconds: of(|seconds| seconds.decode),
            total_seconds: of(|seconds| seconds.total),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    percentile(&values, 0.5)
}
