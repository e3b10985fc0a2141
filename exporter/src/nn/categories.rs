//! Sorting pixels by categories that the network computes.

use super::width;
use tileforge_graph::{Constant, DataType, Value};

/// Pixels in the order of their categories, cut into groups of one size.
///
/// This is a counting sort. A pixel's place is the number of all pixels of lower categories, plus the number of pixels
/// of its own category before it. So pixels of one category stay in their order, in every runtime: there are no ties
/// to break. (TensorRT's TopK takes 3840 values at most.) ATD's original code does not ask for a stable sort, so its
/// order within a category depends on the processor; a stable order is one of its possible results.
#[derive(Debug)]
pub struct Categories {
    /// For each place in the groups, the row of its pixel: `[batch · groups · size]`.
    rows: Value,
    /// For each pixel, its place in the groups: `[batch · pixels]`.
    places: Value,
    size: usize,
}

impl Categories {
    /// A pixel's category is the largest of its numbers, or the first of equal ones: `scores` `[batch, pixels,
    /// categories]`. Where there are fewer pixels than `size`, they are one group. If the last group is not full, the
    /// last pixels fill it again, from the last one backwards.
    pub fn new(scores: &Value, size: usize) -> Self {
        let [batch, pixels, categories] = scores.fixed_dims();
        let size = size.min(pixels).max(1);
        let filled = pixels.next_multiple_of(size);
        let trace = scores.trace();
        let numbers = |name: &str, numbers: &[i64]| trace.constant(name, &[numbers.len()], Constant::I64(numbers));
        let category = scores.arg_max(-1);
        let names: Vec<i64> = (0..categories as i64).collect();
        let is_in = category.equals(&numbers("categories", &names));
        // Counts are exact: FP32 holds all integers up to 2²⁴.
        let counts = is_in.cumulative_sum(1);
        let before = counts.slice(1, pixels - 1, pixels).sum_before(2);
        let own = counts.gather_elements(&category, 2).cast(DataType::I64).reshape(&[batch as i64, pixels as i64]);
        let lower = before.gather_elements(&category.reshape(&[batch as i64, 1, -1]), 2);
        let lower = lower.cast(DataType::I64).reshape(&[batch as i64, pixels as i64]);
        let place = own + lower;
        // Counts include the pixel itself.
        let of_map = |stride: usize| {
            let starts: Vec<i64> = (0..batch).map(|map| (map * stride) as i64 - 1).collect();
            (&place + trace.constant("start", &[batch, 1], Constant::I64(&starts))).reshape(&[-1])
        };
        let all: Vec<i64> = (0..(batch * pixels) as i64).collect();
        let all = numbers("pixels", &all);
        let mut rows = all.scatter(&of_map(pixels), &all, 0);
        if filled > pixels {
            let map =
                |map: usize| (0..pixels).chain((2 * pixels - filled..pixels).rev()).map(move |i| map * pixels + i);
            let order: Vec<i64> = (0..batch).flat_map(map).map(|i| i as i64).collect();
            rows = rows.gather(&order, 0);
        }
        Categories { rows, places: of_map(filled), size }
    }

    /// Rows of pixels, `[batch · pixels, width]`, as groups `[batch · groups, size, width]`.
    pub fn groups(&self, x: &Value) -> Value {
        x.gather_by(&self.rows, 0).reshape(&[-1, self.size as i64, width(x) as i64])
    }

    /// The reverse of [`Categories::groups`].
    pub fn pixels(&self, groups: &Value) -> Value {
        groups.reshape(&[-1, width(groups) as i64]).gather_by(&self.places, 0)
    }
}
