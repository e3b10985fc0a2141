//! WebP, held whole.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::image::codecs::webp::WebPDecoder;
use ::image::{ColorType, ImageDecoder};

use super::{Colour, Decoded, Depth, Header, Opening};
use crate::Size;
use crate::error::Result;
use crate::exif::Found;

/// The maximum number of zeros at the end of lossy data. More zeros would be a hundred blocks in which every decision
/// is the most probable one; encoders mark such blocks as skipped instead.
const ZEROS_MAXIMUM: u64 = 32;

/// Bytes of lossless data that a decoder may leave unread. Encoders fill up the last few.
const LEFT_MAXIMUM: u64 = 16;

/// Bytes that a decoder holds for each pixel beside the result: luma and chroma, or red, green, blue and alpha.
const WORKING_BYTES: u64 = 4;

impl Opening<'_> {
    pub(super) fn webp(&self, mut file: BufReader<File>) -> Result<Decoded> {
        let data = image_data(&mut file).map_err(|source| self.unread(source))?;
        let data = data.ok_or_else(|| self.damaged("a chunk is missing or cut"))?;
        file.rewind().map_err(|source| self.unread(source))?;
        let reached = Arc::new(AtomicU64::new(0));
        let file = Watched { file, position: 0, reached: reached.clone() };
        let mut decoder = WebPDecoder::new(file).map_err(|error| self.damaged(error))?;
        if decoder.has_animation() {
            return Err(self.refused("expected a still picture, found an animation; extract its frames first"));
        }
        let (width, height) = decoder.dimensions();
        let colour = if decoder.color_type() == ColorType::Rgba8 { Colour::Rgba } else { Colour::Rgb };
        let size = Size { width, height };
        self.check_size(size)?;
        let icc_profile = decoder.icc_profile().unwrap_or_default();
        let header = Header { icc_profile, ..Header::new(size, colour, Depth::Eight) };
        let held = header.bytes().and_then(|bytes| bytes.checked_add(size.pixels().checked_mul(WORKING_BYTES)?));
        self.check_decoded("this WebP has to be decoded whole", held)?;
        let mut bytes = vec![0; self.check_whole(&header, "has to be decoded whole")?];
        let orientation = decoder.orientation().map_err(|error| self.damaged(error))?;
        let exif = decoder.exif_metadata().map_err(|error| self.damaged(error))?;
        let found = exif.map_or_else(Found::default, |exif| Found::of_chunk(&exif));
        if !data.lossless && data.zeros > ZEROS_MAXIMUM {
            self.tolerate(self.damaged("its data ends in zeros"))?;
            // A macroblock takes about a bit at least.
            let macroblocks = u64::from(width.div_ceil(16)) * u64::from(height.div_ceil(16));
            self.check_part(size, data.bytes.saturating_sub(data.zeros) as f64 * 8.0 / macroblocks as f64)?;
        }
        reached.store(0, Ordering::Relaxed);
        decoder.read_image(&mut bytes).map_err(|error| self.damaged(error))?;
        // The format has no checksum, and decoders accept any bytes as a picture.
        let left = data.end.saturating_sub(reached.load(Ordering::Relaxed));
        if data.lossless && left > LEFT_MAXIMUM {
            self.tolerate(self.damaged(format!("the picture is complete {left} bytes before its data ends")))?;
        }
        let decoded = Decoded { orientation, ..Decoded::new(header, self.whole(bytes)) };
        Ok(decoded.described(found, None))
    }
}

/// Where the picture's own data is.
struct ImageData {
    lossless: bool,
    /// The position after its last byte.
    end: u64,
    /// Its length.
    bytes: u64,
    /// The number of zeros at its end.
    zeros: u64,
}

/// Finds the chunk with the picture; `None` if the file ends before its last chunk does, or if there is something
/// other than a chunk. <https://developers.google.com/speed/webp/docs/riff_container>
fn image_data(file: &mut BufReader<File>) -> io::Result<Option<ImageData>> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut at = 12;
    let mut start = [0; 8];
    file.seek(SeekFrom::Start(4))?;
    if !super::read_whole(file, &mut start[..4])? {
        return Ok(None);
    }
    let [a, b, c, d, ..] = start;
    // The length of the file's first eight bytes is not counted. Other data may follow.
    let end = u64::from(u32::from_le_bytes([a, b, c, d])) + 8;
    let mut found = None;
    // Some writers count the first eight bytes, too.
    while at + 8 <= end && at < length {
        file.seek(SeekFrom::Start(at))?;
        if !super::read_whole(file, &mut start)? {
            return Ok(None);
        }
        let [name @ .., a, b, c, d] = start;
        let bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
        let chunk_end = at + 8 + bytes;
        if chunk_end > length || !name.iter().all(|byte| (b' '..=b'~').contains(byte)) {
            return Ok(None);
        }
        if matches!(&name, b"VP8 " | b"VP8L") && found.is_none() {
            let zeros = zeros_before(file, at + 8, chunk_end)?;
            found = Some(ImageData { lossless: &name == b"VP8L", end: chunk_end, bytes, zeros });
        }
        // Chunks begin at even positions.
        at = chunk_end + bytes % 2;
    }
    // The decoder reports a file without a picture, and animations.
    Ok(Some(found.unwrap_or(ImageData { lossless: false, end: 0, bytes: 0, zeros: 0 })))
}

/// The number of consecutive zeros directly before `end`, down to `start`.
fn zeros_before(file: &mut BufReader<File>, start: u64, end: u64) -> io::Result<u64> {
    let mut block = [0; 4096];
    let mut at = end;
    while at > start {
        let length = (at - start).min(block.len() as u64);
        let last = &mut block[..length as usize];
        file.seek(SeekFrom::Start(at - length))?;
        file.read_exact(last)?;
        let zeros = last.iter().rev().take_while(|&&byte| byte == 0).count() as u64;
        at -= zeros;
        if zeros < length {
            break;
        }
    }
    Ok(end - at)
}

/// A file that records how far it has been read.
struct Watched {
    file: BufReader<File>,
    position: u64,
    /// The largest position after a byte that was read.
    reached: Arc<AtomicU64>,
}

impl Watched {
    fn passed(&mut self, bytes: usize) {
        self.position += bytes as u64;
        self.reached.fetch_max(self.position, Ordering::Relaxed);
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.passed(read);
        Ok(read)
    }
}

impl BufRead for Watched {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.file.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.file.consume(amount);
        self.passed(amount);
    }
}

impl Seek for Watched {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.position = self.file.seek(position)?;
        Ok(self.position)
    }
}
