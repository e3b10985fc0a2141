//! Enlarges a picture with an engine, with its progress, until Ctrl-C stops it:
//!
//!     cargo run --release -p tileforge-runtime --example upscale -- ENGINE IN OUT
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::time::Duration;

use tileforge_engine::Engine;
use tileforge_image::{Format, ImageReader, ImageWriter, Limits, RowSource};
use tileforge_runtime::host::{Cancel, Host, HostOptions, Service};
use tileforge_runtime::upscale::{UpscaleOptions, UpscaleRequest, UpscaleStatistics, Upscaler};
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};

/// The engine's best tiles on the best provider that fits this machine, by rows: a picture of any height takes as much
/// memory.
pub(crate) fn upscale(
    engine: &Path,
    input: &Path,
    output: &Path,
    cancel: &Cancel,
) -> tileforge_runtime::Result<UpscaleStatistics> {
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable)?);
    let engine = Engine::open(engine)?;
    // Made once, it serves any number of pictures, one after the other or several at the same time.
    let host = Host::new(&environment, HostOptions::default());
    let upscaler = Service::new(&host, Upscaler::new(&host, &engine, UpscaleOptions::default())?, 4);

    let reader = ImageReader::open(input, &Limits::default())?;
    let header = upscaler.task().output_of(reader.header())?;
    let writer = ImageWriter::create(output, Format::of_name(output)?, header)?;
    // The file gets its name at the very end. Stopped or failed, nothing is left of it.
    let handle = upscaler.submit(UpscaleRequest::opened(reader, writer), cancel)?;
    loop {
        if let Some(result) = handle.wait_for(Duration::from_millis(100)) {
            return result;
        }
        let progress = handle.progress();
        eprint!("\r{} of {} tiles", progress.done, progress.total.unwrap_or(0));
    }
}

#[allow(dead_code)] // where a test takes this file as a module
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [engine, input, output] = arguments.as_slice() else { return Err("expected ENGINE IN OUT".into()) };
    let cancel = Cancel::new();
    let flag = cancel.clone();
    ctrlc::set_handler(move || flag.cancel())?;
    let UpscaleStatistics { size, tiles, tile, assigned, seconds, .. } =
        upscale(engine.as_ref(), input.as_ref(), output.as_ref(), &cancel)?;
    println!("\n{size} from {tiles} tiles of {tile} in {:.2} s", seconds.total);
    assigned.iter().for_each(|each| println!("{} nodes on {}", each.nodes, each.provider));
    Ok(())
}
