//! The meaning of a tensor's values.

use serde::{Deserialize, Serialize};

/// The meaning of a tensor's values. It contains all that is needed to make samples, and to convert pictures, texts
/// and files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Meaning {
    /// Pixels: `(value − mean) / deviation`, where `value` runs from black (`range[0]`) to white (`range[1]`).
    Pixels {
        /// The values of black and white before normalisation.
        range: [f32; 2],
        /// The mean to subtract and the deviation to divide by, for each channel in the tensor's order.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        normalisation: Option<Normalisation>,
        /// The order of the channels.
        order: ChannelOrder,
        /// How a picture is extended to a size that the network takes; `None` if pictures are resized instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        padding: Option<Padding>,
    },
    /// One channel: 1 where the network generates pixels, 0 where pixels are kept.
    Mask,
    /// Depth for each pixel.
    Depth {
        /// What the values measure, and in which unit.
        unit: DepthUnit,
        /// The value of a pixel without a measurement.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missing: Option<f32>,
    },
    /// A latent picture or clip in the scale of the autoencoder. The diffusion model works on
    /// `(latent − shift) · scaling`.
    Latent {
        /// The factor.
        scaling: f32,
        /// Subtracted before the multiplication.
        shift: f32,
    },
    /// The distribution of a latent: means in the first half of the channels, logarithms of variances in the second
    /// half.
    LatentDistribution {
        /// As in [`Meaning::Latent`].
        scaling: f32,
        /// As in [`Meaning::Latent`].
        shift: f32,
    },
    /// The input of a diffusion model: these numbers of channels, in this order.
    NoisyLatent {
        /// Channels of the noisy latent.
        latent: usize,
        /// Channels of the latent of the picture or clip to restore; 0 for models that do not restore.
        #[serde(default, skip_serializing_if = "is_zero")]
        condition: usize,
        /// Channels of the mask, which is 1 where the model generates pixels; 0 for models without inpainting.
        mask: usize,
        /// Channels of the latent of the masked picture.
        masked_image: usize,
    },
    /// The output of a diffusion model: noise, velocity or the sample, as its scheduler's configuration states.
    Prediction,
    /// The timestep of the diffusion.
    Timestep {
        /// The least and the largest timestep.
        range: [f32; 2],
    },
    /// Tokens of a text.
    Tokens {
        /// Number of tokens: they run from 0 to one less than this. CLIP's last two are the start and the end of a
        /// text.
        vocabulary: usize,
    },
    /// A text's embedding: the output of a text encoder, and the condition of a diffusion model.
    Embedding {
        /// The place in the encoder that it comes from.
        from: Embedding,
    },
    /// 1 for each token of a text, 0 for the padding behind it.
    TextMask,
    /// The number of tokens of a text, without padding.
    TextLength,
    /// SDXL's size conditions: height and width of the original, the position of the crop, and the requested size.
    TimeIds,
    /// The guidance scale as an input, for networks that were trained to follow the text in one evaluation. Other
    /// networks apply the scale to two evaluations, with and without the text.
    Guidance {
        /// The least and the largest scale that the network was trained with.
        range: [f32; 2],
    },
    /// What a control network adds to a value inside a diffusion model: an output of the control network, and an input
    /// of the diffusion model.
    Residual,
    /// An input that is the output `from` of the previous run; zeros in the first run.
    Carried {
        /// The output's name.
        from: String,
    },
    /// The frames that a convolution over time keeps for the next chunk.
    Cache,
    /// Numbers without a stated meaning.
    Values,
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

/// How pixels are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalisation {
    /// Subtracted from each channel.
    pub mean: [f32; 3],
    /// Each channel is divided by this afterwards.
    pub deviation: [f32; 3],
}

impl Normalisation {
    /// Mean and deviation of ImageNet's red, green and blue, for values from 0 to 1.
    pub const IMAGENET: Self = Self { mean: [0.485, 0.456, 0.406], deviation: [0.229, 0.224, 0.225] };
}

/// Where in a text encoder an embedding comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Embedding {
    /// The hidden state before the first layer (0) or after that many layers, of each token.
    Layer(usize),
    /// The last hidden state after the final normalisation, of each token.
    Last,
    /// The last hidden state of the end of the text.
    Pooled,
    /// The pooled state, projected to the space of pictures.
    Projected,
    /// For each token, an embedding that the pipeline chooses: an input of diffusion models.
    Context,
}

named! {
    /// The order of a picture's channels in a tensor.
    ChannelOrder {
        /// One channel: grey.
        Grey = "grey",
        /// Red, green, blue.
        Rgb = "rgb",
        /// Blue, green, red.
        Bgr = "bgr",
    }
}

named! {
    /// What depth measures.
    DepthUnit {
        /// Larger is nearer; scale and shift are different for each picture.
        RelativeInverse = "relative_inverse",
        /// One over the distance in metres.
        InverseMetres = "inverse_metres",
    }
}

named! {
    /// How a picture is extended beyond its edge.
    Padding {
        /// Mirrored, without repeating the edge pixel: `c b | a b c | b a`.
        Reflect = "reflect",
    }
}
