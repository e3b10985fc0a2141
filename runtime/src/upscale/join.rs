//! Turns the model's outputs of one tile into the planes to blend.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::F32;
use fast_image_resize::{FilterType, ImageView, ResizeAlg, ResizeOptions, Resizer};

use super::routing::Run;
use crate::error::{Error, Result};
use tileforge_image::Size;

/// Collects the model's outputs for the runs of a tile, and enlarges the channel that bypasses the model.
pub(super) struct Joiner {
    tile: Size,
    /// Pixels of a tile's output.
    area: usize,
    resizer: Resizer,
    /// `[height · scale, width · scale]`, reused for each tile.
    enlarged: TypedImage<'static, F32>,
    /// `[height · scale, width · scale]` each, of the runs so far. Unused planes are kept at the end for the next
    /// tile.
    planes: Vec<Vec<f32>>,
    used: usize,
}

impl Joiner {
    pub(super) fn new(tile: Size, output: Size) -> Self {
        let area = output.width as usize * output.height as usize;
        Self { tile, area, resizer: Resizer::new(), enlarged: TypedImage::new(1, 1), planes: Vec::new(), used: 0 }
    }

    /// Adds the output of one run, `[channels, height · scale, width · scale]`.
    pub(super) fn add(&mut self, run: &Run, output: &[f32]) {
        if run.is_replicated() {
            let plane = self.plane();
            let mut planes = output.chunks_exact(plane.len());
            plane.copy_from_slice(planes.next().unwrap_or_default());
            for other in planes {
                plane.iter_mut().zip(other).for_each(|(sum, value)| *sum += value);
            }
            let count = run.channels.len() as f32;
            if count > 1.0 {
                plane.iter_mut().for_each(|value| *value /= count);
            }
        } else {
            for channel in output.chunks_exact(self.area) {
                self.plane().copy_from_slice(channel);
            }
        }
    }

    /// Adds a channel that bypassed the model, `[height, width]`: enlarged by bicubic resampling over the same tile as
    /// the colours, so that both have their joints at the same places.
    pub(super) fn enlarge(&mut self, channel: &[f32], output: Size) -> Result<()> {
        let failed = |error: &dyn std::fmt::Display| Error::Alpha { reason: error.to_string() };
        let pixels: Vec<F32> = channel.iter().map(|&value| F32::new(value)).collect();
        let source = TypedImageRef::new(self.tile.width, self.tile.height, &pixels).map_err(|error| failed(&error))?;
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom));
        if (self.enlarged.width(), self.enlarged.height()) != (output.width, output.height) {
            self.enlarged = TypedImage::new(output.width, output.height);
        }
        self.resizer.resize_typed(&source, &mut self.enlarged, &options).map_err(|error| failed(&error))?;
        let enlarged = std::mem::replace(&mut self.enlarged, TypedImage::new(1, 1));
        let plane = self.plane();
        plane.iter_mut().zip(enlarged.pixels()).for_each(|(value, pixel)| *value = pixel.0);
        self.enlarged = enlarged;
        Ok(())
    }

    /// The planes of all runs since the last tile was taken.
    pub(super) fn take(&mut self) -> Vec<&[f32]> {
        let used = std::mem::take(&mut self.used);
        self.planes[..used].iter().map(Vec::as_slice).collect()
    }

    /// The next unused plane.
    fn plane(&mut self) -> &mut [f32] {
        if self.used == self.planes.len() {
            self.planes.push(vec![0.0; self.area]);
        }
        self.used += 1;
        &mut self.planes[self.used - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grey_is_the_mean_of_three() {
        let one = Size { width: 2, height: 1 };
        let mut joiner = Joiner::new(one, one);
        joiner.add(&Run { channels: vec![0; 3] }, &[1.0, 2.0, 4.0, 5.0, 7.0, 8.0]);
        assert_eq!(joiner.take(), [[4.0, 5.0]]);
        joiner.add(&Run { channels: vec![0, 1] }, &[1.0, 2.0, 3.0, 4.0]);
        joiner.enlarge(&[0.5, 0.5], one).unwrap();
        assert_eq!(joiner.take(), [[1.0, 2.0], [3.0, 4.0], [0.5, 0.5]]);
        assert!(joiner.take().is_empty());
    }
}
