//! A flag that stops work, also within a run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// A flag that stops work: between two steps, where the work checks [`Cancel::is_cancelled`], and within a run of a
/// [`Session`](crate::Session), after the node that is being computed.
///
/// Clones share the flag. Many requests can depend on one flag: [`Cancel::child`] makes a flag for each of them.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Shared>);

#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    parent: Option<Cancel>,
    /// Interrupts for the runs in progress.
    running: Mutex<Vec<Arc<dyn Interrupt>>>,
}

/// Ends one run, from another thread.
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

    /// Whether both are the same flag.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sets the flag, and ends the runs in progress that use this flag or its children.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        // Call without holding the lock: an interrupted run may end meanwhile, and lock the list to remove itself.
        let running = self.0.running.lock().clone();
        running.iter().for_each(|run| run.interrupt());
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.lineage().any(|flag| flag.0.cancelled.load(Ordering::SeqCst))
    }

    /// Calls `run`, which `interrupt` can end. `None`: the flag was already set, and `run` was not called.
    pub(crate) fn during<R>(&self, interrupt: &Arc<dyn Interrupt>, run: impl FnOnce() -> R) -> Option<R> {
        let _listed = Listed::new(self, interrupt);
        // Check only after the run is in the list: a flag that is set from here on interrupts it.
        (!self.is_cancelled()).then(run)
    }

    /// Calls `then` when the flag is set, as long as the notice lives: at once if it is set already. `then` may be called
    /// more than once, on the thread that sets the flag, so it should be short.
    #[must_use = "nothing is called once the notice is dropped"]
    pub fn notify(&self, then: impl Fn() + Send + Sync + 'static) -> Notice {
        let then: Arc<dyn Interrupt> = Arc::new(Call(then));
        self.lineage().for_each(|flag| flag.0.running.lock().push(then.clone()));
        let notice = Notice { cancel: self.clone(), then };
        // Check only after the notice is in the lists: a flag that is set from here on calls it.
        if self.is_cancelled() {
            notice.then.interrupt();
        }
        notice
    }

    /// Removes an interrupt from the lists of this flag and of its parents.
    fn leave_out(&self, interrupt: &Arc<dyn Interrupt>) {
        for flag in self.lineage() {
            let mut running = flag.0.running.lock();
            if let Some(place) = running.iter().position(|run| Arc::ptr_eq(run, interrupt)) {
                running.swap_remove(place);
            }
        }
    }

    /// This flag, its parent, the parent's parent, and so on.
    fn lineage(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |flag| flag.0.parent.as_ref())
    }
}

/// Keeps a run in the lists of a flag and of its parents until dropped.
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
        self.cancel.leave_out(self.interrupt);
    }
}

/// A callback for when a flag is set; dropping it ends the calls. Made by [`Cancel::notify`].
pub struct Notice {
    cancel: Cancel,
    then: Arc<dyn Interrupt>,
}

impl fmt::Debug for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Notice").field(&self.cancel).finish()
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        self.cancel.leave_out(&self.then);
    }
}

struct Call<F>(F);

impl<F: Fn() + Send + Sync> Interrupt for Call<F> {
    fn interrupt(&self) {
        (self.0)();
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
    fn a_child_is_another_flag() {
        let flag = Cancel::new();
        assert!(flag.is_same(&flag.clone()));
        assert!(!flag.is_same(&flag.child()) && !flag.is_same(&Cancel::new()));
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
    fn a_notice_is_called_until_it_is_dropped() {
        let all = Cancel::new();
        let one = all.child();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = |flag: &Cancel| {
            let count = count.clone();
            flag.notify(move || {
                count.fetch_add(1, Ordering::SeqCst);
            })
        };
        let (kept, dropped) = (counted(&one), counted(&one));
        drop(dropped);
        all.cancel();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        drop(kept);
        all.cancel();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        let _late = counted(&one);
        assert_eq!(count.load(Ordering::SeqCst), 2, "a flag that is set already");
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
