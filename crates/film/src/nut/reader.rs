//! Reading one picture track.

use std::io::{self, Read};

use tileforge_image::Size;
use tileforge_image::frames::StoredFrame;

use super::checksum::checksum;
use super::frame_codes::{FrameCode, PACKET, table};
use super::number::{Numbers, damaged, ended, number};
use super::{FILE_ID, INDEX, INFO, MAIN, STREAM, SYNC_POINT, TimeBase, UNCHECKED_HEADER_MAXIMUM, flags};

/// The largest packet. Headers that ffmpeg writes have some hundred bytes.
const PACKET_BYTES_MAXIMUM: u64 = 1 << 20;
/// Versions of the format that are read.
const VERSIONS: std::ops::RangeInclusive<u64> = 2..=4;

/// The picture track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    /// Width and height of a pixel; zeros if unknown.
    pub pixel: [u32; 2],
    /// The unit of its times.
    pub time_base: TimeBase,
}

impl Track {
    /// The size of its frames.
    pub fn size(self) -> Size {
        Size { width: self.width, height: self.height }
    }
}

/// A stream with one picture track of raw frames.
pub struct NutReader<R> {
    input: Checked<R>,
    main: Main,
    track: Track,
    /// A frame states its time by this number of low bits, or in full.
    low_time_bits: u32,
    frame_bytes_maximum: u64,
    last_time: i64,
}

struct Main {
    time_bases: Vec<TimeBase>,
    codes: Box<[FrameCode; 256]>,
    /// Beginnings of frames that the stream omits.
    left_out: Vec<Vec<u8>>,
}

/// An input that remembers the bytes of a header for its checksum.
struct Checked<R> {
    input: R,
    header: Vec<u8>,
}

impl<R: Read> Checked<R> {
    /// The first byte of a packet or frame; `None` at the end of the stream.
    fn first_byte(&mut self) -> io::Result<Option<u8>> {
        self.header.clear();
        let mut byte = [0];
        loop {
            match self.input.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.header.push(byte[0]);
        Ok(Some(byte[0]))
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.fill(&mut byte)?;
        self.header.push(byte[0]);
        Ok(byte[0])
    }

    fn number(&mut self) -> io::Result<u64> {
        number(|| self.byte())
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let filled = self.input.read_exact(bytes);
        filled.map_err(|error| if error.kind() == io::ErrorKind::UnexpectedEof { ended() } else { error })
    }

    fn check(&mut self, bytes: &[u8], what: &str) -> io::Result<()> {
        let mut stored = [0; 4];
        self.fill(&mut stored)?;
        if u32::from_be_bytes(stored) != checksum(bytes) {
            return Err(damaged(format!("{what} has another checksum than its bytes")));
        }
        Ok(())
    }

    /// The code and the content of a packet, whose first byte has been read.
    fn packet(&mut self) -> io::Result<(u64, Vec<u8>)> {
        for _ in 1..8 {
            self.byte()?;
        }
        let code = self.header.iter().fold(0, |code, byte| code << 8 | u64::from(*byte));
        let length = self.number()?;
        if length > UNCHECKED_HEADER_MAXIMUM {
            let header = std::mem::take(&mut self.header);
            self.check(&header, "a packet's header")?;
        }
        if !(4..=PACKET_BYTES_MAXIMUM).contains(&length) {
            return Err(damaged(format!("a packet of {length} bytes")));
        }
        let mut content = vec![0; length as usize - 4];
        self.fill(&mut content)?;
        self.check(&content, "a packet")?;
        Ok((code, content))
    }
}

impl<R: Read> NutReader<R> {
    /// Reads the headers; `None` for a stream without frames. Larger frames are refused.
    ///
    /// # Errors
    /// Another format, damage, or an error of the input.
    pub fn new(input: R, frame_bytes_maximum: u64) -> io::Result<Option<Self>> {
        let mut input = Checked { input, header: Vec::new() };
        if input.first_byte()?.is_none() {
            return Ok(None);
        }
        while input.header.len() < FILE_ID.len() && FILE_ID.starts_with(&input.header) {
            input.byte()?;
        }
        if input.header != FILE_ID {
            return Err(damaged("expected NUT, found another format".into()));
        }
        let (mut main, mut stream) = (None, None);
        loop {
            let Some(first) = input.first_byte()? else {
                return if stream.is_some() { Ok(None) } else { Err(ended()) };
            };
            if first != PACKET {
                return Err(damaged("expected the headers of a picture track, found something else".into()));
            }
            let (code, content) = input.packet()?;
            match (code, main.take()) {
                (MAIN, _) => main = Some(Main::read(&content)?),
                (STREAM, Some(known)) => {
                    stream = Some(read_stream(&content, &known)?);
                    main = Some(known);
                }
                (SYNC_POINT, Some(main)) => {
                    let (track, low_time_bits) =
                        stream.ok_or_else(|| damaged("expected a picture track, found none".into()))?;
                    let mut reader = Self { input, main, track, low_time_bits, frame_bytes_maximum, last_time: 0 };
                    reader.last_time = reader.synchronised(&content)?;
                    return Ok(Some(reader));
                }
                (INDEX | INFO, known) => main = known,
                (code, _) => return Err(damaged(format!("a packet with the code {code:016x}"))),
            }
        }
    }

    /// The picture track.
    pub fn track(&self) -> Track {
        self.track
    }

    /// The next frame; `None` after the last one.
    ///
    /// # Errors
    /// Damage, or an error of the input.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> io::Result<Option<StoredFrame>> {
        loop {
            let Some(first) = self.input.first_byte()? else { return Ok(None) };
            if first == PACKET {
                let (code, content) = self.input.packet()?;
                match code {
                    SYNC_POINT => self.last_time = self.synchronised(&content)?,
                    MAIN | STREAM | INDEX | INFO => {}
                    code => return Err(damaged(format!("a packet with the code {code:016x}"))),
                }
                continue;
            }
            if let Some(frame) = self.frame(first)? {
                return Ok(Some(frame));
            }
        }
    }

    /// A frame whose first byte has been read; `None` for a frame that only marks the end of the track.
    fn frame(&mut self, first: u8) -> io::Result<Option<StoredFrame>> {
        let input = &mut self.input;
        let FrameCode { mut flags, mut stream, size_factor, size_rest, time_step, mut reserved, mut header } =
            self.main.codes[usize::from(first)];
        if flags & flags::INVALID != 0 {
            return Err(damaged(format!("a frame that begins with {first:02x}")));
        }
        if flags & flags::CODED != 0 {
            flags ^= input.number()?;
        }
        if flags & flags::STREAM != 0 {
            stream = input.number()?;
        }
        let mut time = self.last_time.wrapping_add(time_step);
        if flags & flags::CODED_TIME != 0 {
            time = whole_time(input.number()?, self.low_time_bits, self.last_time);
        }
        let mut size = size_rest;
        if flags & flags::SIZE != 0 {
            let high = input.number()?.checked_mul(size_factor);
            size = high.and_then(|high| high.checked_add(size_rest)).unwrap_or(u64::MAX);
        }
        if flags & flags::MATCH_TIME != 0 {
            input.number()?;
        }
        if flags & flags::HEADER != 0 {
            header = input.number()?;
        }
        if flags & flags::RESERVED != 0 {
            reserved = input.number()?;
        }
        for _ in 0..reserved {
            input.number()?;
        }
        if flags & flags::CHECKSUM != 0 {
            let bytes = std::mem::take(&mut input.header);
            input.check(&bytes, "a frame's header")?;
        }
        if stream != 0 || flags & flags::SIDE_DATA != 0 {
            return Err(damaged("expected frames of one track with nothing beside them".into()));
        }
        let start = usize::try_from(header).ok().and_then(|header| self.main.left_out.get(header));
        let start = start.ok_or_else(|| damaged(format!("a frame with the unknown beginning {header}")))?;
        if size > self.frame_bytes_maximum {
            return Err(damaged(format!(
                "expected frames of at most {} bytes, found {size}",
                self.frame_bytes_maximum
            )));
        }
        // A frame is at least as long as its omitted beginning.
        let rest = usize::try_from(size).ok().and_then(|size| size.checked_sub(start.len())).ok_or_else(ended)?;
        let mut bytes = start.clone();
        bytes.resize(start.len() + rest, 0);
        let (_, into) = bytes.split_at_mut(start.len());
        input.fill(into)?;
        self.last_time = time;
        Ok((flags & flags::END_OF_RELEVANCE == 0).then_some(StoredFrame { bytes, time }))
    }

    /// The time of the track at a synchronisation point.
    fn synchronised(&self, content: &[u8]) -> io::Result<i64> {
        let coded = Numbers(content).number()?;
        let count = self.main.time_bases.len() as u64;
        let from = self.main.time_bases[(coded % count) as usize];
        let to = self.track.time_base;
        let time = i128::from(coded / count) * i128::from(from.numerator) * i128::from(to.denominator);
        let time = time.div_euclid(i128::from(from.denominator) * i128::from(to.numerator));
        i64::try_from(time).map_err(|_| damaged("a time that is too large".into()))
    }
}

/// A frame's time: in full, or by its low bits. Low bits mean the time nearest to the last time.
fn whole_time(coded: u64, low_bits: u32, last: i64) -> i64 {
    let range = 1_i64 << low_bits;
    let coded = coded as i64;
    if !(0..range).contains(&coded) {
        return coded.wrapping_sub(range);
    }
    let start = last.wrapping_sub((range - 1) / 2);
    (coded.wrapping_sub(start) & (range - 1)).wrapping_add(start)
}

impl Main {
    fn read(content: &[u8]) -> io::Result<Self> {
        let mut numbers = Numbers(content);
        let version = numbers.number()?;
        if !VERSIONS.contains(&version) {
            return Err(damaged(format!("expected NUT of version 2 to 4, found {version}")));
        }
        if version > 3 {
            numbers.number()?;
        }
        // Tracks, and the distance of synchronisation points.
        let tracks = numbers.number()?;
        if tracks != 1 {
            return Err(damaged(format!("expected one track, found {tracks}")));
        }
        numbers.number()?;
        let count = numbers.number()?;
        if !(1..=64).contains(&count) {
            return Err(damaged(format!("{count} units of time")));
        }
        let mut time_bases = Vec::new();
        for _ in 0..count {
            let (numerator, denominator) = (numbers.small("a unit of time")?, numbers.small("a unit of time")?);
            if numerator == 0 || denominator == 0 {
                return Err(damaged(format!("the unit of time {numerator}/{denominator}")));
            }
            time_bases.push(TimeBase { numerator, denominator });
        }
        let codes = Box::new(table(&mut numbers)?);
        let mut left_out = vec![Vec::new()];
        for _ in 0..numbers.number()?.min(128) {
            left_out.push(numbers.bytes()?.to_vec());
        }
        Ok(Self { time_bases, codes, left_out })
    }
}

/// The track of a stream header, and the number of low bits of its times.
fn read_stream(content: &[u8], main: &Main) -> io::Result<(Track, u32)> {
    let mut numbers = Numbers(content);
    let (number, class) = (numbers.number()?, numbers.number()?);
    if (number, class) != (0, 0) {
        return Err(damaged("expected one picture track, found another one".into()));
    }
    numbers.bytes()?;
    let base = usize::try_from(numbers.number()?).ok().and_then(|base| main.time_bases.get(base));
    let time_base = *base.ok_or_else(|| damaged("a track with an unknown unit of time".into()))?;
    let low_time_bits = numbers.small("low bits of times")?;
    if low_time_bits > 16 {
        return Err(damaged(format!("expected at most 16 low bits of times, found {low_time_bits}")));
    }
    // The largest step between times, delay, flags, and data of the codec.
    for _ in 0..3 {
        numbers.number()?;
    }
    numbers.bytes()?;
    let (width, height) = (numbers.small("a width")?, numbers.small("a height")?);
    if width == 0 || height == 0 {
        return Err(damaged(format!("frames of {width}×{height}")));
    }
    let pixel = [numbers.small("a pixel's width")?, numbers.small("a pixel's height")?];
    Ok((Track { width, height, pixel, time_base }, low_time_bits))
}
