//! The provider of each graph of an engine: the best one, or for a while a lower one that could open the graph.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tileforge_contract::Provider;

/// The shortest time that a graph stays on a lower provider.
const LEAST_PAUSE: Duration = Duration::from_secs(60);
/// A graph stays below for at least this many times the duration of the failed attempts, so that attempts take little
/// of the time.
const ATTEMPTS: u32 = 20;
/// The longest time that a graph stays below.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The providers that an engine may run on, the best first, and the graphs that are not on the best one.
#[derive(Debug)]
pub(crate) struct Providers {
    all: Vec<Provider>,
    below: BTreeMap<String, Below>,
}

/// The lower provider of a graph that the providers above could not open.
#[derive(Debug)]
struct Below {
    at: usize,
    /// When the best provider is tried again.
    until: Instant,
    /// How long the best provider is not tried. Doubles from attempt to attempt.
    patience: Duration,
}

impl Providers {
    pub(crate) fn new(all: Vec<Provider>) -> Self {
        Self { all, below: BTreeMap::new() }
    }

    /// The providers that a graph is tried on now, the best first.
    pub(crate) fn left(&self, graph: &str, now: Instant) -> &[Provider] {
        let below = self.below.get(graph).filter(|below| now < below.until);
        self.all.get(below.map_or(0, |below| below.at)..).unwrap_or_default()
    }

    /// The lowest provider that a graph is on.
    pub(crate) fn lowest(&self) -> Option<Provider> {
        self.all.get(self.below.values().map(|below| below.at).max().unwrap_or(0)).copied()
    }

    /// The best provider.
    pub(crate) fn best(&self) -> Option<Provider> {
        self.all.first().copied()
    }

    /// Records that a graph was opened on this provider, after failed attempts on higher ones that took `failed`.
    /// Returns whether the graph is back on the best provider.
    pub(crate) fn opened(&mut self, graph: &str, provider: Provider, now: Instant, failed: Duration) -> bool {
        let at = self.all.iter().position(|known| *known == provider).unwrap_or(0);
        if at == 0 {
            return self.below.remove(graph).is_some();
        }
        let least = LEAST_PAUSE.max(failed.saturating_mul(ATTEMPTS));
        match self.below.get_mut(graph) {
            // The best provider was not tried this time.
            Some(below) if now < below.until => below.at = at,
            known => {
                let patience = known.map_or(least, |below| least.max(below.patience * 2)).min(LONGEST);
                self.below.insert(graph.to_owned(), Below { at, until: now + patience, patience });
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_steps_down_alone_and_comes_back() {
        let mut providers = Providers::new(vec![Provider::TensorRt, Provider::Cuda, Provider::Cpu]);
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let none = Duration::ZERO;
        assert!(!providers.opened("a", Provider::TensorRt, start, none));
        assert!(!providers.opened("b", Provider::Cuda, start, none));
        assert_eq!(
            (providers.left("a", start)[0], providers.left("b", start)),
            (Provider::TensorRt, &[Provider::Cuda, Provider::Cpu][..])
        );
        assert_eq!((providers.best(), providers.lowest()), (Some(Provider::TensorRt), Some(Provider::Cuda)));
        // Another stream opens it meanwhile, and finds that CUDA does not take it either.
        assert!(!providers.opened("b", Provider::Cpu, after(30), none));
        assert_eq!((providers.left("b", after(59)), providers.lowest()), (&[Provider::Cpu][..], Some(Provider::Cpu)));
        // The best is tried again: it fails, then it succeeds.
        assert_eq!(providers.left("b", after(60))[0], Provider::TensorRt);
        assert!(!providers.opened("b", Provider::Cpu, after(60), none));
        assert_eq!(providers.left("b", after(179)), [Provider::Cpu]);
        assert_eq!(providers.left("b", after(180))[0], Provider::TensorRt);
        assert!(providers.opened("b", Provider::TensorRt, after(180), none));
        assert_eq!(
            (providers.left("b", after(181))[0], providers.lowest()),
            (Provider::TensorRt, Some(Provider::TensorRt))
        );
    }

    #[test]
    fn attempts_that_take_long_are_rare_and_never_end() {
        let mut providers = Providers::new(vec![Provider::TensorRt, Provider::Cpu]);
        let mut now = Instant::now();
        let attempt = Duration::from_secs(300);
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(!providers.opened("a", Provider::Cpu, now, attempt));
            let minutes = (1..10_000)
                .find(|minutes| providers.left("a", now + Duration::from_secs(60 * minutes))[0] == Provider::TensorRt);
            waits.push(minutes.unwrap());
            now += Duration::from_secs(60 * minutes.unwrap());
        }
        assert_eq!(waits, [100, 200, 400, 800, 1440, 1440, 1440, 1440]);
    }
}
