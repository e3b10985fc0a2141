//! Generated pictures, always the same: an image with a little of everything that photos contain, and any number of
//! pictures with the statistics of photos.

use std::f32::consts::TAU;
use tileforge_exporter::Noise;

/// An image `[1, channels, height, width]` with values in `range`: gradients, waves of every length, hard edges, and
/// noise.
pub(crate) fn test_image([channels, height, width]: [usize; 3], range: [f32; 2]) -> Vec<f32> {
    let mut noise = Noise::new(0);
    let mut image = Vec::with_capacity(channels * height * width);
    for channel in 0..channels {
        for y in 0..height {
            for x in 0..width {
                let (u, v) = (x as f32 / width as f32, y as f32 / height as f32);
                let slope = 0.5 * u + 0.3 * v + 0.1 * channel as f32;
                // Wavelengths from the whole tile to a few pixels.
                let waves = (TAU * (2.0 + channel as f32) * u).sin() * (TAU * 24.0 * v * v).sin();
                let edge = if (x / 11 + y / 17).is_multiple_of(2) { 0.25 } else { 0.0 };
                let value = (0.6 * slope + 0.15 * waves + edge + 0.08 * noise.next_signed()).clamp(0.0, 1.0);
                image.push(range[0] + value * (range[1] - range[0]));
            }
        }
    }
    image
}

/// Radius of the smallest disc of [`discs`], in pixels.
const SMALLEST: f32 = 1.5;
/// A pixel is finished when at most this share of it is uncovered.
const OPEN: f32 = 1.0 / 64.0;

/// A picture `[channels, height, width]` with values in `range`: discs that cover each other, as objects do in photos.
///
/// Edges, flat parts and contrasts at every scale are as frequent as in photos, because the number of discs falls with
/// the third power of their radius (Lee, Mumford and Huang, <https://doi.org/10.1023/A:1011109015675>). Some discs are
/// out of focus, shaded or grained. Each `number` gives a different picture.
pub(crate) fn discs([channels, height, width]: [usize; 3], range: [f32; 2], number: u64) -> Vec<f32> {
    let mut noise = Noise::new(number);
    let plane = height * width;
    let (rows, columns) = (height as f32, width as f32);
    let largest = (rows.max(columns) / 4.0).max(SMALLEST);
    // From front to back: the share of a pixel that is still uncovered, and the colour of the covered share.
    let (mut open, mut seen) = (vec![1.0_f32; plane], vec![0.0_f32; channels * plane]);
    let mut undone = plane;
    let mut colour = vec![0.0; channels];
    while undone > 0 {
        let mut between = |low: f32, high: f32| low + (noise.next_signed() * 0.5 + 0.5) * (high - low);
        let radius = SMALLEST / (1.0 - between(0.0, 1.0) * (1.0 - (SMALLEST / largest).powi(2))).sqrt();
        let blur = 1.0 + radius * between(0.0, 1.0).powi(4);
        let (x, y) = (between(-largest, columns + largest), between(-largest, rows + largest));
        // Channels differ less than discs.
        let light = between(0.0, 1.0);
        colour.fill_with(|| light + between(-0.15, 0.15));
        let (across, down) = (between(-0.15, 0.15), between(-0.15, 0.15));
        let grain = 0.1 * between(0.0, 1.0).powi(2);
        let reach = radius + blur;
        let within = |at: f32, length: usize| (at.max(0.0) as usize).min(length);
        for row in within(y - reach, height)..within(y + reach + 1.0, height) {
            for column in within(x - reach, width)..within(x + reach + 1.0, width) {
                let (right, below) = (column as f32 - x, row as f32 - y);
                let covers = ((radius - (right * right + below * below).sqrt()) / blur + 0.5).clamp(0.0, 1.0);
                let at = row * width + column;
                let adds = covers * open[at];
                if open[at] <= OPEN || adds <= 0.0 {
                    continue;
                }
                let shade = (across * right + down * below) / radius + grain * noise.next_signed();
                for (channel, colour) in colour.iter().enumerate() {
                    seen[channel * plane + at] += adds * (colour + shade);
                }
                open[at] -= adds;
                undone -= usize::from(open[at] <= OPEN);
            }
        }
    }
    let finish = |(at, value): (usize, &f32)| {
        range[0] + (value / (1.0 - open[at % plane])).clamp(0.0, 1.0) * (range[1] - range[0])
    };
    seen.iter().enumerate().map(finish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_fills_its_range() {
        let image = test_image([3, 64, 96], [0.0, 1.0]);
        assert_eq!(image.len(), 3 * 64 * 96);
        let (low, high) = image.iter().fold((1.0_f32, 0.0_f32), |(low, high), v| (low.min(*v), high.max(*v)));
        assert!((0.0..0.05).contains(&low) && (0.9..=1.0).contains(&high), "{low} {high}");
        assert_eq!(image, test_image([3, 64, 96], [0.0, 1.0]));
    }

    #[test]
    fn discs_are_flat_within_and_hard_at_their_edges_at_every_scale() {
        let [height, width] = [256, 192];
        let picture = discs([3, height, width], [-1.0, 1.0], 5);
        assert_eq!(picture.len(), 3 * height * width);
        assert!(picture.iter().all(|value| (-1.0..=1.0).contains(value)));
        assert_eq!(picture, discs([3, height, width], [-1.0, 1.0], 5));
        assert_ne!(picture, discs([3, height, width], [-1.0, 1.0], 6));
        // The mean difference between pixels of one row at this distance.
        let differences = |apart: usize| {
            let rows = picture[..height * width].chunks(width);
            let mut all: Vec<f32> =
                rows.flat_map(|row| row.windows(apart + 1).map(|part| (part[apart] - part[0]).abs())).collect();
            all.sort_by(f32::total_cmp);
            all
        };
        let neighbours = differences(1);
        let at = |share: f32| neighbours[(neighbours.len() as f32 * share) as usize];
        assert!(at(0.5) < 0.08 && at(0.98) > 0.4, "{} {}", at(0.5), at(0.98));
        // In white noise it would be the same at all distances; in a gradient, four times as much at four times the
        // distance.
        let mean = |apart: usize| differences(apart).iter().sum::<f32>() / differences(apart).len() as f32;
        for apart in [1, 4, 16] {
            let growth = mean(4 * apart) / mean(apart);
            assert!((1.1..3.0).contains(&growth), "{apart}: {growth}");
        }
    }

    #[test]
    fn discs_fill_pictures_of_any_size() {
        for [height, width] in [[1, 1], [1, 7], [3, 200]] {
            assert_eq!(discs([1, height, width], [0.0, 1.0], 1).len(), height * width);
        }
    }
}
