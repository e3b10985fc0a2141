//! Serving requests whole, each on one thread.

use std::thread;

use super::Task;
use super::handle::Reply;
use super::intake::{Intake, Job, Next};
use crate::error::Result;

/// Serves requests on `workers` threads, each request on one of them from its start to its end. `begin` makes what a
/// worker keeps from request to request, such as its sessions; `work` serves one request.
///
/// # Errors
/// What ended the task: a panic, or a thread that the system does not give.
pub(crate) fn serve_each<T: Task, W>(
    intake: &Intake<T>,
    workers: usize,
    begin: impl Fn(usize) -> W + Sync,
    work: impl Fn(&mut W, T::Request, &Reply<T::Output>) -> Result<T::Output> + Sync,
) -> Result<()> {
    let failure = intake.failure();
    let serve = |worker: usize| {
        let mut kept = begin(worker);
        loop {
            match intake.wait() {
                Next::Request(Job { request, reply }) => {
                    let result = reply.go_on().and_then(|()| work(&mut kept, request, &reply));
                    reply.finish(result);
                }
                Next::NotYet => {}
                Next::Closed => return Ok(()),
            }
        }
    };
    thread::scope(|scope| {
        for worker in 0..workers.max(1) {
            let serve = &serve;
            failure.spawn(scope, T::NAME, move || failure.watch(T::NAME, || serve(worker)));
        }
    });
    if failure.is_set() { Err(failure.error(T::NAME)) } else { Ok(()) }
}
