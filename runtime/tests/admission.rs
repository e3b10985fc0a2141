//! What a host does where memory does not hold all that it would open or run.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's way to fail

mod repeat;

use std::time::{Duration, Instant};

use repeat::{
    Made, TILE, White, check, engine, engine_of, engine_of_any_batch, engine_that, environment, host, service_of,
    submit,
};
use tileforge_engine::Engine;
use tileforge_image::Size;
use tileforge_runtime::Error;
use tileforge_runtime::host::{Host, HostOptions, Service, session_bytes};
use tileforge_session::Placement;

/// Bytes that a session of the engine's smallest and largest graph counts for.
fn bytes(engine: &Engine) -> [u64; 2] {
    let manifest = engine.manifest();
    let mut all: Vec<u64> = manifest.graphs.iter().map(|graph| session_bytes(manifest, graph).unwrap()).collect();
    all.sort_unstable();
    [all[0], all[all.len() - 1]]
}

fn with_memory(memory: u64) -> Host {
    Host::new(&environment(), HostOptions { memory: Some(memory), ..HostOptions::default() })
}

#[test]
fn two_engines_share_a_budget_that_holds_one_and_a_half() {
    let ((_one, first), (_other, second)) = (engine(&[1]), engine(&[1]));
    let [each, _] = bytes(&first);
    let budget = each + each / 2;
    let host = with_memory(budget);
    let services = [&first, &second].map(|engine| service_of(&host, engine, Placement::default(), 4));
    let used = |host: &Host| host.metrics().sessions.iter().map(|sessions| sessions.bytes).sum::<u64>();
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let (services, host) = (&services, &host);
            scope.spawn(move || {
                for number in 0..50 {
                    check(&services[(caller + number) % 2], &Made::new(20 + number as u32, 30, caller as u32));
                    assert!(used(host) <= budget, "{:?}", host.metrics());
                }
            });
        }
    });
    let metrics = host.metrics();
    assert!(metrics.queued == 0 && metrics.running == 0 && metrics.failed == 0, "{metrics:?}");
    assert!(metrics.runs.values().sum::<u64>() >= 200, "{metrics:?}");
    let requests = &metrics.requests["upscale"];
    assert_eq!((requests.waiting, requests.serving, requests.served), (0, 0, 200), "{metrics:?}");
    // Requests were served on several threads, so their times add up to more than the elapsed time.
    let within = metrics.waiting_seconds + metrics.run_seconds + metrics.opening_seconds;
    assert!(within > 0.0 && metrics.opening_seconds > 0.0, "{metrics:?}");
    let stages = [requests.preparing_seconds, requests.device_seconds, requests.finishing_seconds];
    assert!(stages.iter().all(|seconds| *seconds > 0.0), "{metrics:?}");
    // Each run was within the stage of a request.
    assert!(requests.device_seconds >= metrics.run_seconds, "{metrics:?}");
    services.into_iter().for_each(Service::shutdown);
    assert_eq!(used(&host), 0, "an engine that is gone takes nothing");
}

#[test]
fn streams_share_the_sessions_that_a_budget_holds() {
    let (_folder, engine) = engine(&[1]);
    let [each, _] = bytes(&engine);
    let host = with_memory(each + each / 2);
    let placement = Placement { streams: Some(2), ..Placement::default() };
    let service = service_of(&host, &engine, placement, 4);
    check(&service, &Made::new(20, 30, 0));
    let opened = host.metrics();
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let service = &service;
            scope.spawn(move || (0..25).for_each(|number| check(service, &Made::new(20 + number, 30, caller))));
        }
    });
    let metrics = host.metrics();
    assert_eq!((metrics.failed, metrics.opening_seconds), (0, opened.opening_seconds), "no other was opened");
    assert_eq!(metrics.sessions, opened.sessions);
    assert_eq!(service.task().used().streams, 2, "fewer would not take less memory");
}

#[test]
fn an_engine_beyond_the_budget_is_refused_before_anything_runs() {
    let (_folder, engine) = engine(&[1]);
    let host = with_memory(1000);
    let service = service_of(&host, &engine, Placement::default(), 4);
    let (handle, kept) = submit(&service, &Made::new(20, 30, 1));
    let error = handle.wait().unwrap_err();
    assert!(matches!(error.root(), Error::OverBudget { budget: 1000, .. }) && error.is_out_of_memory(), "{error}");
    assert!(kept.0.lock().0.is_empty());
    assert_eq!(host.metrics().runs.values().sum::<u64>(), 0);
}

#[test]
fn a_budget_that_holds_no_large_batch_runs_smaller_ones() {
    let (_folder, engine) = engine(&[1, 4]);
    let [small, large] = bytes(&engine);
    assert!(large > 2 * small);
    let host = with_memory(large - 1);
    let service = service_of(&host, &engine, Placement::default(), 4);
    for seed in 0..5 {
        check(&service, &Made::new(60, 50, seed));
    }
    assert_eq!(service.task().used().batch, 1);
    assert_eq!(host.metrics().runs.keys().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_graph_of_any_batch_runs_as_many_samples_as_there_are_and_as_memory_holds() {
    let (_folder, engine) = engine_of_any_batch(6);
    let all = bytes(&engine)[0];
    // A picture of 40 tiles: full runs, and one of the rest in the same session.
    let picture = |seed| Made::new(8 * TILE as u32, 5 * TILE as u32, seed);
    for (budget, most) in [(all, 6), (all - 1, 3)] {
        let host = with_memory(budget);
        let service = service_of(&host, &engine, Placement::default(), 4);
        for seed in 0..3 {
            check(&service, &picture(seed));
        }
        let runs: Vec<usize> = host.metrics().runs.keys().copied().collect();
        assert!(runs.contains(&most) && runs.len() > 1 && runs.iter().all(|run| *run <= most), "{most}: {runs:?}");
        assert_eq!(service.task().used().batch, most);
        let metrics = host.metrics();
        assert_eq!(metrics.sessions.iter().map(|memory| memory.open).sum::<usize>(), 1, "{:?}", metrics.sessions);
        assert_eq!(metrics.failed, 0);
    }
}

/// Later streams do not overtake a stream that waits for room. When its request is cancelled, it waits no longer.
#[test]
fn a_cancelled_request_does_not_wait_for_room() {
    let (_folders, engines): (Vec<_>, Vec<_>) =
        [(TILE, White::NeverEnds), (4 * TILE, White::Repeats), (TILE, White::Repeats)]
            .map(|(side, white)| engine_that(&[1], side, white))
            .into_iter()
            .unzip();
    let needed: Vec<u64> = engines.iter().map(|engine| bytes(engine)[0]).collect();
    // Beside the first engine, the second one has no room, and the third one has.
    let budget = needed[0] + needed[1] - 1;
    assert!(needed[0] + needed[2] <= budget);
    let host = with_memory(budget);
    let placement = Placement { streams: Some(3), ..Placement::default() };
    let services: Vec<_> = engines.iter().map(|engine| service_of(&host, engine, placement.clone(), 4)).collect();
    let until = |streams| {
        let started = Instant::now();
        while host.metrics().running < streams {
            assert!(started.elapsed() < Duration::from_secs(20), "{:?}", host.metrics());
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let (endless, _) = submit(&services[0], &Made { white: Some(3), ..Made::new(16, 16, 1) });
    until(1);
    let (waiting, _) = submit(&services[1], &Made::new(16, 16, 2));
    until(2);
    let (behind, _) = submit(&services[2], &Made::new(16, 16, 3));
    waiting.cancel();
    assert!(matches!(waiting.wait(), Err(Error::Cancelled)));
    assert!(matches!(behind.wait_for(Duration::from_secs(60)), Some(Ok(_))), "{:?}", host.metrics());
    endless.cancel();
    assert!(matches!(endless.wait(), Err(Error::Cancelled)));
    check(&services[1], &Made::new(16, 16, 4));
}

#[test]
fn tiles_that_wait_when_others_begin_to_run_in_parts_are_run() {
    // Runs of four tiles with a white one lack memory: from then on tiles run in parts, while fewer than four wait in
    // the queue. Tiles of 12×12 would compute more pixels.
    let (_folder, engine) = engine_of(&[(4, TILE, White::LacksMemory), (1, 12, White::Repeats)]);
    for rows in [1, 2, 3, 5] {
        // Each service begins with large tiles.
        let placement = Placement { streams: Some(1), ..Placement::default() };
        let service = service_of(&host(), &engine, placement, 2);
        let made = Made { white: Some(3), ..Made::new(TILE as u32 * 7, TILE as u32 * rows, rows) };
        let (handle, kept) = submit(&service, &made);
        let result = handle.wait_for(Duration::from_secs(60)).expect("it waits for ever");
        assert_eq!(result.unwrap().tile, Size { width: TILE as u32, height: TILE as u32 });
        assert!(kept.0.lock().0 == made.enlarged());
        service.shutdown();
    }
}

#[test]
fn batches_that_memory_did_not_hold_are_tried_again_after_enough_good_runs() {
    // Four tiles with a white one lack memory together, and run one by one; later pictures have no white.
    let (_folder, engine) = engine_of(&[(4, TILE, White::LacksMemory), (1, TILE, White::Repeats)]);
    let host = host();
    let placement = Placement { streams: Some(1), ..Placement::default() };
    let service = service_of(&host, &engine, placement, 2);
    let (handle, kept) = submit(&service, &Made { white: Some(3), ..Made::new(TILE as u32 * 8, TILE as u32, 1) });
    handle.wait().unwrap();
    assert!(kept.0.lock().1);
    assert_eq!((service.task().used().batch, host.metrics().runs.get(&4)), (1, None));

    // The first 100 good runs allow two samples, for which there is no graph; the next 200 allow four.
    let few = Made::new(TILE as u32 * 3, TILE as u32 * 3, 2);
    check(&service, &few);
    assert_eq!((service.task().used().batch, host.metrics().runs.get(&4)), (1, None));
    check(&service, &Made::new(TILE as u32 * 20, TILE as u32 * 20, 3));
    assert_eq!(service.task().used().batch, 4);
    check(&service, &few);
    assert!(host.metrics().runs.get(&4) >= Some(&16), "{:?}", host.metrics().runs);
    service.shutdown();
}
