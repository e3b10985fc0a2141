//! The common parts of SwinIR and its successors: normalisation and padding of the image, contract, and buffers.

use crate::nn::{Grid, LAYER_NORM_EPSILON, Mirror, Scope, crop_to_image, image_input, layer_norm, pad_to_multiple};
use crate::{Contract, Result, Shapes};
use tileforge_contract::{Padding, Precision, ReceptiveField, Upscale};
use tileforge_graph::{Constant, Value};

/// The mean of DIV2K's RGB, which is subtracted from colour images; nothing is subtracted from grey ones.
const RGB_MEAN: [f32; 3] = [0.4488, 0.4371, 0.4040];

/// The image that such a network takes and gives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) channels: usize,
    /// Output pixels for each input pixel.
    pub(super) scale: usize,
    /// Side of the windows, to multiples of which the image is padded; 1 for networks that need no multiple.
    pub(super) window: usize,
    /// The smallest height and width.
    pub(super) minimum: usize,
    /// Side of the blocks of pixels that become channels at the input.
    pub(super) unshuffle: usize,
    /// The largest value inside the network for an image of 0 … 1.
    pub(super) range: f32,
    /// Whether [`RGB_MEAN`] is subtracted from colour images.
    pub(super) centred: bool,
    /// How the image is padded.
    pub(super) mirror: Mirror,
}

impl Frame {
    /// The frame that most of these networks have.
    pub(super) fn new(channels: usize, scale: usize, window: usize) -> Self {
        Frame { channels, scale, window, minimum: 1, unshuffle: 1, range: 1.0, centred: true, mirror: Mirror::Reflect }
    }

    pub(super) fn contract(&self) -> Contract {
        self.upscale().contract()
    }

    /// As [`Frame::contract`], to change parts of it.
    pub(super) fn upscale(&self) -> Upscale {
        Upscale {
            input: "image".into(),
            output: "upscaled".into(),
            scale: self.scale,
            channels: self.channels,
            range: [0.0, 1.0],
            size_multiple: self.window * self.unshuffle,
            size_minimum: self.minimum,
            only_size: None,
            padding: Padding::Reflect,
            // Rolled windows connect all pixels, and a tile is cut into other windows than the whole image.
            receptive_field: ReceptiveField::Unbounded,
            // Some attention scores overflow half precision and must stay in FP32.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
        }
    }

    /// Four windows: the smallest image that has every kind of rolled window.
    pub(super) fn example_shapes(&self) -> Shapes {
        let side = 2 * self.window * self.unshuffle;
        Shapes::of("image", &[1, self.channels, side, side])
    }

    /// The model from its input to its output. `network` gets the normalised and padded image, unshuffled to the grid's
    /// size, and returns a normalised image `scale` times as large as the padded one.
    pub(super) fn build(
        &self,
        w: &Scope<'_>,
        shapes: &Shapes,
        network: impl FnOnce(&Value, &Grid) -> Value,
    ) -> Result<()> {
        shapes.fixed_image("image", self.channels)?;
        let image = image_input(w, "image", self.channels, shapes)?;
        let multiple = self.window * self.unshuffle;
        let padded = pad_to_multiple(&image, multiple, self.mirror)?;
        let [batch, _, height, width] = padded.fixed_dims();
        let (height, width) = (height / self.unshuffle, width / self.unshuffle);
        let grid = Grid { batch, height, width, window: [self.window; 2] };
        let mean = (self.centred && self.channels == 3)
            .then(|| w.trace().constant("mean", &[1, 3, 1, 1], Constant::F32(&RGB_MEAN)));
        let mut x = mean.as_ref().map_or_else(|| padded.clone(), |mean| &padded - mean);
        if self.range != 1.0 {
            x = x.scale(self.range);
        }
        if self.unshuffle > 1 {
            x = x.pixel_unshuffle(self.unshuffle);
        }
        let mut y = network(&x, &grid);
        if self.range != 1.0 {
            y = y.scale(1.0 / self.range);
        }
        y = mean.as_ref().map_or_else(|| y.clone(), |mean| &y + mean);
        w.trace().output("upscaled", &crop_to_image(&y, &image, multiple, self.scale));
        Ok(())
    }
}

/// LayerNorm with PyTorch's epsilon.
pub(super) fn normalise(w: &Scope<'_>, x: &Value) -> Value {
    layer_norm(w, x, LAYER_NORM_EPSILON)
}

/// The factor of the cosines in an attention, at most 100, from its stored logarithm.
pub(super) fn factor_of_logit(logit: f64) -> f64 {
    logit.min(100_f64.ln()).exp()
}

/// Whether a tensor is a buffer for the training size, which the export computes for its own size.
pub(super) fn is_training_buffer(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    [
        "aligned_relative_position_index",
        "attn_mask",
        "attn_mask_0",
        "attn_mask_1",
        "num_batches_tracked",
        "relative_position_index",
        "relative_position_index_OCA",
        "relative_position_index_SA",
        "rpe_biases",
    ]
    .contains(&last)
}
