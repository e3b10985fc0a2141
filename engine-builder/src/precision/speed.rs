//! How fast a graph is on this machine, compared with others.

use crate::Result;
use crate::samples::{Sample, views};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tileforge_graph::Model;
use tileforge_session::{Environment, Session, SessionOptions};

/// Timed runs of each graph.
const TIMED_RUNS: usize = 9;

/// How long a session's threads may go on looking for work after a run. They must not slow down the next run.
const SETTLING: Duration = Duration::from_millis(30);

/// Writes graphs of one model, which share their weights, to `scratch`. Returns their names and files.
pub(super) fn write_rivals<const COUNT: usize>(
    models: [(&'static str, Model); COUNT],
    scratch: &Path,
) -> Result<Vec<(&'static str, PathBuf)>> {
    let paths = models.each_ref().map(|(name, _)| (*name, scratch.join(name).with_extension("onnx")));
    let pairs: Vec<(&Model, &Path)> =
        models.iter().zip(&paths).map(|((_, model), (_, path))| (model, path.as_path())).collect();
    tileforge_graph::save_sharing_weights(&pairs, &scratch.join("rivals.weights"))?;
    Ok(paths.to_vec())
}

/// How many times as fast as each graph in `others` the graph in `file` is on this machine.
///
/// After one warm-up run each, the graphs take turns. The fastest run of each counts, because other work on the machine
/// only makes runs slower.
pub(crate) fn speed_ratios(
    environment: &Environment,
    others: &[&Path],
    file: &Path,
    sample: &Sample,
) -> Result<Vec<f64>> {
    let paths = [file].into_iter().chain(others.iter().copied());
    let mut sessions = paths
        .map(|path| Ok(Session::open(environment, path, &SessionOptions::default())?))
        .collect::<Result<Vec<_>>>()?;
    let mut fastest = vec![Duration::MAX; sessions.len()];
    for run in 0..=TIMED_RUNS {
        for (session, fastest) in sessions.iter_mut().zip(&mut fastest) {
            std::thread::sleep(SETTLING);
            let started = Instant::now();
            session.run(&views(sample))?;
            if run > 0 {
                *fastest = (*fastest).min(started.elapsed());
            }
        }
    }
    let seconds: Vec<f64> = fastest.iter().map(|time| time.as_secs_f64().max(f64::MIN_POSITIVE)).collect();
    Ok(seconds.iter().skip(1).map(|other| other / seconds[0]).collect())
}
