//! Layers as functions: each fetches its weights from a [`Scope`] and returns what it computes.

mod attention;
mod categories;
mod causal;
mod conv;
mod dinov2;
mod dpt;
mod dysample;
mod linear;
mod norm;
mod rectangles;
mod resize;
mod resnet;
mod scope;
mod sequences;
mod timestep;
mod transformer;
mod windows;

pub use attention::{
    AttentionNames, attention, attention_of_pixels, attention_of_rows, attention_scaled_by, query_key_value,
};
pub use categories::Categories;
pub use causal::{Chunk, Clip, causal_conv3d, causal_conv3d_strided};
pub use conv::{
    channels, conv_transpose2d, conv2d, conv2d_batch_norm, conv2d_dilated, depthwise_batch_norm, depthwise_conv2d,
    depthwise_reduction, image_input, pointwise, pointwise_batch_norm, prelu, repeat_channels,
};
pub use dinov2::{Dinov2, Naming, PATCH};
pub use dpt::Dpt;
pub use dysample::dysample;
pub use linear::{embedding, layer_norm, linear, linear_unbiased, unit, width};
pub use norm::{group_norm, layer_norm_of_channels};
pub use rectangles::{Rectangles, is_rolled};
pub use resize::{Mirror, crop_to_image, pad_to_multiple, shuffle_upsampling};
pub use resnet::{Groups, downsample, resnet, upsample};
pub use scope::{Declaration, Parameters, Scope};
pub use sequences::Sequences;
pub use timestep::Sinusoids;
pub use transformer::{LAYER_NORM_EPSILON, SwinBlock, convolved_mlp, gated_mlp, mlp, mlp_of};
pub use windows::{Grid, Order, Scores};
