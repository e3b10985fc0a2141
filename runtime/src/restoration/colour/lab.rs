//! CIELAB of D65, and back.

use super::histogram::match_ranks;
use crate::pixels::Pixels;

/// Linear red, green and blue of sRGB to XYZ.
const TO_XYZ: [[f32; 3]; 3] = [
    [0.412_456_4, 0.357_576_1, 0.180_437_5],
    [0.212_672_9, 0.715_152_2, 0.072_175],
    [0.019_333_9, 0.119_192, 0.950_304_1],
];
/// XYZ to linear red, green and blue.
const FROM_XYZ: [[f32; 3]; 3] = [
    [3.240_454_2, -1.537_138_5, -0.498_531_4],
    [-0.969_266, 1.876_010_8, 0.041_556],
    [0.055_643_4, -0.204_025_9, 1.057_225_2],
];
/// XYZ of D65.
const WHITE: [f32; 3] = [0.950_47, 1.0, 1.088_83];
/// The cube root at which CIELAB's curve becomes a line.
const BEND: f32 = 6.0 / 29.0;
/// The slope of the line, times 116.
const SLOPE: f32 = (29.0 * 29.0 * 29.0) / (3.0 * 3.0 * 3.0);
/// How much of its own lightness a pixel keeps.
const OWN_LIGHTNESS: f32 = 0.8;

/// Matches the colour distribution of all frames together to `like`, and a part of the lightness distribution.
pub(super) fn match_distribution(frames: &mut [Pixels], like: &[Pixels]) {
    let mut own = planes(frames);
    let [lightness, of_a, of_b] = own.each_mut();
    let [wanted_lightness, wanted_a, wanted_b] = planes(like);
    match_ranks(of_a, wanted_a);
    match_ranks(of_b, wanted_b);
    let mut matched = lightness.clone();
    match_ranks(&mut matched, wanted_lightness);
    for (value, matched) in lightness.iter_mut().zip(matched) {
        *value = *value * OWN_LIGHTNESS + matched * (1.0 - OWN_LIGHTNESS);
    }
    let pixels = frames.iter_mut().flat_map(|frame| frame.samples.as_chunks_mut::<3>().0);
    let [lightness, of_a, of_b] = &own;
    for (((pixel, lightness), a), b) in pixels.zip(lightness).zip(of_a).zip(of_b) {
        *pixel = from_lab([*lightness, *a, *b]);
    }
}

/// Lightness, a and b of all pixels of some pictures.
fn planes(frames: &[Pixels]) -> [Vec<f32>; 3] {
    let mut planes: [Vec<f32>; 3] = Default::default();
    for pixel in frames.iter().flat_map(|frame| frame.samples.as_chunks::<3>().0) {
        for (plane, value) in planes.iter_mut().zip(to_lab(*pixel)) {
            plane.push(value);
        }
    }
    planes
}

fn product(matrix: &[[f32; 3]; 3], vector: [f32; 3]) -> [f32; 3] {
    matrix.map(|row| row.iter().zip(vector).map(|(factor, value)| factor * value).sum())
}

fn to_lab(pixel: [f32; 3]) -> [f32; 3] {
    let linear = pixel.map(|value| {
        let value = value.clamp(0.0, 1.0);
        if value > 0.040_45 { ((value + 0.055) / 1.055).powf(2.4) } else { value / 12.92 }
    });
    let xyz = product(&TO_XYZ, linear);
    let [x, y, z] = std::array::from_fn(|axis| {
        let share = xyz[axis] / WHITE[axis];
        if share > BEND.powi(3) { share.cbrt() } else { (share * SLOPE + 16.0) / 116.0 }
    });
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn from_lab([lightness, a, b]: [f32; 3]) -> [f32; 3] {
    let y = (lightness + 16.0) / 116.0;
    let roots = [a / 500.0 + y, y, y - b / 200.0];
    let xyz = std::array::from_fn(|axis| {
        let root = roots[axis];
        WHITE[axis] * if root > BEND { root.powi(3) } else { (116.0 * root - 16.0) / SLOPE }
    });
    product(&FROM_XYZ, xyz).map(|value| {
        let value = if value > 0.003_130_8 { value.powf(1.0 / 2.4) * 1.055 - 0.055 } else { value * 12.92 };
        value.clamp(0.0, 1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_come_back() {
        for pixel in [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.01, 0.5, 0.9], [0.8, 0.03, 0.2]] {
            let back = from_lab(to_lab(pixel));
            assert!(pixel.iter().zip(back).all(|(one, other)| (one - other).abs() < 1e-5), "{pixel:?} {back:?}");
        }
        // As any table of CIELAB has it.
        let [lightness, a, b] = to_lab([1.0, 0.0, 0.0]);
        assert!((lightness - 53.24).abs() < 0.01 && (a - 80.09).abs() < 0.02 && (b - 67.2).abs() < 0.02);
    }
}
