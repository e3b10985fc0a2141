//! The progress of long work.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tileforge_files::Transfer;

use crate::lines::{Lines, Stage};
use crate::output::report;
use crate::unit::Unit;
use crate::verbosity::is_quiet;
use crate::visible::visible;

/// Without a terminal, work that takes less than this is not reported.
const FIRST_LINE: Duration = Duration::from_secs(10);
/// The time between two lines afterwards.
const NEXT_LINES: Duration = Duration::from_secs(30);
/// How often a bar is redrawn without an update.
const TICK: Duration = Duration::from_millis(200);

/// The progress of long work, on standard error: a bar on a terminal, elsewhere a line now and then. Clones share it.
///
/// ```
/// use tileforge_terminal::{Progress, Unit};
///
/// let progress = Progress::new();
/// progress.begin("calibrate", Some(32), Unit::Count("tiles"));
/// for _ in 0..32 {
///     progress.add(1);
/// }
/// progress.begin("compile", None, Unit::Count("graphs")); // nobody knows how long this takes
/// progress.finish();
/// ```
#[derive(Clone)]
pub struct Progress(Arc<Shown>);

enum Shown {
    Bar(ProgressBar),
    Lines(Lines),
    Nothing,
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Progress").finish_non_exhaustive()
    }
}

impl Progress {
    /// A bar on a terminal; elsewhere a line after ten seconds, and then every 30 seconds. Nothing with `--quiet`.
    pub fn new() -> Self {
        if is_quiet() {
            Self::hidden()
        } else if io::stderr().is_terminal() {
            Self::bar()
        } else {
            Self(Arc::new(Shown::Lines(Lines::start(FIRST_LINE, NEXT_LINES, report))))
        }
    }

    /// A bar on a terminal; nothing elsewhere, for work that prints results on the way.
    pub fn on_terminal() -> Self {
        if io::stderr().is_terminal() && !is_quiet() { Self::bar() } else { Self::hidden() }
    }

    /// Nothing at all.
    pub fn hidden() -> Self {
        Self(Arc::new(Shown::Nothing))
    }

    fn bar() -> Self {
        Self(Arc::new(Shown::Bar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()))))
    }

    /// Begins a stage; `total` is the amount of work, if it is known.
    pub fn begin(&self, stage: impl Into<String>, total: Option<u64>, unit: Unit) {
        let stage = visible(&stage.into()).into_owned();
        match &*self.0 {
            Shown::Bar(bar) => {
                bar.reset();
                bar.set_message(stage);
                total.map_or_else(|| bar.unset_length(), |total| bar.set_length(total));
                if let Ok(style) = ProgressStyle::with_template(if total.is_some() { BAR } else { SPINNER }) {
                    let of_unit = |write: fn(&ProgressState, Unit, &mut dyn fmt::Write)| {
                        move |state: &ProgressState, out: &mut dyn fmt::Write| write(state, unit, out)
                    };
                    let style = style.with_key("done", of_unit(done)).with_key("rate", of_unit(rate));
                    bar.set_style(style.with_key("left", left));
                }
                bar.enable_steady_tick(TICK);
            }
            Shown::Lines(lines) => {
                lines.begin(Stage { name: stage, done: 0, total, unit, started: Instant::now() });
            }
            Shown::Nothing => {}
        }
    }

    /// Adds `more` to the work that is done.
    pub fn add(&self, more: u64) {
        match &*self.0 {
            Shown::Bar(bar) => bar.inc(more),
            Shown::Lines(lines) => lines.change(|done| done.saturating_add(more)),
            Shown::Nothing => {}
        }
    }

    /// Sets the work that is done.
    pub fn set(&self, done: u64) {
        match &*self.0 {
            Shown::Bar(bar) => bar.set_position(done),
            Shown::Lines(lines) => lines.change(|_| done),
            Shown::Nothing => {}
        }
    }

    /// Renames the stage and keeps its progress.
    pub fn rename(&self, stage: &str) {
        let stage = visible(stage).into_owned();
        match &*self.0 {
            Shown::Bar(bar) => bar.set_message(stage),
            Shown::Lines(lines) => lines.rename(stage),
            Shown::Nothing => {}
        }
    }

    /// Changes the total of a stage that began with one.
    pub fn set_total(&self, total: u64) {
        match &*self.0 {
            Shown::Bar(bar) => bar.set_length(total),
            Shown::Lines(lines) => lines.set_total(total),
            Shown::Nothing => {}
        }
    }

    /// Calls `work`, which prints, while the bar is hidden.
    pub fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        match &*self.0 {
            Shown::Bar(bar) => bar.suspend(work),
            Shown::Lines(_) | Shown::Nothing => work(),
        }
    }

    /// Removes the bar. Nothing more is shown until another stage begins.
    pub fn finish(&self) {
        match &*self.0 {
            Shown::Bar(bar) => {
                bar.disable_steady_tick();
                bar.finish_and_clear();
            }
            Shown::Lines(lines) => lines.rest(),
            Shown::Nothing => {}
        }
    }
}

impl Transfer for Progress {
    fn begin(&mut self, file: &str, length: Option<u64>, done: u64) {
        Progress::begin(self, file, length, Unit::Bytes);
        self.set(done);
    }

    fn advance(&mut self, bytes: u64) {
        self.add(bytes);
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// The work that is done, and the total if known.
fn done(state: &ProgressState, unit: Unit, out: &mut dyn fmt::Write) {
    // Writing to the bar's line cannot fail.
    let _ = out.write_str(&match state.len() {
        Some(total) => unit.part(state.pos(), total),
        None => unit.amount(state.pos()),
    });
}

/// The remaining time; empty while nothing is done, because it is not known yet.
fn left(state: &ProgressState, out: &mut dyn fmt::Write) {
    if state.pos() > 0 && state.len().is_some_and(|total| state.pos() < total) {
        let _ = write!(out, ", {} left", HumanDuration(state.eta()));
    }
}

/// The rate a second.
fn rate(state: &ProgressState, unit: Unit, out: &mut dyn fmt::Write) {
    let _ = out.write_str(&unit.rate(state.pos(), state.elapsed()));
}

/// The bar as an indicatif template.
const BAR: &str = "{msg} {bar:30} {done}{rate}{left}";
/// The template for an unknown total.
const SPINNER: &str = "{spinner} {msg}: {done}{rate}, {elapsed}";

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;

    use super::*;

    #[test]
    fn a_bar_shows_the_stage_and_how_far_it_is() {
        let terminal = InMemoryTerm::new(5, 100);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let progress = Progress(Arc::new(Shown::Bar(ProgressBar::with_draw_target(None, target))));
        progress.begin("calibrate", Some(32), Unit::Count("tiles"));
        progress.set(7);
        progress.add(1);
        progress.suspend(|| ());
        let shown = terminal.contents();
        assert!(shown.starts_with("calibrate ") && shown.contains(" 8 of 32 tiles, "), "{shown}");
        progress.rename("measure");
        progress.suspend(|| ());
        assert!(terminal.contents().starts_with("measure "), "{}", terminal.contents());
        // The remaining time is not known while nothing is done.
        progress.begin("film", Some(1000), Unit::Rate("frames"));
        progress.suspend(|| ());
        assert!(terminal.contents().ends_with(" 0 of 1,000 frames"), "{}", terminal.contents());
        progress.set(500);
        progress.suspend(|| ());
        let shown = terminal.contents();
        assert!(shown.contains(" 500 of 1,000 frames, ") && shown.contains(" frames a second, "), "{shown}");
        for (unit, total, done, expected) in [
            (Unit::Count("tiles"), Some(1), 0, " 0 of 1 tile"),
            (Unit::Bytes, Some(3_000_000), 1_500_000, " 1.5 of 3.0 MB, "),
            (Unit::Count("graphs"), None, 2, " compile: 2 graphs, "),
            (Unit::Count("graphs"), None, 1, " compile: 1 graph, "),
            (Unit::Bytes, None, 1_500_000, " compile: 1.5 MB, "),
        ] {
            progress.begin("compile", total, unit);
            progress.set(done);
            progress.suspend(|| ());
            let shown = terminal.contents();
            assert!(shown.contains(expected) && !shown.contains("tiles"), "{shown}");
        }
        progress.finish();
        assert_eq!(terminal.contents(), "");
    }

    #[test]
    fn every_kind_takes_every_call() {
        for progress in [Progress::hidden(), Progress::on_terminal(), Progress::new()] {
            progress.begin("write", Some(10), Unit::Bytes);
            progress.set_total(12);
            progress.rename("write it");
            progress.clone().add(3);
            assert_eq!(progress.suspend(|| 5), 5);
            progress.finish();
        }
    }
}
