//! Any bytes are NUT or give an error, and what was read is what is written again; any bytes are the JSON of ffprobe or
//! give an error.
#![cfg_attr(fuzzing, no_main)]

use std::io::Cursor;

#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_film::Probe;
use tileforge_film::nut::{NutReader, NutWriter};

fuzz_target!(|bytes: &[u8]| {
    let _ = Probe::of_json(bytes);
    let Ok(Some(mut reader)) = NutReader::new(Cursor::new(bytes), 1 << 16) else { return };
    let mut writer = NutWriter::new(Vec::new(), reader.track(), *b"I420").expect("memory takes everything");
    let mut frames = Vec::new();
    while let Ok(Some(frame)) = reader.next() {
        if writer.write(frame.time, &frame.bytes).is_ok() {
            frames.push(frame);
        }
    }
    let written = writer.into_inner();
    let Some(mut again) = NutReader::new(Cursor::new(&written), 1 << 16).expect("what was written is NUT") else {
        return assert!(frames.is_empty());
    };
    for frame in frames {
        assert_eq!(again.next().expect("a frame"), Some(frame));
    }
});
