//! Jobs from a broker: what the paths of [`jobs`](crate::jobs) do, with pictures from object stores and results that
//! are written there.
//!
//! | module | holds |
//! |---|---|
//! | `job` | a job, as messages have it |
//! | `stores` | the object stores, below the prefixes that jobs may name |
//! | `client` | how the stores are reached over HTTPS |
//! | `marker` | whose an output is, and whether it is whole |
//! | `attempt` | one try of a job, from objects to an object |
//! | `broker` | what a broker does: deliver, extend, end, give back, set aside |
//! | `nats`, `celery` | the two brokers |
//! | `lane` | deliveries from the first to the last: how many at once, and what becomes of each |
//! | `figures` | what is counted |

mod attempt;
mod broker;
mod celery;
mod client;
mod figures;
mod job;
mod lane;
mod marker;
mod nats;
mod stores;

pub(crate) use lane::{Lane, OpenError};
