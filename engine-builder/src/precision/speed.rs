//! The speed of a graph on this machine, compared with other graphs.

use super::Job;
use crate::Result;
use crate::samples::{Sample, views};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tileforge_contract::Precision;
use tileforge_graph::Model;
use tileforge_session::{Cancel, Session, SessionOptions};

/// Timed runs of each graph, at least and at most.
const TIMED_RUNS: std::ops::RangeInclusive<usize> = 3..=9;

/// No further run starts after this time.
const ENOUGH: Duration = Duration::from_secs(10);

/// The speed gate against the same network in FP32.
pub(crate) const SPEED_OVER_FP32: &str = "speed_over_fp32";

/// The speed gate against the same network in FP16.
pub(super) const SPEED_OVER_FP16: &str = "speed_over_fp16";

/// A graph in a higher precision that the engine's graph must not be slower than.
pub(crate) struct Rival {
    /// The name of the gate.
    pub(crate) gate: &'static str,
    pub(super) precision: Precision,
    pub(super) path: PathBuf,
}

/// Writes graphs of one model, which share their weights, to `scratch`.
pub(super) fn write_rivals(models: Vec<(&'static str, Precision, Model)>, scratch: &Path) -> Result<Vec<Rival>> {
    let rival = |(gate, precision, _): &(&'static str, Precision, Model)| Rival {
        gate,
        precision: *precision,
        path: scratch.join(gate).with_extension("onnx"),
    };
    let rivals: Vec<Rival> = models.iter().map(rival).collect();
    let pairs: Vec<(&Model, &Path)> =
        models.iter().zip(&rivals).map(|((.., model), rival)| (model, rival.path.as_path())).collect();
    tileforge_graph::save_sharing_weights(&pairs, &scratch.join("rivals.weights"))?;
    Ok(rivals)
}

/// The speed of the graph in `file` relative to each of its rivals, on one thread of this machine.
///
/// After one warm-up run each, the graphs take turns. The fastest run of each counts, because other work on the
/// machine only makes runs slower. Several threads would wait for each other after every operator, and so also for the
/// other work, which would change the ratio.
pub(crate) fn speed_ratios(job: &Job<'_>, rivals: &[Rival], file: &Path, sample: &Sample) -> Result<Vec<f64>> {
    let others = rivals.iter().map(|rival| (rival.path.as_path(), rival.precision));
    let open = |(path, precision)| {
        let options = SessionOptions { threads: Some(1), ..job.session_options_in(precision) };
        Ok(Session::open(job.environment, path, &options)?)
    };
    let mut sessions = [(file, job.precision)].into_iter().chain(others).map(open).collect::<Result<Vec<_>>>()?;
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
    use tileforge_contract::Provider;

    #[test]
    fn each_other_graph_has_a_ratio() {
        let conversion = Conversion::new();
        let job = conversion.job(Precision::Int8, Provider::Cpu);
        let sample = samples::sample(job.contract, &conversion.model, 0).unwrap();
        let models = ["one", "two"].map(|name| (name, Precision::Fp32, conversion.model.clone()));
        let rivals = write_rivals(models.into(), conversion.folder.path()).unwrap();
        let ratios = speed_ratios(&job, &rivals, &conversion.file(), &sample).unwrap();
        assert_eq!(ratios.len(), 2);
        assert!(ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0), "{ratios:?}");
    }
}
