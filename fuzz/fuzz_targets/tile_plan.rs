//! Any sizes have a plan or give an error. A plan's tiles lie inside the picture, leave no gap, and their weights sum
//! to one.
#![cfg_attr(fuzzing, no_main)]

use arbitrary::Arbitrary;
#[cfg(fuzzing)]
use libfuzzer_sys::fuzz_target;
use tileforge_image::Size;
use tileforge_image::tile::{Axis, Blend, Overlap, TilePlan};

#[derive(Arbitrary, Debug)]
struct Input {
    size: (u32, u32),
    tile: (u16, u16),
    overlap: u16,
    margin: u16,
    scale: u8,
    receptive_field: Option<u16>,
    blend: u8,
    /// What the network takes: sides of at least so many pixels, and multiples of a number.
    sides: (u16, u8),
}

/// Weights are summed up only in plans with less work than this.
const LONGEST_SUM: u64 = 1 << 14;

fuzz_target!(|input: Input| {
    let size = Size { width: input.size.0, height: input.size.1 };
    let tile = Size { width: input.tile.0.into(), height: input.tile.1.into() };
    let overlap = Overlap { pixels: input.overlap.into(), margin: input.margin.into() };
    let scale = u32::from(input.scale);
    let Ok(plan) = TilePlan::new(size, tile, overlap, scale, input.receptive_field.map(u32::from)) else { return };
    let plan = plan.for_sides(input.sides.0.into(), input.sides.1.into());
    let blend = [Blend::Hann, Blend::Cosine, Blend::Linear, Blend::None][usize::from(input.blend % 4)];
    for axis in [plan.columns(), plan.rows()] {
        check(axis, scale, blend);
    }
    assert_eq!(plan.tiles().take(3).count() as u64, plan.count().min(3));
});

fn check(axis: &Axis, scale: u32, blend: Blend) {
    let last = axis.count() - 1;
    assert_eq!((axis.start(0), axis.end(last)), (0, axis.length()));
    let some = [0, 1, last / 2, last.saturating_sub(1), last];
    for index in some.into_iter().filter(|index| *index < last) {
        assert!(axis.start(index) < axis.start(index + 1) && axis.start(index + 1) <= axis.end(index));
    }
    if u64::from(axis.count()) * u64::from(axis.tile()) * u64::from(scale) > LONGEST_SUM {
        return;
    }
    let mut sums = vec![0.0_f64; (axis.length() * scale) as usize];
    for index in 0..axis.count() {
        let window = axis.window(index, scale, blend);
        for (sum, weight) in sums[(axis.start(index) * scale) as usize..].iter_mut().zip(window) {
            assert!((0.0..=1.0).contains(&weight));
            *sum += f64::from(weight);
        }
    }
    assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5));
}
