//! Layers as functions: each fetches its weights from a [`Scope`] and returns what it computes.

mod adaptive_norm;
mod attention;
mod categories;
mod causal;
mod channel_attention;
mod continuous_bias;
mod conv;
mod conv3xc;
mod dinov2;
mod dpt;
mod dysample;
mod fourier;
mod gated;
mod kernel_basis;
mod lda_aqu;
mod linear;
mod norm;
mod rectangles;
mod resize;
mod resnet;
mod rotary;
mod scope;
mod sequences;
mod stripes;
mod timestep;
mod transformer;
mod video_patches;
mod video_windows;
mod windows;

pub use adaptive_norm::Modulation;
pub use attention::{
    AttentionNames, attention, attention_of_pixels, attention_of_rows, attention_scaled_by, query_key_value,
    query_key_value_of_image,
};
pub use categories::Categories;
pub use causal::{Chunk, Clip, causal_conv3d, causal_conv3d_strided};
pub use channel_attention::{attention_of_channels, channel_weights};
pub use continuous_bias::continuous_biases;
pub use conv::{
    BATCH_NORM_EPSILON, Conv2d, batch_norm_of_sum, batch_norm_pointwise, channels, conv_transpose2d,
    conv_transpose2d_batch_norm, conv2d, conv2d_batch_norm, conv2d_dilated, conv2d_unbiased, image_input,
    image_input_of_multiples, image_input_of_side, linear_of_image, linear_of_image_unbiased, pointwise,
    pointwise_batch_norm, prelu, repeat_channels, split_channels,
};
pub use conv3xc::{conv3xc, is_fused_copy};
pub use dinov2::{Dinov2, Naming, PATCH};
pub use dpt::Dpt;
pub use dysample::dysample;
pub use fourier::Fourier;
pub use gated::{gated_convolution, gated_depthwise};
pub use kernel_basis::kernel_basis_attention;
pub use lda_aqu::lda_aqu;
pub use linear::{embedding, layer_norm, linear, linear_unbiased, rms_norm, sum_of_rows, unit, width};
pub use norm::{group_norm, layer_norm_of_channels};
pub use rectangles::{Rectangles, is_rolled};
pub use resize::{
    Mirror, crop_to_image, pad_around, pad_to_multiple, pad_with_edges_to_multiple, pad_with_zeros_to_multiple,
    shuffle_stages, shuffle_upsampling,
};
pub use resnet::{Groups, downsample, resnet, upsample};
pub use rotary::Rotation;
pub use scope::{Declaration, Parameters, Scope};
pub use sequences::Sequences;
pub use stripes::{CosineHeads, Stripes, cosine_window_attention};
pub use timestep::Sinusoids;
pub use transformer::{LAYER_NORM_EPSILON, SwinBlock, convolved_mlp, gated_mlp, mlp, mlp_of, swiglu};
pub use video_patches::{patches_of_video, video_of_patches};
pub use video_windows::{Attended, Joint, Place, VideoWindows};
pub use windows::{Grid, Order, Scores};
