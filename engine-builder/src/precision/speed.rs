//! How fast a graph is on this machine, compared with others.

use super::Job;
use crate::Result;
use crate::samples::{Sample, views};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tileforge_graph::Model;
use tileforge_session::{Cancel, Session, SessionOptions};

/// Timed runs of each graph, at least and at most.
const TIMED_RUNS: std::ops::RangeInclusive<usize> = 3..=9;

/// No more runs are begun after this time.
const ENOUGH: Duration = Duration::from_secs(10);

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

/// How many times as fast as each graph in `others` the graph in `file` is on one thread of this machine.
///
/// After one warm-up run each, the graphs take turns. The fastest run of each counts, because other work on the machine
/// only makes runs slower. Several threads wait for each other after every operator, and so for the other work, which
/// would change the ratio.
pub(crate) fn speed_ratios(job: &Job<'_>, others: &[&Path], file: &Path, sample: &Sample) -> Result<Vec<f64>> {
    let paths = [file].into_iter().chain(others.iter().copied());
    let options = SessionOptions { threads: Some(1), ..job.session_options() };
    let mut sessions =
        paths.map(|path| Ok(Session::open(job.environment, path, &options)?)).collect::<Result<Vec<_>>>()?;
    let mut fastest = vec![Duration::MAX; sessions.len()];
    job.progress.begin("measuring speed", (*TIMED_RUNS.end() + 1) * sessions.len());
    let begun = Instant::now();
    for run in 0..=*TIMED_RUNS.end() {
        if run > *TIMED_RUNS.start() && begun.elapsed() > ENOUGH {
            break;
        }
        for (session, fastest) in sessions.iter_mut().zip(&mut fastest) {
            let started = Instant::now();
            session.run(&views(sample), &Cancel::new())?;
            if run > 0 {
                *fastest = (*fastest).min(started.elapsed());
            }
            job.progress.step();
        }
    }
    let seconds: Vec<f64> = fastest.iter().map(|time| time.as_secs_f64().max(f64::MIN_POSITIVE)).collect();
    Ok(seconds.iter().skip(1).map(|other| other / seconds[0]).collect())
}

#[cfg(test)]
mod tests {
    use super::super::convert::tests::Conversion;
    use super::*;
    use crate::samples;
    use tileforge_contract::{Precision, Provider};

    #[test]
    fn each_other_graph_has_a_ratio() {
        let conversion = Conversion::new();
        let job = conversion.job(Precision::Int8, Provider::Cpu);
        let sample = samples::sample(job.contract, &conversion.model, 0).unwrap();
        let (file, models) = (conversion.file(), ["one", "two"].map(|name| (name, conversion.model.clone())));
        let others = write_rivals(models, conversion.folder.path()).unwrap();
        let others: Vec<&Path> = others.iter().map(|(_, path)| path.as_path()).collect();
        let ratios = speed_ratios(&job, &others, &file, &sample).unwrap();
        assert_eq!(ratios.len(), 2);
        assert!(ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0), "{ratios:?}");
    }
}
