//! The options for where an engine runs.

use std::thread::available_parallelism;

use tileforge_contract::Provider;

use crate::counted;
use crate::number::whole;

/// The heading of these options.
const HEADING: &str = "Where it runs";

/// Where an engine runs. The options have one name and one meaning in all programs.
#[derive(clap::Args, Clone, Debug)]
pub struct Placing {
    /// tensorrt-rtx, tensorrt, cuda, openvino, cpu, or auto: the best that fits, from the one that the engine was
    /// built for down to the CPU.
    #[arg(long, default_value = "auto", value_parser = provider, help_heading = HEADING)]
    pub provider: ProviderChoice,
    /// Take no step down: refuse an engine where its first provider does not fit, or does not take every node.
    #[arg(long, help_heading = HEADING)]
    pub strict: bool,
    /// Numbers of the GPUs to use, such as 0,1 [default: 0].
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = whole::<u32>(..), help_heading = HEADING)]
    pub devices: Vec<u32>,
    /// Sessions that run at the same time [default: by the engine's profile; 1 on the CPU].
    #[arg(
        long,
        value_name = "N",
        value_parser = whole::<u16>(1..=STREAMS_MAXIMUM.into()),
        help_heading = HEADING
    )]
    pub streams: Option<u16>,
    /// Threads of each session on the CPU [default: one for each physical core that this process may use, by affinity
    /// and control groups; shared by the streams].
    #[arg(long, value_name = "N", value_parser = threads, help_heading = HEADING)]
    pub threads: Option<usize>,
}

/// A provider, or the best that fits.
#[derive(Clone, Copy, Debug)]
pub struct ProviderChoice(pub Option<Provider>);

fn provider(text: &str) -> Result<ProviderChoice, String> {
    match text {
        "auto" => Ok(ProviderChoice(None)),
        _ => text
            .parse()
            .map(|provider| ProviderChoice(Some(provider)))
            .map_err(|_| "expected auto, tensorrt-rtx, tensorrt, cuda, openvino or cpu".into()),
    }
}

/// The largest number of streams of an engine.
pub const STREAMS_MAXIMUM: u16 = 16;

/// More threads than this for each processor only take memory and time.
const THREADS_FOR_A_PROCESSOR: usize = 4;

/// This many threads are allowed on every machine, so that a small machine can show what a larger one does.
const THREADS_ANYWHERE: usize = 8;

/// Processors that this process may use.
fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// The largest number of threads of a session on the CPU.
pub fn threads_maximum() -> usize {
    (processors() * THREADS_FOR_A_PROCESSOR).max(THREADS_ANYWHERE)
}

fn threads(text: &str) -> Result<usize, String> {
    let most = threads_maximum();
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| {
        format!("expected a number from 1 to {most}: this process may use {}", counted(processors(), "processor"))
    })
}
