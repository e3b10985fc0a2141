//! Prints the milliseconds that a kernel takes for random values, the median of several runs
//! (scripts/bench_kernels.py):
//!
//! - `kernel_time convolution THREADS INPUTS OUTPUTS SIDE`
//! - `kernel_time attention THREADS SAMPLES HEADS TOKENS WIDTH`

use std::convert::Infallible;
use std::io::{self, Write};
use std::thread;
use std::time::Instant;

use tileforge_kernels::{Attention, Bias, Convolution, Image, Lengths, Pads, RunError, Scratch};

const RUNS: usize = 15;

/// Calls a function as often as it is told, on so many threads.
fn on_threads(threads: usize) -> impl Fn(usize, &(dyn Fn() + Sync)) -> Result<(), Infallible> {
    move |count, part| {
        thread::scope(|scope| {
            for first in 0..threads {
                scope.spawn(move || (first..count).step_by(threads).for_each(|_| part()));
            }
        });
        Ok(())
    }
}

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|place| (place % 97) as f32 / 97.0 - 0.5).collect()
}

/// The median of the milliseconds of some runs.
fn time(mut run: impl FnMut() -> Result<(), RunError<Infallible>>) -> Result<f64, String> {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let started = Instant::now();
        run().map_err(|error| format!("{error:?}"))?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let kernel = arguments.next().unwrap_or_default();
    let numbers = arguments.map(|text| text.parse()).collect::<Result<Vec<usize>, _>>()?;
    let scratch = Scratch::default();
    let taken = match (kernel.as_str(), numbers.as_slice()) {
        ("convolution", &[threads, inputs, outputs, side]) => {
            let layer = Convolution::new(&values(inputs * outputs * 9), [outputs, inputs], None, None)?;
            let (values, mut results) = (values(inputs * side * side), values(outputs * side * side));
            let image = Image { parts: &[&values], samples: 1, height: side, width: side };
            let pads = Pads { top: 1, left: 1, bottom: 1, right: 1 };
            time(|| layer.run(&image, pads, &mut results, &scratch, on_threads(threads)))?
        }
        ("attention", &[threads, samples, heads, tokens, width]) => {
            let lengths = Lengths { samples, heads, queries: tokens, keys: tokens, width, value_width: width };
            let [q, k, v] = [(); 3].map(|()| values(samples * heads * tokens * width));
            let (mut results, biases) = (q.clone(), values(heads * tokens * tokens));
            let bias = Bias { values: &biases, lengths: [1, heads, tokens, tokens] };
            let attention = Attention::new(1.0)?;
            time(|| attention.run(&lengths, [&q, &k, &v], &[bias], &mut results, &scratch, on_threads(threads)))?
        }
        _ => return Err("expected a kernel, the number of threads, and its lengths".into()),
    };
    writeln!(io::stdout(), "{taken}")?;
    Ok(())
}
