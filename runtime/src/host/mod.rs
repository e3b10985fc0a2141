//! One process, many callers: devices with their memory, a queue for each device, and requests.
//!
//! | module | holds |
//! |---|---|
//! | `host` | [`Host`]: devices with budgets of memory |
//! | `service` | [`Service`]: a [`Task`] with its queue of requests, each under [`Terms`] |
//! | `handle`, `long` | [`Handle`] and [`Reply`], the two ends of a request; few long ones are open at once |
//! | `network` | an engine on the host, as tasks use it: runs of samples, exclusive sessions, leases |
//! | `group`, `variants` | graphs that differ only in the number of samples: which samples run together |
//! | `core` | an engine as its streams see it, and how much of it runs at the same time |
//! | `ticket`, `work`, `values` | a request in the queues, and what waits there |
//! | `queue`, `pool`, `recovery` | the next work, the open sessions, and limits that shrink: all pure, as `variants` |
//! | `sessions` | the sessions that are open |
//! | `shared`, `worker` | what the threads share, and the thread of a stream |
//! | `sync` | locks, threads and channels, of the system or of a test |
//! | `deadlines`, `clock` | functions that are called at their times |
//! | `counted`, `stages`, `metrics` | counts requests and runs, and their time |

mod clock;
mod core;
mod counted;
mod deadlines;
mod group;
mod handle;
#[allow(clippy::module_inception)]
mod host;
#[cfg(test)]
#[cfg(feature = "interleavings")]
mod interleavings;
mod long;
mod metrics;
mod network;
mod pool;
mod queue;
mod recovery;
mod service;
mod sessions;
mod shared;
mod stages;
mod sync;
#[cfg(test)]
#[cfg(not(feature = "interleavings"))]
mod tests;
mod ticket;
mod values;
mod variants;
mod work;
mod worker;

pub use self::core::session_bytes;
pub(crate) use group::Group;
pub use handle::{Handle, Progress, Reply};
pub use host::{Host, HostOptions};
pub use metrics::{Metrics, Requests, Sessions};
pub use network::Used;
pub(crate) use network::{Lease, Network, shapes_text};
pub use pool::Memory;
pub use queue::Priority;
pub(crate) use recovery::Limit;
pub use service::{Service, Task, Terms};
pub(crate) use ticket::Ticket;
pub use tileforge_session::Cancel;
pub(crate) use values::Values;
pub(crate) use work::{Answer, AnswerSender, Answers, Made, answers};
