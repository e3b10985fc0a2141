//! The operators that a runtime brings kernels for.

/// The domain of these operators.
pub const OWN_DOMAIN: &str = "tileforge";

/// The operator that computes a 3×3 convolution with a stride of 1, and an activation.
///
/// | input | shape | |
/// |---|---|---|
/// | values | N×C×H×W | |
/// | weights | K×C×3×3 | a weight of the graph |
/// | bias | K | optional |
/// | slope | K values, or one | optional: what negative results are multiplied by |
/// | rise | K values, or one | optional: results that are not negative are multiplied by it and the slope's sum |
/// | more values | N×C×H×W each | any number: channels behind those of the first input |
///
/// | attribute | |
/// |---|---|
/// | pads | rows above, columns before, rows below, columns after |
/// | slope | what negative results are multiplied by, where there is no such input |
pub struct Convolution3x3;

impl Convolution3x3 {
    /// Its name.
    pub const NAME: &str = "Convolution3x3";
    /// The inputs before those that any number of may follow. A node names all of them; empty: left out.
    pub const FIXED_INPUTS: usize = 5;
    /// The most rows or columns of zeros on a side.
    pub const MOST_PADS: usize = 2;
}

/// The operator that computes attention of several heads: `softmax(scale · q · kᵀ + biases) · v`.
///
/// | input | shape | |
/// |---|---|---|
/// | q | B×N×(H·D), or B×N×H×D | queries |
/// | k | B×M×(H·D), or B×M×H×D | keys |
/// | v | B×M×(H·E), or B×M×H×E | values |
/// | biases | B×H×N×M each | any number; any length but the last may be 1, and the first ones may be left out |
///
/// The results are B×N×(H·E), or B×N×H×E.
///
/// | attribute | |
/// |---|---|
/// | heads | H |
/// | scale | a number; 1/√D if there is none |
pub struct Attention;

impl Attention {
    /// Its name.
    pub const NAME: &str = "Attention";
    /// The inputs before the biases.
    pub const FIXED_INPUTS: usize = 3;
}
