//! A server or a worker as a process: its runtime, signals, systemd, and its exit code.

use std::path::PathBuf;
use std::{env, thread};

use tileforge::{HostOptions, Setup};
use tileforge_server::{Server, Settings};
use tileforge_terminal::{self as terminal, Exit, Failure};
use tokio::runtime;

use crate::arguments::{Common, Engines, Watching};
use crate::configuration;
use crate::failure::{CommandResult, Error};
use crate::log;
use crate::system::{Command, Signals, State, tell};
use crate::traces::Traces;

/// Threads for connections. The host has its own for everything else.
const THREADS_MAXIMUM: usize = 4;

/// Threads for work that reads files, and for large bodies.
const BLOCKING_MAXIMUM: usize = 64;

/// The server or worker to start.
pub(crate) struct Start<'a> {
    /// Read again at SIGHUP.
    pub(crate) engines: &'a Engines,
    pub(crate) watching: &'a Watching,
    pub(crate) memory: Option<u64>,
    pub(crate) settings: Settings,
    pub(crate) common: Common,
}

pub(crate) fn run(start: Start<'_>) -> CommandResult {
    let Start { engines, watching, memory, settings, common: Common { ort_lib, verbosity } } = start;
    let traces = Traces::open(watching.traces.as_deref())?;
    log::start(verbosity, watching.log, traces.as_ref());
    let onnxruntime = ort_lib.or_else(|| env::var_os("ORT_DYLIB_PATH").map(PathBuf::from));
    let memory = HostOptions { memory, ..HostOptions::default() };
    let setup =
        Setup { onnxruntime, cache: terminal::cache_folder(), memory, returns_large_blocks: true, ..Setup::default() };
    let host = setup.host()?;
    let secure = if settings.tls.is_some() { "s" } else { "" };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAXIMUM);
    let mut builder = runtime::Builder::new_multi_thread();
    let builder = builder.worker_threads(threads).max_blocking_threads(BLOCKING_MAXIMUM).enable_all();
    let runtime = builder.build()?;
    let served = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let server = Server::open(&host, settings).await?;
        for (scheme, address) in [("http", server.http()), ("grpc", server.grpc())] {
            if let Some(address) = address {
                terminal::print(&format!("{scheme}{secure}://{address}"))?;
            }
        }
        let handle = server.handle();
        let end = async {
            loop {
                match signals.next().await {
                    Command::End => break,
                    Command::Reload => {
                        tell(State::Reloading);
                        reload(engines, &handle).await;
                        tell(State::Ready);
                    }
                }
            }
            // A second signal ends the program at once.
            tokio::spawn(async move {
                while signals.next().await == Command::Reload {}
                terminal::end_at_once(Exit::Stopped);
            });
        };
        Ok::<_, Error>(server.run(end, || tell(State::Ready), || tell(State::Stopping)).await)
    });
    // Does not wait for blocking tasks: reading files may take a while.
    runtime.shutdown_background();
    if let Some(traces) = traces {
        traces.end();
    }
    let result = served.and_then(|whole| if whole { Ok(()) } else { Err(Error::Ended) });
    // The process ends threads of the host that still compute.
    let exit = match result {
        Ok(()) => Exit::Done,
        Err(error) => {
            error.text().iter().for_each(|text| terminal::report_error(text));
            error.exit()
        }
    };
    terminal::end_at_once(exit)
}

async fn reload(engines: &Engines, handle: &tileforge_server::Handle) {
    let models = configuration::models(engines);
    let reloaded = match models {
        Ok(models) => handle.reload(models).await.map_err(Error::from),
        Err(error) => Err(error),
    };
    match reloaded {
        Ok(()) => tracing::info!("reloaded"),
        Err(error) => {
            let error = terminal::chain(&error);
            tracing::error!(error, "the configuration cannot be reloaded, and stays as it was");
        }
    }
}
