//! Prints the seconds that ONNX Runtime takes to load a graph, without loading itself: `load_time GRAPH.onnx`; with
//! `--unoptimised` behind it, without rewriting the graph.

use std::io::{self, Write};
use std::path::PathBuf;

use tileforge_session::onnxruntime::{self, Search};
use tileforge_session::{Environment, OptimisationLevel, Session, SessionOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let graph = PathBuf::from(std::env::args_os().nth(1).ok_or("expected the path of a graph")?);
    let unoptimised = std::env::args_os().nth(2).is_some_and(|argument| argument == "--unoptimised");
    let optimisation = if unoptimised { OptimisationLevel::Disabled } else { OptimisationLevel::All };
    let environment = Environment::new(onnxruntime::load(&Search::AroundExecutable)?);
    let session = Session::open(&environment, &graph, &SessionOptions { optimisation, ..SessionOptions::default() })?;
    writeln!(io::stdout(), "{}", session.open_time().as_secs_f64())?;
    Ok(())
}
