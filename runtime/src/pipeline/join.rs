//! The model's outputs of one tile to the planes that are blended.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::F32;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use super::{ColourRouting, Routing};
use crate::error::{Error, Result};
use crate::image::Alpha;
use crate::session::Tensor;
use crate::tile::{Size, Tile};

/// What the model gave for one tile, and what went around it.
pub(super) struct TileOutput {
    pub(super) tile: Tile,
    /// One for each run, `[1, channels, height · scale, width · scale]`.
    pub(super) runs: Vec<Tensor>,
    /// `[height, width]`, not yet enlarged; empty unless alpha goes around the model.
    pub(super) alpha: Vec<f32>,
}

/// Turns outputs into planes.
pub(super) struct Joiner {
    routing: Routing,
    tile: Size,
    output: Size,
    resizer: Resizer,
    /// `[height · scale, width · scale]`, made over for each tile.
    enlarged: Option<TypedImage<'static, F32>>,
    alpha: Vec<f32>,
}

impl Joiner {
    pub(super) fn new(routing: Routing, tile: Size, output: Size) -> Self {
        Self { routing, tile, output, resizer: Resizer::new(), enlarged: None, alpha: Vec::new() }
    }

    /// The planes of a tile, each `[height · scale, width · scale]`: colour first, then alpha.
    pub(super) fn planes<'p>(&'p mut self, output: &'p mut TileOutput) -> Result<Vec<&'p [f32]>> {
        let area = (self.output.width as usize) * (self.output.height as usize);
        let (colour, alpha) = output.runs.split_at_mut(self.routing.colour_runs());
        let grey = self.routing.colour == ColourRouting::Replicated;
        // What went in as three equal channels comes out as their mean.
        let replicated = colour.iter_mut().filter(|_| grey).chain(alpha.iter_mut());
        replicated.for_each(|tensor| mean_into_first(tensor.as_mut_slice(), area));
        let kept = if grey { 1 } else { usize::MAX };
        let mut planes: Vec<&[f32]> = colour.iter().flat_map(|tensor| tensor.as_slice().chunks_exact(area).take(kept)).collect();
        planes.extend(alpha.iter().filter_map(|tensor| tensor.as_slice().get(..area)));
        if self.routing.alpha == Some(Alpha::Bicubic) {
            self.enlarge(&output.alpha)?;
            planes.push(&self.alpha);
        }
        Ok(planes)
    }

    /// Bicubic, over the same tile as colour, so that both hand over at the same places.
    fn enlarge(&mut self, alpha: &[f32]) -> Result<()> {
        let failed = |error: &dyn std::fmt::Display| Error::Tiling(format!("cannot enlarge alpha: {error}"));
        let pixels: Vec<F32> = alpha.iter().map(|&value| F32::new(value)).collect();
        let source = TypedImageRef::new(self.tile.width, self.tile.height, &pixels).map_err(|error| failed(&error))?;
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom));
        let enlarged = self.enlarged.get_or_insert_with(|| TypedImage::new(self.output.width, self.output.height));
        self.resizer.resize_typed(&source, enlarged, &options).map_err(|error| failed(&error))?;
        self.alpha.clear();
        self.alpha.extend(enlarged.pixels().iter().map(|pixel| pixel.0));
        Ok(())
    }
}

/// Replaces the first of three planes by the mean of all; one plane stays.
fn mean_into_first(planes: &mut [f32], area: usize) {
    let (first, rest) = planes.split_at_mut(area);
    if rest.is_empty() {
        return;
    }
    let (second, third) = rest.split_at(area);
    for ((first, second), third) in first.iter_mut().zip(second).zip(third) {
        *first = (*first + second + third) / 3.0;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn grey_is_the_mean_of_three() {
        let mut planes = [1.0, 2.0, 4.0, 5.0, 7.0, 8.0];
        super::mean_into_first(&mut planes, 2);
        assert_eq!(planes[..2], [4.0, 5.0]);
        super::mean_into_first(&mut planes, 6);
        assert_eq!(planes[..2], [4.0, 5.0]);
    }
}
