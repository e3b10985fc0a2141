//! Attention with cosines in windows, and through anchors in stripes (GRL, <https://arxiv.org/abs/2303.00748>).
//!
//! An anchor stands for a square of pixels. The anchors of a stripe attend to its pixels, and the pixels to the
//! anchors. So the cost grows with the product of both numbers instead of the square of the pixels, and stripes can be
//! long.

use super::windows::mask;
use super::{Grid, Order, Scope, Scores, continuous_biases, unit, width};
use tileforge_graph::{Value, Weight};

/// The largest factor of the cosines; checkpoints store its logarithm.
const MOST: f64 = 100.0;

/// The numbers of heads and of neurons of the network of position biases.
#[derive(Debug, Clone, Copy)]
pub struct CosineHeads {
    /// Number of attention heads.
    pub heads: usize,
    /// Width of the network of position biases.
    pub positions: usize,
}

/// Stripes of feature maps, and the anchors in them.
#[derive(Debug, Clone, Copy)]
pub struct Stripes {
    /// The maps, cut into stripes.
    pub grid: Grid,
    /// Pixels along the side of an anchor; the sides of stripes are multiples of twice this.
    pub side: usize,
    /// Whether maps are rolled by half a stripe.
    pub rolled: bool,
}

/// Attention of each window of a grid to itself, by cosines: rows in the order [`Order::Windows`] of `roll` → the same.
/// Parameters: those of `attn_transform`.
pub fn cosine_window_attention(
    w: &Scope<'_>,
    [q, k, v]: [&Value; 3],
    grid: &Grid,
    roll: [usize; 2],
    sizes: CosineHeads,
) -> Value {
    let w = w.at("attn_transform");
    let (factor, bias) = (factor(&w, sizes.heads), position_bias(&w, [grid.window; 2], sizes));
    let scores = Scores { heads: sizes.heads, bias: &bias, factor: Some(&factor) };
    let [q, k] = [q, k].map(|x| directions(x, sizes.heads));
    grid.attention_of([&q, &k, v], roll, scores)
}

impl Stripes {
    /// The order of pixels that [`Stripes::attention`] takes.
    pub fn order(&self) -> Order {
        Order::Windows(self.roll())
    }

    fn roll(&self) -> [usize; 2] {
        if self.rolled { self.grid.window.map(|side| side / 2) } else { [0; 2] }
    }

    /// The maps of anchors.
    fn anchors(&self) -> Grid {
        let [height, width] = [self.grid.height, self.grid.width].map(|size| size / self.side);
        Grid { batch: self.grid.batch, height, width, window: self.grid.window.map(|side| side / self.side) }
    }

    /// Attention through anchors: rows of pixels in the order [`Stripes::order`] → the same. `anchors` `[batch, width
    /// of rows, height / side, width / side]`. Parameters: those of `attn_transform1` and `attn_transform2`.
    pub fn attention(&self, w: &Scope<'_>, [q, k, v]: [&Value; 3], anchors: &Value, sizes: CosineHeads) -> Value {
        let (small, roll) = (self.anchors(), self.roll());
        let small_roll = roll.map(|by| by / self.side);
        let anchors = small.reorder(&small.tokens(anchors), Order::Raster, Order::Windows(small_roll));
        let [areas, pixels] = [small.window, self.grid.window];
        let split =
            |x: &Value, [height, across]: [usize; 2]| x.reshape(&[-1, (height * across) as i64, width(x) as i64]);
        let [q, k] = [q, k].map(|x| split(&directions(x, sizes.heads), pixels));
        let (v, anchors) = (split(v, pixels), split(&directions(&anchors, sizes.heads), areas));
        let follows = |[map, top, left]: [usize; 3]| {
            let corner = [map, top / self.side, left / self.side];
            (self.grid.follows([map, top, left], roll, 1), small.follows(corner, small_roll, 1))
        };
        let attend = |name: &str, parts: &[Value; 3], windows, mask: &dyn Fn([usize; 3]) -> Vec<f32>| {
            let w = w.at(name);
            let (factor, bias) = (factor(&w, sizes.heads), position_bias(&w, windows, sizes));
            let scores = Scores { heads: sizes.heads, bias: &bias, factor: Some(&factor) };
            self.grid.masked_attention(parts, roll, scores, mask)
        };
        let gathered = attend("attn_transform1", &[anchors.clone(), k, v], [areas, pixels], &|window| {
            let (of_pixels, of_anchors) = follows(window);
            mask(&of_anchors, &of_pixels)
        });
        let parts = [q, anchors, split(&gathered, areas)];
        attend("attn_transform2", &parts, [pixels, areas], &|window| {
            let (of_pixels, of_anchors) = follows(window);
            mask(&of_pixels, &of_anchors)
        })
    }
}

/// The directions of a head's vectors in rows.
fn directions(x: &Value, heads: usize) -> Value {
    let each = (width(x) / heads.max(1)) as i64;
    unit(&x.reshape(&[-1, each])).reshape(&[-1, width(x) as i64])
}

/// The factor of cosines for each head.
fn factor(w: &Scope<'_>, heads: usize) -> Value {
    let dims = [heads, 1, 1];
    w.each_number(("logit_scale", "logit_scale"), &dims, &dims, |logit| logit.min(MOST.ln()).exp())
}

/// The biases of the scores between places in two windows of the same or another size, `[1, heads, queries, keys]`.
///
/// A row of the table is for a distance in each direction. As upstream, an anchor's place counts as if it were a
/// pixel's. Windows are so large that the runtime gathers their biases from the table, once, when it loads the graph:
/// all blocks share the indices, and the file holds the table alone.
fn position_bias(w: &Scope<'_>, [queries, keys]: [[usize; 2]; 2], sizes: CosineHeads) -> Value {
    let larger = [0, 1].map(|axis| queries[axis].max(keys[axis]) as i64);
    let smaller = [0, 1].map(|axis| queries[axis].min(keys[axis]) as i64);
    // The distances of the centres of an anchor and of a pixel, where the windows lie about the same centre.
    let range = |axis: usize| {
        let border = (larger[axis] - smaller[axis]) / 2;
        (1 - smaller[axis] - border, larger[axis] - 1 - border)
    };
    let scaled = |distance: i64, axis: usize| {
        let distance = 8.0 * distance as f64 / range(axis).1 as f64;
        (distance.abs() + 1.0).log2() / 3.0 * distance.signum()
    };
    let mut distances = Vec::new();
    for y in range(0).0..=range(0).1 {
        for x in range(1).0..=range(1).1 {
            distances.extend([scaled(y, 0), scaled(x, 1)]);
        }
    }
    let transposed = |table: Weight| table.transposed(&[1, 0]);
    let table = continuous_biases(w, &distances, sizes.positions, sizes.heads).and_then(transposed);
    let table = w.made("bias", table);
    let columns = queries[1] + keys[1] - 1;
    let places = |[height, width]: [usize; 2]| (0..height * width).map(move |i| [i / width, i % width]);
    let row = |query: [usize; 2], key: [usize; 2]| {
        let at = |axis: usize| query[axis] + keys[axis] - 1 - key[axis];
        (at(0) * columns + at(1)) as i64
    };
    let rows: Vec<i64> = places(queries).flat_map(|query| places(keys).map(move |key| row(query, key))).collect();
    let (queries, keys) = (queries[0] * queries[1], keys[0] * keys[1]);
    table.gather(&rows, 1).reshape(&[1, sizes.heads as i64, queries as i64, keys as i64])
}
