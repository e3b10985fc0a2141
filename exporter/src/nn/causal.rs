//! Videos in chunks of time: convolutions that see no later frame, and keep of each chunk what the next one needs.
//!
//! A convolution over time is computed as one over images: the frames that it sees at once stand behind each other in
//! the channels. The kernel `[filters, channels, time, height, width]` is then, as it is stored, the one over images
//! `[filters, channels · time, height, width]`. On a CPU, ONNX Runtime takes 0.72 to 0.87 of the time of its own 3-D
//! convolution for it, copies included, and several times the memory for what is stacked (docs/benchmarks.md).
//! Normalisation and attention of single frames need no transposition, and the engine sees 2-D convolutions alone.

use super::{Scope, channels};
use crate::{Error, Result, Shapes};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;
use tileforge_graph::{ConvOptions, DataType, Dim, Size, TensorType, Value};

/// Which chunk of a video a graph is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chunk {
    /// The one that a video begins with: what would lie before it is its first frame, again and again.
    #[default]
    First,
    /// One that follows another: what lies before it comes as inputs `cache.LAYER`.
    Next,
}

/// Frames of videos as images `[batch · frames, channels, height, width]`, frame by frame, with what layers keep of
/// them.
#[derive(Debug, Clone)]
pub struct Clip {
    images: Value,
    /// The model's input, for the size of the batch.
    video: Value,
    chunk: Chunk,
    kept: Rc<RefCell<Vec<Kept>>>,
}

/// The last frames that a layer has seen.
#[derive(Debug)]
struct Kept {
    layer: String,
    /// `[batch, frames, channels, height, width]`.
    frames: Value,
}

impl Clip {
    /// The frames of `video` `[batch, channels, frames, height, width]`.
    pub fn of(video: &Value, chunk: Chunk) -> Self {
        let frames = video.transpose(&[0, 2, 1, 3, 4]);
        let channels = video.fixed(1) as i64;
        let images =
            frames.reshape_to(&[Size::Number(-1), Size::Number(channels), Size::Of(&frames, 3), Size::Of(&frames, 4)]);
        Clip { images, video: video.clone(), chunk, kept: Rc::default() }
    }

    /// The frames as `[batch, channels, frames, height, width]`.
    pub fn video(&self) -> Value {
        self.frames().transpose(&[0, 2, 1, 3, 4])
    }

    /// The frames as `[batch, frames, channels, height, width]`.
    fn frames(&self) -> Value {
        let channels = Size::Number(channels(&self.images) as i64);
        self.images.reshape_to(&[
            Size::Of(&self.video, 0),
            Size::Number(-1),
            channels,
            Size::Of(&self.images, 2),
            Size::Of(&self.images, 3),
        ])
    }

    /// The frames as images.
    pub fn images(&self) -> &Value {
        &self.images
    }

    /// What becomes of the images, each for itself.
    #[must_use]
    pub fn map(&self, of_images: impl FnOnce(&Value) -> Value) -> Self {
        Clip { images: of_images(&self.images), ..self.clone() }
    }

    /// Which chunk of the video this is of.
    pub fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// Without the second frame.
    #[must_use]
    pub fn without_second_frame(&self) -> Self {
        let frames = self.frames();
        let first = frames.slice(1, 0, 1);
        let [_, length, channels, height, width] = frames.dims();
        let left = match length {
            // No runtime needs to know what becomes of an empty value.
            Dim::Fixed(..=2) => first,
            _ => first.concat(&[&frames.slice_by(1, [2, i64::MAX], 1)], 1),
        };
        self.of_frames(&left, [channels, height, width])
    }

    /// `frames` `[batch, frames, …]` as images of this size.
    fn of_frames(&self, frames: &Value, [channels, height, width]: [Dim; 3]) -> Self {
        let size = |dim: Dim, axis| dim.fixed().map_or(Size::Of(&self.images, axis), |size| Size::Number(size as i64));
        self.map(|_| frames.reshape_to(&[Size::Number(-1), size(channels, 1), size(height, 2), size(width, 3)]))
    }

    /// Makes what was kept outputs of the model, `next_cache.LAYER`, in the order of the layers.
    ///
    /// # Errors
    /// `shapes` fix a size of a cache that follows from the video.
    pub fn output_caches(&self, shapes: &Shapes) -> Result<()> {
        for Kept { layer, frames } in self.kept.borrow().iter() {
            if self.chunk == Chunk::Next {
                let (name, dims) = (cache_name(layer), &frames.ty().dims);
                let [fixed] = shapes.resolve([(&name, dims)])?;
                if fixed != *dims {
                    return Err(Error::Option(format!(
                        "--shapes {name}: the sizes of the caches follow from those of the video: fix these too, or these alone"
                    )));
                }
            }
            frames.trace().output(&format!("next_cache.{layer}"), frames);
        }
        Ok(())
    }
}

fn cache_name(layer: &str) -> String {
    format!("cache.{layer}")
}

/// A convolution with bias of `[time, space, space]` that keeps the size and sees no later frame: a `kernel` of `[time,
/// space]`.
pub fn causal_conv3d(w: &Scope<'_>, x: &Clip, filters: usize, kernel: [usize; 2]) -> Clip {
    causal_conv3d_strided(w, x, filters, kernel, 1, &ConvOptions::same(kernel[1]))
}

/// As [`causal_conv3d`], of every `stride`-th frame, with `options` for height and width.
///
/// Where a video begins, its first frame stands `kernel − 1` times before it; where a chunk follows another, the last
/// `kernel − stride` frames that this layer saw do, so that the windows go on where they ended.
pub fn causal_conv3d_strided(
    w: &Scope<'_>,
    x: &Clip,
    filters: usize,
    [time, space]: [usize; 2],
    stride: usize,
    options: &ConvOptions,
) -> Clip {
    let inputs = channels(&x.images);
    let weight = w.tensor_as("weight", &[filters, inputs, time, space, space], &[filters, inputs * time, space, space]);
    let bias = w.tensor("bias", [filters]);
    let seen = if time > 1 { stacked(w, x, time, stride) } else { x.clone() };
    seen.map(|images| images.conv(&weight, Some(&bias), options))
}

/// For every `stride`-th frame, it and those before it, `time` in all, as images `[batch · frames, channels · time,
/// height, width]`.
fn stacked(w: &Scope<'_>, x: &Clip, time: usize, stride: usize) -> Clip {
    let frames = x.frames();
    let [batch, _, channels, height, width] = frames.dims();
    let overlap = time.saturating_sub(stride);
    let before = match x.chunk {
        Chunk::First => frames.gather(&vec![0; time - 1], 1),
        Chunk::Next => {
            let dims = [batch, Dim::Fixed(overlap), channels.clone(), height.clone(), width.clone()];
            w.trace().input(&cache_name(w.path()), TensorType::new(DataType::F32, dims))
        }
    };
    let frames = before.concat(&[&frames], 1);
    x.kept.borrow_mut().push(Kept { layer: w.path().into(), frames: last(&frames, overlap) });
    // A dimension for the time between channels and pixels.
    let pixels = frames.reshape(&[0, 0, 0, 1, -1]);
    let end = |tap: usize| if tap + 1 == time { i64::MAX } else { tap as i64 + 1 - time as i64 };
    let taps: Vec<Value> = (0..time).map(|tap| pixels.slice_by(1, [tap as i64, end(tap)], stride as i64)).collect();
    let [first, rest @ ..] = taps.as_slice() else { return x.clone() };
    let stacked = first.concat(&rest.iter().collect::<Vec<_>>(), 3);
    let channels = channels.times(time).unwrap_or(channels);
    x.of_frames(&stacked, [channels, height, width])
}

/// The last entries of dimension 1.
fn last(frames: &Value, count: usize) -> Value {
    match frames.ty().dims.get(1).and_then(Dim::fixed) {
        Some(length) => frames.slice(1, length.saturating_sub(count), length),
        None => frames.slice_by(1, [-(count as i64), i64::MAX], 1),
    }
}
