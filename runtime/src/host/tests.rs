//! The service with a task that needs no device.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tileforge_session::Environment;
use tileforge_session::onnxruntime::{self, Search};

use super::*;
use crate::error::{Error, Result};

/// Doubles numbers, as many at the same time as it has places.
struct Doubling {
    /// Holds each request, if a test wants that.
    gate: Option<Arc<Barrier>>,
    places: usize,
    /// The order in which requests' turns came.
    served: Arc<Mutex<Vec<u32>>>,
}

const POISON: u32 = 13;
const FAILS: u32 = 7;

impl Task for Doubling {
    const NAME: &'static str = "doubling";
    type Request = u32;
    type Output = u32;

    fn concurrency(&self) -> usize {
        self.places
    }

    fn serve(&self, request: u32, reply: &Reply<u32>) -> Result<u32> {
        self.served.lock().push(request);
        if let Some(gate) = &self.gate {
            gate.wait();
        }
        assert!(request != POISON, "poison");
        reply.progress(1, 1);
        reply.go_on()?;
        if request == FAILS { Err(Error::Alpha { reason: "seven".into() }) } else { Ok(2 * request) }
    }
}

fn host() -> Host {
    Host::new(&Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap()), HostOptions::default())
}

fn service(capacity: usize) -> Service<Doubling> {
    Service::new(&host(), Doubling { gate: None, places: 2, served: Arc::default() }, capacity)
}

/// A service that does nothing before the barrier is passed, once for each request.
fn held(capacity: usize) -> (Service<Doubling>, Arc<Barrier>) {
    let gate = Arc::new(Barrier::new(2));
    let task = Doubling { gate: Some(gate.clone()), places: 1, served: Arc::default() };
    (Service::new(&host(), task, capacity), gate)
}

/// Waits until a request's turn has come.
fn begun(service: &Service<Doubling>, request: u32) {
    let started = Instant::now();
    while !service.task().served.lock().contains(&request) {
        assert!(started.elapsed() < Duration::from_secs(20), "{request} is never served");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_request_has_its_own_result() {
    let service = service(2);
    let handles: Vec<_> = [1, FAILS, 3].map(|number| service.submit(number, Terms::default()).unwrap()).into();
    let results: Vec<_> = handles.into_iter().map(Handle::wait).collect();
    assert!(matches!(results[..], [Ok(2), Err(Error::Alpha { .. }), Ok(6)]), "{results:?}");
    service.shutdown();
}

#[test]
fn a_full_queue_refuses_or_waits_and_tells_the_place() {
    let (service, gate) = held(1);
    let now = service.deadlines().stop();
    let first = service.submit(1, Terms::default()).unwrap();
    begun(&service, 1);
    let second = service.submit(2, Terms::default()).unwrap();
    assert!(matches!(service.try_submit(3, Terms::default()), Err(Error::QueueFull { capacity: 1 })));
    assert_eq!(first.progress(), Progress { done: 0, total: None });
    assert_eq!((first.queue_position(), second.queue_position()), (None, Some(0)));

    // A caller that waits for room can be stopped.
    let stop = Cancel::new();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| service.submit(3, &stop).err());
        stop.cancel();
        assert!(matches!(waiting.join().unwrap(), Some(Error::Cancelled)));
        let soon = Terms { deadline: Some(now + Duration::from_millis(5)), ..Terms::default() };
        let late = scope.spawn(|| service.submit(3, soon).err());
        service.deadlines().advance(Duration::from_millis(5));
        assert!(matches!(late.join().unwrap(), Some(Error::Deadline)));
        let waiting = scope.spawn(|| service.submit(4, Terms::default()));
        gate.wait();
        gate.wait();
        let third = waiting.join().unwrap().unwrap();
        gate.wait();
        assert_eq!([first, second, third].map(|handle| handle.wait().unwrap()), [2, 4, 8]);
    });
}

#[test]
fn threads_that_have_just_been_started_are_room_for_requests() {
    const PLACES: u32 = 8;
    let gate = Arc::new(Barrier::new(PLACES as usize + 1));
    let task = Doubling { gate: Some(gate.clone()), places: PLACES as usize, served: Arc::default() };
    let service = Service::new(&host(), task, 1);
    // Faster than threads start.
    let numbers = 20..20 + PLACES;
    let handles: Vec<_> = numbers.clone().map(|number| service.try_submit(number, Terms::default()).unwrap()).collect();
    let waiting = service.try_submit(1, Terms::default()).unwrap();
    assert!(matches!(service.try_submit(2, Terms::default()), Err(Error::QueueFull { capacity: 1 })));
    waiting.cancel();
    gate.wait();
    let doubled: Vec<_> = handles.into_iter().map(|handle| handle.wait().unwrap()).collect();
    assert_eq!(doubled, numbers.map(|number| 2 * number).collect::<Vec<_>>());
}

#[test]
fn urgent_requests_overtake_those_that_wait() {
    let (service, gate) = held(8);
    let of = |priority| Terms { priority, ..Terms::default() };
    let first = service.submit(1, Terms::default()).unwrap();
    begun(&service, 1);
    let background = service.submit(2, of(Priority::Background)).unwrap();
    let normal = service.submit(3, of(Priority::Normal)).unwrap();
    let urgent = service.submit(4, of(Priority::Urgent)).unwrap();
    assert_eq!([&background, &normal, &urgent].map(Handle::queue_position), [Some(2), Some(1), Some(0)]);
    for _ in 0..4 {
        gate.wait();
    }
    [first, background, normal, urgent].into_iter().for_each(|handle| {
        handle.wait().unwrap();
    });
    assert_eq!(*service.task().served.lock(), [1, 4, 3, 2]);
}

#[test]
fn callers_take_turns_and_the_requests_of_each_keep_their_order() {
    let (service, gate) = held(16);
    let of = |caller| Terms { caller, ..Terms::default() };
    let mut handles = vec![service.submit(10, of(1)).unwrap()];
    begun(&service, 10);
    handles.extend([11, 12, 14].map(|number| service.submit(number, of(1)).unwrap()));
    handles.extend([20, 21].map(|number| service.submit(number, of(2)).unwrap()));
    assert_eq!(
        handles.iter().map(Handle::queue_position).collect::<Vec<_>>(),
        [None, Some(1), Some(3), Some(4), Some(0), Some(2)]
    );
    for _ in 0..handles.len() {
        gate.wait();
    }
    handles.into_iter().for_each(|handle| {
        handle.wait().unwrap();
    });
    assert_eq!(*service.task().served.lock(), [10, 20, 11, 21, 12, 14]);
}

#[test]
fn a_deadline_ends_a_request_that_still_waits_and_makes_room() {
    let (service, gate) = held(1);
    let first = service.submit(1, Terms::default()).unwrap();
    begun(&service, 1);
    let deadlines = service.deadlines();
    let soon = Terms { deadline: Some(deadlines.stop() + Duration::from_secs(60)), ..Terms::default() };
    let late = service.submit(2, soon).unwrap();
    deadlines.advance(Duration::from_secs(59));
    assert!(!late.is_finished());
    deadlines.advance(Duration::from_secs(1));
    // The gate is closed, so that its turn does not come.
    assert!(matches!(late.wait(), Err(Error::Deadline)));
    let next = service.try_submit(3, Terms::default()).unwrap();
    gate.wait();
    gate.wait();
    assert_eq!([first, next].map(|handle| handle.wait().unwrap()), [2, 6]);
    assert_eq!(*service.task().served.lock(), [1, 3]);
}

#[test]
fn what_is_over_before_its_turn_is_not_served() {
    let service = service(4);
    let now = service.deadlines().stop();
    // Many times, because the deadline thread is usually faster.
    for number in 0..1000 {
        let over = Terms { deadline: Some(now), ..Terms::default() };
        let result = service.submit(number, over).unwrap().wait();
        assert!(matches!(result, Err(Error::Deadline)), "{number}: {result:?}");
    }
    service.shutdown();
}

#[test]
fn a_cancelled_request_ends_alone_and_at_once() {
    let (service, gate) = held(4);
    let (one, both) = (Cancel::new(), Cancel::new());
    let handles = [1, 2, 3].map(|number| service.submit(number, &both).unwrap());
    let other = service.submit(4, &one).unwrap();
    begun(&service, 1);
    let asked = Instant::now();
    handles[1].cancel();
    let [first, second, third] = handles;
    assert!(matches!(second.wait(), Err(Error::Cancelled)));
    both.cancel();
    assert!(matches!((first.wait(), third.wait()), (Err(Error::Cancelled), Err(Error::Cancelled))));
    // No request has passed the gate yet.
    assert!(asked.elapsed() < Duration::from_secs(5));
    gate.wait();
    gate.wait();
    assert_eq!(other.wait().unwrap(), 8);
    // Cancelled requests are not served.
    assert_eq!(*service.task().served.lock(), [1, 4]);
}

#[test]
fn a_panic_ends_its_own_request_and_no_other() {
    let service = service(8);
    let handles = [1, POISON, 2, POISON, 3].map(|number| service.submit(number, Terms::default()).unwrap());
    let results = handles.map(Handle::wait);
    assert!(matches!(results, [Ok(2), Err(_), Ok(4), Err(_), Ok(6)]), "{results:?}");
    for error in results.into_iter().filter_map(Result::err) {
        assert!(error.to_string().contains("the doubling stage"), "{error}");
    }
    // It goes on to serve.
    assert_eq!(service.submit(5, Terms::default()).unwrap().wait().unwrap(), 10);
    service.shutdown();
}

#[test]
fn a_request_is_counted_until_its_work_ends_however_it_does() {
    let (host, gate) = (host(), Arc::new(Barrier::new(2)));
    let task = Doubling { gate: Some(gate.clone()), places: 1, served: Arc::default() };
    let service = Service::new(&host, task, 8);
    let counted = || {
        let requests = host.metrics().requests["doubling"].clone();
        (requests.waiting, requests.serving, requests.served)
    };
    let handles = [POISON, FAILS, 3, 4].map(|number| service.submit(number, Terms::default()).unwrap());
    begun(&service, POISON);
    assert_eq!(counted(), (3, 1, 0));
    handles[2].cancel();
    gate.wait();
    begun(&service, FAILS);
    // One has panicked. The cancelled one is in the queue until its turn.
    assert_eq!(counted(), (2, 1, 1));
    gate.wait();
    begun(&service, 4);
    assert_eq!(counted(), (0, 1, 2));
    gate.wait();
    let results = handles.map(Handle::wait);
    assert!(matches!(results, [Err(_), Err(_), Err(Error::Cancelled), Ok(8)]), "{results:?}");
    assert_eq!(counted(), (0, 0, 3));
    // A service that shuts down leaves no count.
    let last = service.submit(5, Terms::default()).unwrap();
    begun(&service, 5);
    last.cancel();
    gate.wait();
    service.shutdown();
    assert_eq!(counted(), (0, 0, 4));
}

#[test]
fn a_deadline_ends_a_request_whose_turn_has_come() {
    let (service, gate) = held(4);
    let deadlines = service.deadlines();
    let terms = Terms { deadline: Some(deadlines.stop() + Duration::from_secs(60)), ..Terms::default() };
    let handle = service.submit(1, terms).unwrap();
    begun(&service, 1);
    assert!(!handle.is_finished());
    deadlines.advance(Duration::from_secs(60));
    assert!(matches!(handle.wait(), Err(Error::Deadline)));
    gate.wait();
    let next = service.submit(2, Terms::default()).unwrap();
    gate.wait();
    assert_eq!(next.wait().unwrap(), 4);
}

#[test]
fn shutting_down_finishes_what_was_accepted() {
    let (service, gate) = held(4);
    let handles = [1, 2, 3].map(|number| service.submit(number, Terms::default()).unwrap());
    service.close();
    assert!(matches!(service.submit(4, Terms::default()), Err(Error::Closed)));
    assert!(handles[0].wait_for(Duration::from_millis(1)).is_none());
    thread::scope(|scope| {
        let ended = scope.spawn(move || drop(service));
        for _ in 0..3 {
            gate.wait();
        }
        ended.join().unwrap();
    });
    assert!(handles.iter().all(Handle::is_finished));
    assert_eq!(handles.map(|handle| handle.wait_for(Duration::ZERO).unwrap().unwrap()), [2, 4, 6]);
}

#[test]
fn waiting_for_a_while_ends_with_the_result() {
    let (service, gate) = held(1);
    let handle = service.submit(21, Terms::default()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            gate.wait();
        });
        assert_eq!(handle.wait_for(Duration::from_secs(60)).unwrap().unwrap(), 42);
    });
}

/// What an async runtime does, for one future.
struct Woken(Mutex<bool>, Condvar);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.0.lock() = true;
        self.1.notify_all();
    }
}

#[test]
fn a_request_can_be_awaited() {
    let (service, gate) = held(2);
    let mut handle = service.submit(21, Terms::default()).unwrap();
    let woken = Arc::new(Woken(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    assert!(Future::poll(std::pin::Pin::new(&mut handle), &mut context).is_pending());
    gate.wait();
    let mut state = woken.0.lock();
    while !*state {
        assert!(!woken.1.wait_for(&mut state, Duration::from_secs(20)).timed_out(), "it is never woken");
    }
    let polled = Future::poll(std::pin::Pin::new(&mut handle), &mut context);
    assert!(matches!(polled, Poll::Ready(Ok(42))));
    let again = Future::poll(std::pin::Pin::new(&mut handle), &mut context);
    assert!(matches!(again, Poll::Ready(Err(Error::Taken))));
}

/// Long requests, of which few are open at the same time.
struct Long {
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Task for Long {
    const NAME: &'static str = "long";
    type Request = ();
    type Output = ();

    fn concurrency(&self) -> usize {
        6
    }

    fn serve(&self, (): (), reply: &Reply<()>) -> Result<()> {
        let _long = reply.wait_as_long()?;
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(open, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
        self.open.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn long_requests_wait_for_those_before_them() {
    let most = Arc::new(AtomicUsize::new(0));
    let service = Service::new(&host(), Long { open: Arc::default(), most: most.clone() }, 12);
    let handles: Vec<_> = (0..12).map(|_| service.submit((), Terms::default()).unwrap()).collect();
    handles.into_iter().for_each(|handle| handle.wait().unwrap());
    // More than two can be open: a later request may begin before an earlier one declares itself long.
    assert!((1..=4).contains(&most.load(Ordering::SeqCst)), "{most:?}");
}

static WOKEN: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicUsize = AtomicUsize::new(0);

/// The work of a stream that counts how often it is woken, and ends slowly.
fn counted(shared: &Arc<shared::Shared>, device: usize, _: usize) {
    let mut state = shared.lock();
    while !state.closed {
        let news = state.devices[device].news.clone();
        news.wait(&mut state);
        WOKEN.fetch_add(1, Ordering::SeqCst);
    }
    drop(state);
    thread::sleep(Duration::from_millis(50));
    ENDED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_host_that_ends_wakes_its_streams_and_waits_for_their_end() {
    let host = host();
    let shared = host.shared();
    let device = shared.device(&[], 2, counted).unwrap();
    assert_eq!(shared.device(&[], 3, counted).unwrap(), device, "one device has one queue");
    assert_ne!(shared.device(&[0], 0, counted).unwrap(), device);
    let began = Instant::now();
    while WOKEN.load(Ordering::SeqCst) == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "no stream is woken");
        shared.wake(device);
        thread::sleep(Duration::from_millis(1));
    }
    drop(host);
    assert_eq!(ENDED.load(Ordering::SeqCst), 3);
}
