//! The server as users run it: a process, real clients, and connections that misbehave.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

mod attacks;
mod clients;
mod collector;
mod document;
mod exchange;
mod generate;
mod harness;
mod inpaint;
mod jobs;
mod kubernetes;
mod overload;
mod page;
mod pictures;
mod restoration;
mod safety;
mod sdapi;
mod shutdown;
mod traces;
mod worker;
