//! The stages of a request that is served: it prepares, is on a device, and finishes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::sync::Mutex;

/// When a request first had work for a device, and when the last of it ended.
#[derive(Debug, Default)]
pub(super) struct Stages(Mutex<Option<[Instant; 2]>>);

/// How long each stage took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Took {
    /// Until the first work for a device.
    pub(super) preparing: Duration,
    /// Until the end of the last work for a device: waiting, running, and what the request does meanwhile.
    pub(super) on_device: Duration,
    /// Until the request's end.
    pub(super) finishing: Duration,
}

/// Work of a request that waits for a device or runs on it, until this is dropped.
#[derive(Debug)]
pub(super) struct Visit(Arc<Stages>);

impl Stages {
    /// Work for a device begins to wait.
    pub(super) fn visit(self: &Arc<Self>) -> Visit {
        self.0.lock().get_or_insert_with(|| [Instant::now(); 2]);
        Visit(self.clone())
    }

    /// The stages of a request that was served for this long.
    pub(super) fn took(&self, since: Instant, until: Instant) -> Took {
        let [first, last] = self.0.lock().unwrap_or([until; 2]);
        Took {
            preparing: first.saturating_duration_since(since),
            on_device: last.saturating_duration_since(first),
            finishing: until.saturating_duration_since(last),
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some([_, last]) = &mut *self.0.0.lock() {
            *last = Instant::now();
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "interleavings"))]
mod tests {
    use super::*;

    #[test]
    fn the_stages_of_a_request_are_its_time() {
        let (since, stages) = (Instant::now(), Arc::new(Stages::default()));
        let second = |seconds: u64| since + Duration::from_secs(seconds);
        let of = |preparing, on_device, finishing| {
            let [preparing, on_device, finishing] = [preparing, on_device, finishing].map(Duration::from_secs);
            Took { preparing, on_device, finishing }
        };
        assert_eq!(stages.took(since, second(4)), of(4, 0, 0), "without a device, all of it is preparing");
        let (one, other) = (stages.visit(), stages.visit());
        let began = stages.0.lock().unwrap();
        drop(one);
        let between = stages.0.lock().unwrap();
        drop(other);
        let ended = stages.0.lock().unwrap();
        assert!(began[0] == ended[0] && began[1] <= between[1] && between[1] <= ended[1], "{began:?} {ended:?}");
        *stages.0.lock() = Some([second(2), second(5)]);
        assert_eq!(stages.took(since, second(9)), of(2, 3, 4));
    }
}
