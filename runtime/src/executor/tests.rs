use std::sync::Barrier;
use std::time::Instant;

use super::*;

/// Doubles numbers one after the other.
struct Doubling {
    /// Before each request, where a test wants to hold it.
    gate: Option<Arc<Barrier>>,
}

const POISON: u32 = 13;
const FAILS: u32 = 7;
const ENDS: u32 = 99;

impl Task for Doubling {
    const NAME: &'static str = "doubling";
    type Request = u32;
    type Output = u32;

    fn serve(&self, intake: &Intake<Self>) -> Result<()> {
        while let Next::Request(Job { request, reply }) = intake.wait() {
            if let Some(gate) = &self.gate {
                gate.wait();
            }
            assert!(request != POISON, "poison");
            if request == ENDS {
                return Err(Error::Alpha { reason: "the end".into() });
            }
            reply.progress(1, 1);
            reply.finish(match request {
                _ if reply.is_cancelled() => Err(Error::Cancelled),
                FAILS => Err(Error::Alpha { reason: "seven".into() }),
                number => Ok(2 * number),
            });
        }
        Ok(())
    }
}

fn executor(capacity: usize) -> Executor<Doubling> {
    Executor::new(Doubling { gate: None }, capacity).unwrap()
}

/// An executor that does nothing before the barrier is passed, once for each request.
fn held(capacity: usize) -> (Executor<Doubling>, Arc<Barrier>) {
    let gate = Arc::new(Barrier::new(2));
    (Executor::new(Doubling { gate: Some(gate.clone()) }, capacity).unwrap(), gate)
}

#[test]
fn each_request_has_its_own_result() {
    let executor = executor(2);
    let cancel = Cancel::new();
    let handles: Vec<_> = [1, FAILS, 3].map(|number| executor.submit(number, &cancel).unwrap()).into();
    let results: Vec<_> = handles.into_iter().map(Handle::wait).collect();
    assert!(matches!(results[..], [Ok(2), Err(Error::Alpha { .. }), Ok(6)]), "{results:?}");
    executor.shutdown().unwrap();
}

#[test]
fn a_full_queue_refuses_or_waits() {
    let (executor, gate) = held(1);
    let cancel = Cancel::new();
    let first = executor.submit(1, &cancel).unwrap();
    // Taken from the queue at some time; then there is room for one more.
    let second = executor.submit(2, &cancel).unwrap();
    assert!(matches!(executor.try_submit(3, &cancel), Err(Error::QueueFull { capacity: 1 })));
    assert_eq!(first.progress(), Progress { done: 0, total: None });

    // Whoever waits for room can be stopped.
    let stop = Cancel::new();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| executor.submit(3, &stop).err());
        stop.cancel();
        assert!(matches!(waiting.join().unwrap(), Some(Error::Cancelled)));
        let waiting = scope.spawn(|| executor.submit(4, &cancel));
        gate.wait();
        gate.wait();
        let third = waiting.join().unwrap().unwrap();
        gate.wait();
        assert_eq!([first, second, third].map(|handle| handle.wait().unwrap()), [2, 4, 8]);
    });
}

#[test]
fn a_cancelled_request_ends_alone() {
    let (executor, gate) = held(4);
    let (one, both) = (Cancel::new(), Cancel::new());
    let handles = [1, 2, 3].map(|number| executor.submit(number, &both).unwrap());
    let other = executor.submit(4, &one).unwrap();
    handles[1].cancel();
    gate.wait();
    let [first, second, third] = handles;
    // The first was taken before anything was cancelled.
    assert_eq!(first.wait().unwrap(), 2);
    both.cancel();
    for _ in 0..3 {
        gate.wait();
    }
    assert!(matches!(second.wait(), Err(Error::Cancelled)));
    assert!(matches!(third.wait(), Err(Error::Cancelled)));
    assert_eq!(other.wait().unwrap(), 8);
}

#[test]
fn a_panic_is_an_error_of_what_waits_and_of_what_comes_later() {
    let (executor, gate) = held(4);
    let cancel = Cancel::new();
    let handles = [1, POISON, 2].map(|number| executor.submit(number, &cancel).unwrap());
    gate.wait();
    gate.wait();
    let [first, poisoned, waiting] = handles;
    assert_eq!(first.wait().unwrap(), 2);
    let named = |error: Error| error.to_string().contains("the doubling stage");
    assert!(named(poisoned.wait().unwrap_err()));
    assert!(named(waiting.wait().unwrap_err()));
    assert!(named(executor.submit(3, &cancel).unwrap_err()));
    assert!(named(executor.try_submit(3, &cancel).unwrap_err()));
    assert!(named(executor.shutdown().unwrap_err()));
}

#[test]
fn an_error_of_the_task_reaches_everybody() {
    let executor = executor(4);
    let cancel = Cancel::new();
    let ended = executor.submit(ENDS, &cancel).unwrap();
    // Lost with the task, and told why.
    let error = ended.wait().unwrap_err();
    let is_told = |error: &Error| matches!(error.root(), Error::Alpha { .. } | Error::Internal(_));
    assert!(is_told(&error), "{error}");
    let started = Instant::now();
    while !matches!(executor.submit(1, &cancel).err(), Some(error) if matches!(error.root(), Error::Alpha { .. })) {
        assert!(started.elapsed() < Duration::from_secs(20), "the failure is never told");
    }
    assert!(matches!(executor.shutdown().unwrap_err().root(), Error::Alpha { .. }));
}

#[test]
fn shutting_down_finishes_what_was_accepted() {
    let (executor, gate) = held(4);
    let cancel = Cancel::new();
    let handles = [1, 2, 3].map(|number| executor.submit(number, &cancel).unwrap());
    executor.close();
    assert!(matches!(executor.submit(4, &cancel), Err(Error::Closed)));
    assert!(handles[0].wait_for(Duration::from_millis(1)).is_none());
    thread::scope(|scope| {
        let ended = scope.spawn(move || drop(executor));
        for _ in 0..3 {
            gate.wait();
        }
        ended.join().unwrap();
    });
    assert!(handles.iter().all(Handle::is_finished));
    assert_eq!(handles.map(|handle| handle.wait_for(Duration::ZERO).unwrap().unwrap()), [2, 4, 6]);
}
