//! Writing streams of frames.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tileforge_files::unfinished;

use super::super::writer::temporary_file_for;
use super::super::{Colour, Header, RowSink};
use super::raw::{RawFormat, swap_bytes};
use super::reader::Label;
use super::y4m::{MAGIC, StreamHeader};
use super::yuv::PlaneWriter;
use super::{Frame, FrameLayout, FrameReader, FrameTarget, Matrix};
use crate::Size;
use crate::error::{Error, Result};

/// The largest planar or container frame. Such a frame is held whole in memory.
const FRAME_BYTES_MAXIMUM: u64 = 4 << 30;

/// A stream of pictures of one size.
pub struct FrameWriter {
    header: Header,
    shared: Arc<Shared>,
}

/// State that the writer and its frames' sinks share.
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
    /// Frames that repeat an unfinished frame directly before them.
    repeated: BTreeMap<u64, Label>,
}

enum Target {
    /// A stream that is written as frames come.
    Stream(BufWriter<Box<dyn Write + Send>>),
    /// A file that gets its name when it is finished.
    File(BufWriter<unfinished::File>),
    Container(Box<dyn FrameTarget>),
}

enum Form {
    /// Written row by row.
    Rows(RawFormat),
    /// Held until the frame is complete.
    Held(RawFormat, Vec<u8>),
    Planes(Box<PlaneWriter>),
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

    /// A YUV4MPEG2 file of RGB frames that do not come from a stream: 8 bits, 4:4:4, BT.601 or BT.709 by
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

    /// Starts the frames of a container. Rows have the layout's depth, and either the layout's channels or only grey.
    ///
    /// # Errors
    /// [`Error::Image`] for channels or a depth that the layout lacks, and for frames that are too large.
    pub fn to_container(
        target: Box<dyn FrameTarget>,
        name: &Path,
        layout: FrameLayout,
        header: Header,
    ) -> Result<Self> {
        let form = match layout {
            FrameLayout::Raw(format) => {
                check_rows(name, header.colour == format.colour && header.depth == format.depth)?;
                Form::Held(format, Vec::with_capacity(held_bytes(name, layout, &header)?))
            }
            FrameLayout::Planar(..) => {
                let is_known = header.colour == layout.colour() || header.colour == Colour::Grey;
                check_rows(name, is_known && header.depth == layout.depth())?;
                planes(name, layout, &header)?
            }
        };
        Ok(Self::of(Target::Container(target), name, form, header))
    }

    fn y4m(target: Target, name: &Path, size: Size, rate: &str) -> Result<Self> {
        let line = format!("{MAGIC} W{} H{} F{rate} Ip A1:1 C444", size.width, size.height);
        let stream = StreamHeader::parse(&line).map_err(|problem| Error::image(name, problem))?;
        let layout = FrameLayout::Planar(stream.form, Matrix::likely(size));
        Self::of_y4m(target, name, &stream, layout, layout.header(size))
    }

    fn new(target: Target, name: &Path, like: &FrameReader, header: Header) -> Result<Self> {
        if let Some(stream) = like.y4m_header() {
            if (header.colour, header.depth) != (like.header().colour, like.header().depth) {
                return Err(Error::image(
                    name,
                    "YUV4MPEG2 frames have the colour space and depth of those that they are made of",
                ));
            }
            return Self::of_y4m(target, name, stream, like.layout(), header);
        }
        let FrameLayout::Raw(format) = like.layout() else {
            return Err(Error::image(name, "the frames of a film go into a film"));
        };
        let format = format.with(header.colour, header.depth);
        let form = Form::Rows(format.ok_or_else(|| Error::image(name, "raw frames have 8 or 16 bits"))?);
        Ok(Self::of(target, name, form, header))
    }

    fn of_y4m(
        mut target: Target,
        name: &Path,
        stream: &StreamHeader,
        layout: FrameLayout,
        header: Header,
    ) -> Result<Self> {
        let form = planes(name, layout, &header)?;
        target.write(name, stream.line(header.size).as_bytes())?;
        Ok(Self::of(target, name, form, header))
    }

    fn of(target: Target, name: &Path, form: Form, header: Header) -> Self {
        let stream = Stream {
            name: name.to_owned(),
            target,
            header: header.clone(),
            form,
            row: Vec::new(),
            finished: 0,
            open: BTreeSet::new(),
            repeated: BTreeMap::new(),
        };
        Self { header, shared: Arc::new(Shared { stream: Mutex::new(stream), ended: Condvar::new() }) }
    }

    /// The header of every frame.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The sink for the frame that is made from `like`. Frames are written in the order of their numbers: a sink waits
    /// for the existing sinks of earlier frames.
    pub fn frame(&self, like: &Frame) -> FrameSink {
        self.sink(like.number(), like.label().clone())
    }

    /// The sink for the frame of this number, from 1, as [`FrameWriter::frame`] makes it.
    pub fn frame_numbered(&self, number: u64) -> FrameSink {
        self.sink(number, Label::Time(number as i64 - 1))
    }

    fn sink(&self, number: u64, label: Label) -> FrameSink {
        self.shared.stream.lock().open.insert(number);
        FrameSink { header: self.header.clone(), shared: self.shared.clone(), number, label, rows: 0 }
    }

    /// Repeats the frame before `like` in place of `like`, after that frame has been written. For containers only.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Image`] if it cannot be written.
    pub fn repeat(&self, like: &Frame) -> Result<()> {
        let mut stream = self.shared.stream.lock();
        stream.repeated.insert(like.number(), like.label().clone());
        stream.write_repeated()
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
            Target::Container(target) => target.finish(),
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
            // A container accepts only whole frames.
            Self::Container(_) => Err(std::io::ErrorKind::Unsupported.into()),
        };
        written.map_err(|source| Error::file(name, "write", source))
    }
}

impl Stream {
    /// Writes a frame whose rows are complete.
    fn write_frame(&mut self, label: &Label) -> Result<()> {
        let Self { name, target, form, .. } = self;
        let bytes = match form {
            // Its rows are already written.
            Form::Rows(_) => return Ok(()),
            Form::Held(_, bytes) => bytes.as_slice(),
            Form::Planes(planes) => planes.finish(),
        };
        match target {
            Target::Container(target) => {
                let Label::Time(time) = label else { return Err(Error::image(name, "a frame of a film has no time")) };
                target.write(*time, bytes)
            }
            target => {
                let parameters = if let Label::Parameters(text) = label { text } else { "" };
                target.write(name, format!("FRAME{parameters}\n").as_bytes())?;
                target.write(name, bytes)
            }
        }
    }

    /// Writes the next frames, as long as they repeat the frame before them.
    fn write_repeated(&mut self) -> Result<()> {
        while let Some(label) = self.repeated.remove(&(self.finished + 1)) {
            let bytes = match &self.form {
                Form::Rows(_) => return Err(Error::image(&self.name, "raw frames are not repeated")),
                Form::Held(_, bytes) => bytes.as_slice(),
                Form::Planes(planes) => planes.last(),
            };
            if let (Target::Container(target), Label::Time(time)) = (&mut self.target, label) {
                target.write(time, bytes)?;
            }
            self.finished += 1;
        }
        Ok(())
    }
}

/// The bytes of a frame that is held whole.
fn held_bytes(name: &Path, layout: FrameLayout, header: &Header) -> Result<usize> {
    let bytes = layout.frame_bytes(header.size).filter(|&bytes| bytes <= FRAME_BYTES_MAXIMUM);
    bytes.and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(|| {
        Error::image(
            name,
            format!("frames of {} have to be held whole, in at most {FRAME_BYTES_MAXIMUM} bytes", header.size),
        )
    })
}

fn planes(name: &Path, layout: FrameLayout, header: &Header) -> Result<Form> {
    let FrameLayout::Planar(format, matrix) = layout else {
        return Err(Error::image(name, "expected frames of planes"));
    };
    let bytes = held_bytes(name, layout, header)?;
    Ok(Form::Planes(Box::new(PlaneWriter::new(format, header.size, matrix, bytes))))
}

fn check_rows(name: &Path, are_known: bool) -> Result<()> {
    if are_known { Ok(()) } else { Err(Error::image(name, "the film's format has other channels or another depth")) }
}

/// A frame that is being written.
pub struct FrameSink {
    header: Header,
    shared: Arc<Shared>,
    number: u64,
    label: Label,
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
            Form::Rows(format) if format.little_endian => {
                swapped.clear();
                swapped.extend_from_slice(rows);
                swap_bytes(swapped);
                target.write(name, swapped)?;
            }
            Form::Rows(_) => target.write(name, rows)?,
            Form::Held(format, held) => {
                if self.rows == 0 {
                    held.clear();
                }
                let start = held.len();
                held.extend_from_slice(rows);
                if format.little_endian {
                    swap_bytes(&mut held[start..]);
                }
            }
            Form::Planes(planes) => {
                for (offset, row) in rows.chunks_exact(row_bytes).enumerate() {
                    planes.write_row(self.rows as usize + offset, row, header.colour);
                }
            }
        }
        self.rows += count as u32;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let mut stream = self.shared.stream.lock();
        let height = stream.header.size.height;
        if self.rows < height {
            return Err(Error::image(
                &stream.name,
                format!("{} rows are missing at the end of a frame", height - self.rows),
            ));
        }
        stream.write_frame(&self.label)?;
        stream.finished += 1;
        stream.write_repeated()?;
        // Flushed now, so that the reader need not wait for the next frame.
        let Stream { name, target, .. } = &mut *stream;
        match target {
            Target::Stream(stream) => stream.flush().map_err(|source| Error::file(name, "write", source)),
            Target::File(_) | Target::Container(_) => Ok(()),
        }
    }
}

impl Drop for FrameSink {
    fn drop(&mut self) {
        self.shared.stream.lock().open.remove(&self.number);
        self.shared.ended.notify_all();
    }
}
