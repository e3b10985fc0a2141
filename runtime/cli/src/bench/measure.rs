//! Measures one engine in one setting.

use std::fmt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tileforge_contract::Provider;
use tileforge_engine::Engine;
use tileforge_image::{Colour, Depth, Header, RowSink, RowSource, Size};
use tileforge_runtime::host::{Cancel, Handle, Host, HostOptions, Service, Terms};
use tileforge_runtime::percentiles::percentile;
use tileforge_runtime::upscale::{
    OpenedPicture, Seconds, UpscaleOptions, UpscaleRequest, UpscaleStatistics, Upscaler, Used,
};
use tileforge_runtime::{Error, Result};
use tileforge_session::peak_memory_bytes;
use tileforge_session::provider::GpuMemory;
use tileforge_session::{Assigned, Environment, Processors};
use tileforge_terminal::{counted, counted_as};

/// The most pictures that wait.
const WAITING: usize = 2;

/// The figures of an engine in one setting.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) engine: String,
    pub(super) precision: String,
    /// The provider of most nodes.
    pub(super) provider: Provider,
    /// The device of that provider.
    pub(super) device: String,
    pub(super) picture: String,
    pub(super) tile: String,
    pub(super) overlap: u32,
    pub(super) margin: u32,
    pub(super) tiles: u64,
    pub(super) batch: usize,
    pub(super) streams: usize,
    /// Threads of each session on the CPU.
    pub(super) threads: usize,
    pub(super) runs: u32,
    /// Throughput of pictures in a row, with as many in flight as the service holds: the median of the passes.
    pub(super) images_per_second: f64,
    /// The throughput of each pass, in order.
    pub(super) passes: Vec<f64>,
    pub(super) tiles_per_second: f64,
    /// Megapixels of input.
    pub(super) megapixels_per_second: f64,
    /// Latency of one picture alone, from its first input row to its last output row.
    pub(super) latency: Latency,
    /// Median times of each stage for one picture alone.
    pub(super) stages: Stages,
    pub(super) session_seconds: f64,
    pub(super) peak_memory_bytes: Option<u64>,
    /// Peak memory of all processes on the GPUs that it runs on, after the warm-up.
    pub(super) device_memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Latency {
    pub(super) p50_ms: f64,
    pub(super) p90_ms: f64,
    pub(super) p99_ms: f64,
    /// The interquartile range: the spread of the runs.
    pub(super) interquartile_ms: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Stages {
    cut_ms: f64,
    run_ms: f64,
    blend_ms: f64,
    encode_ms: f64,
}

impl Measured {
    /// What figures must share to be comparable.
    pub(super) fn setting(&self) -> String {
        let Self { provider, device, precision, picture, tile, overlap, margin, batch, streams, threads, .. } = self;
        let tiles = format!("tiles of {tile} (overlap {overlap}, margin {margin})");
        format!(
            "{precision} on {provider} ({device}), {picture}, {tiles}, batch {batch}, {} of {}",
            counted(*streams, "stream"),
            counted(*threads, "thread")
        )
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency { p50_ms, p90_ms, p99_ms, interquartile_ms } = self.latency;
        let Stages { cut_ms, run_ms, blend_ms, encode_ms } = self.stages;
        writeln!(formatter, "engine              {}: {}", self.engine, self.setting())?;
        writeln!(
            formatter,
            "throughput          {:.3} images/s, {:.2} tiles/s, {:.3} megapixels/s of input (median of {}, {:.3} to \
             {:.3} images/s)",
            self.images_per_second,
            self.tiles_per_second,
            self.megapixels_per_second,
            counted_as(self.passes.len(), "pass", "passes"),
            self.passes.iter().copied().fold(f64::INFINITY, f64::min),
            self.passes.iter().copied().fold(0.0, f64::max)
        )?;
        writeln!(
            formatter,
            "one picture         {p50_ms:.1} ms (p90 {p90_ms:.1}, p99 {p99_ms:.1}; interquartile \
             {interquartile_ms:.1}; {})",
            counted(self.runs, "run")
        )?;
        writeln!(
            formatter,
            "stages              cut {cut_ms:.1}, run {run_ms:.1}, blend {blend_ms:.1}, encode {encode_ms:.1} ms"
        )?;
        write!(formatter, "{}", memory_text(self.peak_memory_bytes, self.device_memory_bytes))
    }
}

/// Threads of a session on the CPU.
pub(super) fn threads_of(told: Option<usize>) -> usize {
    told.unwrap_or_else(|| Processors::available().threads(1))
}

/// Text of the peak memory of the process and of the GPUs.
pub(super) fn memory_text(peak: Option<u64>, device: Option<u64>) -> String {
    let mebibytes = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
    let [peak, device] = [peak.map_or("unknown".into(), mebibytes), device.map_or("none".into(), mebibytes)];
    format!("memory              {peak} at most; on the GPU {device}")
}

/// The numbers of repetitions of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Repeats {
    /// Pictures before anything is measured.
    pub(super) warm_up: u32,
    /// Pictures measured alone, and pictures in a row of each pass.
    pub(super) runs: u32,
    /// The number of passes.
    pub(super) passes: u32,
}

/// Runs pictures one after the other for latency, and then in a row for throughput.
pub(super) fn measure(
    environment: &Environment,
    engine: &Engine,
    options: UpscaleOptions,
    size: Size,
    repeats: Repeats,
) -> Result<Measured> {
    let devices = options.placement.gpus().to_vec();
    let host = Host::new(environment, HostOptions::default());
    let service = Service::new(&host, Upscaler::new(&host, engine, options)?, WAITING);
    let upscaler = service.task();
    let header = header_of(size);
    for _ in 0..repeats.warm_up {
        upscale(&service, &header)?;
    }
    let gpus = if upscaler.location().provider.is_on_processor() { &[][..] } else { &devices };
    let (measured, device_memory_bytes) = with_most_used(gpus, || {
        let alone = (0..repeats.runs).map(|_| upscale(&service, &header)).collect::<Result<Vec<_>>>()?;
        let passes =
            (0..repeats.passes).map(|_| in_a_row(&service, &header, repeats.runs)).collect::<Result<Vec<_>>>()?;
        Ok::<_, Error>((alone, passes))
    });
    let (alone, passes) = measured?;
    let statistics = alone.last().ok_or_else(|| Error::Internal("bench".into()))?;
    let Used { streams, batch } = upscaler.used();
    let provider = Assigned::most(&statistics.assigned).unwrap_or(upscaler.location().provider);
    let mut in_order = passes.clone();
    in_order.sort_by(f64::total_cmp);
    let images_per_second = percentile(&in_order, 0.5);
    let totals = sorted(&alone, |seconds| seconds.total);
    Ok(Measured {
        engine: engine.manifest().name.clone(),
        precision: engine.manifest().precision.to_string(),
        provider,
        device: environment.probe().device_name(provider, devices[0]),
        picture: size.to_string(),
        tile: statistics.tile.to_string(),
        overlap: statistics.overlap.pixels,
        margin: statistics.overlap.margin,
        tiles: statistics.tiles,
        batch,
        streams,
        threads: threads_of(upscaler.threads()),
        runs: repeats.runs,
        images_per_second,
        passes,
        tiles_per_second: images_per_second * statistics.tiles as f64,
        megapixels_per_second: images_per_second * size.pixels() as f64 / 1e6,
        latency: Latency {
            p50_ms: percentile(&totals, 0.5),
            p90_ms: percentile(&totals, 0.9),
            p99_ms: percentile(&totals, 0.99),
            interquartile_ms: percentile(&totals, 0.75) - percentile(&totals, 0.25),
        },
        stages: Stages {
            cut_ms: percentile(&sorted(&alone, |seconds| seconds.decode), 0.5),
            run_ms: percentile(&sorted(&alone, |seconds| seconds.run), 0.5),
            blend_ms: percentile(&sorted(&alone, |seconds| seconds.blend), 0.5),
            encode_ms: percentile(&sorted(&alone, |seconds| seconds.encode), 0.5),
        },
        session_seconds: upscaler.location().opening.as_secs_f64(),
        peak_memory_bytes: peak_memory_bytes(),
        device_memory_bytes: device_memory_bytes.filter(|_| !provider.is_on_processor()),
    })
}

/// The header of every picture.
pub(super) fn header_of(size: Size) -> Header {
    Header::new(size, Colour::Rgb, Depth::Eight)
}

/// One picture alone.
pub(super) fn upscale(service: &Service<Upscaler>, header: &Header) -> Result<UpscaleStatistics> {
    service.submit(request(header), &Cancel::new())?.wait()
}

/// The throughput of pictures in a row, in pictures per second.
fn in_a_row(service: &Service<Upscaler>, header: &Header, pictures: u32) -> Result<f64> {
    let started = Instant::now();
    let terms = || Terms { allows_rounding: true, ..Terms::default() };
    let submitted = (0..pictures).map(|_| service.submit(request(header), terms())).collect::<Result<Vec<_>>>()?;
    submitted.into_iter().try_for_each(|handle: Handle<UpscaleStatistics>| handle.wait().map(drop))?;
    Ok(f64::from(pictures) / started.elapsed().as_secs_f64())
}

/// A picture that is made in memory, and whose result is discarded.
fn request(header: &Header) -> UpscaleRequest {
    let header = header.clone();
    UpscaleRequest::new(move |output_of| {
        let sink = Nowhere { header: output_of(&header)? };
        Ok(OpenedPicture { source: Box::new(Made { header, row: 0 }), sink: Box::new(sink) })
    })
}

/// The interval at which the used memory of GPUs is sampled.
const SAMPLING: Duration = Duration::from_millis(20);

/// Does `work`, and returns the peak of the memory in use on these GPUs together meanwhile, if NVML reports it.
pub(super) fn with_most_used<T>(devices: &[u32], work: impl FnOnce() -> T) -> (T, Option<u64>) {
    if devices.is_empty() {
        return (work(), None);
    }
    thread::scope(|scope| {
        let (working, ended) = mpsc::channel();
        let sampling = scope.spawn(move || most_used(devices, &ended));
        let made = work();
        drop(working);
        (made, sampling.join().ok().flatten())
    })
}

/// The peak of the used memory, sampled until the sender of `ended` is dropped.
fn most_used(devices: &[u32], ended: &Receiver<()>) -> Option<u64> {
    let memories = devices.iter().map(|device| GpuMemory::open(*device).ok()).collect::<Option<Vec<_>>>()?;
    let mut most = 0;
    loop {
        let over = ended.recv_timeout(SAMPLING) != Err(RecvTimeoutError::Timeout);
        most = most.max(memories.iter().map(|memory| memory.used().ok()).sum::<Option<u64>>()?);
        if over {
            return Some(most);
        }
    }
}

/// The times in milliseconds, ascending.
fn sorted(runs: &[UpscaleStatistics], of: impl Fn(&Seconds) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = runs.iter().map(|statistics| of(&statistics.seconds) * 1e3).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// A synthetic picture with slopes and edges of all directions: no two tiles are alike.
struct Made {
    header: Header,
    row: u32,
}

impl RowSource for Made {
    fn name(&self) -> &Path {
        Path::new("synthetic picture")
    }

    fn header(&self) -> &Header {
        &self.header
    }

    fn read_row(&mut self, row: &mut [u8]) -> tileforge_image::Result<()> {
        let y = self.row;
        self.row += 1;
        for (x, pixel) in (0_u32..).zip(row.chunks_exact_mut(3)) {
            pixel.copy_from_slice(&[(x ^ y) as u8, (x / 3 + y / 2) as u8, ((x * y) >> 8) as u8]);
        }
        Ok(())
    }
}

struct Nowhere {
    header: Header,
}

impl RowSink for Nowhere {
    fn header(&self) -> &Header {
        &self.header
    }

    fn write_rows(&mut self, _: &[u8]) -> tileforge_image::Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> tileforge_image::Result<()> {
        Ok(())
    }
}
