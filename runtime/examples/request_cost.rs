//! What one more picture on an open host costs beside the network's run:
//!
//!     cargo run --release -p tileforge-runtime --example request_cost -- ENGINE
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::Instant;

use tileforge_engine::Engine;
use tileforge_image::{Colour, Depth, Header, RowSink, RowSource, Size};
use tileforge_runtime::host::{Host, HostOptions, Service, Terms};
use tileforge_runtime::percentiles::percentile;
use tileforge_runtime::upscale::{OpenedPicture, UpscaleOptions, UpscaleRequest, Upscaler};
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};

const PICTURES: usize = 500;
const SIDE: u32 = 16;

/// A grey picture that is made in memory.
struct Grey(Header);

impl RowSource for Grey {
    fn name(&self) -> &Path {
        Path::new("grey")
    }

    fn header(&self) -> &Header {
        &self.0
    }

    fn read_row(&mut self, row: &mut [u8]) -> tileforge_image::Result<()> {
        row.fill(100);
        Ok(())
    }
}

/// A picture that goes nowhere.
struct Nowhere(Header);

impl RowSink for Nowhere {
    fn header(&self) -> &Header {
        &self.0
    }

    fn write_rows(&mut self, _: &[u8]) -> tileforge_image::Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> tileforge_image::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = std::env::args_os().nth(1).ok_or("expected ENGINE")?;
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable)?);
    let host = Host::new(&environment, HostOptions::default());
    let engine = Engine::open(engine.as_ref())?;
    let service = Service::new(&host, Upscaler::new(&host, &engine, UpscaleOptions::default())?, 4);
    let header = Header::new(Size { width: SIDE, height: SIDE }, Colour::Rgb, Depth::Eight);
    let mut beside = Vec::new();
    for _ in 0..PICTURES {
        let header = header.clone();
        let request = UpscaleRequest::new(move |output_of| {
            let sink = Nowhere(output_of(&header)?);
            Ok(OpenedPicture { source: Box::new(Grey(header)), sink: Box::new(sink) })
        });
        let began = Instant::now();
        let made = service.submit(request, Terms::default())?.wait()?;
        beside.push((began.elapsed().as_secs_f64() - made.seconds.run) * 1e3);
    }
    beside.sort_by(f64::total_cmp);
    let [median, ninety] = [0.5, 0.9].map(|part| percentile(&beside, part));
    println!("beside the network's run: {median:.3} ms at the median, {ninety:.3} ms for 90 %");
    Ok(())
}
