//! How an engine can run on a machine.

use std::fmt;

use serde::Serialize;
use tileforge_contract::Provider;

/// Whether one provider can run the engine on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reason")]
pub enum Fit {
    /// Yes, at once.
    Fits,
    /// Yes, after its graphs have been compiled for this GPU, for this reason.
    AfterCompiling(String),
    /// No, for this reason.
    Refused(String),
}

/// One provider of the ladder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The provider.
    pub provider: Provider,
    /// Whether it can run the engine.
    #[serde(flatten)]
    pub fit: Fit,
}

/// How an engine can run on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The engine's name.
    pub engine: String,
    /// The provider that it was built for.
    pub target: Provider,
    /// The providers that were judged, the best first.
    pub steps: Vec<Step>,
}

impl Verdict {
    /// Whether the engine runs at once, on the provider that it was built for.
    pub fn is_exact(&self) -> bool {
        self.steps.first().is_some_and(|step| step.provider == self.target && step.fit == Fit::Fits)
    }

    /// The providers that can run the engine, the best first.
    pub fn providers(&self) -> Vec<Provider> {
        let fits = |step: &&Step| !matches!(step.fit, Fit::Refused(_));
        self.steps.iter().filter(fits).map(|step| step.provider).collect()
    }
}

impl fmt::Display for Verdict {
    /// `fits …`, `fits … after compiling here: …`, `falls back to cpu, because …` or `refused, because …`, with every
    /// reason on the way.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusals = self.steps.iter().map_while(|step| match &step.fit {
            Fit::Refused(reason) => Some(format!("{}: {reason}", step.provider)),
            _ => None,
        });
        let refusals: Vec<String> = refusals.collect();
        let because = refusals.join("; ");
        match self.steps.get(refusals.len()) {
            None => write!(formatter, "{}: refused, because {because}", self.engine),
            Some(Step { provider, fit }) => {
                let how = match fit {
                    Fit::AfterCompiling(reason) => format!(" after compiling here: {reason}"),
                    _ => String::new(),
                };
                if refusals.is_empty() {
                    write!(formatter, "{}: fits {provider}{how}", self.engine)
                } else {
                    write!(formatter, "{}: falls back to {provider}{how}, because {because}", self.engine)
                }
            }
        }
    }
}
