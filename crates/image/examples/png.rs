//! Writes a picture again as a PNG, and prints the seconds that its encoding took and the bytes of the file.
//! `scripts/bench_png.py` compares them with Pillow's.
//!
//!     cargo run --release --package tileforge-image --example png -- IN OUT.png [fast|default|best] [THREADS]
#![allow(clippy::print_stdout)]

use std::env::args;
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use tileforge_image::{Format, ImageReader, ImageWriter, Limits, PngCompression, RowSink, RowSource};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = args().skip(1);
    let [input, output] = [arguments.next(), arguments.next()].map(|path| path.map(PathBuf::from));
    let (input, output) = input.zip(output).ok_or("expected the paths of a picture and of a PNG to write")?;
    let compression = arguments.next().map_or(Ok(PngCompression::default()), |name| name.parse())?;
    let threads = arguments.next().map(|count| count.parse()).transpose()?;
    let mut reader = ImageReader::open(&input, &Limits::default())?;
    let header = reader.header().clone();
    let row_bytes = header.row_bytes().ok_or("its rows are too long for memory")?;
    let mut rows = vec![0; row_bytes * header.size.height as usize];
    rows.chunks_mut(row_bytes).try_for_each(|row| reader.read_row(row))?;
    let begin = Instant::now();
    let mut writer = ImageWriter::create(&output, Format::Png, header)?.with_png_compression(compression, threads);
    writer.write_rows(&rows)?;
    Box::new(writer).finish()?;
    println!("{:.4} {}", begin.elapsed().as_secs_f64(), output.metadata()?.len());
    Ok(())
}
