//! Large photos for benchmarks: a small photo, repeated.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An 8-bit RGB PNG
    input: PathBuf,
    /// Size of the result in pixels
    #[arg(value_name = "WIDTHxHEIGHT", value_parser = size)]
    size: (u32, u32),
    /// Where the result goes
    #[arg(short, long, value_name = "OUT.png")]
    output: PathBuf,
    /// Write 16 bits for each sample
    #[arg(long)]
    sixteen: bool,
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let sizes = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    sizes
        .filter(|(width, height)| *width > 0 && *height > 0)
        .ok_or_else(|| "expected WIDTHxHEIGHT, as in 12000x12000".into())
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let at = |path: &Path, reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let (input, output) = (&arguments.input, &arguments.output);
    let file = File::open(input).map_err(|e| at(input, &e))?;
    let mut reader = png::Decoder::new(BufReader::new(file)).read_info().map_err(|e| at(input, &e))?;
    let mut photo = vec![0; reader.output_buffer_size().ok_or_else(|| at(input, &"too large"))?];
    let info = reader.next_frame(&mut photo).map_err(|e| at(input, &e))?;
    if (info.color_type, info.bit_depth) != (png::ColorType::Rgb, png::BitDepth::Eight) {
        return Err(at(input, &"expected an 8-bit RGB PNG"));
    }
    let file = File::create(output).map_err(|e| at(output, &e))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), arguments.size.0, arguments.size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(if arguments.sixteen { png::BitDepth::Sixteen } else { png::BitDepth::Eight });
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header().and_then(png::Writer::into_stream_writer).map_err(|e| at(output, &e))?;
    for y in 0..arguments.size.1 {
        let row = &photo[(y % info.height) as usize * info.line_size..][..info.line_size];
        let samples = row.iter().cycle().take(3 * arguments.size.0 as usize);
        // 8 bits become 16 bits by repeating the byte, so 255 becomes 65535.
        let bytes: Vec<u8> =
            if arguments.sixteen { samples.flat_map(|v| [*v, *v]).collect() } else { samples.copied().collect() };
        writer.write_all(&bytes).map_err(|e| at(output, &e))?;
    }
    writer.finish().map_err(|e| at(output, &e))
}
