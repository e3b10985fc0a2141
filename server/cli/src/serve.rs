//! `serve`: a server from its arguments to its settings.

use tileforge_server::Settings;

use crate::arguments::{Common, Serve};
use crate::configuration;
use crate::failure::{CommandResult, Error};
use crate::running::{self, Start};

pub(crate) fn run(arguments: &Serve, common: Common) -> CommandResult {
    if arguments.http.0.is_none() && arguments.grpc.0.is_none() {
        return Err(Error::NoAddress);
    }
    if !arguments.engines.are_named() {
        return Err(Error::NoEngines);
    }
    let engines = &arguments.engines;
    let settings = Settings {
        engines: engines.engines.clone(),
        placement: engines.placement(),
        models: configuration::models(engines)?,
        http: arguments.http.0,
        grpc: arguments.grpc.0,
        poll: engines.poll,
        tls: arguments.tls(),
        keys: arguments.keys.clone(),
        hosts: arguments.allow_host.clone(),
        work: None,
        limits: arguments.limits(),
    };
    running::run(Start { engines, watching: &arguments.watching, memory: arguments.load.memory, settings, common })
}
