//! Measures every setting of several engines.

use tileforge_contract::Upscale;
use tileforge_engine::Engine;
use tileforge_image::Size;
use tileforge_runtime::throughput::Throughput;
use tileforge_runtime::upscale::TileShape;
use tileforge_session::Environment;
use tileforge_terminal::{self as terminal, counted, counted_as, print, print_json};

use super::super::failure::{CommandResult, Failure};
use super::arguments::Arguments;
use super::chart;
use super::measure::{Measured, measure};
use super::report;
use super::whole::{self, is_whole};

/// The name of the files of the report.
pub(super) const REPORT: &str = "sweep";

/// Numbers of streams that are tried.
const STREAMS: [usize; 3] = [1, 2, 4];

/// Tiles of any size are tried down to this side.
const SIDE_MINIMUM: u32 = 64;

pub(super) fn run(arguments: &Arguments, environment: &Environment, engines: &[Engine]) -> CommandResult {
    match engines.iter().filter(|engine| is_whole(engine)).count() {
        0 => of_tiles(arguments, environment, engines),
        whole if whole == engines.len() => of_graphs(arguments, environment, engines),
        _ => Err(Failure::Usage("upscalers are swept by tiles, and other engines by graphs; sweep them apart".into())),
    }
}

/// Every graph of engines whose graphs run whole.
fn of_graphs(arguments: &Arguments, environment: &Environment, engines: &[Engine]) -> CommandResult {
    let mut all = Vec::new();
    for engine in engines {
        for graph in &engine.manifest().graphs {
            for streams in STREAMS {
                let mut placement = arguments.running.options().placement;
                placement.streams = Some(streams);
                let mut measured = whole::measure(environment, engine, graph, &placement, arguments.repeats())?;
                measured.engine = label(engine, engines);
                terminal::report(&format!("{}: {:.2} runs/s", measured.setting(), measured.runs_per_second));
                all.push(measured);
            }
        }
    }
    let tables = tables_of_graphs(&all);
    let bars: Vec<_> = all
        .iter()
        .map(|measured| {
            let whole::Measured { engine, inputs, streams, runs_per_second, .. } = measured;
            (format!("{engine}, {inputs}, {}", counted(*streams, "stream")), *runs_per_second)
        })
        .collect();
    if let Some(folder) = &arguments.report {
        report::write(folder, REPORT, &all, &tables, &chart::bars("Runs per second", &bars))?;
    }
    if arguments.json {
        print_json(&all)?
    } else {
        print(&tables)?
    }
    Ok(())
}

/// The tables of throughput and cost for each graph and number of streams.
fn tables_of_graphs(all: &[whole::Measured]) -> String {
    let mut lines = vec![
        "| engine | inputs | batch | streams | precision | runs/s | samples/s | one run | process |".to_owned(),
        "|---|---|---|---|---|---|---|---|---|".into(),
    ];
    lines.extend(all.iter().map(|measured| {
        let whole::Measured { engine, inputs, batch, streams, precision, runs_per_second, latency, .. } = measured;
        let memory = measured.peak_memory_bytes;
        let memory = memory.map_or("–".into(), |bytes| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)));
        let samples = runs_per_second * *batch as f64;
        let setting = format!("| {engine} | {inputs} | {batch} | {streams} | {precision} |");
        format!("{setting} {runs_per_second:.3} | {samples:.3} | {:.1} ms | {memory} |", latency.p50_ms)
    }));
    lines.join("\n")
}

/// Every tile, batch and number of streams of upscalers.
fn of_tiles(arguments: &Arguments, environment: &Environment, engines: &[Engine]) -> CommandResult {
    let mut all = Vec::new();
    for engine in engines {
        let interface = Upscale::of(&engine.manifest().contract)?;
        let shapes = engine.manifest().graphs.iter().map(|graph| TileShape::of(graph, &interface));
        let mut shapes = shapes.collect::<Result<Vec<_>, _>>()?;
        shapes.sort_by_key(|shape| (shape.tile.pixels(), shape.batch));
        let device = arguments.running.options().placement.gpus()[0];
        let mut best = Throughput::new(environment, engine, device);
        let shapes = shapes.into_iter().flat_map(|shape| swept(shape, arguments.picture()));
        for TileShape { tile, batch, any_size } in shapes {
            for streams in STREAMS {
                let mut options = arguments.running.options();
                (options.tile, options.batch, options.placement.streams) = (Some(tile), Some(batch), Some(streams));
                let mut measured = measure(environment, engine, options, arguments.picture(), arguments.repeats())?;
                measured.engine = label(engine, engines);
                terminal::report(&format!("{}: {:.2} tiles/s", measured.setting(), measured.tiles_per_second));
                if !any_size {
                    best.add(tile, measured.provider, 1.0 / measured.tiles_per_second);
                }
                all.push(measured);
            }
        }
        // `--tile auto` uses these measurements from now on.
        best.save()?;
    }
    let tables = tables(&all);
    if let Some(folder) = &arguments.report {
        let bars = all.iter().map(|measured| {
            let Measured { engine, tile, batch, streams, precision, megapixels_per_second, .. } = measured;
            (
                format!("{engine} {precision}, {tile}, batch {batch}, {}", counted(*streams, "stream")),
                *megapixels_per_second,
            )
        });
        let chart = chart::bars("Megapixels of input per second", &bars.collect::<Vec<_>>());
        report::write(folder, REPORT, &all, &tables, &chart)?;
    }
    if arguments.json {
        print_json(&all)?
    } else {
        print(&tables)?
    }
    Ok(())
}

/// The label of an engine in a row: its name, or its directory if another engine has the same name.
fn label(engine: &Engine, engines: &[Engine]) -> String {
    let name = &engine.manifest().name;
    let alone = engines.iter().filter(|other| other.manifest().name == *name).count() == 1;
    if alone { name.clone() } else { engine.directory().display().to_string() }
}

/// The tiles that are tried for a shape: its own tile; if any size is possible, also tiles with half the sides, and so
/// on. Of tiles that hold the whole picture, only the smallest is tried: all of them give the same single tile.
fn swept(shape: TileShape, picture: Size) -> impl Iterator<Item = TileShape> {
    let half = |side: u32| Some(side / 2).filter(|half| *half >= SIDE_MINIMUM);
    let smaller = move |TileShape { tile, .. }: &TileShape| {
        let tile = Size { width: half(tile.width)?, height: half(tile.height)? };
        shape.any_size.then_some(TileShape { tile, ..shape })
    };
    let is_same = move |shape: &TileShape| smaller(shape).is_some_and(|next| next.tile.pixels() >= picture.pixels());
    std::iter::successors(Some(shape), smaller).skip_while(is_same)
}

/// The tables of each setting's gain over the first, and its cost.
fn tables(all: &[Measured]) -> String {
    let Some(first) = all.first() else { return String::new() };
    let off = |measured: &Measured| {
        let relative = |value: &f64| value / measured.images_per_second - 1.0;
        measured.passes.iter().map(relative).map(f64::abs).fold(0.0, f64::max) * 100.0
    };
    let relative = |measured: &Measured| measured.megapixels_per_second / first.megapixels_per_second;
    let memory = |bytes: Option<u64>| {
        bytes.map_or("–".into(), |bytes| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)))
    };
    let mut lines = vec![
        format!(
            "Throughput on {} ({}), {}, relative to the first row; the median of {}, and the most that one of \
             them is off",
            first.provider,
            first.device,
            first.picture,
            counted_as(first.passes.len(), "pass", "passes")
        ),
        String::new(),
        "| engine | tile | batch | streams | precision | megapixels/s | off | relative |".into(),
        "|---|---|---|---|---|---|---|---|".into(),
    ];
    lines.extend(all.iter().map(|measured| {
        let Measured { engine, tile, batch, streams, precision, megapixels_per_second, .. } = measured;
        let setting = format!("| {engine} | {tile} | {batch} | {streams} | {precision} |");
        format!("{setting} {megapixels_per_second:.3} | {:.1} % | {:.2} |", off(measured), relative(measured))
    }));
    lines.extend([
        String::new(),
        "Memory (that of the process is the most so far, so it only grows from row to row)".into(),
        String::new(),
        "| engine | tile | batch | streams | precision | device | process |".into(),
        "|---|---|---|---|---|---|---|".into(),
    ]);
    lines.extend(all.iter().map(|measured| {
        let Measured { engine, tile, batch, streams, precision, device_memory_bytes, peak_memory_bytes, .. } = measured;
        format!(
            "| {engine} | {tile} | {batch} | {streams} | {precision} | {} | {} |",
            memory(*device_memory_bytes),
            memory(*peak_memory_bytes)
        )
    }));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tile_is_tried_twice() {
        let size = |width, height| Size { width, height };
        let shape = TileShape { tile: size(640, 640), batch: 1, any_size: true };
        let tried = |picture| swept(shape, picture).map(|shape| shape.tile.width).collect::<Vec<_>>();
        assert_eq!(tried(size(1024, 1024)), [640, 320, 160, 80]);
        assert_eq!(tried(size(640, 640)), [640, 320, 160, 80]);
        assert_eq!(tried(size(320, 320)), [320, 160, 80]);
        assert_eq!(tried(size(300, 100)), [320, 160, 80]);
        assert_eq!((tried(size(64, 64)), tried(size(1, 1))), (vec![80], vec![80]));
        let fixed = TileShape { any_size: false, ..shape };
        assert_eq!(swept(fixed, size(1, 1)).collect::<Vec<_>>(), [fixed]);
    }
}
