//! Prints the milliseconds that a convolution of random values takes: `convolution_time INPUTS OUTPUTS SIDE THREADS`.
//! The median of several runs (scripts/bench_convolutions.py).

use std::convert::Infallible;
use std::io::{self, Write};
use std::thread;
use std::time::Instant;

use tileforge_kernels::{Convolution, Image, Pads, Scratch};

const RUNS: usize = 15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<Vec<usize>, _>>()?;
    let [inputs, outputs, side, threads] = *numbers else { return Err("expected four numbers".into()) };
    let of = |count: usize| (0..count).map(|place| (place % 97) as f32 / 97.0 - 0.5).collect::<Vec<f32>>();
    let convolution = Convolution::new(&of(inputs * outputs * 9), [outputs, inputs], None, None)?;
    let (values, mut results) = (of(inputs * side * side), of(outputs * side * side));
    let image = Image { parts: &[&values], samples: 1, height: side, width: side };
    let pads = Pads { top: 1, left: 1, bottom: 1, right: 1 };
    let scratch = Scratch::default();
    let mut times = Vec::new();
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
        convolution.run(&image, pads, &mut results, &scratch, each).map_err(|error| format!("{error:?}"))?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    writeln!(io::stdout(), "{}", times[RUNS / 2])?;
    Ok(())
}
