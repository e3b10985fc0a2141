#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::samples::{largest, numbers, on_threads};

struct Case {
    lengths: Lengths,
    biases: Vec<[usize; 4]>,
}

const SCALE: f32 = 0.37;

impl Case {
    fn new([samples, heads, queries, keys, width, value_width]: [usize; 6], biases: &[[usize; 4]]) -> Self {
        Self { lengths: Lengths { samples, heads, queries, keys, width, value_width }, biases: biases.to_vec() }
    }

    fn values(&self) -> [Vec<f32>; 3] {
        let [queries, keys, values, _] = self.lengths.counts().unwrap();
        [(queries, 1), (keys, 2), (values, 3)]
            .map(|(count, seed)| numbers(count, seed).iter().map(|x| x * 4.0).collect())
    }

    fn biases(&self) -> Vec<Vec<f32>> {
        self.biases.iter().enumerate().map(|(at, lengths)| numbers(lengths.iter().product(), 9 + at as u32)).collect()
    }

    fn run(&self, kind: Kind, threads: usize) -> Vec<f32> {
        self.run_in(&Scratch::default(), kind, threads)
    }

    fn run_in(&self, scratch: &Scratch, kind: Kind, threads: usize) -> Vec<f32> {
        let (values, biases) = (self.values(), self.biases());
        let biases: Vec<_> =
            biases.iter().zip(&self.biases).map(|(values, lengths)| Bias { values, lengths: *lengths }).collect();
        let mut results = vec![f32::NAN; self.lengths.counts().unwrap()[3]];
        let [q, k, v] = &values;
        let attention = Attention { kind, scale: SCALE };
        attention.run(&self.lengths, [q, k, v], &biases, &mut results, scratch, on_threads(threads)).unwrap();
        results
    }

    fn expected(&self) -> Vec<f64> {
        let Lengths { samples, heads, queries, keys, width, value_width } = self.lengths;
        let ([q, k, v], biases) = (self.values(), self.biases());
        let mut expected = vec![0.0; self.lengths.counts().unwrap()[3]];
        for (sample, head) in (0..samples).flat_map(|sample| (0..heads).map(move |head| (sample, head))) {
            let token = |tokens: usize, token: usize, width: usize| ((sample * tokens + token) * heads + head) * width;
            for query in 0..queries {
                let score = |key: usize| {
                    let (q, k) = (&q[token(queries, query, width)..], &k[token(keys, key, width)..]);
                    let products = (0..width).map(|at| f64::from(q[at]) * f64::from(k[at]));
                    let added = biases.iter().zip(&self.biases).map(|(values, [s, h, n, m])| {
                        let at = [(sample, s), (head, h), (query, n), (key, m)];
                        let place = at.into_iter().fold(0, |place, (at, length)| place * length + at % length);
                        f64::from(values[place])
                    });
                    f64::from(SCALE) * products.sum::<f64>() + added.sum::<f64>()
                };
                let scores: Vec<f64> = (0..keys).map(score).collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                let total: f64 = weights.iter().sum();
                for at in 0..value_width {
                    let value = |key: usize| f64::from(v[token(keys, key, value_width) + at]);
                    let sum: f64 = (0..keys).map(|key| weights[key] * value(key)).sum();
                    expected[token(queries, query, value_width) + at] = sum / total;
                }
            }
        }
        expected
    }
}

fn cases() -> Vec<Case> {
    vec![
        Case::new([1, 1, 1, 1, 1, 1], &[]),
        Case::new([2, 3, 5, 7, 4, 6], &[[1, 3, 5, 7], [2, 1, 1, 7]]),
        Case::new([3, 6, 64, 64, 30, 30], &[[1, 6, 64, 64]]),
        Case::new([1, 2, 9, 33, 17, 40], &[[1, 1, 1, 33]]),
        Case::new([1, 1, 600, 70, 8, 16], &[]),
        Case::new([1, 2, 20, 77, 64, 80], &[[1, 2, 20, 77]]),
    ]
}

#[test]
fn attention_is_what_its_definition_says() {
    for kind in Kind::all() {
        for case in cases() {
            let (found, expected) = (case.run(kind, 2), case.expected());
            let error = |(found, expected): (&f32, &f64)| (f64::from(*found) - expected).abs();
            let largest = largest(found.iter().zip(&expected).map(error));
            // Scores of about 20 are off by 1e-6 of that, and so are weights.
            assert!(largest < 4e-5, "{kind:?} {:?}: {largest}", case.lengths);
        }
    }
}

#[test]
fn threads_and_kinds_give_the_same_bytes() {
    for case in cases() {
        let expected = case.run(Kind::all()[0], 1);
        for kind in Kind::all() {
            for threads in [1, 2, 4, 8] {
                assert!(expected == case.run(kind, threads), "{kind:?} {threads} {:?}", case.lengths);
            }
        }
    }
}

#[test]
fn sums_of_nothing_are_zero_and_heads_without_width_share_alike() {
    let run = |keys: usize, width: usize, value_width: usize, samples: usize| {
        let case = Case::new([samples, 2, 3, keys, width, value_width], &[]);
        case.run(Kind::all()[0], 2)
    };
    assert_eq!(run(0, 4, 5, 1), [0.0; 30]);
    assert_eq!(run(0, 0, 1, 1), [0.0; 6]);
    assert!(run(7, 4, 0, 1).is_empty() && run(7, 4, 5, 0).is_empty());
    let (case, found) = (Case::new([1, 2, 3, 7, 0, 1], &[]), run(7, 0, 1, 1));
    let differences = found.iter().zip(case.expected()).map(|(found, expected)| f64::from(*found) - expected);
    assert!(largest(differences.map(f64::abs)) < 1e-6, "{found:?}");
}

#[test]
fn masked_keys_count_nothing() {
    let lengths = Lengths { samples: 1, heads: 1, queries: 2, keys: 3, width: 1, value_width: 1 };
    let bias = [0.0, f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
    let mut results = [0.0; 2];
    let values = ([1.0, 1.0], [1.0; 3], [1.0, f32::MAX, 3.0]);
    let biases = [Bias { values: &bias, lengths: [1, 1, 2, 3] }];
    let attention = Attention::new(1.0).unwrap();
    let scratch = Scratch::default();
    attention.run(&lengths, [&values.0, &values.1, &values.2], &biases, &mut results, &scratch, on_threads(1)).unwrap();
    assert_eq!(results[0], 2.0);
    assert!(results[1].is_nan(), "no key is left: {results:?}");
}

#[test]
fn memory_of_an_earlier_run_is_not_read() {
    for case in cases() {
        let (scratch, kind) = (Scratch::default(), Kind::all()[0]);
        let first = case.run_in(&scratch, kind, 1);
        let held: usize = scratch.0.lock().unwrap().iter().map(|memory| 4 * memory.len()).sum();
        assert_eq!(held, Attention::scratch_bytes(&case.lengths));
        scratch.0.lock().unwrap().iter_mut().for_each(|memory| memory.fill(f32::NAN));
        assert!(case.run_in(&scratch, kind, 1) == first, "{:?}", case.lengths);
    }
}
