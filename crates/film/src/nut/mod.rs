//! NUT: the container format for frames between this process and ffmpeg.
//!
//! NUT carries a time stamp for each frame, which YUV4MPEG2 does not. This module supports only one picture track in a
//! pipe: streams without an index, and no seeking.
//!
//! Source: "NUT Open Container Format" (<https://ffmpeg.org/~michael/nut.txt>), versions 3 and 4.

mod checksum;
mod frame_codes;
mod number;
mod reader;
mod writer;

pub use reader::{NutReader, Track};
pub use writer::NutWriter;

/// A unit of time, as a fraction of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBase {
    /// The numerator, in seconds.
    pub numerator: u32,
    /// The denominator.
    pub denominator: u32,
}

/// The default unit.
pub(crate) const MILLISECONDS: TimeBase = TimeBase { numerator: 1, denominator: 1000 };

/// The first bytes of a file.
pub(crate) const FILE_ID: &[u8] = b"nut/multimedia container\0";

const MAIN: u64 = 0x4e4d_7a56_1f5f_04ad;
const STREAM: u64 = 0x4e53_1140_5bf2_f9db;
const SYNC_POINT: u64 = 0x4e4b_e4ad_eeca_4569;
const INDEX: u64 = 0x4e58_dd67_2f23_e64e;
const INFO: u64 = 0x4e49_ab68_b596_ba78;

/// Packets whose size is above this have a checksum of their header.
const UNCHECKED_HEADER_MAXIMUM: u64 = 4096;

/// The flags of a frame's header.
mod flags {
    pub(super) const KEY: u64 = 1;
    pub(super) const END_OF_RELEVANCE: u64 = 1 << 1;
    pub(super) const CODED_TIME: u64 = 1 << 3;
    pub(super) const STREAM: u64 = 1 << 4;
    pub(super) const SIZE: u64 = 1 << 5;
    pub(super) const CHECKSUM: u64 = 1 << 6;
    pub(super) const RESERVED: u64 = 1 << 7;
    pub(super) const SIDE_DATA: u64 = 1 << 8;
    pub(super) const HEADER: u64 = 1 << 10;
    pub(super) const MATCH_TIME: u64 = 1 << 11;
    pub(super) const CODED: u64 = 1 << 12;
    pub(super) const INVALID: u64 = 1 << 13;
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_come_back_with_their_times(
            width in 1_u32..5000, height in 1_u32..5000, numerator in 1_u32..2000, denominator in 1_u32..100_000,
            frames in proptest::collection::vec((0_i64..1 << 40, proptest::collection::vec(any::<u8>(), 0..40)), 0..12),
        ) {
            let track = Track { width, height, pixel: [4, 3], time_base: TimeBase { numerator, denominator } };
            let mut writer = NutWriter::new(Vec::new(), track, *b"I420").unwrap();
            for (time, bytes) in &frames {
                writer.write(*time, bytes).unwrap();
            }
            let Some(mut reader) = NutReader::new(Cursor::new(writer.into_inner()), 100).unwrap() else {
                prop_assert!(frames.is_empty());
                return Ok(());
            };
            prop_assert_eq!(reader.track(), track);
            let mut found = Vec::new();
            while let Some(frame) = reader.next().unwrap() {
                found.push((frame.time, frame.bytes));
            }
            prop_assert_eq!(found, frames);
        }
    }

    /// What ffmpeg 5.1 writes for frames of 2×2 grey pixels at 25 frames a second, from 1 second on.
    const FROM_FFMPEG: &[u8] = include_bytes!("grey.nut");

    #[test]
    fn streams_of_ffmpeg_are_read() {
        let mut reader = NutReader::new(Cursor::new(FROM_FFMPEG), 100).unwrap().unwrap();
        let Track { width, height, time_base, .. } = reader.track();
        assert_eq!((width, height), (2, 2));
        let second = i64::from(time_base.denominator / time_base.numerator);
        let frames: Vec<_> = std::iter::from_fn(|| reader.next().unwrap()).collect();
        assert_eq!(
            frames.iter().map(|frame| frame.time).collect::<Vec<_>>(),
            [second, second * 26 / 25, second * 27 / 25]
        );
        assert!(frames.iter().all(|frame| frame.bytes == [128; 4]), "{frames:?}");
    }

    #[test]
    fn damage_is_named() {
        let refused = |bytes: &[u8]| {
            let mut reader = match NutReader::new(Cursor::new(bytes.to_vec()), 100) {
                Ok(Some(reader)) => reader,
                Ok(None) => return "nothing".into(),
                Err(error) => return error.to_string(),
            };
            loop {
                match reader.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => return "end".into(),
                    Err(error) => return error.to_string(),
                }
            }
        };
        assert_eq!(refused(b""), "nothing");
        assert_eq!(refused(FROM_FFMPEG), "end");
        assert!(refused(b"YUV4MPEG2 W4 H4").contains("expected NUT"), "{}", refused(b"YUV4MPEG2 W4 H4"));
        for length in 1..FROM_FFMPEG.len() {
            let text = refused(&FROM_FFMPEG[..length]);
            assert!(
                text == "end" || text == "nothing" || text.contains("ends") || text.contains("expected NUT"),
                "{length}: {text}"
            );
        }
        let mut damaged = FROM_FFMPEG.to_vec();
        damaged[40] ^= 1;
        assert!(refused(&damaged).contains("checksum"), "{}", refused(&damaged));
    }

    #[test]
    fn frames_beyond_the_limit_are_refused() {
        let mut reader = NutReader::new(Cursor::new(FROM_FFMPEG), 3).unwrap().unwrap();
        assert!(reader.next().unwrap_err().to_string().contains("at most 3 bytes"));
    }
}
