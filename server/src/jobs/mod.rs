//! Long work as jobs: accepted at once, looked at while it waits and runs, fetched when it is done.
//!
//! | module | holds |
//! |---|---|
//! | `store` | the jobs with their results, within limits |
//! | `routes` | the paths |
//! | `work` | what a job does |

mod routes;
mod store;
mod work;

pub(crate) use routes::routes;
pub(crate) use store::{Jobs, Keep};
pub(crate) use work::{KINDS, Work, draws};
