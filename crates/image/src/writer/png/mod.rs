//! PNGs that are compressed on several threads while more rows arrive.
//!
//! | module | holds |
//! |---|---|
//! | `filter` | the filters of rows |
//! | `band` | bands of rows, which are compressed one by one |

mod band;
mod filter;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use ::png::PixelDimensions;
use ::png::text_metadata::ITXtChunk;
use crossbeam_channel::{Receiver, Sender, bounded};
use flate2::Compression;

use crate::{CodePoints, Colour, Density, DensityUnit, Depth, Header};
use band::{Band, Checksum, Compressed, Task};

/// Bytes of rows in a band. Larger bands hardly make the file smaller; smaller bands lose matches at their borders.
const BAND_BYTES: usize = 512 << 10;
/// The minimum number of rows of a band, because each band also filters some of the rows above it.
const BAND_ROWS: usize = 8;

/// The compression level of a PNG. All levels are lossless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PngCompression {
    /// The fastest, for files that are soon read again: zlib's level 1.
    Fast,
    /// Level 6, as in most programs.
    #[default]
    Default,
    /// The smallest: level 9.
    Best,
}

impl PngCompression {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Default, Self::Best];

    /// The name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Default => "default",
            Self::Best => "best",
        }
    }

    fn level(self) -> Compression {
        Compression::new(match self {
            Self::Fast => 1,
            Self::Default => 6,
            Self::Best => 9,
        })
    }

    /// The two bytes at the start of a zlib stream: deflate with a window of 32 KiB, and the compression level.
    fn zlib_header(self) -> [u8; 2] {
        match self {
            Self::Fast => [0x78, 0x01],
            Self::Default => [0x78, 0x9c],
            Self::Best => [0x78, 0xda],
        }
    }
}

impl FromStr for PngCompression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|choice| choice.name() == text);
        found.ok_or_else(|| format!("expected one of {}, found \"{text}\"", Self::ALL.map(Self::name).join(", ")))
    }
}

/// A PNG that is written row by row. It holds one band for each thread, and two more.
pub(super) struct Bands<W: Write> {
    file: ::png::Writer<W>,
    compression: PngCompression,
    row_bytes: usize,
    pixel: usize,
    rows_of_band: usize,
    /// The rows of the next band so far.
    rows: Vec<u8>,
    /// The band that was last passed to a thread.
    last: Option<Arc<Band>>,
    workers: Workers,
    checksum: Checksum,
    begun: bool,
}

impl<W: Write> Bands<W> {
    /// Writes the header. Bands are compressed by so many threads.
    pub(super) fn new(
        target: W,
        header: &Header,
        texts: &[(&str, &str)],
        threads: usize,
    ) -> Result<Self, ::png::EncodingError> {
        let mut info = ::png::Info::with_size(header.size.width, header.size.height);
        info.color_type = match header.colour {
            Colour::Grey => ::png::ColorType::Grayscale,
            Colour::GreyAlpha => ::png::ColorType::GrayscaleAlpha,
            Colour::Rgb => ::png::ColorType::Rgb,
            Colour::Rgba => ::png::ColorType::Rgba,
        };
        info.bit_depth = match header.depth {
            Depth::Eight => ::png::BitDepth::Eight,
            Depth::Sixteen | Depth::Float => ::png::BitDepth::Sixteen,
        };
        info.icc_profile = header.icc_profile.clone().map(Into::into);
        info.exif_metadata =
            header.metadata.exif.as_ref().and_then(|_| header.metadata.exif_chunk(header.size)).map(Into::into);
        info.pixel_dims = header.metadata.density.and_then(Density::in_metres).map(|(unit, [xppu, yppu])| {
            let unit = if unit == DensityUnit::None { ::png::Unit::Unspecified } else { ::png::Unit::Meter };
            PixelDimensions { xppu, yppu, unit }
        });
        info.utf8_text = texts.iter().map(|(keyword, text)| ITXtChunk::new(*keyword, *text)).collect();
        let (row_bytes, pixel) = (info.raw_row_length() - 1, info.bytes_per_pixel());
        let mut file = ::png::Encoder::with_info(target, info)?.write_header()?;
        if let Some(CodePoints { primaries, transfer, full_range }) = header.code_points {
            // RGB is the only matrix that PNG has.
            file.write_chunk(::png::chunk::cICP, &[primaries, transfer, 0, full_range.into()])?;
        }
        Ok(Self {
            file,
            compression: PngCompression::default(),
            row_bytes,
            pixel,
            rows_of_band: (BAND_BYTES / row_bytes.max(1)).max(BAND_ROWS),
            rows: Vec::new(),
            last: None,
            workers: Workers::new(threads),
            checksum: Checksum::EMPTY,
            begun: false,
        })
    }

    /// Sets the compression, before the first row. Without a number of threads, the old number stays.
    pub(super) fn set_compression(&mut self, compression: PngCompression, threads: Option<usize>) {
        self.compression = compression;
        self.workers.threads = threads.unwrap_or(self.workers.threads).max(1);
    }

    /// Takes whole rows, in the file's byte order.
    pub(super) fn write_rows(&mut self, mut rows: &[u8]) -> Result<(), ::png::EncodingError> {
        let band_bytes = self.rows_of_band * self.row_bytes;
        while !rows.is_empty() {
            // A full band waits for one more row, because the last band ends the stream.
            if self.rows.len() == band_bytes {
                self.give_away(false)?;
            }
            let (these, others) = rows.split_at(rows.len().min(band_bytes - self.rows.len()));
            self.rows.reserve_exact(band_bytes.min(self.rows.len() + rows.len()) - self.rows.len());
            self.rows.extend_from_slice(these);
            rows = others;
        }
        Ok(())
    }

    /// Completes the file.
    pub(super) fn finish(mut self) -> Result<(), ::png::EncodingError> {
        self.give_away(true)?;
        while let Some(compressed) = self.workers.next()? {
            self.write(compressed, self.workers.is_idle())?;
        }
        self.file.finish()
    }

    /// Passes the rows so far on for compression, and writes finished bands.
    fn give_away(&mut self, is_last: bool) -> Result<(), ::png::EncodingError> {
        let before = self.last.take();
        let above =
            before.as_ref().map_or_else(Vec::new, |band| band.rows[band.rows.len() - self.row_bytes..].to_vec());
        let band = Band { rows: std::mem::take(&mut self.rows), above, row_bytes: self.row_bytes, pixel: self.pixel };
        let band = Arc::new(band);
        self.last = Some(band.clone());
        while self.workers.is_full() {
            if let Some(compressed) = self.workers.next()? {
                self.write(compressed, false)?;
            }
        }
        self.workers.add(Task { band, before, level: self.compression.level(), is_last })?;
        Ok(())
    }

    /// Writes a band as one chunk. The first has the stream's header, the last its checksum.
    fn write(&mut self, compressed: Compressed, is_last: bool) -> Result<(), ::png::EncodingError> {
        let Compressed { mut bytes, checksum } = compressed;
        self.checksum = self.checksum.then(checksum);
        if !std::mem::replace(&mut self.begun, true) {
            bytes.splice(..0, self.compression.zlib_header());
        }
        if is_last {
            bytes.extend(self.checksum.to_bytes());
        }
        self.file.write_chunk(::png::chunk::IDAT, &bytes)
    }
}

/// Threads that compress bands. Results come in the order of the tasks.
struct Workers {
    threads: usize,
    /// `None` for a picture of one band, which is compressed in the caller's thread.
    tasks: Option<Sender<(Task, Sender<io::Result<Compressed>>)>>,
    /// A task that no thread has yet.
    first: Option<Task>,
    results: VecDeque<Receiver<io::Result<Compressed>>>,
}

impl Workers {
    fn new(threads: usize) -> Self {
        Self { threads: threads.max(1), tasks: None, first: None, results: VecDeque::new() }
    }

    fn is_idle(&self) -> bool {
        self.results.is_empty() && self.first.is_none()
    }

    /// Whether a result must be taken before the next task is added.
    fn is_full(&self) -> bool {
        self.results.len() > self.threads
    }

    fn add(&mut self, task: Task) -> io::Result<()> {
        // Threads are started for the second band: most pictures of a folder have one.
        if self.tasks.is_none() && self.first.is_none() && self.results.is_empty() && task.before.is_none() {
            self.first = Some(task);
            return Ok(());
        }
        if let Some(first) = self.first.take() {
            self.start()?;
            self.send(first)?;
        }
        self.send(task)
    }

    fn start(&mut self) -> io::Result<()> {
        let (tasks, of_threads) = bounded::<(Task, Sender<io::Result<Compressed>>)>(self.threads);
        for number in 0..self.threads {
            let tasks = of_threads.clone();
            thread::Builder::new().name(format!("png {number}")).spawn(move || {
                for (task, result) in tasks {
                    // The receiver is gone if the picture failed.
                    let _ = result.send(task.run());
                }
            })?;
        }
        self.tasks = Some(tasks);
        Ok(())
    }

    fn send(&mut self, task: Task) -> io::Result<()> {
        let (result, of_thread) = bounded(1);
        let tasks = self.tasks.as_ref().ok_or_else(gone)?;
        tasks.send((task, result)).map_err(|_| gone())?;
        self.results.push_back(of_thread);
        Ok(())
    }

    /// The next band, when it is ready; `None` if no task is left.
    fn next(&mut self) -> io::Result<Option<Compressed>> {
        if let Some(task) = self.first.take() {
            return task.run().map(Some);
        }
        self.results.pop_front().map(|result| result.recv().map_err(|_| gone())?).transpose()
    }
}

fn gone() -> io::Error {
    io::Error::other("a thread that compresses ended")
}

#[cfg(test)]
mod tests;
