//! Times convolutions of the sizes that networks have: `cargo run --release --example convolution_time [THREADS]`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::convert::Infallible;
use std::thread;
use std::time::Instant;

use tileforge_kernels::{Convolution, Image, Pads, Scratch};

const RUNS: usize = 8;

fn main() {
    let threads: usize = std::env::args().nth(1).map_or(1, |threads| threads.parse().unwrap());
    let sizes = [
        (32, 32, 512),
        (64, 64, 256),
        (64, 64, 64),
        (192, 32, 128),
        (48, 48, 256),
        (320, 320, 64),
        (512, 512, 128),
        (16, 16, 256),
        (8, 8, 256),
        (64, 8, 256),
        (8, 64, 256),
    ];
    for (inputs, outputs, side) in sizes {
        let of = |count: usize| (0..count).map(|i| (i % 17) as f32 / 17.0 - 0.5).collect::<Vec<f32>>();
        let convolution = Convolution::new(&of(inputs * outputs * 9), [outputs, inputs], None, None).unwrap();
        let (values, mut results) = (of(inputs * side * side), of(outputs * side * side));
        let image = Image { parts: &[&values], samples: 1, height: side, width: side };
        let pads = Pads { top: 1, left: 1, bottom: 1, right: 1 };
        let scratch = Scratch::default();
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let started = Instant::now();
            let each = |count: usize, part: &(dyn Fn() + Sync)| {
                thread::scope(|scope| {
                    for first in 0..threads {
                        scope.spawn(move || (first..count).step_by(threads).for_each(|_| part()));
                    }
                });
                Ok::<(), Infallible>(())
            };
            convolution.run(&image, pads, &mut results, &scratch, each).unwrap();
            best = best.min(started.elapsed().as_secs_f64());
        }
        let products = (9 * inputs * outputs * side * side) as f64;
        println!(
            "{inputs} to {outputs} channels, {side}²: {:.2} ms, as fast as {:.0} GFLOP/s by sums of nine products",
            best * 1e3,
            2.0 * products / best / 1e9
        );
    }
}
