//! Attention in windows of an image, as in Swin Transformers (<https://arxiv.org/abs/2103.14030>).
//!
//! The pixels of feature maps are tokens, the rows of a matrix `[batch · height · width, channels]`. Their order only
//! matters where attention groups them. All window partitions, rolls and reversals of the original code therefore
//! become one gather of rows from one [`Order`] to another, or nothing where the order is the same.

use super::{Scope, attention, linear, query_key_value, width};
use tileforge_graph::{Constant, Value};

/// Added to the attention scores of pixels that only a roll made neighbours, so that they do not attend to each other.
///
/// The original code adds −100, which leaves weights of about e⁻¹⁰⁰. These are denormal numbers: they make a softmax on
/// a CPU three times as slow, and the product after it four times. A weight of e⁻⁶⁰ is a normal number even where
/// scores differ by 27 more, and is just as much lost in the rounding of any sum.
const MASKED: f32 = -60.0;

/// The sizes of feature maps whose pixels are tokens, and of the windows that they are cut into.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    /// Number of maps.
    pub batch: usize,
    /// Height of each, a multiple of the window's.
    pub height: usize,
    /// Width of each, a multiple of the window's.
    pub width: usize,
    /// Side of the windows.
    pub window: usize,
}

/// How the pixels of a [`Grid`] are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Map by map, row by row.
    Raster,
    /// Window by window, row by row in each, of the maps rolled up and left by this many pixels. With a roll, the
    /// windows at the lower and the right edge come last: they hold pixels from the opposite edges.
    Windows(usize),
    /// As [`Order::Windows`], where a window's pixels lie at equal distances over the whole map: as many pixels apart
    /// as the map has windows in that direction.
    Dilated,
}

impl Grid {
    /// An image `[batch, channels, height, width]` as tokens in raster order.
    pub fn tokens(&self, image: &Value) -> Value {
        let channels = super::channels(image) as i64;
        image.reshape(&[0, channels, -1]).transpose(&[0, 2, 1]).reshape(&[-1, channels])
    }

    /// The reverse of [`Grid::tokens`].
    pub fn image(&self, tokens: &Value) -> Value {
        let [batch, height, map_width, channels] =
            [self.batch, self.height, self.width, width(tokens)].map(|size| size as i64);
        tokens
            .reshape(&[batch, height * map_width, channels])
            .transpose(&[0, 2, 1])
            .reshape(&[batch, channels, height, map_width])
    }

    /// Tokens in another order.
    pub fn reorder(&self, tokens: &Value, from: Order, to: Order) -> Value {
        if from == to {
            return tokens.clone();
        }
        let mut places = vec![0; self.batch * self.height * self.width];
        for (place, pixel) in self.order(from).into_iter().enumerate() {
            places[pixel] = place as i64;
        }
        let indices: Vec<i64> = self.order(to).into_iter().map(|pixel| places[pixel]).collect();
        tokens.gather(&indices, 0)
    }

    /// Attention of each window to itself: `x` in the order [`Order::Windows`] of `roll` → the same order and width.
    /// Parameters: `qkv` with a bias if it is `biased`, `proj`, `relative_position_bias_table`.
    pub fn attention(&self, w: &Scope<'_>, x: &Value, heads: usize, roll: usize, biased: bool) -> Value {
        let [q, k, v] = query_key_value(&w.at("qkv"), x, ["weight", "bias"], biased);
        // The table has a row for each distance of two pixels in a window.
        let side = 2 * self.window as i64 - 1;
        let row = |query: [i64; 2], key: [i64; 2]| (query[0] - key[0] + side / 2) * side + query[1] - key[1] + side / 2;
        let bias = position_bias(w, self.window, self.window, heads, row);
        linear(&w.at("proj"), &self.attend(w, [&q, &k, &v], &bias, heads, roll), width(x))
    }

    /// Attention of each window to itself: rows `q`, `k` and `v` in the order [`Order::Windows`] of `roll` → the same.
    /// `bias` `[1, heads, window², window²]` is added to the scores.
    pub fn attend(&self, w: &Scope<'_>, parts: [&Value; 3], bias: &Value, heads: usize, roll: usize) -> Value {
        let (area, channels) = (self.window * self.window, width(parts[0]) as i64);
        let [q, k, v] = parts.map(|x| x.reshape(&[-1, area as i64, channels]));
        let windows = self.windows(roll);
        let inner = windows.iter().filter(|window| roll == 0 || !self.touches_far_edges(window)).count();
        let plain = |parts: [&Value; 3]| attention(parts[0], parts[1], parts[2], heads, &[bias]);
        let attended = if inner == windows.len() {
            plain([&q, &k, &v])
        } else {
            // Only these windows hold pixels that were not neighbours, so only these need a mask.
            let mask: Vec<f32> = windows[inner..].iter().flat_map(|window| self.mask(*window, roll)).collect();
            let mask = w.trace().constant("mask", &[windows.len() - inner, 1, area, area], Constant::F32(&mask));
            let part = |from, to| [&q, &k, &v].map(|x| x.slice(0, from, to));
            let [edge_q, edge_k, edge_v] = part(inner, windows.len());
            let edge = attention(&edge_q, &edge_k, &edge_v, heads, &[bias, &mask]);
            if inner == 0 { edge } else { plain(part(0, inner).each_ref()).concat(&[&edge], 0) }
        };
        attended.reshape(&[-1, channels])
    }

    /// Attention of each window to a larger one about the same centre, of side `around` (HAT,
    /// <https://arxiv.org/abs/2205.04437>): `x` in raster order → the same. Outside the maps, keys and values are 0.
    /// Parameters as for [`Grid::attention`].
    pub fn overlapping_attention(&self, w: &Scope<'_>, x: &Value, heads: usize, around: usize, biased: bool) -> Value {
        let channels = width(x);
        let [q, k, v] = query_key_value(&w.at("qkv"), x, ["weight", "bias"], biased);
        let q = self.reorder(&q, Order::Raster, Order::Windows(0)).reshape(&[
            -1,
            (self.window * self.window) as i64,
            channels as i64,
        ]);
        // One more token, of zeros, represents all pixels outside the maps.
        let beyond = w.trace().constant("beyond", &[1, channels], Constant::F32(&vec![0.0; channels]));
        let windows = self.windows(0);
        let pixels = windows.iter().flat_map(|window| self.square(*window, (around - self.window) / 2, around));
        let indices: Vec<i64> =
            pixels.map(|pixel| pixel.unwrap_or(self.batch * self.height * self.width) as i64).collect();
        let larger = |x: Value| {
            x.concat(&[&beyond], 0).gather(&indices, 0).reshape(&[-1, (around * around) as i64, channels as i64])
        };
        // The original code counts distances from keys to queries here, from an origin that makes some rows negative.
        // Negative rows count from the table's end, like indices in Python.
        let (side, shift) = ((self.window + around) as i64 - 1, around as i64 - self.window as i64 - 1);
        let row = |query: [i64; 2], key: [i64; 2]| (key[0] - query[0] - shift) * side + key[1] - query[1] - shift;
        let bias = position_bias(w, self.window, around, heads, |query, key| row(query, key).rem_euclid(side * side));
        let attended = attention(&q, &larger(k), &larger(v), heads, &[&bias]).reshape(&[-1, channels as i64]);
        self.reorder(&linear(&w.at("proj"), &attended, channels), Order::Windows(0), Order::Raster)
    }

    /// For each token, the number of its pixel in raster order.
    fn order(&self, order: Order) -> Vec<usize> {
        match order {
            Order::Raster => (0..self.batch * self.height * self.width).collect(),
            Order::Windows(roll) => {
                self.windows(roll).into_iter().flat_map(|window| self.rolled(window, roll)).collect()
            }
            Order::Dilated => self.windows(0).into_iter().flat_map(|window| self.dilated(window)).collect(),
        }
    }

    /// Map, top and left of each window, in the order of [`Order::Windows`].
    fn windows(&self, roll: usize) -> Vec<[usize; 3]> {
        let (rows, columns) = (self.height / self.window, self.width / self.window);
        let number = 0..self.batch * rows * columns;
        let corner = |i: usize| [i / (rows * columns), i / columns % rows * self.window, i % columns * self.window];
        let mut windows: Vec<[usize; 3]> = number.map(corner).collect();
        // The sort is stable.
        windows.sort_by_key(|window| roll > 0 && self.touches_far_edges(window));
        windows
    }

    fn touches_far_edges(&self, [_, top, left]: &[usize; 3]) -> bool {
        top + self.window == self.height || left + self.window == self.width
    }

    /// The pixels of a window in the maps rolled by `roll`.
    fn rolled(&self, [map, top, left]: [usize; 3], roll: usize) -> impl Iterator<Item = usize> + use<> {
        let grid = *self;
        (0..grid.window * grid.window).map(move |i| {
            let (y, x) = ((top + i / grid.window + roll) % grid.height, (left + i % grid.window + roll) % grid.width);
            (map * grid.height + y) * grid.width + x
        })
    }

    /// The pixels of a window of [`Order::Dilated`].
    fn dilated(&self, [map, top, left]: [usize; 3]) -> impl Iterator<Item = usize> + use<> {
        let grid = *self;
        let (rows, columns) = (grid.height / grid.window, grid.width / grid.window);
        (0..grid.window * grid.window).map(move |i| {
            let y = i / grid.window * rows + top / grid.window;
            let x = i % grid.window * columns + left / grid.window;
            (map * grid.height + y) * grid.width + x
        })
    }

    /// The pixels of a square of side `side`, `border` up and left of a window, or `None` outside the map.
    fn square(
        &self,
        [map, top, left]: [usize; 3],
        border: usize,
        side: usize,
    ) -> impl Iterator<Item = Option<usize>> + use<> {
        let grid = *self;
        (0..side * side).map(move |i| {
            let y = (top + i / side).checked_sub(border).filter(|y| *y < grid.height)?;
            let x = (left + i % side).checked_sub(border).filter(|x| *x < grid.width)?;
            Some((map * grid.height + y) * grid.width + x)
        })
    }

    /// `[window², window²]`: 0 between pixels of a window that were neighbours before the roll, [`MASKED`] between
    /// others.
    fn mask(&self, window: [usize; 3], roll: usize) -> Vec<f32> {
        // At the far edges, the first pixels of the map follow the last ones.
        let follows = |pixel: usize| {
            let (y, x) = (pixel / self.width % self.height, pixel % self.width);
            (window[1] + self.window == self.height && y < roll, window[2] + self.window == self.width && x < roll)
        };
        let follows: Vec<_> = self.rolled(window, roll).map(follows).collect();
        follows.iter().flat_map(|a| follows.iter().map(move |b| if a == b { 0.0 } else { MASKED })).collect()
    }
}

/// The number of the distance of each two pixels of a window, in rows of `2 · side − 1` distances: the rows of a table
/// of position biases, for each query and each key.
pub fn distances_in_window(side: usize) -> Vec<u32> {
    let along = |query: usize, key: usize| query + side - 1 - key;
    let row =
        |query: usize, key: usize| along(query / side, key / side) * (2 * side - 1) + along(query % side, key % side);
    let area = side * side;
    (0..area * area).map(|pair| row(pair / area, pair % area) as u32).collect()
}

/// The biases of the attention scores between a window's pixels and those of a window of side `around`: `[1, heads,
/// side², around²]`. `row` gives the row of the table for the positions of a query and of a key, each `[y, x]` from its
/// window's corner.
fn position_bias(
    w: &Scope<'_>,
    side: usize,
    around: usize,
    heads: usize,
    row: impl Fn([i64; 2], [i64; 2]) -> i64,
) -> Value {
    let distances = side + around - 1;
    let place = |pixel: usize, side: usize| [(pixel / side) as i64, (pixel % side) as i64];
    let pairs = (0..side * side).flat_map(|query| (0..around * around).map(move |key| (query, key)));
    let rows: Vec<u32> = pairs.map(|(query, key)| row(place(query, side), place(key, around)) as u32).collect();
    w.computed_from(
        "relative_position_bias_table",
        &[distances * distances, heads],
        "relative_position_bias",
        |table| table.rows(rows)?.transposed(&[1, 0])?.reshaped(vec![1, heads, side * side, around * around]),
    )
}
