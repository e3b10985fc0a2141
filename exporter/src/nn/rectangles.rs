//! Attention in vertical and horizontal rectangles (CAT, <https://arxiv.org/abs/2211.13654>), as in DAT, RGT and
//! CRAFT.
//!
//! One half of the channels attends in windows of `[height, width]`, the other half in windows of `[width, height]`. A
//! token of either half is a row of half the width, so both halves are gathered from the same rows.

use super::{Grid, LAYER_NORM_EPSILON, Order, Scope, Scores, width};
use tileforge_graph::{Constant, DataType, Value, Weight};

/// The sizes of feature maps whose pixels are tokens in raster order, and of the first half's windows.
#[derive(Debug, Clone, Copy)]
pub struct Rectangles {
    /// Number of maps.
    pub batch: usize,
    /// Height of each. A border of zeros extends it to a multiple of the window's longer side.
    pub height: usize,
    /// Width of each, extended as the height.
    pub width: usize,
    /// Height and width of the first half's windows.
    pub window: [usize; 2],
    /// Whether pixels that only a roll made neighbours attend to each other, as in CRAFT.
    pub unmasked: bool,
}

/// Whether a block rolls its windows, by half of their sides. Every fourth block does, so that the rolled blocks of
/// neighbouring groups alternate.
pub fn is_rolled(group: usize, block: usize) -> bool {
    if group.is_multiple_of(2) { block % 4 == 2 } else { block.is_multiple_of(4) }
}

impl Rectangles {
    /// Queries, keys and values, rows in raster order, → rows in raster order. Each half of the channels has `heads`
    /// heads. Parameters: `0.pos` and `1.pos`, see `dynamic_position_bias`.
    pub fn attention(&self, w: &Scope<'_>, rows: &[Value; 3], heads: usize, rolled: bool) -> Value {
        let half = width(&rows[0]) / 2;
        let halves = rows.each_ref().map(|x| self.with_border(&x.reshape(&[-1, half as i64])));
        let attended: Vec<Value> = (0..2).map(|number| self.half(w, &halves, heads, rolled, number)).collect();
        // The reverse: a pixel's first half, then its second one.
        let places: Vec<Vec<usize>> = (0..2).map(|number| self.places_of_pixels(rolled, number)).collect();
        let all = self.batch * self.extended()[0] * self.extended()[1];
        let indices: Vec<i64> = places[0]
            .iter()
            .zip(&places[1])
            .flat_map(|(first, second)| [*first, all + second])
            .map(|i| i as i64)
            .collect();
        attended[0].concat(&[&attended[1]], 0).gather(&indices, 0).reshape(&[-1, 2 * half as i64])
    }

    fn half(&self, w: &Scope<'_>, halves: &[Value; 3], heads: usize, rolled: bool, number: usize) -> Value {
        let (grid, roll) = (self.grid(number), self.roll(rolled, number));
        let pixels = grid.order(Order::Windows(roll));
        let beyond = 2 * self.batch * self.height * self.width;
        let row = |pixel: usize| self.inside(pixel).map_or(beyond, |pixel| 2 * pixel + number) as i64;
        let indices: Vec<i64> = pixels.into_iter().map(row).collect();
        let [q, k, v] = halves.each_ref().map(|x| x.gather(&indices, 0));
        let bias = dynamic_position_bias(&w.at(format!("{number}.pos")), &grid, width(&q), heads);
        // The rows already have the rolled order; the attention needs the roll only for its masks.
        let masked = if self.unmasked { [0; 2] } else { roll };
        grid.attention_of([&q, &k, &v], masked, Scores { heads, bias: &bias, factor: None })
    }

    /// The rows, and if there is a border, one more row of zeros for all of its pixels.
    fn with_border(&self, rows: &Value) -> Value {
        if self.extended() == [self.height, self.width] {
            return rows.clone();
        }
        let zeros = rows.trace().constant("beyond", &[1, width(rows)], Constant::F32(&vec![0.0; width(rows)]));
        rows.concat(&[&zeros], 0)
    }

    /// Height and width with the border.
    fn extended(&self) -> [usize; 2] {
        let multiple = self.window[0].max(self.window[1]);
        [self.height, self.width].map(|size| size.next_multiple_of(multiple))
    }

    /// The extended maps, cut into the windows of one half.
    fn grid(&self, number: usize) -> Grid {
        let ([height, width], [first, second]) = (self.extended(), self.window);
        let window = if number == 0 { [first, second] } else { [second, first] };
        Grid { batch: self.batch, height, width, window }
    }

    fn roll(&self, rolled: bool, number: usize) -> [usize; 2] {
        if rolled { self.grid(number).window.map(|side| side / 2) } else { [0; 2] }
    }

    /// The number of a pixel of the extended maps in the maps themselves, or `None` in the border.
    fn inside(&self, pixel: usize) -> Option<usize> {
        let [height, width] = self.extended();
        let (map, y, x) = (pixel / (height * width), pixel / width % height, pixel % width);
        (y < self.height && x < self.width).then(|| (map * self.height + y) * self.width + x)
    }

    /// Where the windows of one half hold each pixel of the maps.
    fn places_of_pixels(&self, rolled: bool, number: usize) -> Vec<usize> {
        let mut places = vec![0; self.batch * self.height * self.width];
        let order = self.grid(number).order(Order::Windows(self.roll(rolled, number)));
        for (place, pixel) in order.into_iter().enumerate() {
            if let Some(pixel) = self.inside(pixel) {
                places[pixel] = place;
            }
        }
        places
    }
}

/// The biases of the scores in a window, from a small network of the distance of two pixels (CrossFormer,
/// <https://arxiv.org/abs/2108.00154>), which is computed when the weights are written. Parameters: `pos_proj` and
/// three layers `pos1` to `pos3` of a normalisation, ReLU and a linear layer. Their width is a sixteenth of `width`,
/// rounded down twice.
fn dynamic_position_bias(w: &Scope<'_>, grid: &Grid, width: usize, heads: usize) -> Value {
    let bias = distances(w, grid.window, width / 4 / 4, heads).and_then(|table| grid.position_bias_of(&table));
    w.made("bias", bias)
}

/// A table of biases `[distances, heads]`.
fn distances(w: &Scope<'_>, window: [usize; 2], hidden: usize, heads: usize) -> tileforge_graph::Result<Weight> {
    let numbers = |w: &Scope<'_>, name: &str, dims: &[usize]| {
        Ok::<_, tileforge_graph::Error>(w.stored(name, dims)?.to_f32s()?.into_iter().map(f64::from).collect::<Vec<_>>())
    };
    let linear = |name: &str, inputs: usize, outputs: usize| {
        let w = w.at(name);
        Ok::<_, tileforge_graph::Error>((numbers(&w, "weight", &[outputs, inputs])?, numbers(&w, "bias", &[outputs])?))
    };
    let first = linear("pos_proj", 2, hidden)?;
    let mut layers = Vec::new();
    for (number, outputs) in [(1, hidden), (2, hidden), (3, heads)] {
        let norm = w.at(format!("pos{number}.0"));
        let norm = (numbers(&norm, "weight", &[hidden])?, numbers(&norm, "bias", &[hidden])?);
        layers.push((norm, linear(&format!("pos{number}.2"), hidden, outputs)?));
    }
    let [height, width] = window.map(|side| side as i64);
    let mut table = Vec::new();
    for y in 1 - height..height {
        for x in 1 - width..width {
            let mut values = product(&first, &[y as f64, x as f64]);
            for ((scale, shift), layer) in &layers {
                values = product(layer, &normalised(&values, scale, shift));
            }
            table.extend(values.into_iter().flat_map(|value| (value as f32).to_le_bytes()));
        }
    }
    let distances = (2 * window[0] - 1) * (2 * window[1] - 1);
    Weight::from_bytes(DataType::F32, vec![distances, heads], table)
}

/// A linear layer of one token.
fn product((weight, bias): &(Vec<f64>, Vec<f64>), x: &[f64]) -> Vec<f64> {
    let rows = weight.chunks(x.len().max(1)).zip(bias);
    rows.map(|(row, bias)| row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>() + bias).collect()
}

/// LayerNorm and ReLU of one token.
fn normalised(x: &[f64], scale: &[f64], shift: &[f64]) -> Vec<f64> {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64;
    let deviation = (variance + f64::from(LAYER_NORM_EPSILON)).sqrt();
    let each = x.iter().zip(scale).zip(shift);
    each.map(|((x, scale), shift)| ((x - mean) / deviation * scale + shift).max(0.0)).collect()
}
