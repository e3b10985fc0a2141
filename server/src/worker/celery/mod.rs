//! Jobs of Celery over Redis.
//!
//! | module | holds |
//! |---|---|
//! | `message` | a task by Celery's protocol, version 2, and its answer |
//! | `redis` | the queue in Redis |

mod message;
mod redis;

pub(super) use redis::Celery;
