#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::samples::{largest, numbers, on_threads};

/// Results of a layer, and what they should be.
fn case(
    kind: Kind,
    [outputs, inputs]: [usize; 2],
    rows: usize,
    arrangement: Arrangement,
    has_gelu: bool,
) -> [Vec<f64>; 2] {
    let (values, weights, bias) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2), numbers(outputs, 3));
    let layer = Linear::with(kind, &weights, [outputs, inputs], arrangement, Some(&bias), has_gelu).unwrap();
    let mut found = vec![f32::NAN; rows * outputs];
    layer.run(&values, &mut found, &Scratch::default(), on_threads(2)).unwrap();
    let weight = |output: usize, input: usize| match arrangement {
        Arrangement::ByInput => weights[input * outputs + output],
        Arrangement::ByOutput => weights[output * inputs + input],
    };
    let expected = (0..rows * outputs).map(|place| {
        let (row, output) = (place / outputs, place % outputs);
        let of = |input: usize| f64::from(values[row * inputs + input]) * f64::from(weight(output, input));
        let sum = f64::from(bias[output]) + (0..inputs).map(of).sum::<f64>();
        if has_gelu { crate::samples::gelu(sum) } else { sum }
    });
    [found.into_iter().map(f64::from).collect(), expected.collect()]
}

#[test]
fn a_layer_sums_products() {
    for kind in Kind::all() {
        for channels in [[1, 1], [3, 5], [16, 16], [17, 8], [33, 180], [180, 180], [48, 256], [540, 31]] {
            for rows in [1, 7, 64, 65, 200] {
                for (arrangement, has_gelu) in [(Arrangement::ByInput, false), (Arrangement::ByOutput, true)] {
                    let [found, expected] = case(kind, channels, rows, arrangement, has_gelu);
                    let largest = largest(found.iter().zip(&expected).map(|(a, b)| (a - b).abs()));
                    assert!(largest < 2e-5, "{kind:?} {channels:?} {rows} {arrangement:?}: {largest}");
                }
            }
        }
    }
}

#[test]
fn rows_have_the_same_bytes_in_any_company_on_any_number_of_threads() {
    let (values, weights) = (numbers(300 * 40, 1), numbers(40 * 50, 2));
    let layer = Linear::new(&weights, [50, 40], Arrangement::ByInput, None, true).unwrap();
    let run = |values: &[f32], threads: usize| {
        let mut results = vec![f32::NAN; values.len() / 40 * 50];
        layer.run(values, &mut results, &Scratch::default(), on_threads(threads)).unwrap();
        results
    };
    let all = run(&values, 1);
    for threads in [2, 4, 8] {
        assert!(all == run(&values, threads), "{threads}");
    }
    for (first, rows) in [(0, 1), (3, 1), (64, 5), (299, 1)] {
        assert!(all[first * 50..][..rows * 50] == run(&values[first * 40..][..rows * 40], 3), "{first}, {rows}");
    }
}

#[test]
fn kinds_give_the_same_bytes() {
    let of = |kind| case(kind, [50, 40], 70, Arrangement::ByInput, true)[0].clone();
    let all: Vec<_> = Kind::all().into_iter().map(of).collect();
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn gelu_of_extremes() {
    let layer = Linear::new(&[1.0], [1, 1], Arrangement::ByInput, None, true).unwrap();
    let values = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 50.0, -50.0, 1e-30, f32::MAX, f32::MIN];
    let mut results = [0.5; 10];
    layer.run(&values, &mut results, &Scratch::default(), on_threads(1)).unwrap();
    let [zero, negative_zero, infinite, none, nan, large, small, tiny, most, least] = results;
    assert_eq!((zero, negative_zero, infinite, none, large), (0.0, 0.0, f32::INFINITY, 0.0, 50.0));
    assert!(
        nan.is_nan() && small == 0.0 && (tiny - 5e-31).abs() < 1e-36 && most == f32::MAX && least == 0.0,
        "{results:?}"
    );
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let of = |weights: &[f32], channels, bias: Option<&[f32]>| {
        Linear::new(weights, channels, Arrangement::ByInput, bias, false).unwrap_err()
    };
    assert_eq!(of(&[], [0, 5], None), Error::Lengths);
    assert_eq!(of(&[1.0; 6], [2, 2], None), Error::Lengths);
    assert_eq!(of(&[1.0; 6], [2, 3], Some(&[0.0; 3])), Error::Lengths);
    assert_eq!(of(&[1.0; 6], [usize::MAX, 3], None), Error::Lengths);
}

#[test]
fn memory_of_an_earlier_run_is_not_read() {
    let (values, weights, scratch) = (numbers(9 * 21, 1), numbers(21 * 19, 2), Scratch::default());
    let layer = Linear::new(&weights, [19, 21], Arrangement::ByInput, None, false).unwrap();
    let run = || {
        let mut results = [0.0; 9 * 19];
        layer.run(&values, &mut results, &scratch, on_threads(1)).unwrap();
        results
    };
    let first = run();
    let held: usize = scratch.0.lock().unwrap().iter().map(|memory| 4 * memory.len()).sum();
    assert_eq!(held, layer.scratch_bytes(9));
    scratch.0.lock().unwrap().iter_mut().for_each(|memory| memory.fill(f32::NAN));
    assert_eq!(run(), first);
}
