//! Patches of videos as tokens (DiT, <https://arxiv.org/abs/2212.09748>).

use super::width;
use tileforge_graph::Value;

/// A video `[batch, channels, frames, height, width]` as rows, one for each patch of `side` × `side` pixels of a frame,
/// in raster order: the patch's pixels row by row, each with all channels.
pub fn patches_of_video(video: &Value, side: usize) -> Value {
    let [batch, channels, frames, height, columns] = video.fixed_dims::<5>().map(|size| size as i64);
    let side = side as i64;
    video
        .reshape(&[batch, channels, frames, height / side, side, columns / side, side])
        .transpose(&[0, 2, 3, 5, 4, 6, 1])
        .reshape(&[-1, side * side * channels])
}

/// The reverse of [`patches_of_video`], for videos of the size of `like`. The patches may have other numbers of
/// channels.
pub fn video_of_patches(patches: &Value, side: usize, like: &Value) -> Value {
    let [batch, _, frames, height, columns] = like.fixed_dims::<5>().map(|size| size as i64);
    let side = side as i64;
    let channels = width(patches) as i64 / (side * side);
    patches
        .reshape(&[batch, frames, height / side, columns / side, side, side, channels])
        .transpose(&[0, 6, 1, 2, 4, 3, 5])
        .reshape(&[batch, channels, frames, height, columns])
}
