//! Long work as jobs: accepted at once, observed while they wait and run, fetched when they are done.
//!
//! | module | holds |
//! |---|---|
//! | `store` | the jobs with their results, within limits |
//! | `routes` | the paths |
//! | `work` | the work of a job |

mod routes;
mod store;
mod work;

pub(crate) use routes::routes;
pub(crate) use store::{Jobs, Keep};
pub(crate) use work::{KINDS, Work, draws};
