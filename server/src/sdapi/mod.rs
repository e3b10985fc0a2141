//! The part of AUTOMATIC1111's API that Open WebUI and SillyTavern call.
//!
//! | module | holds |
//! |---|---|
//! | `routes` | the paths |
//! | `body` | what a client asks, and what of it is not served |
//! | `pictures` | pictures from texts and pictures, and larger pictures |
//! | `lists` | engines, samplers, schedulers, upscalers, options |
//! | `state` | what is kept between the requests of a caller |
//! | `running` | progress and interruption of a caller's requests |

mod body;
mod lists;
mod pictures;
mod routes;
mod running;
mod state;

use serde_json::{Value, json};

use crate::failure::Failure;
pub(crate) use routes::routes;
pub(crate) use state::State;

/// POST paths that do not count as work.
pub(crate) const NO_WORK: [&str; 4] =
    ["/sdapi/v1/options", "/sdapi/v1/interrupt", "/sdapi/v1/refresh-checkpoints", "/sdapi/v1/skip"];

/// The error in the form that clients expect.
pub(crate) fn respond(failure: &Failure) -> Value {
    let kind = format!("{:?}", failure.kind);
    json!({ "error": kind, "detail": failure.message, "body": "", "errors": failure.message })
}
