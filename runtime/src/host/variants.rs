//! Graphs that differ only in the number of samples: which of them run a number of samples.

/// A graph of a group, for a number of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Variant {
    pub(super) graph: usize,
    /// Samples in a run.
    pub(super) batch: usize,
}

/// The graphs of a group, the smallest batch first; never empty. A graph of free batch is there for each number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variants(Vec<Variant>);

impl Variants {
    /// One graph for each batch of at most `most` samples; if all have more, the smallest. `None` without a graph.
    pub(super) fn new(graphs: impl IntoIterator<Item = Variant>, most: usize) -> Option<Self> {
        let mut variants: Vec<Variant> = graphs.into_iter().collect();
        variants.sort_by_key(|variant| variant.batch);
        variants.dedup_by_key(|variant| variant.batch);
        let fitting = variants.iter().filter(|variant| variant.batch <= most).count().max(1);
        variants.truncate(fitting);
        (!variants.is_empty()).then_some(Self(variants))
    }

    /// Samples in the largest run.
    pub(super) fn batch(&self) -> usize {
        self.0.last().map_or(1, |variant| variant.batch)
    }

    /// Samples in the smallest run.
    pub(super) fn least(&self) -> usize {
        self.0.first().map_or(1, |variant| variant.batch)
    }

    /// The graph with the largest batch that is at most `most`; if all are larger, the smallest.
    pub(super) fn largest(&self, most: usize) -> Variant {
        let fits = self.0.iter().rev().find(|variant| variant.batch <= most);
        fits.or(self.0.first()).copied().unwrap_or(Variant { graph: 0, batch: 1 })
    }

    /// The next smaller number of samples in a run, if there is one. A graph of free batch does not try all of its
    /// numbers, since each attempt takes long: it halves them.
    pub(super) fn smaller_than(&self, batch: usize) -> Option<usize> {
        let next = self.0.iter().rev().find(|smaller| smaller.batch < batch)?;
        let half = self.0.iter().rev().find(|other| other.graph == next.graph && other.batch <= batch / 2);
        Some(half.unwrap_or(next).batch)
    }

    /// Whether there is this graph, with a batch larger than `batch`.
    pub(super) fn is_larger(&self, graph: usize, batch: usize) -> bool {
        self.0.iter().any(|variant| variant.graph == graph && variant.batch > batch)
    }

    /// Splits `count` samples into the largest possible runs, with at most `most` samples in each: the graph and the
    /// samples of each run.
    pub(super) fn runs_of(&self, mut count: usize, most: usize) -> Vec<(Variant, usize)> {
        let mut runs = Vec::new();
        while count > 0 {
            let variant = self.largest(most.min(count));
            let samples = variant.batch.min(count);
            runs.push((variant, samples));
            count -= samples;
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Graphs 10, 11 … of these batches.
    fn variants(batches: &[usize], most: usize) -> Variants {
        let graphs = (10..).zip(batches).map(|(graph, batch)| Variant { graph, batch: *batch });
        Variants::new(graphs, most).unwrap()
    }

    #[test]
    fn graphs_are_chosen_by_their_batches() {
        assert_eq!(Variants::new([], 8), None);
        let all = variants(&[4, 1, 8, 4], usize::MAX);
        assert_eq!((all.least(), all.batch()), (1, 8));
        assert_eq!([1, 3, 4, 100].map(|most| all.largest(most).graph), [11, 11, 10, 12]);
        assert_eq!([1, 2, 8, 9].map(|batch| all.smaller_than(batch)), [None, Some(1), Some(4), Some(8)]);
        assert_eq!(
            [(10, 3), (10, 4), (12, 4), (9, 0)].map(|(graph, batch)| all.is_larger(graph, batch)),
            [true, false, true, false]
        );
        let smaller = |variants: &Variants| [8, 6, 3, 2, 1].map(|batch| variants.smaller_than(batch).unwrap_or(0));
        assert_eq!(smaller(&variants(&[1, 2, 3, 6, 7], usize::MAX)), [7, 3, 2, 1, 0]);
        let free = (1..=8).map(|batch| Variant { graph: 0, batch });
        assert_eq!(smaller(&Variants::new(free, usize::MAX).unwrap()), [4, 3, 1, 1, 0]);
        assert_eq!(variants(&[4, 1, 8], 7).batch(), 4);
        assert_eq!(variants(&[4, 1, 8], 4).batch(), 4);
        let large = variants(&[8, 4], 2);
        assert_eq!((large.least(), large.batch(), large.largest(1).batch), (4, 4, 4));
    }

    #[test]
    fn samples_are_split_into_the_largest_runs() {
        let runs = |variants: &Variants, count, most| -> Vec<(usize, usize)> {
            variants.runs_of(count, most).into_iter().map(|(variant, samples)| (variant.batch, samples)).collect()
        };
        let all = variants(&[1, 4, 8], usize::MAX);
        assert_eq!(runs(&all, 0, 8), []);
        assert_eq!(runs(&all, 14, 8), [(8, 8), (4, 4), (1, 1), (1, 1)]);
        assert_eq!(runs(&all, 9, 4), [(4, 4), (4, 4), (1, 1)]);
        assert_eq!(runs(&variants(&[1, 2, 3, 4], 4), 7, 4), [(4, 4), (3, 3)]);
        // The smallest graph has empty places.
        assert_eq!(runs(&variants(&[4], 4), 5, 4), [(4, 4), (4, 1)]);
    }
}
