//! `work`: a worker from its arguments to its settings.

use std::env;

use tileforge_server::{Settings, WorkSettings};

use crate::arguments::{Common, Work};
use crate::configuration;
use crate::failure::{CommandResult, Error};
use crate::running::{self, Start};

/// The environment variable with the broker's URL, which may have a password.
const BROKER: &str = "TILEFORGE_BROKER";

/// The prefixes of the variables for object stores.
const STORES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

pub(crate) fn run(arguments: &Work, common: Common) -> CommandResult {
    if !arguments.engines.are_named() {
        return Err(Error::NoEngines);
    }
    let engines = &arguments.engines;
    let broker = arguments.broker.clone().or_else(|| env::var(BROKER).ok()).ok_or(Error::NoBroker)?;
    let is_for_stores = |name: &str| STORES.iter().any(|begin| name.starts_with(begin));
    let variables =
        env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let work = WorkSettings {
        broker,
        queue: arguments.queue_name.clone(),
        stores: arguments.store.clone(),
        store_options: variables.filter(|(name, _)| is_for_stores(name)).collect(),
        store_patience: arguments.store_timeout,
        at_once: usize::try_from(arguments.at_once).unwrap_or(usize::MAX),
        tries: arguments.tries,
        lease: arguments.lease,
        retry_delay: arguments.retry_delay,
    };
    let settings = Settings {
        engines: engines.engines.clone(),
        placement: engines.placement(),
        models: configuration::models(engines)?,
        http: arguments.http.0,
        grpc: None,
        poll: engines.poll,
        tls: None,
        keys: None,
        hosts: Vec::new(),
        work: Some(work),
        limits: arguments.limits(),
    };
    running::run(Start { engines, watching: &arguments.watching, memory: arguments.load.memory, settings, common })
}
