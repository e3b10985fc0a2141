//! Workers as their users have them: processes, brokers, stores and clients that are not ours.

mod celery;
mod faults;
mod jobs;
mod parts;
mod stores;
