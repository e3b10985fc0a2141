//! A host that has served many requests holds as much memory as before. This is a test program of its own, because
//! other tests in one process take memory, too.
#![allow(clippy::unwrap_used)] // a test's way to fail

mod repeat;

use repeat::{Made, engine, resident, service, submit};

#[test]
fn ten_thousand_requests_leave_memory_as_it_was() {
    let (_folder, engine) = engine(&[1, 4]);
    let service = service(&engine, 1, 8);
    let made = Made::new(16, 16, 1);
    let run = |count: usize| {
        let mut waiting = std::collections::VecDeque::new();
        for _ in 0..count {
            waiting.push_back(submit(&service, &made).0);
            if waiting.len() > 8 {
                waiting.pop_front().unwrap().wait().unwrap();
            }
        }
        waiting.into_iter().for_each(|handle| drop(handle.wait().unwrap()));
    };
    run(3000);
    let before = resident();
    run(10_000);
    let after = resident();
    assert!(after <= before + before / 20, "{before} bytes became {after}");
    service.shutdown();
}
