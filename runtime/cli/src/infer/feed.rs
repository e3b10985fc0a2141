//! The thread that submits pictures and frames in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use tileforge_image::frames::FrameWriter;
use tileforge_image::{RowSink, RowSource};
use tileforge_runtime::host::{Cancel, Handle, Service, Terms};
use tileforge_runtime::upscale::{OpenedPicture, Outscale, UpscaleRequest, UpscaleStatistics, Upscaler, outscaled};
use tileforge_runtime::{Error, Result};

use super::arguments::Arguments;
use super::films::Films;
use super::frames::{NextFrame, Stream};
use super::kind::has_frames;
use super::plan::Assignment;
use super::standard::Piped;

/// A submitted item, with the number of its assignment.
pub(super) enum Item {
    /// A picture.
    Picture(usize, Handle<UpscaleStatistics>),
    /// A frame of a stream. The receiver sets the flag when the frame failed: no more frames of that stream are then
    /// submitted.
    Frame(usize, Handle<UpscaleStatistics>, Arc<AtomicBool>),
    /// A frame of a stream that gets the result of the previous frame.
    Repeated(usize),
    /// A stream begins; with its number of frames, if known.
    Begun(usize, Option<u64>),
    /// A stream that cannot be read to its end.
    Broken(usize, Error),
    /// A stream of which every frame has been submitted.
    Ended(usize, FrameWriter),
}

/// Submits pictures and frames, in their order.
pub(super) struct Feeder<'f> {
    pub(super) upscaler: &'f Service<Upscaler>,
    pub(super) assignments: &'f [Assignment],
    pub(super) arguments: &'f Arguments,
    pub(super) piped: &'f Piped,
    pub(super) films: &'f Films,
    pub(super) cancel: &'f Cancel,
    pub(super) items: Sender<Item>,
}

impl Feeder<'_> {
    /// Submits everything, and then closes the service.
    ///
    /// # Errors
    /// [`Error::Cancelled`], or [`Error::Closed`]: not everything has been submitted.
    pub(super) fn run(self) -> Result<()> {
        let fed = self.assignments.iter().enumerate().try_for_each(|(owner, assignment)| {
            if has_frames(&assignment.input, self.arguments.raw) {
                self.frames(owner, assignment)
            } else {
                let handle = self.submit(picture(assignment, self.arguments, self.piped))?;
                self.tell(Item::Picture(owner, handle))
            }
        });
        // No more tiles come, so that waiting runs can start.
        self.upscaler.close();
        fed
    }

    fn frames(&self, owner: usize, assignment: &Assignment) -> Result<()> {
        let unwanted = Arc::new(AtomicBool::new(false));
        let mut stream = Some(Stream::open(assignment, self.arguments, self.films));
        while let Some(current) = stream.take() {
            if self.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            if unwanted.load(Ordering::SeqCst) {
                break;
            }
            let (rest, next) = current.next(assignment, self.arguments, self.upscaler.task());
            stream = rest;
            match next {
                Ok(NextFrame::Frame(request)) => {
                    let handle = self.submit(request)?;
                    self.tell(Item::Frame(owner, handle, unwanted.clone()))?;
                }
                Ok(NextFrame::Repeated) => self.tell(Item::Repeated(owner))?,
                Ok(NextFrame::NotYet) => {}
                Ok(NextFrame::Begun(frames)) => self.tell(Item::Begun(owner, frames))?,
                Ok(NextFrame::End(writer)) => self.tell(Item::Ended(owner, writer))?,
                Err(error) => self.tell(Item::Broken(owner, error))?,
            }
        }
        Ok(())
    }

    fn submit(&self, request: UpscaleRequest) -> Result<Handle<UpscaleStatistics>> {
        // Pictures of one command may share a run on every device.
        let terms = Terms { allows_rounding: true, ..self.cancel.into() };
        self.upscaler.submit(request, terms)
    }

    fn tell(&self, item: Item) -> Result<()> {
        // The receiver is dropped after a failure that ends everything.
        self.items.send(item).map_err(|_| Error::Cancelled)
    }
}

/// The request for one picture.
fn picture(assignment: &Assignment, arguments: &Arguments, piped: &Piped) -> UpscaleRequest {
    let Assignment { input, output } = assignment.clone();
    let (opening, writing) = (arguments.opening(piped), arguments.writing());
    let outscale = arguments.outscale;
    UpscaleRequest::new(move |output_of| {
        let source = opening.open(&input)?;
        let mut header = output_of(source.header())?;
        let size = header.size;
        if let Some(factor) = outscale {
            header.size = outscaled(source.header().size, factor)?;
        }
        let to = header.size;
        let sink = writing.create(&output, header, source.format())?;
        let sink: Box<dyn RowSink> = if to == size { sink } else { Box::new(Outscale::new(size, sink)) };
        Ok(OpenedPicture { source: Box::new(source), sink })
    })
}
