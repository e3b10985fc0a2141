//! The stage that opens pictures, and cuts them into batches.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_channel::Sender;
use tileforge_image::Size;
use tileforge_image::tile::{Blender, SampleEncoding, TilePlan};

use super::batch::{Batch, Slot, Ticket};
use super::clock::Clock;
use super::cut::Cutter;
use super::join::Joiner;
use super::model::Model;
use super::models::Models;
use super::order::{Begun, Order};
use super::request::{Open, Request, Statistics};
use super::routing::Routing;
use super::streams::Streams;
use crate::error::{Error, Result};
use crate::executor::{Closed, Failure, Intake, Job, Next, PATIENCE, StageResult, Task};

/// How long a batch that is not full waits for the next picture while a stream has nothing to do. Pictures that were
/// submitted together come within this.
const GRACE: Duration = Duration::from_millis(1);

/// Opens pictures, and cuts them into batches.
pub(super) struct Decoding<'d> {
    pub(super) models: &'d Models,
    pub(super) streams: &'d Streams<'d>,
    pub(super) failure: &'d Failure,
    pub(super) orders: Sender<Order>,
    pub(super) filled: Sender<Batch>,
    /// A batch that is not full yet.
    pub(super) pending: Option<Batch>,
    /// Those that have gone.
    pub(super) batches: u64,
}

/// A picture that is being cut.
struct Cutting {
    cutter: Cutter,
    plan: TilePlan,
    model: Arc<Model>,
    routing: Routing,
}

impl Decoding<'_> {
    pub(super) fn run<T>(&mut self, intake: &Intake<T>) -> StageResult<()>
    where
        T: Task<Request = Request, Output = Statistics>,
    {
        let mut number = 0;
        loop {
            match self.next(intake) {
                Next::Request(Job { request, reply }) => {
                    let ticket =
                        Arc::new(Ticket { number, clock: Clock::start(), reply, approximated: AtomicBool::new(false) });
                    number += 1;
                    if let Err(error) = self.make(request, &ticket)? {
                        self.orders.send(Order::Failed(ticket, error))?;
                    }
                }
                Next::NotYet => self.dispatch()?,
                Next::Closed => return self.dispatch(),
            }
            if self.failure.is_set() {
                return Err(Closed);
            }
        }
    }

    /// The next request. A batch that is not full waits for it only while the streams are at work, and not for long.
    fn next<T: Task>(&self, intake: &Intake<T>) -> Next<T> {
        if self.pending.is_none() {
            return intake.wait();
        }
        let mut waited = Duration::ZERO;
        loop {
            match intake.wait_for(GRACE) {
                Next::NotYet if waited < PATIENCE && !self.streams.is_one_idle() => waited += GRACE,
                next => return next,
            }
        }
    }

    /// One picture; the inner error is that of the picture alone.
    fn make(&mut self, request: Request, ticket: &Arc<Ticket>) -> StageResult<Result<()>> {
        if ticket.reply.is_over() {
            return Ok(Err(Error::Cancelled));
        }
        let models = self.models;
        let opened =
            ticket.clock.measure(|seconds| &mut seconds.decode, || request.open(&|header| models.output_of(header)));
        match opened.and_then(|open| self.begin(open, ticket)) {
            Ok(cutting) => self.cut(cutting, ticket),
            Err(error) => Ok(Err(error)),
        }
    }

    fn begin(&mut self, open: Open, ticket: &Arc<Ticket>) -> Result<Cutting> {
        let Open { source, sink } = open;
        let (plan, model) = self.planned(source.header().size)?;
        let header = source.header().clone();
        let range = self.models.interface.range;
        let routing = Routing::new(self.models.interface.channels, &header, self.models.options.alpha);
        let encoding = SampleEncoding { range, depth: sink.header().depth };
        let blender = Blender::new(&plan, self.models.options.blend, routing.planes, encoding)?;
        let output = plan.tile().scaled(plan.scale())?;
        let joiner = Joiner::new(plan.tile(), output);
        let cutter = Cutter::new(source, range, &plan)?;
        let begun = Begun {
            ticket: ticket.clone(),
            model: model.clone(),
            plan,
            routing: routing.clone(),
            blender,
            joiner,
            sink: Some(sink),
            output,
        };
        // Cannot fail as long as the blending stage is there, and matters to nobody afterwards.
        let _ = self.orders.send(Order::Begin(Box::new(begun)));
        Ok(Cutting { cutter, plan, model, routing })
    }

    /// How a picture is cut, and what runs its tiles: the best that memory holds.
    fn planned(&self, size: Size) -> Result<(TilePlan, Arc<Model>)> {
        loop {
            let plan = self.models.plan(size)?;
            match self.models.of_tile(plan.tile()) {
                Err(error) if error.is_out_of_memory() && self.models.leave_tile(plan.tile()) => {
                    tracing::warn!("out of memory: goes on with smaller tiles than {}", plan.tile());
                }
                opened => return Ok((plan, opened?)),
            }
        }
    }

    /// Cuts one picture; the inner error is that of the picture alone.
    fn cut(&mut self, cutting: Cutting, ticket: &Arc<Ticket>) -> StageResult<Result<()>> {
        let Cutting { mut cutter, plan, model, routing } = cutting;
        for tile in plan.tiles() {
            if ticket.reply.is_over() {
                return Ok(Err(Error::Cancelled));
            }
            if let Err(error) = ticket.clock.measure(|seconds| &mut seconds.decode, || cutter.advance(tile)) {
                return Ok(Err(error));
            }
            for (position, run) in routing.runs.iter().enumerate() {
                let last = position + 1 == routing.runs.len();
                let mut batch = match self.batch_of(&model, ticket)? {
                    Ok(batch) => batch,
                    Err(error) => return Ok(Err(error)),
                };
                let filled = ticket.clock.measure(
                    |seconds| &mut seconds.decode,
                    || -> Result<()> {
                        let place = batch.slots.len();
                        cutter.fill(tile, run, batch.input(place)?);
                        let around = routing.around.filter(|_| last).map(|channel| cutter.channel(tile, channel));
                        batch.slots.push(Slot { ticket: ticket.clone(), tile, run: run.clone(), around, last });
                        Ok(())
                    },
                );
                let full = batch.slots.len() >= model.batch();
                // Tiles of other pictures may be in it, too.
                self.pending = Some(batch);
                if let Err(error) = filled {
                    return Ok(Err(error));
                }
                if full {
                    self.dispatch()?;
                }
            }
        }
        Ok(Ok(()))
    }

    /// The batch that is being filled, if it is one of this model, or another; the inner error is that of the picture
    /// alone.
    fn batch_of(&mut self, model: &Arc<Model>, ticket: &Ticket) -> StageResult<Result<Batch>> {
        match self.pending.take() {
            Some(batch) if Arc::ptr_eq(&batch.model, model) => Ok(Ok(batch)),
            other => {
                self.pending = other;
                self.dispatch()?;
                let tensors = model.tensors(|| ticket.reply.is_over() || self.failure.is_set());
                let number = self.batches;
                let batch = |tensors| Batch { number, model: model.clone(), slots: Vec::new(), tensors, failed: None };
                if self.failure.is_set() { Err(Closed) } else { Ok(tensors.map(batch)) }
            }
        }
    }

    fn dispatch(&mut self) -> StageResult<()> {
        let Some(batch) = self.pending.take() else { return Ok(()) };
        self.batches += 1;
        self.orders.send(Order::Batch)?;
        self.streams.expect_one();
        self.failure.send(&self.filled, batch)
    }
}
