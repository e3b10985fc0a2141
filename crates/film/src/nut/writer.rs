//! Writing one picture track.

use std::io::{self, Write};

use super::checksum::checksum;
use super::frame_codes::put_plain_table;
use super::number::{damaged, put};
use super::{FILE_ID, MAIN, STREAM, SYNC_POINT, Track, UNCHECKED_HEADER_MAXIMUM, flags};

/// The version to write. Every reader knows it.
const VERSION: u64 = 3;
/// The maximum number of bytes between synchronisation points. A synchronisation point precedes each frame.
const DISTANCE_MAXIMUM: u64 = 65_536;
/// The number of low time bits of the track. Frames here state full times instead.
const LOW_TIME_BITS: u32 = 7;

/// A stream of raw frames.
pub struct NutWriter<W> {
    output: W,
}

impl<W: Write> NutWriter<W> {
    /// Begins a stream of raw frames in the format of this code.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn new(mut output: W, track: Track, format: [u8; 4]) -> io::Result<Self> {
        output.write_all(FILE_ID)?;
        let mut main = Vec::new();
        // One stream, and one unit of time.
        for number in [VERSION, 1, DISTANCE_MAXIMUM, 1] {
            put(&mut main, number);
        }
        put(&mut main, u64::from(track.time_base.numerator));
        put(&mut main, u64::from(track.time_base.denominator));
        put_plain_table(&mut main);
        // No beginnings of frames are omitted.
        put(&mut main, 0);
        write_packet(&mut output, MAIN, &main)?;
        let mut stream = Vec::new();
        // The first stream, of pictures.
        put(&mut stream, 0);
        put(&mut stream, 0);
        put(&mut stream, format.len() as u64);
        stream.extend_from_slice(&format);
        // The first unit of time, low bits of times, the largest step between times, no delay, no flags, no data.
        for number in [0, u64::from(LOW_TIME_BITS), 1 << 30, 0, 0, 0] {
            put(&mut stream, number);
        }
        for number in [track.width, track.height, track.pixel[0], track.pixel[1]] {
            put(&mut stream, u64::from(number));
        }
        // No information about colour.
        put(&mut stream, 0);
        write_packet(&mut output, STREAM, &stream)?;
        Ok(Self { output })
    }

    /// Writes a frame. Times are not negative.
    ///
    /// # Errors
    /// The output cannot be written, or the time is negative.
    pub fn write(&mut self, time: i64, bytes: &[u8]) -> io::Result<()> {
        let time = u64::try_from(time).map_err(|_| damaged(format!("a frame with the time {time}")))?;
        let mut point = Vec::new();
        put(&mut point, time);
        // The distance to the last key frame is 0: this frame is a key frame.
        put(&mut point, 0);
        write_packet(&mut self.output, SYNC_POINT, &point)?;
        // Any frame code: all codes have the same meaning.
        let mut header = vec![0];
        put(&mut header, flags::KEY | flags::CODED_TIME | flags::SIZE | flags::CHECKSUM);
        put(&mut header, time + (1 << LOW_TIME_BITS));
        put(&mut header, bytes.len() as u64);
        header.extend_from_slice(&checksum(&header).to_be_bytes());
        self.output.write_all(&header)?;
        self.output.write_all(bytes)
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// The output.
    pub fn into_inner(self) -> W {
        self.output
    }
}

fn write_packet(output: &mut impl Write, code: u64, content: &[u8]) -> io::Result<()> {
    let mut packet = code.to_be_bytes().to_vec();
    let length = content.len() as u64 + 4;
    put(&mut packet, length);
    if length > UNCHECKED_HEADER_MAXIMUM {
        packet.extend_from_slice(&checksum(&packet).to_be_bytes());
    }
    packet.extend_from_slice(content);
    packet.extend_from_slice(&checksum(content).to_be_bytes());
    output.write_all(&packet)
}
