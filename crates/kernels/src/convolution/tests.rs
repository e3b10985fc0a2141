#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::samples::{largest, numbers, on_threads};

struct Case {
    channels: [usize; 2],
    samples: usize,
    size: [usize; 2],
    pads: Pads,
}

const SAME: Pads = Pads { top: 1, left: 1, bottom: 1, right: 1 };

fn activation(outputs: usize) -> Activation {
    Activation { negative: numbers(outputs, 7), positive: numbers(outputs, 8).iter().map(|x| x + 2.0).collect() }
}

impl Case {
    fn values(&self) -> Vec<f32> {
        numbers(self.samples * self.channels[1] * self.size[0] * self.size[1], 1)
    }

    fn weights(&self) -> Vec<f32> {
        numbers(self.channels[0] * self.channels[1] * 9, 2)
    }

    fn convolution(&self, kind: Kind) -> Convolution {
        let (weights, bias) = (self.weights(), numbers(self.channels[0], 3));
        let activation = activation(self.channels[0]);
        Convolution::with(kind, &weights, self.channels, Some(&bias), Some(activation)).unwrap()
    }

    fn run(&self, kind: Kind, values: &[f32], threads: usize) -> Vec<f32> {
        self.run_parts(kind, &[values], threads)
    }

    fn run_parts(&self, kind: Kind, parts: &[&[f32]], threads: usize) -> Vec<f32> {
        let convolution = self.convolution(kind);
        let image = Image { parts, samples: self.samples, height: self.size[0], width: self.size[1] };
        let [height, width] = convolution.size_of(&image, self.pads).unwrap();
        let mut results = vec![f32::NAN; self.samples * self.channels[0] * height * width];
        convolution.run(&image, self.pads, &mut results, &Scratch::default(), on_threads(threads)).unwrap();
        results
    }

    /// The sums of nine products for each channel, in 64 bits.
    fn expected(&self) -> Vec<f64> {
        let ([outputs, inputs], [height, width]) = (self.channels, self.size);
        let (values, weights, bias) = (self.values(), self.weights(), numbers(outputs, 3));
        let activation = activation(outputs);
        let rows = height + self.pads.top + self.pads.bottom - 2;
        let columns = width + self.pads.left + self.pads.right - 2;
        let mut expected = Vec::new();
        for sample in 0..self.samples {
            for output in 0..outputs {
                for place in 0..rows * columns {
                    let mut sum = f64::from(bias[output]);
                    for tap in 0..inputs * 9 {
                        let (input, y, x) = (tap / 9, tap % 9 / 3, tap % 3);
                        let row = (place / columns + y).wrapping_sub(self.pads.top);
                        let column = (place % columns + x).wrapping_sub(self.pads.left);
                        if row < height && column < width {
                            let value = values[((sample * inputs + input) * height + row) * width + column];
                            sum += f64::from(value) * f64::from(weights[output * inputs * 9 + tap]);
                        }
                    }
                    let slopes = if sum < 0.0 { &activation.negative } else { &activation.positive };
                    expected.push(sum * f64::from(slopes[output]));
                }
            }
        }
        expected
    }
}

#[test]
fn results_are_the_sums_of_products_for_all_sizes_pads_and_instructions() {
    let none = Pads::default();
    let uneven = Pads { top: 0, left: 2, bottom: 3, right: 1 };
    let wide = Pads { top: 20, left: 40, bottom: 1, right: 35 };
    let cases = [
        (([1, 1], 1, [1, 1]), SAME),
        (([8, 16], 1, [16, 16]), SAME),
        (([9, 5], 2, [17, 33]), SAME),
        (([3, 64], 1, [50, 20]), none),
        (([48, 7], 3, [18, 18]), none),
        (([20, 20], 1, [64, 70]), uneven),
        (([16, 16], 1, [3, 2]), wide),
        (([64, 64], 1, [36, 52]), SAME),
    ];
    for ((channels, samples, size), pads) in cases {
        let case = Case { channels, samples, size, pads };
        let expected = case.expected();
        let spread = (expected.iter().map(|value| value * value).sum::<f64>() / expected.len() as f64).sqrt();
        for kind in Kind::all() {
            let results = case.run(kind, &case.values(), 1);
            assert_eq!(results.len(), expected.len());
            let differences = results.iter().zip(&expected).map(|(result, expected)| f64::from(*result) - expected);
            let largest = largest(differences.map(f64::abs));
            assert!(largest < 2e-5 * spread, "{channels:?} {size:?} {kind:?}: {largest} of {spread}");
        }
    }
}

#[test]
fn threads_change_no_byte_and_a_batch_is_its_samples() {
    let case = Case { channels: [24, 19], samples: 3, size: [45, 37], pads: SAME };
    for kind in Kind::all() {
        let alone = case.run(kind, &case.values(), 1);
        for threads in [2, 4, 8] {
            assert_eq!(case.run(kind, &case.values(), threads), alone, "{threads} threads, {kind:?}");
        }
        let single = Case { samples: 1, ..case };
        let samples = case.values();
        let samples = samples.chunks_exact(19 * 45 * 37).flat_map(|values| single.run(kind, values, 2));
        assert_eq!(samples.collect::<Vec<_>>(), alone, "{kind:?}");
    }
}

#[test]
fn channels_in_parts_are_as_if_they_were_joined() {
    let case = Case { channels: [16, 11], samples: 2, size: [30, 21], pads: SAME };
    let values = case.values();
    for lengths in [&[11][..], &[1, 10], &[4, 0, 7], &[3, 3, 3, 2]] {
        let mut parts: Vec<Vec<f32>> = vec![Vec::new(); lengths.len()];
        for sample in values.chunks_exact(11 * 30 * 21) {
            let mut rest = sample;
            for (part, length) in parts.iter_mut().zip(lengths) {
                let (of_part, others) = rest.split_at(length * 30 * 21);
                part.extend(of_part);
                rest = others;
            }
        }
        let parts: Vec<&[f32]> = parts.iter().map(Vec::as_slice).collect();
        for kind in Kind::all() {
            assert_eq!(case.run_parts(kind, &parts, 2), case.run(kind, &values, 2), "{lengths:?} {kind:?}");
        }
    }
}

#[test]
fn all_instructions_of_a_processor_give_the_same_bytes() {
    let case = Case { channels: [17, 33], samples: 1, size: [40, 41], pads: SAME };
    let results: Vec<_> = Kind::all().into_iter().map(|kind| case.run(kind, &case.values(), 1)).collect();
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn memory_of_an_earlier_run_is_not_read() {
    let Some(kind) = Kind::of_this_processor() else { return };
    let case = Case { channels: [8, 12], samples: 1, size: [10, 10], pads: SAME };
    let convolution = case.convolution(kind);
    let values = case.values();
    let image = Image { parts: &[&values], samples: 1, height: 10, width: 10 };
    let run = |scratch: &Scratch| {
        let mut results = vec![0.0; 8 * 100];
        convolution.run(&image, SAME, &mut results, scratch, on_threads(1)).unwrap();
        results
    };
    let scratch = Scratch::default();
    let first = run(&scratch);
    let held: usize = scratch.0.lock().unwrap().iter().map(|memory| 4 * memory.len()).sum();
    assert_eq!(held, convolution.scratch_bytes());
    scratch.0.lock().unwrap().iter_mut().for_each(|memory| memory.fill(f32::NAN));
    assert_eq!(run(&scratch), first);
}

#[test]
fn weights_of_another_size_are_refused() {
    let Some(kind) = Kind::of_this_processor() else { return };
    let new = |weights: usize, bias: usize| {
        Convolution::with(kind, &vec![0.0; weights], [2, 3], Some(&vec![0.0; bias]), None).map(drop)
    };
    assert_eq!(new(54, 2), Ok(()));
    assert_eq!(new(53, 2), Err(Error::Lengths));
    assert_eq!(new(54, 3), Err(Error::Lengths));
    for channels in [[0, 3], [1 << 62, 0], [1 << 40, 1 << 40]] {
        assert_eq!(Convolution::with(kind, &[], channels, None, None).map(drop), Err(Error::Lengths));
    }
}

#[test]
fn an_image_without_results_is_left_alone() {
    let Some(kind) = Kind::of_this_processor() else { return };
    let convolution = Case { channels: [1, 1], samples: 1, size: [2, 5], pads: Pads::default() }.convolution(kind);
    let wide = Pads { top: 2, left: 2, bottom: 2, right: 2 };
    for (height, width, pads, size) in [
        (2, 5, SAME, Some([2, 5])),
        (2, 5, Pads::default(), None),
        // There are no values, so pads alone would be results.
        (0, 5, wide, None),
        (5, 0, wide, None),
        (usize::MAX, 5, wide, None),
    ] {
        let values = vec![0.0; if size.is_some() { height * width } else { 0 }];
        let image = Image { parts: &[&values], samples: 1, height, width };
        assert_eq!(convolution.size_of(&image, pads), size);
        if size.is_none() {
            assert_eq!(convolution.run(&image, pads, &mut [], &Scratch::default(), on_threads(1)), Ok(()));
        }
    }
}

#[test]
fn no_samples_have_no_results() {
    let Some(kind) = Kind::of_this_processor() else { return };
    let case = Case { channels: [3, 2], samples: 0, size: [4, 5], pads: SAME };
    assert!(case.run(kind, &[], 2).is_empty());
}

#[test]
#[should_panic(expected = "results of")]
fn results_of_another_size_are_refused() {
    let Some(kind) = Kind::of_this_processor() else { panic!("results of no kind") };
    let case = Case { channels: [8, 12], samples: 1, size: [10, 10], pads: SAME };
    let values = case.values();
    let image = Image { parts: &[&values], samples: 1, height: 10, width: 10 };
    let _ = case.convolution(kind).run(&image, SAME, &mut [0.0; 799], &Scratch::default(), on_threads(1));
}
