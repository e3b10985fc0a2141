//! Cuts a picture into tiles, enlarges each by something of its own, and blends them again; no engine is needed:
//!
//!     cargo run --release -p tileforge-runtime --example tiles -- IN OUT
#![allow(clippy::print_stdout)]

use std::path::Path;

use tileforge_image::tile::{Blend, Blender, Overlap, SampleEncoding, TilePlan};
use tileforge_image::{Colour, Depth, Format, Header, ImageWriter, Limits, Picture, RowSink, Size};

const SCALE: u32 = 2;

/// How far bicubic interpolation, which stands for a model here, looks to each side.
const RADIUS: u32 = 2;

pub(crate) fn enlarge(input: &Path, output: &Path) -> tileforge_image::Result<TilePlan> {
    let photo = Picture::read(input, &Limits::default())?;
    let size = photo.size();
    let tile_size = Size { width: size.width.min(128), height: size.height.min(96) };
    let plan = TilePlan::new(size, tile_size, Overlap::automatic(Some(RADIUS), tile_size), SCALE, Some(RADIUS))?;

    let header = Header::new(size.scaled(SCALE)?, Colour::Rgb, Depth::Eight);
    let mut writer = ImageWriter::create(output, Format::of_name(output)?, header)?;
    let mut blender = Blender::new(&plan, Blend::Hann, 3, SampleEncoding { range: [0.0, 255.0], depth: Depth::Eight })?;
    for tile in plan.tiles() {
        let large = photo.cropped(tile.x, tile.y, tile_size).resized(tile_size.scaled(SCALE)?)?;
        let plane = |channel| {
            large.samples().iter().skip(channel).step_by(3).map(|&sample| f32::from(sample)).collect::<Vec<_>>()
        };
        let planes = [plane(0), plane(1), plane(2)];
        // Rows come out as soon as no later tile adds to them.
        blender.push(tile, &planes.each_ref().map(Vec::as_slice), |band| writer.write_rows(&band.bytes))?;
    }
    Box::new(writer).finish()?;
    Ok(plan)
}

#[allow(dead_code)] // where a test takes this file as a module
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [input, output] = arguments.as_slice() else { return Err("expected IN OUT".into()) };
    let plan = enlarge(input.as_ref(), output.as_ref())?;
    println!("{} tiles of {}, {} by {}", plan.count(), plan.tile(), plan.columns().count(), plan.rows().count());
    Ok(())
}
