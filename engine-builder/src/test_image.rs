//! Test images: always the same, with something of everything that photos contain.

use std::f32::consts::TAU;
use tileforge_exporter::Noise;

/// An image `[1, channels, height, width]` with values in `range`: slopes, waves of every length, hard edges, and
/// noise.
pub(crate) fn test_image(channels: usize, height: usize, width: usize, range: [f32; 2]) -> Vec<f32> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_fills_its_range() {
        let image = test_image(3, 64, 96, [0.0, 1.0]);
        assert_eq!(image.len(), 3 * 64 * 96);
        let (low, high) = image.iter().fold((1.0_f32, 0.0_f32), |(low, high), v| (low.min(*v), high.max(*v)));
        assert!((0.0..0.05).contains(&low) && (0.9..=1.0).contains(&high), "{low} {high}");
        assert_eq!(image, test_image(3, 64, 96, [0.0, 1.0]));
    }
}
