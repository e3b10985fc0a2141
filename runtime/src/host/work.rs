//! The work that waits for a device, and its answers.

use std::sync::Arc;
use std::time::Instant;

use tileforge_session::Cancel;

use super::core::Core;
use super::group::Group;
use super::sessions::Lending;
use super::stages::Visit;
use super::sync::channel::{Receiver, Sender, unbounded};
use super::values::Values;
use crate::error::{Error, Result};

/// The answer to a submitted sample.
pub(crate) struct Answer {
    /// The number that it was submitted with.
    pub(crate) number: u64,
    /// The sample's inputs; none if the stream panicked.
    pub(crate) inputs: Vec<Values>,
    pub(crate) made: Result<Made>,
}

/// Where the answers of a request's samples come from.
pub(crate) type Answers = Receiver<Answer>;

/// Where the answers of a request's samples go.
pub(crate) type AnswerSender = Sender<Answer>;

/// A channel for the answers of a request's samples.
pub(crate) fn answers() -> (AnswerSender, Answers) {
    unbounded()
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
    pub(super) inputs: Vec<Values>,
    /// The request's flag. A run ends once the flags of all its samples are set.
    pub(super) cancel: Cancel,
    pub(super) owed: OwedAnswer,
}

/// The answer that a submitted sample will get, exactly one: a stream that panics answers with an error.
pub(super) struct OwedAnswer {
    number: u64,
    /// Until it is given.
    answer: Option<(AnswerSender, Visit)>,
}

impl OwedAnswer {
    pub(super) fn new(number: u64, answer: &AnswerSender, visit: Visit) -> Self {
        Self { number, answer: Some((answer.clone(), visit)) }
    }

    fn give(&mut self, inputs: Vec<Values>, made: Result<Made>) {
        if let Some((answer, visit)) = self.answer.take() {
            // Before the caller goes on.
            drop(visit);
            // The caller may have dropped the receiver.
            let _ = answer.send(Answer { number: self.number, inputs, made });
        }
    }
}

impl Drop for OwedAnswer {
    fn drop(&mut self) {
        self.give(Vec::new(), Err(Error::internal("stream")));
    }
}

impl Sample {
    pub(super) fn answer(mut self, made: Result<Made>) {
        self.owed.give(self.inputs, made);
    }
}

/// A caller's wish for exclusive use of a stream for a moment, with a session or without.
pub(super) struct Turn {
    pub(super) core: Arc<Core>,
    pub(super) session: Option<Wanted>,
    /// The request's flag.
    pub(super) cancel: Cancel,
    pub(super) visit: Visit,
    pub(super) granted: Sender<Result<Grant>>,
}

/// The session that a turn needs.
pub(super) enum Wanted {
    /// The session of a graph.
    Graph(usize),
    /// The session with the group's largest batch that memory holds.
    LargestOf(Arc<Group>),
}

/// Exclusive use of a stream, until it is dropped.
pub(super) struct Grant {
    pub(super) lending: Option<Lending>,
    pub(super) _visit: Visit,
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
            // The caller may have dropped the receiver.
            Self::Turn(Turn { visit, granted, .. }) => {
                // Before the caller goes on.
                drop(visit);
                drop(granted.send(Err(error)));
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "interleavings"))]
mod tests {
    use super::super::stages::Stages;
    use super::*;

    #[test]
    fn a_sample_is_answered_once_even_if_its_stream_panics() {
        let (answer, answers) = answers();
        let stages = Arc::new(Stages::default());
        drop(OwedAnswer::new(3, &answer, stages.visit()));
        let mut owed = OwedAnswer::new(4, &answer, stages.visit());
        owed.give(Vec::new(), Err(Error::Cancelled));
        drop(owed);
        // The receiver waits for other samples, too: it does not end with the last sender.
        let found: Vec<Answer> = answers.try_iter().collect();
        assert!(matches!(
            &found[..],
            [
                Answer { number: 3, made: Err(Error::Internal { .. }), .. },
                Answer { number: 4, made: Err(Error::Cancelled), .. },
            ]
        ));
    }
}
