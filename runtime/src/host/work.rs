//! What waits for a device, and what comes back.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use tileforge_session::{Buffer, Cancel};

use super::core::Core;
use super::group::Group;
use super::shared::Lending;
use crate::error::{Error, Result};

/// The values of one tensor of one sample, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    F32(Vec<f32>),
    I64(Vec<i64>),
    I32(Vec<i32>),
}

impl Values {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::I32(values) => values.len(),
        }
    }

    /// The numbers of a tensor of 32-bit floats.
    pub(crate) fn into_f32(self) -> Result<Vec<f32>> {
        if let Self::F32(values) = self { Ok(values) } else { Err(Error::internal("values")) }
    }

    /// Their bytes, to compare them by.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::F32(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
            Self::I64(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
            Self::I32(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        }
    }

    /// Copies them to a part of a buffer.
    pub(super) fn write(&self, to: &mut Buffer, at: usize) -> Result<()> {
        fn copy<T: Copy>(from: &[T], to: &mut [T], at: usize) -> Result<()> {
            let place = to.get_mut(at..at + from.len()).ok_or_else(|| Error::internal("values"))?;
            place.copy_from_slice(from);
            Ok(())
        }
        match self {
            Self::F32(values) => copy(values, to.as_mut_slice()?, at),
            Self::I64(values) => copy(values, to.as_mut_slice()?, at),
            Self::I32(values) => copy(values, to.as_mut_slice()?, at),
        }
    }
}

/// What became of a sample.
pub(crate) struct Answer {
    /// The number that it was submitted with.
    pub(crate) number: u64,
    /// What it was made of.
    pub(crate) inputs: Vec<Values>,
    pub(crate) made: Result<Made>,
}

/// What a network made of a sample.
pub(crate) struct Made {
    /// In the order of the group's outputs.
    pub(crate) outputs: Vec<Values>,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// Its share of the run.
    pub(crate) share: f64,
}

/// A sample that waits.
pub(super) struct Sample {
    pub(super) group: Arc<Group>,
    pub(super) number: u64,
    pub(super) inputs: Vec<Values>,
    /// Ends the run, if it runs alone or with samples of the same flag.
    pub(super) cancel: Cancel,
    pub(super) answer: Sender<Answer>,
}

impl Sample {
    pub(super) fn answer(self, made: Result<Made>) {
        let Self { number, inputs, answer, .. } = self;
        // Who asked may be gone.
        let _ = answer.send(Answer { number, inputs, made });
    }
}

/// A stream that somebody wants to themselves for a moment, with a session or without.
pub(super) struct Turn {
    pub(super) core: Arc<Core>,
    pub(super) session: Option<Wanted>,
    pub(super) granted: Sender<Result<Grant>>,
}

/// The session that a turn needs.
pub(super) enum Wanted {
    /// That of a graph.
    Graph(usize),
    /// The one that runs most samples of a group, as far as memory holds it.
    Most(Arc<Group>),
}

/// A stream that is somebody's own until this is dropped.
pub(super) struct Grant {
    pub(super) lending: Option<Lending>,
    /// The stream waits until this is closed.
    pub(super) _until: Sender<()>,
}

/// What waits for a device.
pub(super) enum Work {
    Sample(Sample),
    Turn(Turn),
}

impl Work {
    pub(super) fn core(&self) -> &Arc<Core> {
        match self {
            Self::Sample(sample) => &sample.group.core,
            Self::Turn(turn) => &turn.core,
        }
    }

    /// Answers with an error.
    pub(super) fn refuse(self, error: Error) {
        match self {
            Self::Sample(sample) => sample.answer(Err(error)),
            // Who asked may be gone.
            Self::Turn(turn) => drop(turn.granted.send(Err(error))),
        }
    }
}
