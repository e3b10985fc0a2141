//! Streams of frames for networks that take one frame after the other.

use tileforge_image::frames::{FrameReader, FrameWriter};
use tileforge_image::{Depth, RowSource, Size};
use tileforge_runtime::Result;
use tileforge_runtime::frames::{FrameAndPlace, FrameStream};

use super::frames::ClipOpening;
use super::picture::{Opening, Writing};
use super::plan::Assignment;

/// Returns the size of the result for a frame's size.
pub(super) type SizeOf<'s> = &'s dyn Fn(Size) -> Result<Size>;

/// Frames of one stream.
struct Clip {
    reader: FrameReader,
    writer: FrameWriter,
    frames: Option<u64>,
}

/// Opens the frames of one stream, and the stream of their results.
pub(super) fn of_clip(
    assignment: &Assignment,
    clips: &ClipOpening,
    depth: Option<Depth>,
    size: SizeOf<'_>,
) -> Result<Box<dyn FrameStream>> {
    let clip = clips.open(&assignment.input)?;
    let frames = clip.frames(assignment);
    let mut header = clip.reader.header().clone();
    header.depth = depth.unwrap_or(header.depth);
    header.size = size(header.size)?;
    let (reader, writer) = clip.write(assignment, header)?;
    Ok(Box::new(Clip { reader, writer, frames }))
}

impl FrameStream for Clip {
    fn frames(&self) -> Option<u64> {
        self.frames
    }

    fn next(&mut self) -> Result<Option<FrameAndPlace>> {
        let Some(frame) = self.reader.next_frame()? else { return Ok(None) };
        let sink = self.writer.frame(&frame);
        Ok(Some((Box::new(frame), Box::new(sink))))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(self.writer.finish()?)
    }
}

/// Pictures that are frames, each in a file of its own.
pub(super) struct Pictures<S> {
    assignments: std::vec::IntoIter<Assignment>,
    opening: Opening,
    writing: Writing,
    size: S,
}

impl<S: Fn(Size) -> Result<Size>> Pictures<S> {
    pub(super) fn new(assignments: Vec<Assignment>, opening: Opening, writing: Writing, size: S) -> Self {
        Self { assignments: assignments.into_iter(), opening, writing, size }
    }
}

impl<S: Fn(Size) -> Result<Size> + Send> FrameStream for Pictures<S> {
    fn frames(&self) -> Option<u64> {
        Some(self.assignments.len() as u64)
    }

    fn next(&mut self) -> Result<Option<FrameAndPlace>> {
        let Some(Assignment { input, output }) = self.assignments.next() else { return Ok(None) };
        let source = self.opening.open(&input)?;
        let mut header = source.header().clone();
        header.colour = header.colour.without_alpha();
        header.size = (self.size)(header.size)?;
        let writer = self.writing.create(&output, header, source.format())?;
        Ok(Some((Box::new(source), writer)))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
