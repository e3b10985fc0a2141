//! Hue, saturation and value, and saturation by hue.

use super::histogram::match_ranks;
use crate::pixels::Pixels;

/// Parts of the hue circle.
const HUES: usize = 12;
/// A part is matched only if both pictures have more pixels than this in it.
const FEW: usize = 100;
/// Saturation or value up to this counts as grey or black.
const NOTHING: f32 = 1e-10;
/// How much saturation may grow.
const GROWTH: f32 = 0.15;
/// The steepness of the weight by the growth of saturation.
const SHARPNESS: f32 = 5.0;

/// Hue, saturation and value, each from 0 to 1.
fn to_hsv(pixel: [f32; 3]) -> [f32; 3] {
    let [red, green, blue] = pixel.map(|value| value.clamp(0.0, 1.0));
    let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
    let range = most - least;
    let hue = if range <= NOTHING {
        0.0
    } else if most == blue {
        (red - green) / range + 4.0
    } else if most == green {
        (blue - red) / range + 2.0
    } else {
        ((green - blue) / range).rem_euclid(6.0)
    };
    [hue / 6.0, saturation(most, range), most]
}

fn saturation(most: f32, range: f32) -> f32 {
    if most > NOTHING { range / most } else { 0.0 }
}

fn from_hsv([hue, saturation, value]: [f32; 3]) -> [f32; 3] {
    let hue = hue * 6.0;
    let part = hue - hue.floor();
    let low = value * (1.0 - saturation);
    let falling = value * (1.0 - saturation * part);
    let rising = value * (1.0 - saturation * (1.0 - part));
    match hue.floor() as usize % 6 {
        0 => [value, rising, low],
        1 => [falling, value, low],
        2 => [low, value, rising],
        3 => [low, falling, value],
        4 => [rising, low, value],
        _ => [value, low, falling],
    }
}

/// The hue at which a part begins, as exact as f32 allows: pixels with two channels at their limits lie exactly there.
fn beginning(part: usize) -> f32 {
    (part as f64 / HUES as f64) as f32
}

/// The parts that a hue belongs to. A hue in the last part, which is red, also belongs to the first part.
fn parts(hue: f32) -> impl Iterator<Item = usize> {
    let is_red = hue >= beginning(HUES - 1);
    let own = (0..HUES).find(|part| hue >= beginning(*part) && hue < beginning(*part + 1));
    is_red.then_some(0).into_iter().chain(own.filter(move |own| !(is_red && *own == 0)))
}

fn hsv_of(frames: &[Pixels]) -> Vec<[f32; 3]> {
    frames.iter().flat_map(|frame| frame.samples.as_chunks::<3>().0).map(|pixel| to_hsv(*pixel)).collect()
}

/// Matches the saturation distribution of all frames together to `like`, for each part of the hues.
pub(super) fn match_by_hue(frames: &mut [Pixels], like: &[Pixels]) {
    let own = hsv_of(frames);
    let wanted = hsv_of(like);
    let grouped = |pixels: &[[f32; 3]]| {
        let mut groups: [Vec<usize>; HUES] = Default::default();
        for (at, [hue, ..]) in pixels.iter().enumerate() {
            parts(*hue).for_each(|part| groups[part].push(at));
        }
        groups
    };
    let mut matched: Vec<f32> = own.iter().map(|[_, saturation, _]| *saturation).collect();
    for (own_group, wanted_group) in grouped(&own).into_iter().zip(grouped(&wanted)) {
        if own_group.len() <= FEW || wanted_group.len() <= FEW {
            continue;
        }
        let mut values: Vec<f32> = own_group.iter().map(|at| own[*at][1]).collect();
        match_ranks(&mut values, wanted_group.iter().map(|at| wanted[*at][1]).collect());
        own_group.into_iter().zip(values).for_each(|(at, value)| matched[at] = value);
    }
    let pixels = frames.iter_mut().flat_map(|frame| frame.samples.as_chunks_mut::<3>().0);
    for ((pixel, [hue, _, value]), saturation) in pixels.zip(own).zip(matched) {
        *pixel = from_hsv([hue, saturation, value]).map(|value| value.clamp(0.0, 1.0));
    }
}

/// Replaces `frame` by `broad`, but by `saturated` where the frame's saturation grew much over `like`'s and is still
/// too large in `broad`.
pub(super) fn tame(frame: &mut Pixels, like: &Pixels, broad: Pixels, saturated: &Pixels) {
    let saturation = |pixel: &[f32; 3]| to_hsv(*pixel)[1];
    let others = like.samples.as_chunks::<3>().0.iter().zip(saturated.samples.as_chunks::<3>().0);
    let pixels = frame.samples.as_chunks_mut::<3>().0.iter_mut().zip(broad.samples.as_chunks::<3>().0);
    for ((pixel, broad), (like, saturated)) in pixels.zip(others) {
        let wanted = saturation(like);
        let grown = saturation(pixel) - wanted;
        let is_left = saturation(broad) - wanted > GROWTH / 2.0;
        let weight = if is_left { 1.0 / (1.0 + (-SHARPNESS * (grown - GROWTH)).exp()) } else { 0.0 };
        *pixel = std::array::from_fn(|channel| broad[channel] * (1.0 - weight) + saturated[channel] * weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_come_back_and_red_is_one_part() {
        for pixel in [[0.2, 0.4, 0.9], [0.9, 0.1, 0.2], [0.5, 0.5, 0.5], [0.0, 0.0, 0.0], [0.3, 0.9, 0.3]] {
            let back = from_hsv(to_hsv(pixel));
            assert!(pixel.iter().zip(back).all(|(one, other)| (one - other).abs() < 1e-6), "{pixel:?} {back:?}");
        }
        assert_eq!(parts(0.01).collect::<Vec<_>>(), [0]);
        assert_eq!(parts(0.99).collect::<Vec<_>>(), [0, 11]);
        for (pixel, part) in [([1.0, 1.0, 0.3], 2), ([0.3, 1.0, 1.0], 6), ([1.0, 0.3, 1.0], 10)] {
            assert_eq!(parts(to_hsv(pixel)[0]).collect::<Vec<_>>(), [part], "{pixel:?}");
        }
    }
}
