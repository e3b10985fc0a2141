//! Engines that exceed a budget together stay below it in resident memory. This is a test program of its own, because
//! other tests in one process take memory, too.
#![allow(clippy::unwrap_used)] // a test's way to fail

mod repeat;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use repeat::{Made, White, check, engine_that, environment, resident, service_of};
use tileforge_runtime::host::{Host, HostOptions, Service, session_bytes};
use tileforge_session::Placement;

const SIDE: usize = 512;
const CALLERS: usize = 4;

/// The most memory that this process held while `work` ran, beyond what it held before.
fn grown_by(work: impl FnOnce()) -> u64 {
    let (before, most, done) = (resident(), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                most.fetch_max(resident(), Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
            }
        });
        work();
        done.store(true, Ordering::SeqCst);
    });
    most.into_inner().saturating_sub(before)
}

/// Without this variable, glibc keeps freed blocks of up to 32 MB, and the process holds more than the host does.
const THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";

#[test]
fn two_engines_beyond_a_budget_serve_mixed_requests_within_it() {
    if std::env::var_os(THRESHOLD).is_none() {
        let mut itself = Command::new(std::env::current_exe().unwrap());
        assert!(itself.arg("--nocapture").env(THRESHOLD, "65536").status().unwrap().success());
        return;
    }
    let ((_one, first), (_other, second)) =
        (engine_that(&[1], SIDE, White::Fails), engine_that(&[1], SIDE, White::Fails));
    let each = session_bytes(first.manifest(), &first.manifest().graphs[0]).unwrap();
    // Two sessions of which neither runs hold less than twice as much as one that runs.
    let budget = each + each / 8;
    let serve = |memory: Option<u64>, requests: usize| {
        let host = Host::new(&environment(), HostOptions { memory, ..HostOptions::default() });
        let services = [&first, &second].map(|engine| service_of(&host, engine, Placement::default(), CALLERS));
        let grown = grown_by(|| {
            thread::scope(|scope| {
                for caller in 0..CALLERS {
                    let services = &services;
                    scope.spawn(move || {
                        for number in 0..requests / CALLERS {
                            let made = Made::new(20 + number as u32 % 50, 30, caller as u32);
                            check(&services[(caller + number) % 2], &made);
                        }
                    });
                }
            });
        });
        assert_eq!(host.metrics().failed, 0);
        services.into_iter().for_each(Service::shutdown);
        grown
    };
    let limited = serve(Some(budget), 200);
    assert!(limited <= budget, "a budget of {budget} bytes, and {limited} were taken");
    // Otherwise the budget would limit nothing here.
    let free = serve(None, 20);
    assert!(free > budget, "without a limit {free} bytes were taken, which is within {budget}");
}
