//! Prints the seconds that ONNX Runtime takes to load a graph, without loading itself: `load_time GRAPH.onnx`.

use runtime::session::{Session, SessionOptions};
use std::io::{self, Write};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let graph = PathBuf::from(std::env::args_os().nth(1).ok_or("expected the path of a graph")?);
    let session = Session::open(&graph, &SessionOptions::default())?;
    writeln!(io::stdout(), "{}", session.open_time().as_secs_f64())?;
    Ok(())
}
