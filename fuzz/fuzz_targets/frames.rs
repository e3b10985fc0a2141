//! Any bytes are a stream of frames or give an error: YUV4MPEG2, and raw samples with any description.
#![cfg_attr(fuzzing, no_main)]

use std::io::Cursor;
use std::path::Path;

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_image::frames::{FrameReader, FrameWriter, RawFrames};
use tileforge_image::{Limits, RowSink, RowSource};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { megapixels: 1, decoded_bytes: 16 << 20 };
    let name = Path::new("stream");
    if let Ok(reader) = FrameReader::y4m(Box::new(Cursor::new(bytes.to_vec())), name, None, &limits) {
        copied(reader);
    }
    // The first line is the description of raw frames.
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let Some(frames) = str::from_utf8(&bytes[..end]).ok().and_then(|text| text.parse::<RawFrames>().ok()) else {
        return;
    };
    if let Ok(reader) = FrameReader::raw(Box::new(Cursor::new(bytes[end..].to_vec())), name, frames, &limits) {
        copied(reader);
    }
});

/// Writes the rows that were read.
fn copied(mut reader: FrameReader) {
    let header = reader.header().clone();
    let sink = Box::new(std::io::sink());
    let Ok(writer) = FrameWriter::to_stream(sink, Path::new("sink"), &reader, header.clone()) else {
        return;
    };
    let mut row = vec![0; header.row_bytes().expect("a row of a frame within limits")];
    while let Ok(Some(mut frame)) = reader.next_frame() {
        let mut sink = Box::new(writer.frame(&frame));
        for _ in 0..header.size.height {
            frame.read_row(&mut row).expect("a frame that was read has all rows");
            sink.write_rows(&row).expect("nothing is refused");
        }
        sink.finish().expect("all rows were written");
    }
}
