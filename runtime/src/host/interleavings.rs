//! Tests the service under many orders of its threads: `scripts/interleavings.sh`.
//!
//! A test's scheduler controls the locks, waits and threads of the host. A flag ([`Cancel`]) changes in one step.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};

use super::sync::atomic::{AtomicUsize, Ordering};
use super::sync::thread;
use super::*;
use crate::error::{Error, Result};

/// Orders that each test tries of each kind: random orders, and orders with few thread switches, where rare faults are
/// found sooner (<https://www.microsoft.com/en-us/research/publication/a-randomized-scheduler-with-probabilistic-guarantees-of-finding-bugs/>).
const ORDERS: usize = 2000;
const CHANGES: usize = 3;

fn in_many_orders(test: impl Fn() + Send + Sync + Clone + 'static) {
    let orders = std::env::var("ORDERS").ok().and_then(|text| text.parse().ok()).unwrap_or(ORDERS);
    shuttle::check_random(test.clone(), orders);
    shuttle::check_pct(test, orders, CHANGES);
}

/// Doubles numbers.
struct Doubling;

const POISON: u32 = 13;

impl Task for Doubling {
    const NAME: &'static str = "doubling";
    type Request = u32;
    type Output = u32;

    fn places(&self) -> usize {
        2
    }

    fn serve(&self, request: u32, reply: &Reply<u32>) -> Result<u32> {
        reply.progress(1, 2);
        assert!(request != POISON, "poison");
        thread::yield_now();
        reply.go_on()?;
        Ok(2 * request)
    }
}

fn host() -> Host {
    // ONNX Runtime is loaded once, with the system's threads.
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    let load = || Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
    Host::new(ENVIRONMENT.get_or_init(load), HostOptions::default())
}

fn service(capacity: usize) -> Arc<Service<Doubling>> {
    Arc::new(Service::new(&host(), Doubling, capacity))
}

fn is_result(result: &Result<u32>, expected: u32) -> bool {
    result.as_ref().is_ok_and(|found| *found == expected)
}

#[test]
fn callers_get_their_own_results() {
    in_many_orders(|| {
        let service = service(1);
        let callers: Vec<_> = (0..3)
            .map(|number| {
                let service = service.clone();
                thread::spawn(move || service.submit(number, Terms::default()).unwrap().wait().unwrap())
            })
            .collect();
        let results: Vec<u32> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
        assert_eq!(results, [0, 2, 4]);
    });
}

#[test]
fn a_result_wakes_whoever_awaits_it() {
    in_many_orders(|| {
        let service = service(2);
        let handles = [1, 2].map(|number| service.submit(number, Terms::default()).unwrap());
        let results = handles.map(|handle| shuttle::future::block_on(handle).unwrap());
        assert_eq!(results, [2, 4]);
    });
}

#[test]
fn a_cancelled_request_ends_alone() {
    in_many_orders(|| {
        let service = service(2);
        let cancel = Cancel::new();
        let cancelled = service.submit(1, &cancel).unwrap();
        let other = service.submit(2, Terms::default()).unwrap();
        let setting = thread::spawn(move || cancel.cancel());
        let result = cancelled.wait();
        assert!(matches!(result, Err(Error::Cancelled)) || is_result(&result, 2), "{result:?}");
        assert_eq!(other.wait().unwrap(), 4);
        setting.join().unwrap();
        assert_eq!(service.submit(3, Terms::default()).unwrap().wait().unwrap(), 6);
    });
}

#[test]
fn a_deadline_ends_its_request_alone() {
    in_many_orders(|| {
        let service = service(2);
        let over = Terms { deadline: Some(Instant::now()), ..Terms::default() };
        let late = service.submit(1, over).unwrap();
        let other = service.submit(2, Terms::default()).unwrap();
        let result = late.wait();
        assert!(matches!(result, Err(Error::Deadline | Error::Cancelled)), "{result:?}");
        assert_eq!(other.wait().unwrap(), 4);
    });
}

#[test]
fn a_panic_ends_its_request_alone() {
    in_many_orders(|| {
        let service = service(3);
        let handles = [1, POISON, 3].map(|number| service.submit(number, Terms::default()).unwrap());
        let [first, poisoned, last] = handles.map(Handle::wait);
        assert!(is_result(&first, 2) && poisoned.is_err() && is_result(&last, 6), "{first:?} {poisoned:?} {last:?}");
        assert_eq!(service.submit(4, Terms::default()).unwrap().wait().unwrap(), 8);
    });
}

#[test]
fn what_was_accepted_before_the_end_is_finished() {
    in_many_orders(|| {
        let service = service(1);
        let submitting = {
            let service = service.clone();
            thread::spawn(move || [1, 2, 3].map(|number| service.submit(number, Terms::default())))
        };
        let watching = service.submit(4, Terms::default());
        if let Ok(handle) = &watching {
            // Asking for the place must block nothing.
            let _ = handle.place();
        }
        service.close();
        drop(service);
        let accepted = submitting.join().unwrap();
        for (number, handle) in [1, 2, 3].into_iter().zip(accepted) {
            match handle {
                Ok(handle) => assert_eq!(handle.wait().unwrap(), 2 * number),
                Err(error) => assert!(matches!(error, Error::Closed), "{error}"),
            }
        }
        assert_eq!(watching.unwrap().wait().unwrap(), 8);
    });
}

/// Long requests, of which few are open at the same time.
struct Long(Arc<AtomicUsize>);

impl Task for Long {
    const NAME: &'static str = "long";
    type Request = ();
    type Output = usize;

    fn places(&self) -> usize {
        4
    }

    fn serve(&self, (): (), reply: &Reply<usize>) -> Result<usize> {
        let _long = reply.step_aside()?;
        let open = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        thread::yield_now();
        self.0.fetch_sub(1, Ordering::SeqCst);
        Ok(open)
    }
}

#[test]
fn long_requests_all_come_to_their_ends() {
    in_many_orders(|| {
        let service = Service::new(&host(), Long(Arc::default()), 4);
        let cancel = Cancel::new();
        let handles: Vec<_> = (0..3).map(|_| service.submit((), Terms::default()).unwrap()).collect();
        let cancelled = service.submit((), &cancel).unwrap();
        cancel.cancel();
        assert!(matches!(cancelled.wait(), Ok(_) | Err(Error::Cancelled)));
        assert!(handles.into_iter().all(|handle| handle.wait().is_ok()));
    });
}
