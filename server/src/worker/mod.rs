//! Jobs from a broker: the work of the paths in [`jobs`](crate::jobs), with pictures from object stores and results
//! that are written there.
//!
//! | module | holds |
//! |---|---|
//! | `job` | a job, as it stands in messages |
//! | `stores` | the object stores, below the prefixes that jobs may name |
//! | `client` | HTTP clients for the stores |
//! | `marker` | which job owns an output, and whether it is complete |
//! | `attempt` | one attempt at a job, from input objects to the output object |
//! | `broker` | the interface of a broker: deliver, extend, end, give back, set aside |
//! | `nats`, `celery` | the two brokers |
//! | `lane` | the loop over deliveries: how many at once, and the outcome of each |
//! | `figures` | metrics |

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
