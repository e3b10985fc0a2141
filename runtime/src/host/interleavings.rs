//! Tests the service under many orders of its threads: `scripts/interleavings.sh`.
//!
//! A test's scheduler controls the locks, waits, channels and threads of the host. A flag ([`Cancel`]) changes in one
//! step, and so does what a session of ONNX Runtime does.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tempfile::TempDir;
use tileforge_engine::digest::sha256_file;
use tileforge_engine::{Engine, MANIFEST_FILE, testing};
use tileforge_graph::{DataType, Dim, Model, Node, Opset, Port, TensorType, WeightStorage};
use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Environment, Placement, Tensor, selftest};

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

    fn concurrency(&self) -> usize {
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
    host_with(HostOptions::default())
}

fn host_with(options: HostOptions) -> Host {
    // ONNX Runtime is loaded once, with the system's threads.
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    let load = || Environment::new(onnxruntime::load(&Search::AroundExecutable).unwrap());
    Host::new(ENVIRONMENT.get_or_init(load), options)
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
            let _ = handle.queue_position();
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

    fn concurrency(&self) -> usize {
        4
    }

    fn serve(&self, (): (), reply: &Reply<usize>) -> Result<usize> {
        let _long = reply.wait_as_long()?;
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

/// Requests of which every other one is long, all on one slot.
struct Mixed;

impl Task for Mixed {
    const NAME: &'static str = "mixed";
    type Request = u32;
    type Output = u32;

    fn concurrency(&self) -> usize {
        1
    }

    fn serve(&self, request: u32, reply: &Reply<u32>) -> Result<u32> {
        let _long = (request % 2 == 0).then(|| reply.wait_as_long()).transpose()?;
        thread::yield_now();
        Ok(request)
    }
}

#[test]
fn a_service_that_ends_serves_long_and_short_requests_before() {
    in_many_orders(|| {
        let service = Service::new(&host(), Mixed, 4);
        let handles: Vec<_> = (0..4).map(|request| service.submit(request, &Cancel::new()).unwrap()).collect();
        service.shutdown();
        assert!(handles.iter().all(Handle::is_finished));
    });
}

/// An engine that negates three numbers, alone or two of these at once.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<(TempDir, Engine)> = OnceLock::new();
    &ENGINE.get_or_init(|| make_engine(&[1, 2], false)).1
}

/// The same with one graph for both.
fn engine_of_any_batch() -> &'static Engine {
    static ENGINE: OnceLock<(TempDir, Engine)> = OnceLock::new();
    &ENGINE.get_or_init(|| make_engine(&[2], true)).1
}

fn make_engine(batches: &[usize], any_batch: bool) -> (TempDir, Engine) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (mut graphs, mut files) = (Vec::new(), BTreeMap::new());
    for &batch in batches {
        let shape = [batch, 3, 1, 1];
        let free = if any_batch { Dim::symbol("batch") } else { Dim::Fixed(batch) };
        let dims = [free, Dim::Fixed(3), Dim::Fixed(1), Dim::Fixed(1)];
        let port = |name: &str| Port { name: name.into(), ty: TensorType::new(DataType::F32, dims.clone()) };
        let negate = Node {
            name: "negate".into(),
            operator: "Neg".into(),
            domain: String::new(),
            inputs: vec!["input".into()],
            outputs: vec!["output".into()],
            attributes: BTreeMap::new(),
        };
        let model = Model {
            ir_version: 9,
            opsets: vec![Opset { domain: String::new(), version: 20 }],
            inputs: vec![port("input")],
            outputs: vec![port("output")],
            nodes: vec![negate],
            ..Model::default()
        };
        let name = format!("model-{batch}.onnx");
        tileforge_graph::save(&model, &at(&name), WeightStorage::Inline).unwrap();
        files.insert(name.clone(), sha256_file(&at(&name)).unwrap());
        let mut graph = testing::graph(&name, &shape, &shape);
        if any_batch {
            graph["any_batch"] = true.into();
            (graph["values_bytes"], graph["values_bytes_of_one"]) = (2000.into(), 1000.into());
        }
        graphs.push(graph);
    }
    let zeros = Tensor::from(ndarray::ArrayD::<f32>::zeros(ndarray::IxDyn(&[1, 3, 1, 1])));
    selftest::write(&at("selftest.safetensors"), &[("input", &zeros)], &[("output", &zeros)]).unwrap();
    files.insert("selftest.safetensors".into(), sha256_file(&at("selftest.safetensors")).unwrap());
    let manifest = testing::manifest("negate", &testing::upscale(1, 3).contract(), graphs, files);
    std::fs::write(at(MANIFEST_FILE), manifest.to_string()).unwrap();
    let engine = Engine::open(folder.path()).unwrap();
    (folder, engine)
}

/// Negates numbers, each as a sample of an engine. Before, it takes the stream for itself where it is told to.
struct Negating {
    network: Network,
    group: Arc<Group>,
    takes_turns: bool,
}

impl Negating {
    fn new(host: &Host, engine: &Engine, takes_turns: bool) -> Self {
        let placement = Placement { streams: Some(2), ..Placement::default() };
        let network = Network::new(host, engine, placement).unwrap();
        let group = network.group(0, |_| true).unwrap();
        Self { network, group, takes_turns }
    }

    fn service(host: &Host, takes_turns: bool) -> Arc<Service<Self>> {
        Arc::new(Service::new(host, Self::new(host, engine(), takes_turns), 2))
    }
}

impl Task for Negating {
    const NAME: &'static str = "negating";
    type Request = Vec<f32>;
    type Output = Vec<f32>;

    fn concurrency(&self) -> usize {
        2
    }

    fn serve(&self, request: Vec<f32>, reply: &Reply<Vec<f32>>) -> Result<Vec<f32>> {
        if self.takes_turns {
            self.network.ready(reply.ticket(), &self.group)?;
        }
        let samples = request.iter().map(|value| vec![Values::F32(vec![*value; 3])]).collect();
        let made = self.network.run(reply.ticket(), &self.group, samples)?;
        let values = |made: Made| made.outputs.into_iter().next().ok_or_else(|| Error::internal("outputs"))?.into_f32();
        made.into_iter().map(|made| Ok(values(made)?[0])).collect()
    }
}

/// Submits numbers from a thread of its own, and checks the result.
fn negate(service: &Arc<Service<Negating>>, values: &[f32]) -> thread::JoinHandle<()> {
    let (service, values) = (service.clone(), values.to_vec());
    thread::spawn(move || {
        let found = service.submit(values.clone(), Terms::default()).unwrap().wait().unwrap();
        assert_eq!(found, values.iter().map(|value| -value).collect::<Vec<_>>());
    })
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn samples_of_several_callers_run_on_several_streams() {
    in_many_orders(|| {
        let service = Negating::service(&host(), false);
        join([&[1.0, 2.0, 3.0][..], &[4.0], &[5.0, 6.0]].map(|values| negate(&service, values)));
    });
}

#[test]
fn who_takes_a_stream_gives_it_back() {
    in_many_orders(|| {
        let host = host();
        let (taking, other) = (Negating::service(&host, true), Negating::service(&host, false));
        join([negate(&taking, &[1.0]), negate(&other, &[2.0, 3.0]), negate(&taking, &[4.0, 5.0])]);
    });
}

#[test]
fn engines_close_sessions_for_one_another_within_the_budget() {
    in_many_orders(|| {
        let manifest = engine().manifest();
        let largest = manifest.graphs.iter().map(|graph| session_bytes(manifest, graph).unwrap()).max().unwrap();
        let budget = largest + largest / 2;
        let host = host_with(HostOptions { memory: Some(budget), ..HostOptions::default() });
        let services = [false, true].map(|takes_turns| Negating::service(&host, takes_turns));
        let [first, second] = &services;
        join([negate(first, &[1.0, 2.0]), negate(second, &[3.0]), negate(first, &[4.0]), negate(second, &[5.0, 6.0])]);
        let used: u64 = host.metrics().sessions.iter().map(|sessions| sessions.bytes).sum();
        assert!(used <= budget, "{used} of {budget}");
    });
}

#[test]
fn streams_share_a_session_within_the_budget() {
    in_many_orders(|| {
        let manifest = engine().manifest();
        let largest = manifest.graphs.iter().map(|graph| session_bytes(manifest, graph).unwrap()).max().unwrap();
        let host = host_with(HostOptions { memory: Some(largest), ..HostOptions::default() });
        let service = Negating::service(&host, true);
        let cancel = Cancel::new();
        let cancelled = service.submit(vec![1.0, 2.0], &cancel).unwrap();
        let others = [&[3.0][..], &[4.0, 5.0]].map(|values| negate(&service, values));
        cancel.cancel();
        let result = cancelled.wait();
        assert!(matches!(result, Ok(_) | Err(Error::Cancelled)), "{result:?}");
        join(others);
    });
}

#[test]
fn a_session_of_any_batch_grows_within_the_budget() {
    in_many_orders(|| {
        let engine = engine_of_any_batch();
        let all = session_bytes(engine.manifest(), &engine.manifest().graphs[0]).unwrap();
        // For one session with two samples, for two with one each, and for one that never has two.
        for budget in [all, all + all / 2, all - 1] {
            let host = host_with(HostOptions { memory: Some(budget), ..HostOptions::default() });
            let service = Arc::new(Service::new(&host, Negating::new(&host, engine, false), 2));
            join([&[1.0][..], &[2.0, 3.0], &[4.0, 5.0, 6.0]].map(|values| negate(&service, values)));
            let used: u64 = host.metrics().sessions.iter().map(|sessions| sessions.bytes).sum();
            assert!(used <= budget, "{used} of {budget}");
        }
    });
}

#[test]
fn cancelled_samples_leave_the_queue_alone() {
    in_many_orders(|| {
        let service = Negating::service(&host(), false);
        let cancel = Cancel::new();
        let cancelled = service.submit(vec![1.0, 2.0, 3.0], &cancel).unwrap();
        let other = negate(&service, &[4.0, 5.0]);
        cancel.cancel();
        let result = cancelled.wait();
        assert!(matches!(result, Ok(_) | Err(Error::Cancelled)), "{result:?}");
        join([other, negate(&service, &[6.0])]);
    });
}

#[test]
fn an_engine_closes_while_another_runs() {
    in_many_orders(|| {
        let host = host();
        let [closing, other] = [(); 2].map(|()| Negating::service(&host, false));
        let last = closing.submit(vec![1.0], Terms::default()).unwrap();
        let running = negate(&other, &[2.0, 3.0]);
        drop(closing);
        assert_eq!(last.wait().unwrap(), [-1.0]);
        join([running]);
    });
}
