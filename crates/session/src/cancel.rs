//! A flag that stops work, also within a run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// A flag that stops work: between two of its steps, where they ask [`Cancel::is_cancelled`], and within a run of a
/// [`Session`](crate::Session), after the node that is being computed.
///
/// Clones share the flag. One flag may be that of many requests; [`Cancel::child`] makes one for each of them.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Shared>);

#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    parent: Option<Cancel>,
    /// What ends the runs that are going on.
    running: Mutex<Vec<Arc<dyn Interrupt>>>,
}

/// What ends one run, from another thread.
pub(crate) trait Interrupt: Send + Sync {
    /// Asks the run to end soon. Does not wait for it.
    fn interrupt(&self);
}

impl fmt::Debug for Cancel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag of its own that is also set when this one is.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Arc::new(Shared { parent: Some(self.clone()), ..Shared::default() }))
    }

    /// Sets the flag, and ends the runs that go on with it or with its children.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        self.0.running.lock().iter().for_each(|run| run.interrupt());
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.lineage().any(|flag| flag.0.cancelled.load(Ordering::SeqCst))
    }

    /// Runs something that `interrupt` can end. `None`: the flag was set before.
    pub(crate) fn during<R>(&self, interrupt: &Arc<dyn Interrupt>, run: impl FnOnce() -> R) -> Option<R> {
        let _listed = Listed::new(self, interrupt);
        // Only now, so that a flag which is set from here on finds the run in the list.
        (!self.is_cancelled()).then(run)
    }

    /// This flag, the one that it was made from, and so on.
    fn lineage(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |flag| flag.0.parent.as_ref())
    }
}

/// A run that is in the lists of a flag and of those that it was made from, until this is dropped.
struct Listed<'c> {
    cancel: &'c Cancel,
    interrupt: &'c Arc<dyn Interrupt>,
}

impl<'c> Listed<'c> {
    fn new(cancel: &'c Cancel, interrupt: &'c Arc<dyn Interrupt>) -> Self {
        cancel.lineage().for_each(|flag| flag.0.running.lock().push(interrupt.clone()));
        Self { cancel, interrupt }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        for flag in self.cancel.lineage() {
            let mut running = flag.0.running.lock();
            if let Some(place) = running.iter().position(|run| Arc::ptr_eq(run, self.interrupt)) {
                running.swap_remove(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Interrupt for Count {
        fn interrupt(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counted() -> (Arc<Count>, Arc<dyn Interrupt>) {
        let count = Arc::new(Count::default());
        (count.clone(), count)
    }

    #[test]
    fn a_run_is_interrupted_by_its_flag_and_by_those_above() {
        let all = Cancel::new();
        let (one, other) = (all.child(), all.child());
        let (count, interrupt) = counted();
        let ended = one.during(&interrupt, || {
            other.cancel();
            assert_eq!(count.0.load(Ordering::SeqCst), 0);
            all.cancel();
            one.is_cancelled()
        });
        assert_eq!((ended, count.0.load(Ordering::SeqCst)), (Some(true), 1));
        // The run is over: later calls do not reach it.
        all.cancel();
        one.cancel();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(all.0.running.lock().is_empty() && one.0.running.lock().is_empty());
    }

    #[test]
    fn nothing_begins_after_the_flag_was_set() {
        let all = Cancel::new();
        let one = all.child();
        one.cancel();
        let (_, interrupt) = counted();
        assert_eq!(one.during(&interrupt, || ()), None);
        assert_eq!(all.during(&interrupt, || 1), Some(1));
        assert!(!all.is_cancelled());
    }
}
