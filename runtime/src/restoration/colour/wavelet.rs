//! Details of one picture over the broad colours of another.

use crate::pixels::Pixels;

/// How far each blur reaches, in pixels.
const RADII: [usize; 5] = [1, 2, 4, 8, 16];
/// No blur reaches farther than this part of the shorter side.
const LARGEST_PART: usize = 8;

/// Replaces the low frequencies of a picture by those of another picture of the same size.
pub(super) fn over_colours(frame: &mut Pixels, colours: &Pixels) {
    let (own, wanted) = (blurred(frame), blurred(colours));
    for ((value, own), wanted) in frame.samples.iter_mut().zip(own).zip(wanted) {
        *value = (*value - own + wanted).clamp(0.0, 1.0);
    }
}

/// A picture blurred repeatedly, each time with wider gaps between the pixels of the kernel.
fn blurred(frame: &Pixels) -> Vec<f32> {
    let (width, height) = (frame.size.width as usize, frame.size.height as usize);
    let largest = (width.min(height) / LARGEST_PART).max(1);
    let mut samples = frame.samples.clone();
    let mut between = vec![0.0; samples.len()];
    let row = width * frame.channels;
    for radius in RADII.map(|radius| radius.min(largest)) {
        for (line, into) in samples.chunks_exact(row).zip(between.chunks_exact_mut(row)) {
            for (x, into) in into.chunks_exact_mut(frame.channels).enumerate() {
                let (before, after) = (x.saturating_sub(radius), (x + radius).min(width - 1));
                for (channel, into) in into.iter_mut().enumerate() {
                    let at = |x: usize| line[x * frame.channels + channel];
                    *into = weighted(at(before), at(x), at(after));
                }
            }
        }
        for (y, into) in samples.chunks_exact_mut(row).enumerate() {
            let line = |y: usize| &between[y * row..][..row];
            let lines = [y.saturating_sub(radius), y, (y + radius).min(height - 1)].map(line);
            for (((into, before), own), after) in into.iter_mut().zip(lines[0]).zip(lines[1]).zip(lines[2]) {
                *into = weighted(*before, *own, *after);
            }
        }
    }
    samples
}

/// Binomial weights: 1, 2, 1.
fn weighted(before: f32, own: f32, after: f32) -> f32 {
    0.25 * before + 0.5 * own + 0.25 * after
}

#[cfg(test)]
mod tests {
    use tileforge_image::Size;

    use super::*;

    fn picture(value: impl Fn(usize) -> f32) -> Pixels {
        let size = Size { width: 24, height: 17 };
        Pixels { size, channels: 3, samples: (0..24 * 17 * 3).map(value).collect() }
    }

    #[test]
    fn plain_colours_are_taken_over_and_details_stay() {
        let detail = |at: usize| if (at / 3).is_multiple_of(2) { 0.02 } else { -0.02 };
        let mut frame = picture(|at| 0.5 + detail(at));
        over_colours(&mut frame, &picture(|at| [0.2, 0.4, 0.6][at % 3]));
        for (at, value) in frame.samples.iter().enumerate() {
            let expected = [0.2, 0.4, 0.6][at % 3];
            assert!((value - expected).abs() < 0.035, "{value} for {expected}");
            assert_eq!(*value > expected, detail(at) > 0.0, "{at}");
        }
    }
}
