//! Workers as users run them: processes with third-party brokers, stores and clients.

mod celery;
mod faults;
mod jobs;
mod parts;
mod stores;
