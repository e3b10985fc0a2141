//! A request in the queues of a host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tileforge_session::{Cancel, Notice};

use super::group::Group;
use super::queue::{FlowId, Item, Key, Priority};
use super::shared::Shared;
use super::stages::Stages;
use super::sync::Mutex;
use super::values::Values;
use super::work::{AnswerSender, OwedAnswer, Sample, Work};
use crate::error::{Error, Result};

/// A request in the queues of a host. Its waiting work leaves the queues when the request is cancelled or the ticket
/// is dropped.
pub(crate) struct Ticket {
    flows: Arc<Flows>,
    allows_rounding: bool,
    cancel: Cancel,
    _notice: Notice,
}

struct Flows {
    shared: Arc<Shared>,
    priority: Priority,
    caller: u64,
    stages: Arc<Stages>,
    /// By device.
    open: Mutex<BTreeMap<usize, FlowId>>,
}

impl Ticket {
    pub(super) fn new(
        shared: &Arc<Shared>,
        priority: Priority,
        caller: u64,
        allows_rounding: bool,
        cancel: &Cancel,
    ) -> Self {
        let flows = Arc::new(Flows {
            shared: shared.clone(),
            priority,
            caller,
            stages: Arc::default(),
            open: Mutex::default(),
        });
        let noticed = Arc::downgrade(&flows);
        let notice = cancel.notify(move || {
            if let Some(flows) = noticed.upgrade() {
                flows.clear();
            }
        });
        Self { flows, allows_rounding, cancel: cancel.clone(), _notice: notice }
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The stages of the request.
    pub(super) fn stages(&self) -> &Arc<Stages> {
        &self.flows.stages
    }

    /// Adds samples to the queue of a device, all at once, so that batches do not depend on how fast samples come. Each
    /// answer carries the sample's number.
    pub(super) fn submit(
        &self,
        device: usize,
        group: &Arc<Group>,
        samples: Vec<(u64, Vec<Values>)>,
        answer: &AnswerSender,
    ) -> Result<()> {
        let joins = group.core.is_exact() || self.allows_rounding;
        let item = |(number, inputs): (u64, Vec<Values>)| {
            group.check(&inputs)?;
            let key = group.key(&inputs);
            let owed = OwedAnswer::new(number, answer, self.stages().visit());
            let (group, cancel) = (group.clone(), self.cancel.clone());
            Ok((key, joins, Work::Sample(Sample { group, inputs, cancel, owed })))
        };
        let items = samples.into_iter().map(item).collect::<Result<Vec<_>>>()?;
        self.push(device, items)
    }

    /// Adds work to the queue of a device. Each item has its key, whether it may run with other requests' work, and the
    /// work.
    pub(super) fn push(&self, device: usize, items: Vec<(Key, bool, Work)>) -> Result<()> {
        let id = self.flow(device);
        {
            let mut state = self.flows.shared.lock();
            let Some(own) = state.devices.get_mut(device) else { return Err(Error::internal("ticket")) };
            for (key, joins, work) in items {
                let (cost, since) = (work.core().cost(), Instant::now());
                if own.queue.push(id, Item { key, joins, cost, since, work }).is_err() {
                    return Err(Error::Cancelled);
                }
            }
            own.news.notify_all();
        }
        // If the flag was set before the push, its listener did not see this work.
        if self.cancel.is_cancelled() {
            self.flows.clear();
        }
        Ok(())
    }

    /// Announces, or revokes, that more samples of a group will come soon.
    pub(super) fn announce(&self, device: usize, key: &Key, comes: bool) {
        let id = self.flow(device);
        let mut state = self.flows.shared.lock();
        if let Some(own) = state.devices.get_mut(device) {
            own.queue.announce(id, key, comes);
            own.news.notify_all();
        }
    }

    fn flow(&self, device: usize) -> FlowId {
        let mut open = self.flows.open.lock();
        if let Some(id) = open.get(&device) {
            return *id;
        }
        let mut state = self.flows.shared.lock();
        let Flows { priority, caller, .. } = *self.flows;
        let id = match state.devices.get_mut(device) {
            Some(own) => own.queue.open(caller, priority),
            None => FlowId::default(),
        };
        open.insert(device, id);
        id
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.flows.end(true);
    }
}

impl Flows {
    /// Removes the waiting work from the queues; the request stays open.
    fn clear(&self) {
        self.end(false);
    }

    fn end(&self, close: bool) {
        let open = self.open.lock();
        let mut left = Vec::new();
        {
            let mut state = self.shared.lock();
            for (device, id) in open.iter() {
                if let Some(device) = state.devices.get_mut(*device) {
                    left.extend(if close { device.queue.close(*id) } else { device.queue.clear(*id) });
                    device.news.notify_all();
                }
            }
        }
        left.into_iter().for_each(|item| item.work.refuse(Error::Cancelled));
    }
}
