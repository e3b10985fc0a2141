//! Writing streams of frames.

use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tileforge_files::unfinished;

use super::super::writer::temporary_file_for;
use super::super::{Colour, Depth, Header, RowSink};
use super::raw::{RawFormat, swap_bytes};
use super::y4m::{MAGIC, StreamHeader};
use super::yuv::PlaneWriter;
use super::{Frame, FrameReader, Layout, Matrix};
use crate::Size;
use crate::error::{Error, Result};

/// Larger YUV4MPEG2 frames are refused, because such a frame is held whole.
const FRAME_BYTES_MAXIMUM: u64 = 4 << 30;

/// A stream of pictures of one size, in the format of the stream that they come from.
pub struct FrameWriter {
    header: Header,
    shared: Arc<Shared>,
}

/// What the writer and the sinks of its frames share.
struct Shared {
    stream: Mutex<Stream>,
    /// A sink has ended.
    ended: Condvar,
}

/// State shared by the frames of a stream, which are written one after another.
struct Stream {
    name: PathBuf,
    target: Target,
    header: Header,
    form: Form,
    row: Vec<u8>,
    /// Number of finished frames.
    finished: u64,
    /// Numbers of the frames whose sinks exist.
    open: BTreeSet<u64>,
}

enum Target {
    /// A stream that is written as frames come.
    Stream(BufWriter<Box<dyn Write + Send>>),
    /// A file that gets its name when it is finished.
    File(BufWriter<unfinished::File>),
}

enum Form {
    Raw(RawFormat),
    Y4m(Box<PlaneWriter>),
}

impl FrameWriter {
    /// Starts a stream of frames with this header, in the format of `like`. `name` is the stream's name in errors.
    ///
    /// # Errors
    /// [`Error::Image`] for channels or a depth that the format lacks, and for frames that are too large;
    /// [`Error::File`] if the stream cannot be written.
    pub fn to_stream(output: Box<dyn Write + Send>, name: &Path, like: &FrameReader, header: Header) -> Result<Self> {
        Self::new(Target::Stream(BufWriter::new(output)), name, like, header)
    }

    /// The same for a file, which appears when [`FrameWriter::finish`] is called.
    ///
    /// # Errors
    /// As [`FrameWriter::to_stream`].
    pub fn create(path: &Path, like: &FrameReader, header: Header) -> Result<Self> {
        Self::new(Target::File(BufWriter::new(temporary_file_for(path)?)), path, like, header)
    }

    /// A YUV4MPEG2 file of red, green and blue frames that come from no stream: 8 bits, 4:4:4, BT.601 or BT.709 by
    /// [`Matrix::likely`](super::Matrix::likely). `rate` is in frames a second, such as "25:1".
    ///
    /// # Errors
    /// As [`FrameWriter::create`].
    pub fn create_y4m(path: &Path, size: Size, rate: &str) -> Result<Self> {
        Self::y4m(Target::File(BufWriter::new(temporary_file_for(path)?)), path, size, rate)
    }

    /// The same to a stream. `name` is the stream's name in errors.
    ///
    /// # Errors
    /// As [`FrameWriter::to_stream`].
    pub fn y4m_to_stream(output: Box<dyn Write + Send>, name: &Path, size: Size, rate: &str) -> Result<Self> {
        Self::y4m(Target::Stream(BufWriter::new(output)), name, size, rate)
    }

    fn y4m(target: Target, name: &Path, size: Size, rate: &str) -> Result<Self> {
        let line = format!("{MAGIC} W{} H{} F{rate} Ip A1:1 C444", size.width, size.height);
        let stream = StreamHeader::parse(&line).map_err(|problem| Error::image(name, problem))?;
        let header = Header::new(size, Colour::Rgb, Depth::Float);
        Self::of_layout(target, name, &Layout::Y4m(stream, Matrix::likely(size)), &header.clone(), header)
    }

    fn new(target: Target, name: &Path, like: &FrameReader, header: Header) -> Result<Self> {
        Self::of_layout(target, name, like.layout(), like.header(), header)
    }

    fn of_layout(target: Target, name: &Path, layout: &Layout, like: &Header, header: Header) -> Result<Self> {
        let form = match layout {
            Layout::Raw(format) => {
                let format = format.with(header.colour, header.depth);
                Form::Raw(format.ok_or_else(|| Error::image(name, "raw frames have 8 or 16 bits"))?)
            }
            Layout::Y4m(..) if (header.colour, header.depth) != (like.colour, like.depth) => {
                return Err(Error::image(
                    name,
                    "YUV4MPEG2 frames have the colour space and depth of those that they are made of",
                ));
            }
            Layout::Y4m(stream, matrix) => {
                let bytes = stream.form.frame_bytes(header.size).filter(|&bytes| bytes <= FRAME_BYTES_MAXIMUM);
                let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
                let bytes = bytes.ok_or_else(|| {
                    Error::image(
                        name,
                        format!(
                            "frames of {} have to be held whole, in at most {FRAME_BYTES_MAXIMUM} bytes",
                            header.size
                        ),
                    )
                })?;
                Form::Y4m(Box::new(PlaneWriter::new(stream.form, header.size, *matrix, bytes)))
            }
        };
        let mut stream = Stream {
            name: name.to_owned(),
            target,
            header: header.clone(),
            form,
            row: Vec::new(),
            finished: 0,
            open: BTreeSet::new(),
        };
        if let Layout::Y4m(like, _) = layout {
            stream.target.write(name, like.line(header.size).as_bytes())?;
        }
        Ok(Self { header, shared: Arc::new(Shared { stream: Mutex::new(stream), ended: Condvar::new() }) })
    }

    /// The header of every frame.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The sink for the frame that is made from `like`. Frames are written in the order of their numbers: a sink waits
    /// for those of earlier frames that exist.
    pub fn frame(&self, like: &Frame) -> FrameSink {
        self.sink(like.number(), like.parameters().to_owned())
    }

    /// The sink for the frame of this number, from 1, as [`FrameWriter::frame`] makes it.
    pub fn frame_numbered(&self, number: u64) -> FrameSink {
        self.sink(number, String::new())
    }

    fn sink(&self, number: u64, parameters: String) -> FrameSink {
        self.shared.stream.lock().open.insert(number);
        FrameSink { header: self.header.clone(), shared: self.shared.clone(), number, parameters, rows: 0 }
    }

    /// Ends the stream. A file gets its name.
    ///
    /// # Errors
    /// [`Error::File`] if the rest cannot be written; [`Error::FrameUnfinished`] if a frame is still being written.
    pub fn finish(self) -> Result<()> {
        let shared = Arc::into_inner(self.shared).ok_or(Error::FrameUnfinished)?;
        let Stream { name, target, .. } = shared.stream.into_inner();
        let unwritten = |source| Error::file(&name, "write", source);
        match target {
            Target::Stream(mut stream) => stream.flush().map_err(unwritten),
            Target::File(file) => {
                let file = file.into_inner().map_err(|error| unwritten(error.into_error()))?;
                file.rename(&name).map_err(|error| Error::file(&name, "create", error))
            }
        }
    }
}

impl Target {
    fn write(&mut self, name: &Path, bytes: &[u8]) -> Result<()> {
        let written = match self {
            Self::Stream(stream) => stream.write_all(bytes),
            Self::File(file) => file.write_all(bytes),
        };
        written.map_err(|source| Error::file(name, "write", source))
    }
}

/// A frame that is being written.
pub struct FrameSink {
    header: Header,
    shared: Arc<Shared>,
    number: u64,
    parameters: String,
    rows: u32,
}

impl RowSink for FrameSink {
    fn header(&self) -> &Header {
        &self.header
    }

    fn write_rows(&mut self, rows: &[u8]) -> Result<()> {
        let mut stream = self.shared.stream.lock();
        while stream.open.first().is_some_and(|first| *first < self.number) {
            self.shared.ended.wait(&mut stream);
        }
        let Stream { name, target, header, form, row: swapped, finished, .. } = &mut *stream;
        let row_bytes = header.row_bytes().unwrap_or(usize::MAX);
        let count = rows.len() / row_bytes;
        if !rows.len().is_multiple_of(row_bytes) || self.rows as usize + count > header.size.height as usize {
            return Err(Error::image(name, "more rows were written than the frame has"));
        }
        if *finished + 1 != self.number {
            return Err(Error::image(
                name,
                format!("frame {} cannot follow frame {finished}: one between them failed", self.number),
            ));
        }
        match form {
            Form::Raw(format) if format.little_endian => {
                swapped.clear();
                swapped.extend_from_slice(rows);
                swap_bytes(swapped);
                target.write(name, swapped)?;
            }
            Form::Raw(_) => target.write(name, rows)?,
            Form::Y4m(planes) => {
                for (offset, row) in rows.chunks_exact(row_bytes).enumerate() {
                    planes.write_row(self.rows as usize + offset, row);
                }
            }
        }
        self.rows += count as u32;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let mut stream = self.shared.stream.lock();
        let Stream { name, target, header, form, finished, .. } = &mut *stream;
        if self.rows < header.size.height {
            return Err(Error::image(
                name,
                format!("{} rows are missing at the end of a frame", header.size.height - self.rows),
            ));
        }
        if let Form::Y4m(planes) = form {
            target.write(name, format!("FRAME{}\n", self.parameters).as_bytes())?;
            target.write(name, planes.finish())?;
        }
        *finished += 1;
        // Flushed now, so that the reader need not wait for the next frame.
        match target {
            Target::Stream(stream) => stream.flush().map_err(|source| Error::file(name, "write", source)),
            Target::File(_) => Ok(()),
        }
    }
}

impl Drop for FrameSink {
    fn drop(&mut self) {
        self.shared.stream.lock().open.remove(&self.number);
        self.shared.ended.notify_all();
    }
}
