//! Attention in windows of an image, as in Swin Transformers (<https://arxiv.org/abs/2103.14030>).
//!
//! The pixels of feature maps are tokens, the rows of a matrix `[batch · height · width, channels]`. Their order
//! matters only where attention groups them. All window partitions, rolls and reversals of the original code therefore
//! become one gather of rows from one [`Order`] to another, or nothing where the order is the same.

use super::{Scope, attention, attention_scaled_by, linear, query_key_value, width};
use tileforge_graph::{Constant, Value, Weight};

/// Added to the attention scores of pixels that only a roll made neighbours, so that they do not attend to each other.
///
/// The original code adds −100, which leaves weights of about e⁻¹⁰⁰. These are denormal numbers: they make a softmax
/// on a CPU three times as slow, and the product after it four times. A weight of e⁻⁶⁰ stays a normal number even if
/// scores differ by 27 more, and it also disappears in the rounding of any sum.
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
    /// Height and width of the windows.
    pub window: [usize; 2],
}

/// How the pixels of a [`Grid`] are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Map by map, row by row.
    Raster,
    /// As [`Order::Raster`], of the maps rolled up and left by this many pixels.
    Rolled([usize; 2]),
    /// Window by window, row by row in each, of the maps rolled up and left by this many pixels. With a roll, the
    /// windows at the lower and the right edge come last: they hold pixels from the opposite edges.
    Windows([usize; 2]),
    /// As [`Order::Windows`], with the pixels of each window in blocks of 2 × 2: block by block, row by row in each.
    Blocks([usize; 2]),
    /// As [`Order::Windows`] without a roll, but a window's pixels are spread evenly over the whole map: their
    /// distance is the number of windows of the map in that direction.
    Dilated,
}

/// How the scores of window attention are made.
#[derive(Debug, Clone, Copy)]
pub struct Scores<'a> {
    /// Number of attention heads.
    pub heads: usize,
    /// Added to the scores: `[1, heads, area, area]`.
    pub bias: &'a Value,
    /// A factor of the queries in place of the usual scale; it is broadcast to `[windows, heads, area, width]`.
    pub factor: Option<&'a Value>,
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

    /// Tokens of maps `[height, width]` in raster order, in the windows of this grid without a roll. The grid is larger
    /// than the maps: zeros extend them below and on the right.
    pub fn windows_with_border(&self, tokens: &Value, [height, width]: [usize; 2]) -> Value {
        let unrolled = Order::Windows([0; 2]);
        if [height, width] == [self.height, self.width] {
            return self.reorder(tokens, Order::Raster, unrolled);
        }
        // One more token, of zeros, represents the whole border.
        let channels = super::width(tokens);
        let beyond = tokens.trace().constant("beyond", &[1, channels], Constant::F32(&vec![0.0; channels]));
        let place = |pixel: usize| {
            let [map, y, x] = place_of(pixel, [self.height, self.width]);
            let inside = y < height && x < width;
            (if inside { (map * height + y) * width + x } else { self.batch * height * width }) as i64
        };
        let indices: Vec<i64> = self.order(unrolled).into_iter().map(place).collect();
        tokens.concat(&[&beyond], 0).gather(&indices, 0)
    }

    /// The reverse of [`Grid::windows_with_border`].
    pub fn without_border(&self, tokens: &Value, [height, width]: [usize; 2]) -> Value {
        let mut places = vec![0; self.batch * self.height * self.width];
        for (place, pixel) in self.order(Order::Windows([0; 2])).into_iter().enumerate() {
            places[pixel] = place as i64;
        }
        let pixels = (0..self.batch * height * width).map(|i| {
            let [map, y, x] = place_of(i, [height, width]);
            places[(map * self.height + y) * self.width + x]
        });
        tokens.gather(&pixels.collect::<Vec<i64>>(), 0)
    }

    /// Attention of each window to itself: `x` in the order [`Order::Windows`] of `roll` → the same order and width.
    /// Parameters: `qkv` with a bias if it is `biased`, `proj`, `relative_position_bias_table`.
    pub fn attention(&self, w: &Scope<'_>, x: &Value, heads: usize, roll: [usize; 2], biased: bool) -> Value {
        let rows = query_key_value(&w.at("qkv"), x, ["weight", "bias"], biased);
        let bias = self.position_bias(w, heads);
        let scores = Scores { heads, bias: &bias, factor: None };
        linear(&w.at("proj"), &self.attention_of(rows.each_ref(), roll, scores), width(x))
    }

    /// The biases of the attention scores in a window: `[1, heads, area, area]`. Parameter:
    /// `relative_position_bias_table`, with a row for each distance of two pixels.
    pub fn position_bias(&self, w: &Scope<'_>, heads: usize) -> Value {
        let [height, width] = self.window;
        let places = self.places(1);
        w.computed_from(TABLE, &[(2 * height - 1) * (2 * width - 1), heads], BIAS, |table| {
            bias_of_pairs(&table, &places, &places, |query, key| distance_row(self.window, query, key))
        })
    }

    /// As [`Grid::position_bias`], of a table `[distances, heads]` that is computed.
    pub fn position_bias_of(&self, table: &Weight) -> tileforge_graph::Result<Weight> {
        let places = self.places(1);
        bias_of_pairs(table, &places, &places, |query, key| distance_row(self.window, query, key))
    }

    /// Attention of each window's queries to its keys and values, all in rows in the order [`Order::Windows`] of
    /// `roll` → rows in that order.
    pub fn attention_of(&self, rows: [&Value; 3], roll: [usize; 2], scores: Scores<'_>) -> Value {
        let area = self.area() as i64;
        let parts = rows.map(|x| x.reshape(&[-1, area, width(x) as i64]));
        self.masked_attention(&parts, roll, scores, |window| {
            let follows = self.follows(window, roll, 1);
            mask(&follows, &follows)
        })
    }

    /// Attention of each window to its blocks of 2 × 2 pixels (permuted self-attention, SRFormer,
    /// <https://arxiv.org/abs/2303.09735>): `x` in the order [`Order::Blocks`] of `roll` → the same order and width.
    /// A key is a quarter of the channels of four pixels, in the order of the block.
    ///
    /// Parameters: `q` and `kv` with a bias if it is `biased`, `proj`, `relative_position_bias_table`.
    pub fn permuted_attention(&self, w: &Scope<'_>, x: &Value, heads: usize, roll: [usize; 2], biased: bool) -> Value {
        let (area, channels) = (self.area(), width(x));
        let q = w.at("q");
        let bias = biased.then(|| q.tensor("bias", [channels]));
        let q = x.linear(&q.tensor("weight", [channels, channels]), bias.as_ref());
        let (kv, names) = (w.at("kv"), ["key", "value"]);
        let weights = kv.parts("weight", [channels / 2, channels], names);
        let biases = biased.then(|| kv.parts("bias", [channels / 2], names));
        // The rows of a block follow each other, so joining them needs no gather.
        let joined = |i: usize| {
            let x = x.linear(&weights[i], biases.as_ref().map(|biases| &biases[i]));
            x.reshape(&[-1, (area / 4) as i64, channels as i64])
        };
        let parts = [q.reshape(&[-1, area as i64, channels as i64]), joined(0), joined(1)];
        let blocks = self.window.map(|side| side / 2);
        let (queries, keys) = (self.places(2), rectangle(blocks));
        let bias = w.computed_from(TABLE, &[(2 * blocks[0] - 1) * (2 * blocks[1] - 1), heads], BIAS, |table| {
            bias_of_pairs(&table, &queries, &keys, |query, key| distance_row(blocks, query.map(|at| at / 2), key))
        });
        let scores = Scores { heads, bias: &bias, factor: None };
        let attended = self.masked_attention(&parts, roll, scores, |window| {
            mask(&self.follows(window, roll, 2), &self.blocks_that_follow(window, roll))
        });
        linear(&w.at("proj"), &attended, channels)
    }

    /// Attention of the windows `[windows, tokens, width]`, with a mask `[queries, keys]` in those that a roll filled
    /// with pixels from opposite edges → rows.
    pub(super) fn masked_attention(
        &self,
        parts: &[Value; 3],
        roll: [usize; 2],
        Scores { heads, bias, factor }: Scores<'_>,
        mask: impl Fn([usize; 3]) -> Vec<f32>,
    ) -> Value {
        let windows = self.windows(roll);
        let inner = windows.iter().filter(|window| !self.is_mixed(window, roll)).count();
        let [queries, keys] = [0, 1].map(|i| parts[i].fixed(1));
        let attend = |[q, k, v]: [&Value; 3], biases: &[&Value]| match factor {
            Some(factor) => attention_scaled_by(factor, [q, k, v], heads, biases),
            None => attention(q, k, v, heads, biases),
        };
        let plain = |parts: [&Value; 3]| attend(parts, &[bias]);
        let attended = if inner == windows.len() {
            plain(parts.each_ref())
        } else {
            // Only these windows hold pixels that were not neighbours before the roll, so only these need a mask.
            let masks: Vec<f32> = windows[inner..].iter().flat_map(|window| mask(*window)).collect();
            let trace = parts[0].trace();
            let mask = trace.constant("mask", &[windows.len() - inner, 1, queries, keys], Constant::F32(&masks));
            let part = |from, to| parts.each_ref().map(|x| x.slice(0, from, to));
            let edge = attend(part(inner, windows.len()).each_ref(), &[bias, &mask]);
            if inner == 0 { edge } else { plain(part(0, inner).each_ref()).concat(&[&edge], 0) }
        };
        attended.reshape(&[-1, width(&parts[2]) as i64])
    }

    /// Attention of each window to a larger one about the same centre, of side `around` (HAT,
    /// <https://arxiv.org/abs/2205.04437>): `x` in raster order → the same. Outside the maps, keys and values are 0.
    /// Parameters as for [`Grid::attention`].
    pub fn overlapping_attention(&self, w: &Scope<'_>, x: &Value, heads: usize, around: usize, biased: bool) -> Value {
        let (channels, unrolled, [window, _]) = (width(x), Order::Windows([0; 2]), self.window);
        let [q, k, v] = query_key_value(&w.at("qkv"), x, ["weight", "bias"], biased);
        let q = self.reorder(&q, Order::Raster, unrolled).reshape(&[-1, self.area() as i64, channels as i64]);
        // One more token, of zeros, represents all pixels outside the maps.
        let beyond = w.trace().constant("beyond", &[1, channels], Constant::F32(&vec![0.0; channels]));
        let windows = self.windows([0; 2]);
        let pixels = windows.iter().flat_map(|corner| self.square(*corner, (around - window) / 2, around));
        let indices: Vec<i64> =
            pixels.map(|pixel| pixel.unwrap_or(self.batch * self.height * self.width) as i64).collect();
        let larger = |x: Value| {
            x.concat(&[&beyond], 0).gather(&indices, 0).reshape(&[-1, (around * around) as i64, channels as i64])
        };
        // The original code computes distances from keys to queries here, from an origin that makes some row numbers
        // negative. Negative numbers count from the table's end, like indices in Python.
        let (side, shift) = ((window + around) as i64 - 1, around as i64 - window as i64 - 1);
        let row = |query: [i64; 2], key: [i64; 2]| (key[0] - query[0] - shift) * side + key[1] - query[1] - shift;
        let (queries, keys) = (self.places(1), rectangle([around; 2]));
        let bias = w.computed_from(TABLE, &[(window + around - 1).pow(2), heads], BIAS, |table| {
            bias_of_pairs(&table, &queries, &keys, |query, key| row(query, key).rem_euclid(side * side))
        });
        let attended = attention(&q, &larger(k), &larger(v), heads, &[&bias]).reshape(&[-1, channels as i64]);
        self.reorder(&linear(&w.at("proj"), &attended, channels), unrolled, Order::Raster)
    }

    /// Number of pixels of a window.
    fn area(&self) -> usize {
        self.window[0] * self.window[1]
    }

    /// For each token, the number of its pixel in raster order.
    pub(super) fn order(&self, order: Order) -> Vec<usize> {
        let windows =
            |roll, block| self.windows(roll).into_iter().flat_map(|window| self.rolled(window, roll, block)).collect();
        match order {
            Order::Raster => (0..self.batch * self.height * self.width).collect(),
            Order::Rolled(roll) => {
                let pixel = |i: usize| {
                    let [map, y, x] = place_of(i, [self.height, self.width]);
                    (map * self.height + (y + roll[0]) % self.height) * self.width + (x + roll[1]) % self.width
                };
                (0..self.batch * self.height * self.width).map(pixel).collect()
            }
            Order::Windows(roll) => windows(roll, 1),
            Order::Blocks(roll) => windows(roll, 2),
            Order::Dilated => self.windows([0; 2]).into_iter().flat_map(|window| self.dilated(window)).collect(),
        }
    }

    /// Map, top and left of each window, in the order of [`Order::Windows`].
    fn windows(&self, roll: [usize; 2]) -> Vec<[usize; 3]> {
        let [height, width] = self.window;
        let (rows, columns) = (self.height / height, self.width / width);
        let number = 0..self.batch * rows * columns;
        let corner = |i: usize| [i / (rows * columns), i / columns % rows * height, i % columns * width];
        let mut windows: Vec<[usize; 3]> = number.map(corner).collect();
        // The sort is stable.
        windows.sort_by_key(|window| self.is_mixed(window, roll));
        windows
    }

    /// Whether a window stands at the lower and at the right edge.
    fn touches_far_edges(&self, [_, top, left]: &[usize; 3]) -> [bool; 2] {
        [top + self.window[0] == self.height, left + self.window[1] == self.width]
    }

    /// Whether a window holds pixels from opposite edges.
    fn is_mixed(&self, window: &[usize; 3], roll: [usize; 2]) -> bool {
        let touches = self.touches_far_edges(window);
        (0..2).any(|axis| touches[axis] && roll[axis] > 0)
    }

    /// Row and column in its window of each pixel, in blocks of `block` × `block`.
    fn places(&self, block: usize) -> Vec<[i64; 2]> {
        let (columns, area) = (self.window[1] / block, block * block);
        let place = |i: usize| {
            let (number, inside) = (i / area, i % area);
            [number / columns * block + inside / block, number % columns * block + inside % block].map(|at| at as i64)
        };
        (0..self.area()).map(place).collect()
    }

    /// The pixels of a window in the maps rolled by `roll`, in blocks of `block` × `block`.
    fn rolled(&self, [map, top, left]: [usize; 3], roll: [usize; 2], block: usize) -> Vec<usize> {
        let pixel = |[row, column]: [i64; 2]| {
            let y = (top + row as usize + roll[0]) % self.height;
            let x = (left + column as usize + roll[1]) % self.width;
            (map * self.height + y) * self.width + x
        };
        self.places(block).into_iter().map(pixel).collect()
    }

    /// The pixels of a window of [`Order::Dilated`].
    fn dilated(&self, [map, top, left]: [usize; 3]) -> Vec<usize> {
        let [height, width] = self.window;
        let (rows, columns) = (self.height / height, self.width / width);
        let pixel = |[row, column]: [i64; 2]| {
            let (y, x) = (row as usize * rows + top / height, column as usize * columns + left / width);
            (map * self.height + y) * self.width + x
        };
        rectangle(self.window).into_iter().map(pixel).collect()
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

    /// For each pixel of a rolled window, whether it comes from the map's first rows and whether it comes from its
    /// first columns; the roll puts these behind the last ones.
    pub(super) fn follows(&self, window: [usize; 3], roll: [usize; 2], block: usize) -> Vec<[bool; 2]> {
        let touches = self.touches_far_edges(&window);
        let pixel = |[row, column]: [i64; 2]| {
            let from_end = [self.window[0] as i64 - row, self.window[1] as i64 - column];
            [0, 1].map(|axis| touches[axis] && from_end[axis] <= roll[axis] as i64)
        };
        self.places(block).into_iter().map(pixel).collect()
    }

    /// As [`Grid::follows`], for the blocks of 2 × 2 pixels of a window. A block of both kinds counts as one that
    /// follows.
    fn blocks_that_follow(&self, window: [usize; 3], roll: [usize; 2]) -> Vec<[bool; 2]> {
        let touches = self.touches_far_edges(&window);
        let blocks = self.window.map(|side| side / 2);
        let block = |place: [i64; 2]| {
            [0, 1].map(|axis| touches[axis] && blocks[axis] as i64 - place[axis] <= roll[axis].div_ceil(2) as i64)
        };
        rectangle(blocks).into_iter().map(block).collect()
    }
}

const TABLE: &str = "relative_position_bias_table";
const BIAS: &str = "relative_position_bias";

/// Row and column of each pixel of a rectangle `[height, width]`, row by row.
fn rectangle([height, width]: [usize; 2]) -> Vec<[i64; 2]> {
    (0..height * width).map(|i| [i / width, i % width].map(|at| at as i64)).collect()
}

/// The map, row and column of a pixel of maps `[height, width]`, by its number in raster order.
fn place_of(pixel: usize, [height, width]: [usize; 2]) -> [usize; 3] {
    [pixel / (height * width), pixel / width % height, pixel % width]
}

/// `[queries, keys]`: 0 between pixels of a window that were neighbours before the roll, [`MASKED`] between others.
pub(super) fn mask(queries: &[[bool; 2]], keys: &[[bool; 2]]) -> Vec<f32> {
    queries.iter().flat_map(|query| keys.iter().map(move |key| if query == key { 0.0 } else { MASKED })).collect()
}

/// The row of a bias table for the distance of two places in a window `[height, width]`: the table has `2 · width − 1`
/// rows for each vertical distance.
fn distance_row([height, width]: [usize; 2], query: [i64; 2], key: [i64; 2]) -> i64 {
    let [height, width] = [height as i64, width as i64];
    (query[0] - key[0] + height - 1) * (2 * width - 1) + query[1] - key[1] + width - 1
}

/// A bias for each query and key, `[1, heads, queries, keys]`, from a table `[rows, heads]`. `row` gives the row for
/// two places, each `[y, x]` from its window's corner.
fn bias_of_pairs(
    table: &Weight,
    queries: &[[i64; 2]],
    keys: &[[i64; 2]],
    row: impl Fn([i64; 2], [i64; 2]) -> i64,
) -> tileforge_graph::Result<Weight> {
    let heads = table.dims().last().copied().unwrap_or_default();
    let rows: Vec<u32> = queries.iter().flat_map(|query| keys.iter().map(|key| row(*query, *key) as u32)).collect();
    table.rows(rows)?.transposed(&[1, 0])?.reshaped(vec![1, heads, queries.len(), keys.len()])
}
