//! Pictures through hosts with small engines that repeat each pixel.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's way to fail

mod repeat;

use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use repeat::{
    Made, SCALE, TILE, White, check, engine, engine_that, environment, host, request, service, service_of, submit,
};
use tileforge_contract::Provider;
use tileforge_image::Size;
use tileforge_runtime::Error;
use tileforge_runtime::host::{Cancel, Host, Priority, Service, Terms};
use tileforge_runtime::throughput::Throughput;
use tileforge_runtime::upscale::UpscaleRequest;
use tileforge_session::{Environment, Placement, SessionOptions};

#[test]
fn order_batches_streams_and_neighbours_change_no_byte() {
    let pictures: Vec<Made> = (0..12).map(|seed| Made::new(10 + seed * 9, 40 - seed * 2, seed)).collect();
    let settings = [(&[1][..], 1), (&[1, 4], 1), (&[1, 4], 3), (&[3], 2)];
    // Independent of the machine's number of cores.
    for ((batches, streams), threads) in
        settings.into_iter().flat_map(|each| [1, 2, 4, 8].map(|threads| (each, threads)))
    {
        let (_folder, engine) = engine(batches);
        let session = SessionOptions { threads: Some(threads), ..SessionOptions::default() };
        let placement = Placement { streams: Some(streams), session, ..Placement::default() };
        let service = service_of(&host(), &engine, placement, 2);
        let one = Mutex::new(pictures.iter());
        // From several callers at once, as on a server.
        std::thread::scope(|scope| {
            let caller = || {
                while let Some(made) = { one.lock().next() } {
                    let (handle, kept) = submit(&service, made);
                    let statistics = handle.wait().unwrap();
                    assert_eq!(statistics.size, made.header.size.scaled(SCALE).unwrap());
                    let kept = kept.0.lock();
                    let text = format!("{batches:?}, {streams} streams, {threads} threads: {}", made.seed);
                    assert!(kept.0 == made.enlarged() && kept.1, "{text}");
                }
            };
            (0..4).for_each(|_| drop(scope.spawn(caller)));
        });
        assert_eq!(service.task().used().streams, streams);
        service.shutdown();
    }
}

#[test]
fn a_run_that_fails_ends_the_pictures_in_it_and_no_others() {
    let (_folder, engine) = engine(&[1]);
    let service = service(&engine, 2, 8);
    let white = Made { white: Some(20), ..Made::new(60, 50, 1) };
    let good = Made::new(60, 50, 2);
    for _ in 0..3 {
        let (before, failing, after) = (submit(&service, &good), submit(&service, &white), submit(&service, &good));
        for (handle, kept) in [before, after] {
            handle.wait().unwrap();
            assert!(kept.0.lock().0 == good.enlarged());
        }
        let error = failing.0.wait().unwrap_err();
        assert!(matches!(error.root(), Error::Session(_)) && error.to_string().contains("Gather"), "{error}");
        assert!(!failing.1.0.lock().1, "finished although it failed");
    }
    service.shutdown();
}

#[test]
fn a_picture_that_fails_in_a_batch_leaves_its_neighbours_alone() {
    let (_folder, engine) = engine(&[4]);
    let service = service(&engine, 1, 8);
    // One tile each, four in a run.
    let pictures: Vec<Made> = (0..4).map(|seed| Made::new(16, 16, seed)).collect();
    let white = Made { white: Some(3), ..Made::new(16, 16, 9) };
    for _ in 0..5 {
        let all: Vec<_> = pictures.iter().chain([&white]).map(|made| (made, submit(&service, made))).collect();
        for (made, (handle, kept)) in all {
            let result = handle.wait();
            assert_eq!(result.is_ok(), made.white.is_none(), "{}", made.seed);
            assert!(result.is_err() || kept.0.lock().0 == made.enlarged());
        }
    }
    service.shutdown();
}

#[test]
fn a_cancelled_picture_ends_alone() {
    let (_folder, engine) = engine(&[1, 4]);
    let service = service(&engine, 1, 4);
    // Far more tiles than can run before it is cancelled.
    let large = Made::new(6000, 6000, 1);
    let (long, kept) = submit(&service, &large);
    let small = Made::new(100, 90, 2);
    let (handle, made) = submit(&service, &small);
    while long.progress().done == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let asked = Instant::now();
    long.cancel();
    handle.wait().unwrap();
    assert!(made.0.lock().0 == small.enlarged());
    assert!(matches!(long.wait(), Err(Error::Cancelled)));
    assert!(asked.elapsed() < Duration::from_secs(20) && !kept.0.lock().1);
    service.shutdown();
}

#[test]
fn a_panic_names_its_stage_and_ends_its_own_picture() {
    let (_folder, engine) = engine(&[1, 4]);
    let good = Made::new(100, 90, 2);
    let decoding = Made { panics: Some(70), ..good.clone() };
    for (stage, made, panics) in [("the decode stage", &decoding, false), ("the encode stage", &good, true)] {
        let service = service(&engine, 2, 8);
        let all = [(&good, false), (made, panics), (&good, false), (&good, false)].map(|(made, panics)| {
            let (request, kept) = request(made, panics);
            (service.submit(request, Terms::default()).unwrap(), kept, made.panics.is_some() || panics)
        });
        for (handle, kept, panics) in all {
            match handle.wait() {
                Ok(_) => assert!(!panics && kept.0.lock().0 == good.enlarged()),
                Err(error) => assert!(panics && error.to_string().contains(stage), "{error}"),
            }
        }
        check(&service, &good);
        service.shutdown();
    }
}

#[test]
fn a_picture_that_cannot_be_opened_leaves_the_others_alone() {
    let (_folder, engine) = engine(&[1]);
    let service = service(&engine, 1, 4);
    let problem = || tileforge_image::Error::image(Path::new("bad.png"), "no picture");
    let bad = service.submit(UpscaleRequest::new(move |_| Err(problem().into())), Terms::default()).unwrap();
    let good = Made::new(33, 20, 4);
    let (handle, kept) = submit(&service, &good);
    assert!(bad.wait().unwrap_err().to_string().contains("bad.png: no picture"));
    handle.wait().unwrap();
    assert!(kept.0.lock().0 == good.enlarged());
}

#[test]
fn environments_keep_their_measurements_apart() {
    let (folder, engine) = engine(&[1]);
    let cache = |name: &str| environment().with_cache(folder.path().join(name));
    let (one, other, none) = (cache("one"), cache("other"), environment());
    let tiles = [Size { width: TILE as u32, height: TILE as u32 }];
    for (environment, seconds) in [(&one, 0.5), (&other, 0.25), (&none, 0.125)] {
        let mut throughput = Throughput::new(environment, &engine, 0);
        throughput.add(tiles[0], Provider::Cpu, seconds);
        throughput.save().unwrap();
    }
    let kept = |environment: &Environment| Throughput::load(environment, &engine, 0).of(&tiles, Provider::Cpu);
    assert_eq!([&one, &other, &none].map(kept), [Some(vec![0.5]), Some(vec![0.25]), None]);
}

#[test]
fn small_pictures_of_other_callers_overtake_a_large_one() {
    let (_folder, engine) = engine(&[1]);
    let service = service(&engine, 1, 8);
    let large = Made::new(3000, 3000, 1);
    let (long, _kept) = submit(&service, &large);
    while long.progress().done < 10 {
        std::thread::sleep(Duration::from_millis(1));
    }
    for caller in 1..=5 {
        let before = long.progress().done;
        let small = Made::new(16, 16, 2);
        let (request, kept) = request(&small, false);
        let terms = Terms { caller, priority: Priority::Normal, ..Terms::default() };
        service.submit(request, terms).unwrap().wait().unwrap();
        assert!(kept.0.lock().0 == small.enlarged());
        let meanwhile = long.progress().done - before;
        assert!(!long.is_finished() && meanwhile < 20_000, "{meanwhile} tiles of the large picture went before");
    }
    long.cancel();
    assert!(matches!(long.wait(), Err(Error::Cancelled)));
    service.shutdown();
}

#[test]
fn many_large_pictures_do_not_block_a_small_one() {
    let (_folder, engine) = engine(&[1]);
    let service = service(&engine, 1, 8);
    // More than are served at the same time, and than may be open.
    let cancel = Cancel::new();
    let large = |seed| service.try_submit(request(&Made::new(3000, 3000, seed), false).0, &cancel);
    let mut handles: Vec<_> = (0..6).map(|seed| large(seed).unwrap()).collect();
    while handles[0].progress().done < 10 {
        std::thread::sleep(Duration::from_millis(1));
    }
    for caller in 1..=5 {
        let small = Made::new(16, 16, 2);
        let (request, kept) = request(&small, false);
        let terms = Terms { caller, ..Terms::default() };
        service.submit(request, terms).unwrap().wait().unwrap();
        assert!(kept.0.lock().0 == small.enlarged());
        assert!(handles.iter().all(|handle| !handle.is_finished()));
    }
    // As many wait as the queue has room for.
    let full = loop {
        match large(9) {
            Ok(handle) => handles.push(handle),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::QueueFull { capacity: 8 }), "{full}");
    assert!((10..=24).contains(&handles.len()), "{}", handles.len());
    cancel.cancel();
    assert!(handles.into_iter().all(|handle| matches!(handle.wait(), Err(Error::Cancelled))));
}

#[test]
fn a_deadline_ends_a_picture_that_is_on_its_way() {
    let (_folder, engine) = engine(&[1]);
    let service = service(&engine, 1, 8);
    let (request, kept) = request(&Made::new(6000, 6000, 1), false);
    let terms = Terms { deadline: Some(Instant::now() + Duration::from_millis(300)), ..Terms::default() };
    let handle = service.submit(request, terms).unwrap();
    assert!(matches!(handle.wait(), Err(Error::Deadline)));
    check(&service, &Made::new(30, 30, 2));
    service.shutdown();
    assert!(!kept.0.lock().1, "finished although its time was over");
}

#[test]
fn closing_finishes_what_waits() {
    let (_folder, engine) = engine(&[1, 4]);
    let service = service(&engine, 2, 16);
    let pictures: Vec<Made> = (0..10).map(|seed| Made::new(40, 30 + seed, seed)).collect();
    let all: Vec<_> = pictures.iter().map(|made| submit(&service, made)).collect();
    service.close();
    assert!(matches!(service.submit(request(&pictures[0], false).0, Terms::default()), Err(Error::Closed)));
    drop(service);
    for ((handle, kept), made) in all.into_iter().zip(&pictures) {
        handle.wait().unwrap();
        assert!(kept.0.lock().0 == made.enlarged());
    }
}

/// Waits until a run is in progress.
fn running(host: &Host) {
    let started = Instant::now();
    while host.metrics().running == 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "it never runs");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The session opens, and the node begins.
    std::thread::sleep(Duration::from_millis(100));
}

#[test]
fn a_run_that_would_never_end_is_cancelled_at_once_and_the_device_is_free() {
    for batches in [&[1][..], &[4]] {
        let (_folder, engine) = engine_that(batches, TILE, White::NeverEnds);
        let host = host();
        let service = service_of(&host, &engine, Placement::default(), 8);
        let white = |seed| Made { white: Some(3), ..Made::new(16, 16, seed) };
        check(&service, &Made::new(16, 16, 1));
        let (one, _) = submit(&service, &white(2));
        running(&host);
        let asked = Instant::now();
        one.cancel();
        assert!(matches!(one.wait(), Err(Error::Cancelled)));
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        check(&service, &Made::new(16, 16, 3));

        // A run of two requests goes on until both are cancelled.
        let (several, kept): (Vec<_>, Vec<_>) = (0..2).map(|seed| submit(&service, &white(seed))).unzip();
        running(&host);
        several.iter().for_each(|handle| handle.cancel());
        assert!(several.into_iter().all(|handle| matches!(handle.wait(), Err(Error::Cancelled))));
        check(&service, &Made::new(16, 16, 4));
        assert!(kept.iter().all(|kept| !kept.0.lock().1));

        // A deadline ends a run in the same way.
        let (request, _) = request(&white(5), false);
        let terms = Terms { deadline: Some(Instant::now() + Duration::from_millis(200)), ..Terms::default() };
        assert!(matches!(service.submit(request, terms).unwrap().wait(), Err(Error::Deadline)));
        check(&service, &Made::new(16, 16, 6));
        service.shutdown();
    }
}

/// A loaded machine may delay any answer, so only the fastest of several has to keep the promise.
#[test]
fn a_cancelled_request_is_answered_within_a_tenth_of_a_second() {
    const PROMISED: Duration = Duration::from_millis(100);
    // In the middle of one run that would never end, and between the many runs of a large picture.
    let endless = (engine_that(&[1], TILE, White::NeverEnds), Made { white: Some(3), ..Made::new(16, 16, 1) });
    let large = (engine(&[1]), Made::new(6000, 6000, 1));
    for ((_folder, engine), made) in [endless, large] {
        let host = host();
        let service = service_of(&host, &engine, Placement::default(), 8);
        check(&service, &Made::new(16, 16, 2));
        let mut fastest = Duration::MAX;
        for _ in 0..20 {
            let (handle, kept) = submit(&service, &made);
            running(&host);
            let asked = Instant::now();
            handle.cancel();
            assert!(matches!(handle.wait(), Err(Error::Cancelled)));
            fastest = fastest.min(asked.elapsed());
            assert!(!kept.0.lock().1, "finished although it was cancelled");
            if fastest <= PROMISED {
                break;
            }
        }
        assert!(fastest <= PROMISED, "{fastest:?}");
        service.shutdown();
    }
}

#[test]
fn pictures_of_several_requests_share_a_run() {
    let (_endless_folder, endless) = engine_that(&[1], TILE, White::NeverEnds);
    let (_folder, engine) = engine(&[1, 4]);
    let host = host();
    let [held, service] = [&endless, &engine]
        .map(|engine| service_of(&host, engine, Placement { streams: Some(1), ..Placement::default() }, 8));
    check(&held, &Made::new(16, 16, 1));
    check(&service, &Made::new(16, 16, 2));
    // While the stream is held, the others come together in the queue.
    let (holding, _) = submit(&held, &Made { white: Some(3), ..Made::new(16, 16, 3) });
    running(&host);
    let before = host.metrics().runs;
    let pictures: Vec<Made> = (0..4).map(|seed| Made::new(16, 16, seed)).collect();
    let all: Vec<_> = pictures.iter().map(|made| submit(&service, made)).collect();
    let started = Instant::now();
    while host.metrics().queued < all.len() {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", host.metrics());
        std::thread::sleep(Duration::from_millis(1));
    }
    holding.cancel();
    for ((handle, kept), made) in all.into_iter().zip(&pictures) {
        handle.wait().unwrap();
        assert!(kept.0.lock().0 == made.enlarged());
    }
    let after = host.metrics().runs;
    assert_eq!((before.get(&4), after.get(&4)), (None, Some(&1)), "{after:?}");
    [held, service].into_iter().for_each(Service::shutdown);
}
