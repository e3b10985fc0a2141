//! Reading streams of frames.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::{Header, Limits, RowSource};
use super::raw::{RawFrames, swap_bytes};
use super::y4m::{LINE_BYTES_MAXIMUM, MAGIC, StreamHeader};
use super::yuv::{Matrix, Planes};
use super::{FrameLayout, FrameSource, RawFormat, StoredFrame};
use crate::Size;
use crate::error::{Error, Result};

/// A stream of pictures of one size.
pub struct FrameReader {
    input: Input,
    name: PathBuf,
    layout: FrameLayout,
    header: Header,
    /// Bytes of a stored frame.
    frame_bytes: usize,
    count: u64,
    /// The last frame's bytes, if frames are compared with it.
    last: Option<Arc<Vec<u8>>>,
}

/// What the frames are read from.
enum Input {
    /// Frames follow each other directly.
    Raw(Box<dyn Read + Send>),
    /// A header line precedes each frame.
    Y4m(Box<dyn Read + Send>, StreamHeader),
    Container(Box<dyn FrameSource>),
}

/// A frame's metadata beside its samples.
#[derive(Clone, Debug)]
pub(super) enum Label {
    None,
    /// The parameters after `FRAME` in YUV4MPEG2.
    Parameters(String),
    /// Its presentation time in a container.
    Time(i64),
}

impl FrameReader {
    /// Opens a stream of raw frames. `name` is the stream's name in errors.
    ///
    /// # Errors
    /// [`Error::Image`] for frames beyond `limits`.
    pub fn raw(input: Box<dyn Read + Send>, name: &Path, frames: RawFrames, limits: &Limits) -> Result<Self> {
        let RawFrames { format, size } = frames;
        Self::new(Input::Raw(input), name, FrameLayout::Raw(format), size, limits)
    }

    /// Opens the frames of a container. Each frame is compared with the frame before it: see [`Frame::is_repeated`].
    ///
    /// # Errors
    /// [`Error::Image`] for frames beyond `limits`.
    pub fn of_container(
        source: Box<dyn FrameSource>,
        name: &Path,
        layout: FrameLayout,
        size: Size,
        limits: &Limits,
    ) -> Result<Self> {
        Self::new(Input::Container(source), name, layout, size, limits)
    }

    /// Opens a YUV4MPEG2 stream. Rows are floats: red, green and blue by `matrix`, or by [`Matrix::likely`]. Chroma is
    /// interpolated linearly, from where the colour space places it.
    ///
    /// # Errors
    /// [`Error::Image`] for another stream, an unsupported colour space, interlacing, or frames beyond `limits`;
    /// [`Error::File`] if the stream cannot be read.
    pub fn y4m(mut input: Box<dyn Read + Send>, name: &Path, matrix: Option<Matrix>, limits: &Limits) -> Result<Self> {
        let refused = |problem: String| Error::image(name, problem);
        let line = read_line(&mut input, MAGIC).map_err(|source| Error::file(name, "read", source))?;
        let line = match line {
            Line::Whole(line) => line,
            Line::Nothing => {
                return Err(refused(
                    "expected frames, found an empty stream; did the program that writes it fail?".into(),
                ));
            }
            Line::Other => {
                return Err(Error::NotFrames { path: name.to_owned(), expected: MAGIC });
            }
        };
        let stream = StreamHeader::parse(&line).map_err(refused)?;
        let size = stream.size;
        let layout = FrameLayout::Planar(stream.form, matrix.unwrap_or(Matrix::likely(size)));
        Self::new(Input::Y4m(input, stream), name, layout, size, limits)
    }

    fn new(input: Input, name: &Path, layout: FrameLayout, size: Size, limits: &Limits) -> Result<Self> {
        let header = layout.header(size);
        limits.check_size(name, header.size)?;
        let length = layout
            .frame_bytes(size)
            .filter(|&bytes| bytes <= limits.decoded_bytes)
            .and_then(|bytes| usize::try_from(bytes).ok());
        let length = length.ok_or_else(|| {
            Error::image(
                name,
                format!(
                    "frames of {} have to be held whole, in at most {} bytes; crop them first",
                    header.size, limits.decoded_bytes
                ),
            )
        })?;
        Ok(Self { input, name: name.to_owned(), layout, header, frame_bytes: length, count: 0, last: None })
    }

    /// The header of every frame.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The number of frames read so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of frames in a stream of this many bytes. It is exact unless frames have their own parameters.
    pub fn frames_in(&self, bytes: u64) -> u64 {
        let (before, own) = match &self.input {
            Input::Raw(_) | Input::Container(_) => (0, 0),
            Input::Y4m(_, stream) => (stream.line(self.header.size).len() as u64, "FRAME\n".len() as u64),
        };
        bytes.saturating_sub(before) / (self.frame_bytes as u64 + own).max(1)
    }

    pub(super) fn layout(&self) -> FrameLayout {
        self.layout
    }

    /// The header of the YUV4MPEG2 stream, if it is one.
    pub(super) fn y4m_header(&self) -> Option<&StreamHeader> {
        match &self.input {
            Input::Y4m(_, stream) => Some(stream),
            Input::Raw(_) | Input::Container(_) => None,
        }
    }

    /// The next frame; `None` after the last one.
    ///
    /// # Errors
    /// [`Error::Image`] for a frame that is truncated or damaged, and for a stream without frames; [`Error::File`] if
    /// the stream cannot be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame>> {
        let Some((bytes, label)) = self.next_bytes()? else { return self.end() };
        self.count += 1;
        let number = self.count;
        let bytes = Arc::new(bytes);
        let mut is_repeated = false;
        if let Input::Container(_) = self.input {
            is_repeated = self.last.as_ref().is_some_and(|last| *last == bytes);
            self.last = Some(bytes.clone());
        }
        let rows = match self.layout {
            FrameLayout::Raw(format) => FrameRows::Raw(format),
            FrameLayout::Planar(format, matrix) => FrameRows::Planes(Planes::new(format, self.header.size, matrix)),
        };
        let name = PathBuf::from(format!("{}: frame {number}", self.name.display()));
        Ok(Some(Frame { name, number, header: self.header.clone(), bytes, label, is_repeated, rows, next: 0 }))
    }

    /// The bytes of the next frame, and its label; `None` after the last one.
    fn next_bytes(&mut self) -> Result<Option<(Vec<u8>, Label)>> {
        let number = self.count + 1;
        let unread = |source| Error::file(&self.name, "read", source);
        let refused = |problem: String| Error::image(&self.name, format!("frame {number}: {problem}"));
        let (input, label) = match &mut self.input {
            Input::Container(source) => {
                let Some(StoredFrame { bytes, time }) = source.next()? else { return Ok(None) };
                if bytes.len() != self.frame_bytes {
                    return Err(refused(format!(
                        "expected {} bytes as in the frames before it, found {}: the film changes its size here; \
                         bring all of it to one size first, such as with ffmpeg -vf scale=1280:720",
                        self.frame_bytes,
                        bytes.len()
                    )));
                }
                return Ok(Some((bytes, Label::Time(time))));
            }
            Input::Raw(input) => (input, Label::None),
            Input::Y4m(input, _) => match read_line(input, "FRAME").map_err(unread)? {
                Line::Whole(line) => {
                    (input, Label::Parameters(line.strip_prefix("FRAME").unwrap_or_default().to_owned()))
                }
                Line::Nothing => return Ok(None),
                Line::Other => {
                    return Err(refused(
                        "expected a line that begins with FRAME; the stream is truncated or damaged".into(),
                    ));
                }
            },
        };
        let mut bytes = vec![0; self.frame_bytes];
        let found = read_all(input, &mut bytes).map_err(unread)?;
        if found == 0 && matches!(label, Label::None) {
            return Ok(None);
        }
        if found < bytes.len() {
            return Err(refused(format!("truncated: expected {} bytes, found {found}", bytes.len())));
        }
        Ok(Some((bytes, label)))
    }

    fn end(&self) -> Result<Option<Frame>> {
        if self.count == 0 {
            return Err(Error::image(
                &self.name,
                "expected frames, found none; did the program that writes them fail?",
            ));
        }
        Ok(None)
    }
}

/// One frame of a stream.
pub struct Frame {
    name: PathBuf,
    /// Its number in the stream, from 1.
    number: u64,
    header: Header,
    /// The stored bytes.
    bytes: Arc<Vec<u8>>,
    label: Label,
    is_repeated: bool,
    rows: FrameRows,
    next: u32,
}

enum FrameRows {
    Raw(RawFormat),
    Planes(Planes),
}

impl Frame {
    pub(super) fn label(&self) -> &Label {
        &self.label
    }

    /// Whether this is a container's frame with the same bytes as the frame before it.
    pub fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Its number in the stream, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl RowSource for Frame {
    fn name(&self) -> &Path {
        &self.name
    }

    fn header(&self) -> &Header {
        &self.header
    }

    fn read_row(&mut self, row: &mut [u8]) -> Result<()> {
        let Size { height, .. } = self.header.size;
        if self.next >= height {
            return Err(Error::image(&self.name, "more rows were read than the frame has"));
        }
        let y = self.next as usize;
        self.next += 1;
        match &mut self.rows {
            FrameRows::Raw(format) => {
                row.copy_from_slice(&self.bytes[y * row.len()..][..row.len()]);
                if format.little_endian {
                    swap_bytes(row);
                }
            }
            FrameRows::Planes(planes) => planes.read_row(&self.bytes, y, row),
        }
        Ok(())
    }
}

/// The result of reading a line.
enum Line {
    Whole(String),
    /// The end of the stream.
    Nothing,
    /// A line that begins differently, is too long, has no end, or is not text.
    Other,
}

/// Reads a line that begins with `start`, and no byte beyond it.
fn read_line(input: &mut impl Read, start: &str) -> io::Result<Line> {
    let mut line = vec![0; start.len()];
    let found = read_all(input, &mut line)?;
    if found == 0 {
        return Ok(Line::Nothing);
    }
    if line != start.as_bytes() {
        return Ok(Line::Other);
    }
    let mut byte = [0];
    while line.len() < LINE_BYTES_MAXIMUM && read_all(input, &mut byte)? == 1 {
        if byte == *b"\n" {
            return Ok(String::from_utf8(line).map_or(Line::Other, Line::Whole));
        }
        line.push(byte[0]);
    }
    Ok(Line::Other)
}

/// Fills `buffer` up to the end of the stream. Returns the number of bytes.
fn read_all(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
