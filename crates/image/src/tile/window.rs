//! The weight of each tile at each output pixel, along one axis.
//!
//! Weights are separable: a tile's weight at a pixel is the product of its weights along both
//! axes. Along each axis the weights of all tiles sum to one at every pixel.

use std::f64::consts::FRAC_PI_2;
use std::str::FromStr;

use serde::Serialize;

use super::plan::Axis;

/// The curve by which one tile fades into the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Blend {
    /// Squared sine: smooth at both ends.
    #[default]
    Hann,
    /// Sine, normalised: steeper at its outer end.
    Cosine,
    /// A straight line.
    Linear,
    /// A hard cut in the middle of the overlap.
    None,
}

impl FromStr for Blend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "hann" => Ok(Self::Hann),
            "cosine" => Ok(Self::Cosine),
            "linear" => Ok(Self::Linear),
            "none" => Ok(Self::None),
            _ => Err(format!("expected hann, cosine, linear or none, found \"{text}\"")),
        }
    }
}

impl Blend {
    /// The rise from 0 to 1 while `at` goes from `from` to `to`.
    fn rise(self, from: f64, to: f64, at: f64) -> f64 {
        if self == Self::None || to <= from {
            return if at >= (from + to) / 2.0 { 1.0 } else { 0.0 };
        }
        let t = ((at - from) / (to - from)).clamp(0.0, 1.0);
        match self {
            Self::Hann => (t * FRAC_PI_2).sin().powi(2),
            Self::Cosine => (t * FRAC_PI_2).sin(),
            Self::Linear | Self::None => t,
        }
    }
}

impl Axis {
    /// The weights of tile `index`, one for each output pixel from `start · scale` to `end · scale`.
    pub fn window(&self, index: u32, scale: u32, blend: Blend) -> Vec<f32> {
        let pixels = self.start(index) * scale..self.end(index) * scale;
        if self.count() == 1 {
            return vec![1.0; pixels.len()];
        }
        pixels
            .map(|pixel| {
                let at = (f64::from(pixel) + 0.5) / f64::from(scale);
                let own = self.weight(index, blend, at);
                if own == 0.0 { 0.0 } else { (own / self.sum(index, blend, at)) as f32 }
            })
            .collect()
    }

    /// The weight before the division by the sum: zero in the margins, full at the picture's edges.
    fn weight(&self, index: u32, blend: Blend, at: f64) -> f64 {
        let from_left = if index == 0 { 1.0 } else { self.handover(index, blend, at) };
        let to_right = if index + 1 == self.count() { 1.0 } else { self.handover_back(index + 1, blend, at) };
        from_left * to_right
    }

    /// How far tile `index` has taken over from the previous tile.
    fn handover(&self, index: u32, blend: Blend, at: f64) -> f64 {
        let (from, to) = self.handover_zone(index);
        blend.rise(from, to, at)
    }

    /// How much of the previous tile is left: the mirror image of [`Axis::handover`].
    fn handover_back(&self, index: u32, blend: Blend, at: f64) -> f64 {
        let (from, to) = self.handover_zone(index);
        if blend == Blend::None || to <= from { 1.0 - blend.rise(from, to, at) } else { blend.rise(-to, -from, -at) }
    }

    fn handover_zone(&self, index: u32) -> (f64, f64) {
        let margin = f64::from(self.margin());
        (f64::from(self.start(index)) + margin, f64::from(self.end(index - 1)) - margin)
    }

    /// The sum of the weights at `at` of all tiles that cover it, tile `index` included.
    fn sum(&self, index: u32, blend: Blend, at: f64) -> f64 {
        let before = (0..index).rev().take_while(|&other| f64::from(self.end(other)) > at);
        let after = (index..self.count()).take_while(|&other| f64::from(self.start(other)) <= at);
        before.chain(after).map(|other| self.weight(other, blend, at)).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::plan::{Overlap, TilePlan};
    use super::*;
    use crate::Size;

    const BLENDS: [Blend; 4] = [Blend::Hann, Blend::Cosine, Blend::Linear, Blend::None];

    fn axis(length: u32, tile: u32, pixels: u32, margin: u32) -> Axis {
        let pixels = pixels.min(tile - 1);
        let overlap = Overlap { pixels, margin: margin.min(pixels / 2) };
        let size = |length| Size { width: length, height: length };
        *TilePlan::new(size(length), size(tile), overlap, 1, None).unwrap().columns()
    }

    #[test]
    fn a_hard_cut_lies_in_the_middle() {
        let axis = axis(14, 8, 2, 0);
        assert_eq!(axis.window(0, 1, Blend::None), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
        assert_eq!(axis.window(1, 1, Blend::None), [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn every_curve_has_a_name_and_its_own_rise() {
        let axis = axis(8, 6, 4, 0);
        // At an eighth, three eighths, … of the overlap; cosine over the sum with its mirror image.
        for (name, blend, rise) in [
            ("hann", Blend::Hann, [0.038_06, 0.308_66]),
            ("cosine", Blend::Cosine, [0.165_91, 0.400_54]),
            ("linear", Blend::Linear, [0.125, 0.375]),
            ("none", Blend::None, [0.0, 0.0]),
        ] {
            assert_eq!(name.parse(), Ok(blend));
            let [outer, inner] = rise;
            let expected = [outer, inner, 1.0 - inner, 1.0 - outer, 1.0, 1.0];
            for (found, expected) in axis.window(1, 1, blend).iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4, "{name}: {found}, {expected}");
            }
        }
        assert!("sinc".parse::<Blend>().unwrap_err().contains("found \"sinc\""));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn weights_sum_to_one_everywhere_and_vanish_in_the_margins(
            length in 1_u32..2000, tile in 1_u32..300, pixels in 0_u32..299, margin in 0_u32..150,
            scale in 1_u32..5, blend in proptest::sample::select(&BLENDS[..]),
        ) {
            // Smaller cases cover tiles that move by one pixel; here such tiles are slow.
            let axis = axis(length, tile, pixels.min(tile * 9 / 10), margin);
            let mut sums = vec![0.0_f64; (length * scale) as usize];
            for index in 0..axis.count() {
                let window = axis.window(index, scale, blend);
                let first = axis.start(index) * scale;
                prop_assert_eq!(window.len() as u32, (axis.end(index) - axis.start(index)) * scale);
                prop_assert!(window.iter().any(|&weight| weight > 0.0));
                for (offset, &weight) in window.iter().enumerate() {
                    prop_assert!((0.0..=1.0).contains(&weight));
                    prop_assert!(blend != Blend::None || weight == 0.0 || weight == 1.0);
                    sums[first as usize + offset] += f64::from(weight);
                }
                let cut = (axis.margin() * scale) as usize;
                if index > 0 {
                    prop_assert!(window[..cut].iter().all(|&weight| weight == 0.0));
                }
                if index + 1 < axis.count() {
                    prop_assert!(window[window.len() - cut..].iter().all(|&weight| weight == 0.0));
                }
            }
            for (pixel, sum) in sums.iter().enumerate() {
                prop_assert!((sum - 1.0).abs() < 1e-5, "pixel {pixel}: {sum}");
            }
        }
    }
}
