//! Videos in chunks of time: convolutions that read no later frame, and keep the frames of each chunk that the next
//! chunk needs.
//!
//! Values are the frames as images, `[batch · frames, channels, height, width]`, which normalisation, attention and
//! the convolutions without time take. Only a convolution over time has the frames behind the channels, as ONNX's 3-D
//! convolution takes them. With 2-D convolutions of frames that are stacked in the channels instead, a whole network
//! is an eighth to a fifth faster on a CPU, and its peak memory is 30 to 70 % higher (docs/benchmarks.md).

use super::{Scope, channels};
use crate::{Result, Shapes};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;
use tileforge_graph::{ConvOptions, DataType, Dim, Size, TensorType, Value};

/// Which chunk of a video a graph is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chunk {
    /// The first chunk of a video. Its first frame is repeated as padding before it.
    #[default]
    First,
    /// A chunk that follows another. The frames before it are the inputs `cache.LAYER`.
    Next,
}

/// Frames of videos as images `[batch · frames, channels, height, width]`, with the frames that layers keep.
#[derive(Debug, Clone)]
pub struct Clip {
    images: Value,
    /// The model's input, for the size of the batch.
    video: Value,
    chunk: Chunk,
    kept: Rc<RefCell<Vec<Kept>>>,
}

/// The last frames of a layer's input.
#[derive(Debug)]
struct Kept {
    layer: String,
    /// `[batch, frames, channels, height, width]`.
    frames: Value,
}

impl Clip {
    /// The frames of `video` `[batch, channels, frames, height, width]`.
    pub fn new(video: &Value, chunk: Chunk) -> Self {
        let images = images_of(&video.transpose(&[0, 2, 1, 3, 4]));
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

    /// The clip with `change` applied to all its frames as images.
    #[must_use]
    pub fn map(&self, change: impl FnOnce(&Value) -> Value) -> Self {
        Clip { images: change(&self.images), ..self.clone() }
    }

    /// The chunk of the video that this is.
    pub fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// The clip without its second frame.
    #[must_use]
    pub fn without_second_frame(&self) -> Self {
        let frames = self.frames();
        let first = frames.slice(1, 0, 1);
        let [_, length, ..] = frames.dims::<5>();
        let left = match length {
            // The remainder would be an empty tensor, which runtimes treat in different ways.
            Dim::Fixed(..=2) => first,
            _ => first.concat(&[&frames.slice_by(1, [2, i64::MAX], 1)], 1),
        };
        self.map(|_| images_of(&left))
    }

    /// Makes the kept frames outputs of the model, `next_cache.LAYER`, in the order of the layers.
    ///
    /// # Errors
    /// `shapes` fix a size of a cache that the video does not fix.
    pub fn output_caches(&self, shapes: &Shapes) -> Result<()> {
        for Kept { layer, frames } in self.kept.borrow().iter() {
            if self.chunk == Chunk::Next {
                let (name, dims) = (cache_name(layer), &frames.ty().dims);
                let [fixed] = shapes.resolve([(&name, dims)])?;
                if fixed != *dims {
                    let reason = "the sizes of the caches follow from those of the video, which must be fixed as well";
                    return Err(shapes.wrong(&name, dims, Some(reason.into())));
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

/// A convolution with bias that keeps the size and reads no later frame. `kernel` is `[time, space]`, for a kernel of
/// `[time, space, space]`.
pub fn causal_conv3d(w: &Scope<'_>, x: &Clip, filters: usize, kernel: [usize; 2]) -> Clip {
    causal_conv3d_strided(w, x, filters, kernel, 1, &ConvOptions::same(kernel[1]))
}

/// As [`causal_conv3d`], for every `stride`-th frame, with `options` for height and width.
///
/// At the beginning of a video, its first frame is repeated `kernel − 1` times before it. In a later chunk, the last
/// `kernel − stride` frames of this layer's input come before it, so that the windows continue.
pub fn causal_conv3d_strided(
    w: &Scope<'_>,
    x: &Clip,
    filters: usize,
    [time, space]: [usize; 2],
    stride: usize,
    options: &ConvOptions,
) -> Clip {
    let inputs = channels(&x.images);
    let stored = [filters, inputs, time, space, space];
    if time == 1 {
        let weight = w.tensor_as("weight", &stored, &[filters, inputs, space, space]);
        let bias = w.tensor("bias", [filters]);
        return x.map(|images| images.conv(&weight, Some(&bias), options));
    }
    let (weight, bias) = (w.tensor("weight", stored), w.tensor("bias", [filters]));
    // The same over time: earlier frames are already part of the input, and the dilation is 1.
    let (before, after) = options.pads.split_at(options.pads.len() / 2);
    let options = ConvOptions {
        strides: [&[stride as i64], options.strides.as_slice()].concat(),
        pads: [&[0], before, &[0], after].concat(),
        dilations: [&[1], options.dilations.as_slice()].concat(),
        groups: options.groups,
    };
    let video = with_frames_before(w, x, time, stride).transpose(&[0, 2, 1, 3, 4]);
    let video = video.conv(&weight, Some(&bias), &options);
    x.map(|_| images_of(&video.transpose(&[0, 2, 1, 3, 4])))
}

/// `frames` `[batch, frames, channels, height, width]` as images.
fn images_of(frames: &Value) -> Value {
    frames.reshape_to(&[Size::Number(-1), Size::Of(frames, 2), Size::Of(frames, 3), Size::Of(frames, 4)])
}

/// The frames that a convolution over `time` of them sees, `[batch, frames, channels, height, width]`: those of the
/// chunk behind those before it.
fn with_frames_before(w: &Scope<'_>, x: &Clip, time: usize, stride: usize) -> Value {
    let frames = x.frames();
    let [batch, _, channels, height, width] = frames.dims();
    let overlap = time.saturating_sub(stride);
    let before = match x.chunk {
        Chunk::First => frames.gather(&vec![0; time - 1], 1),
        Chunk::Next => {
            let dims = [batch, Dim::Fixed(overlap), channels, height, width];
            w.trace().input(&cache_name(w.path()), TensorType::new(DataType::F32, dims))
        }
    };
    let frames = before.concat(&[&frames], 1);
    x.kept.borrow_mut().push(Kept { layer: w.path().into(), frames: last(&frames, overlap) });
    frames
}

/// The last entries of dimension 1.
fn last(frames: &Value, count: usize) -> Value {
    match frames.ty().dims.get(1).and_then(Dim::fixed) {
        Some(length) => frames.slice(1, length.saturating_sub(count), length),
        None => frames.slice_by(1, [-(count as i64), i64::MAX], 1),
    }
}
