//! What a model does.

named! {
    /// What a model does.
    Task {
        /// A picture to the same picture with more pixels, or with cleaner pixels (scale 1).
        Upscale = "upscale",
        /// A noisy latent image to the noise in it, conditioned on a text.
        Unet = "unet",
        /// A noisy latent picture or clip to a prediction of its noise: a diffusion transformer.
        Transformer = "transformer",
        /// A picture or a clip to a latent one.
        VaeEncoder = "vae_encoder",
        /// A latent picture or clip to pixels.
        VaeDecoder = "vae_decoder",
        /// The tokens of a text to the embeddings that condition a picture.
        TextEncoder = "text_encoder",
        /// A picture to the depth of each of its pixels.
        Depth = "depth",
        /// A picture and a mask to the same picture, with other pixels where the mask is white.
        Inpaint = "inpaint",
        /// A frame, and often the frame shown before it, to the frame that is shown.
        Realtime = "realtime",
        /// Tensors to tensors, without a stated rule.
        Tensors = "tensors",
    }
}
