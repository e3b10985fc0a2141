//! SeedVR2's NaDiT: a diffusion transformer that restores latent videos in one step, in the forms of the published 3B
//! and 7B networks.
//!
//! Papers: <https://arxiv.org/abs/2506.05301>, <https://arxiv.org/abs/2501.01320>. Reference:
//! <https://github.com/naxci1/ComfyUI-SeedVR2.5>, `src/models/{dit_3b,dit_7b}`, with `configs_{3b,7b}/main.yaml`.
//!
//! A token is a patch of 2 × 2 latent pixels of one frame. Each layer attends in windows of the video and to the whole
//! text; the windows of every second layer are shifted. The graph is of one size, since windows and the angles of the
//! rotations are constants.

use super::{Architecture, Keys, Mismatch};
use crate::nn::{
    Attended, Joint, Modulation, Place, Rotation, Scope, Sinusoids, VideoWindows, linear, patches_of_video, rms_norm,
    swiglu, video_of_patches, width,
};
use crate::shapes::all_fixed;
use crate::{Contract, Result, Shapes, Task};
use serde::Serialize;
use std::collections::BTreeMap;
use std::f64::consts::PI;
use tileforge_contract::{Axis, Embedding, Extent, Meaning, Precision, ReceptiveField, TensorSpec};
use tileforge_graph::{DataType, Dim, TensorType, Value};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct NaDit {
    form: Form,
    /// Channels of the latent video. The input has the noisy one, the one that is restored, and a mask.
    latent_channels: usize,
    /// Width of the text's states.
    text_width: usize,
    /// Width of the tokens.
    dim: usize,
    heads: usize,
    head_dim: usize,
    layers: usize,
    /// The first layers have weights of their own for the text.
    mm_layers: usize,
    /// Width between the layers of an MLP.
    hidden: usize,
}

/// The two published forms, under the names of their folders in the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Form {
    /// SwiGLU. Video and text are rotated. The result is normalised and modulated. After the last attention, nothing
    /// is computed for the text, and before it, the text's tokens are not modulated.
    #[serde(rename = "dit_3b")]
    Dit3b,
    /// GELU. Only the video is rotated.
    #[serde(rename = "dit_7b")]
    Dit7b,
}

/// The reference's epsilon, for every normalisation.
const EPSILON: f32 = 1e-5;
/// Rows and columns of a patch.
const PATCH: usize = 2;
/// The timesteps that the networks are trained on.
const TIMESTEPS: f32 = 1000.0;
/// Width of the embedding of a timestep.
const SINUSOIDS: usize = 256;
/// The published networks are trained on frames of this many tokens, with 3 × 3 windows in a frame: 720p.
const TRAINED_TOKENS: f64 = 45.0 * 80.0;
/// Windows of a video: along its frames, rows and columns.
const WINDOWS: [usize; 3] = [4, 3, 3];
/// The number of frames in a window follows the video's number of frames up to this limit.
const MOST_FRAMES: usize = 30;
/// Base of the frequencies of [`Form::Dit3b`].
const BASE: f64 = 10_000.0;
/// The largest frequency of [`Form::Dit7b`], in half turns from the middle of a window to its edge.
const LARGEST: f64 = 128.0;

const SIZE_REASON: &str = "its windows and rotations are constants";

impl Architecture for NaDit {
    const NAME: &'static str = "NaDiT";
    const TASK: Task = Task::Transformer;
    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &[
            "vid_in.proj.weight",
            "txt_in.weight",
            "emb_in.proj_hid.weight",
            "blocks.0.attn.proj_qkv.vid.weight",
            "blocks.0.mlp.vid.proj_in_gate.weight",
            "vid_out_norm.weight",
            "vid_out.proj.weight",
        ],
        &[
            "vid_in.proj.weight",
            "txt_in.weight",
            "emb_in.proj_hid.weight",
            "blocks.0.attn.proj_qkv.vid.weight",
            "blocks.0.mlp.vid.proj_in.bias",
            "vid_out.proj.weight",
        ],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [dim, inputs] = keys.dims::<2>("vid_in.proj.weight")?;
        let [outputs, _] = keys.dims::<2>("vid_out.proj.weight")?;
        let [_, text_width] = keys.dims::<2>("txt_in.weight")?;
        let [head_dim] = keys.dims::<1>("blocks.0.attn.norm_q.vid.weight")?;
        let [projected, _] = keys.dims::<2>("blocks.0.attn.proj_qkv.vid.weight")?;
        let [hidden, _] = keys.dims::<2>("blocks.0.mlp.vid.proj_in.weight")?;
        let layers = keys.count("blocks.");
        let is_shared = |layer: &usize| keys.contains(&format!("blocks.{layer}.attn.proj_qkv.all.weight"));
        let latent_channels = outputs / PATCH.pow(2);
        if inputs != (2 * latent_channels + 1) * PATCH.pow(2) {
            return Err(Mismatch::new(format!(
                "expected patches of two latent videos and a mask for {outputs} results, found {inputs} numbers"
            )));
        }
        let heads = projected / 3 / head_dim.max(1);
        if heads == 0 || projected != 3 * heads * head_dim {
            return Err(Mismatch::new(format!("heads of width {head_dim} do not divide {projected} channels")));
        }
        let form = if keys.contains("vid_out_norm.weight") { Form::Dit3b } else { Form::Dit7b };
        if form == Form::Dit3b && !(head_dim / 3).is_multiple_of(2) {
            return Err(Mismatch::new(format!(
                "expected an even number of channels for each axis, found a third of {head_dim}"
            )));
        }
        Ok(NaDit {
            form,
            latent_channels,
            text_width,
            dim,
            heads,
            head_dim,
            layers,
            mm_layers: (0..layers).find(is_shared).unwrap_or(layers),
            hidden,
        })
    }

    fn contract(&self) -> Contract {
        let side = Extent::multiple_of(PATCH);
        let video = |channels| {
            let frames = Axis::Frames(Extent::multiple_of(1));
            [Axis::Batch, Axis::Channels(channels), frames, Axis::Height(side), Axis::Width(side)]
        };
        let latent = self.latent_channels;
        let noisy = Meaning::NoisyLatent { latent, condition: latent, mask: 1, masked_image: 0 };
        let text = [Axis::Batch, Axis::Tokens(None), Axis::Channels(self.text_width)];
        let context = Meaning::Embedding { from: Embedding::Context };
        Contract {
            task: Self::TASK,
            inputs: vec![
                TensorSpec::new("sample", video(self.in_channels()), noisy),
                TensorSpec::new("timestep", [], Meaning::Timestep { range: [0.0, TIMESTEPS] }),
                TensorSpec::new("encoder_hidden_states", text, context),
            ],
            outputs: vec![TensorSpec::new("out_sample", video(latent), Meaning::Prediction)],
            receptive_field: ReceptiveField::Unbounded,
            // The reference computes in BF16, and no tensor shows whether every activation fits FP16.
            safe_precisions: vec![Precision::Fp32, Precision::Bf16],
        }
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let [batch, frames, tokens] = ["batch", "frames", "sequence"].map(Dim::symbol);
        let [height, columns] = ["height", "width"].map(|name| Dim::affine(name, PATCH, 0));
        let names = ["sample", "timestep", "encoder_hidden_states"];
        let [video, timestep, text] = shapes.resolve([
            (names[0], &[batch.clone(), Dim::Fixed(self.in_channels()), frames, height, columns][..]),
            (names[1], &[]),
            (names[2], &[batch, tokens, Dim::Fixed(self.text_width)]),
        ])?;
        let [batch, _, frames, height, columns] =
            all_fixed(names[0], &video, SIZE_REASON, [1, self.in_channels(), 2, 90, 160])?;
        let [_, tokens, _] = all_fixed(names[2], &text, SIZE_REASON, [1, 58, self.text_width])?;
        let input = |name: &str, dims: Vec<Dim>| w.trace().input(name, TensorType::new(DataType::F32, dims));
        let (video, timestep, text) = (input(names[0], video), input(names[1], timestep), input(names[2], text));
        let grid = Grid { batch, frames, rows: height / PATCH, columns: columns / PATCH, text: tokens };
        w.trace().output("out_sample", &self.network(w, &video, &timestep, &text, grid));
        Ok(())
    }

    /// Ignores the frequencies of the rotations, which follow from the form, and tensors that only change the text
    /// after the last attention.
    fn ignores(&self, name: &str) -> bool {
        let of_last = name.strip_prefix(&format!("blocks.{}.", self.layers.saturating_sub(1)));
        let unused = ["attn.proj_out.txt.", "mlp.txt.", "ada.txt.attn_gate", "ada.txt.mlp_"];
        name.ends_with(".attn.rope.rope.freqs")
            || of_last.is_some_and(|name| unused.iter().any(|prefix| name.starts_with(prefix)))
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = NaDit {
            form: Form::Dit3b,
            latent_channels: 4,
            text_width: 10,
            dim: 16,
            heads: 2,
            head_dim: 14,
            layers: 3,
            mm_layers: 1,
            hidden: 24,
        };
        let tiny_7b = NaDit { form: Form::Dit7b, layers: 2, mm_layers: 2, hidden: 64, ..tiny.clone() };
        let published_3b = NaDit {
            latent_channels: 16,
            text_width: 5120,
            dim: 2560,
            heads: 20,
            head_dim: 128,
            layers: 32,
            mm_layers: 10,
            hidden: 6912,
            ..tiny.clone()
        };
        let published_7b = NaDit {
            form: Form::Dit7b,
            dim: 3072,
            heads: 24,
            layers: 36,
            mm_layers: 36,
            hidden: 4 * 3072,
            ..published_3b.clone()
        };
        let tiny_separate = NaDit { layers: 2, mm_layers: 2, ..tiny.clone() };
        vec![
            ("tiny", tiny),
            ("tiny-separate", tiny_separate),
            ("tiny-7b", tiny_7b),
            ("3b", published_3b),
            ("7b", published_7b),
        ]
    }

    /// Two windows of one frame each.
    fn example_shapes(&self) -> Shapes {
        let (video, text) = (vec![1, self.in_channels(), 2, 4, 6], vec![1, 5, self.text_width]);
        Shapes::from(BTreeMap::from([("sample".to_owned(), video), ("encoder_hidden_states".to_owned(), text)]))
    }
}

/// Sizes of the videos and of the texts, in tokens.
#[derive(Debug, Clone, Copy)]
struct Grid {
    batch: usize,
    frames: usize,
    rows: usize,
    columns: usize,
    /// Tokens of each text.
    text: usize,
}

/// The windows of a layer, and how tokens are rotated in them.
struct Layout {
    windows: VideoWindows,
    video: Rotation,
    text: Option<Rotation>,
}

impl NaDit {
    fn in_channels(&self) -> usize {
        2 * self.latent_channels + 1
    }

    /// `video` `[batch, channels, frames, height, width]`, `text` `[batch, tokens, width]` → `[batch, latent channels,
    /// frames, height, width]`.
    fn network(&self, w: &Scope<'_>, video: &Value, timestep: &Value, text: &Value, grid: Grid) -> Value {
        let latent = video;
        let mut video = linear(&w.at("vid_in.proj"), &patches_of_video(latent, PATCH), self.dim);
        let mut text = linear(&w.at("txt_in"), &text.reshape(&[-1, self.text_width as i64]), self.dim);
        let modulations = self.modulations(&w.at("emb_in"), timestep);
        let layouts = [false, true].map(|shifted| self.layout(w, grid, shifted));
        for layer in 0..self.layers {
            let block = w.at(format!("blocks.{layer}"));
            let layout = &layouts[layer % 2];
            [video, text] = self.block(&block, [&video, &text], &modulations, layout, (layer, grid));
        }
        if self.form == Form::Dit3b {
            let normalised = rms_norm(&video, EPSILON) * w.at("vid_out_norm").tensor("weight", [self.dim]);
            // The reference takes the attention's modulation here: its cache holds it under this name.
            video = modulations[0].apply(&w.at("vid_out_ada"), "out", &normalised);
        }
        let patches = linear(&w.at("vid_out.proj"), &video, PATCH * PATCH * self.latent_channels);
        video_of_patches(&patches, PATCH, latent)
    }

    /// The modulations of attention and MLP: three linear layers with SiLU between them, of the timestep's embedding.
    fn modulations(&self, w: &Scope<'_>, timestep: &Value) -> [Modulation; 2] {
        let sinusoids = Sinusoids { flip_sin_to_cos: false, freq_shift: 0.0 };
        let x = sinusoids.embed(&timestep.reshape(&[1, 1]), SINUSOIDS);
        let x = linear(&w.at("proj_in"), &x, self.dim).silu();
        let x = linear(&w.at("proj_hid"), &x, self.dim).silu();
        Modulation::of_layers(&linear(&w.at("proj_out"), &x, 6 * self.dim))
    }

    /// x + gate · attention(modulated norm(x)), then y + gate · MLP(modulated norm(y)), for the video and for the text.
    fn block(
        &self,
        w: &Scope<'_>,
        [video, text]: [&Value; 2],
        [of_attention, of_mlp]: &[Modulation; 2],
        layout: &Layout,
        (layer, grid): (usize, Grid),
    ) -> [Value; 2] {
        let ends_text = layer + 1 == self.layers;
        let streams = if layer < self.mm_layers { ["vid", "txt"] } else { ["all"; 2] };
        let [of_video, of_text] = streams.map(|stream| w.at("ada").at(stream));
        let normalised = of_attention.apply(&of_video, "attn", &rms_norm(video, EPSILON));
        let normalised_text = rms_norm(text, EPSILON);
        let normalised_text = match self.form {
            Form::Dit3b if ends_text => normalised_text,
            _ => of_attention.apply(&of_text, "attn", &normalised_text),
        };
        let attended = self.attention(&w.at("attn"), [&normalised, &normalised_text], layout, streams, grid);
        let finish = |x: &Value, attended: &Value, name: &str| {
            let of_stream = &w.at("ada").at(name);
            let out = linear(&w.at("attn.proj_out").at(name), attended, self.dim);
            let x = x + of_attention.gate(of_stream, "attn", &out);
            let normalised = of_mlp.apply(of_stream, "mlp", &rms_norm(&x, EPSILON));
            let out = self.mlp(&w.at("mlp").at(name), &normalised);
            &x + of_mlp.gate(of_stream, "mlp", &out)
        };
        let video = finish(video, &attended.video(), streams[0]);
        [video, if ends_text { text.clone() } else { finish(text, &attended.text(), streams[1]) }]
    }

    fn mlp(&self, w: &Scope<'_>, x: &Value) -> Value {
        match self.form {
            Form::Dit3b => swiglu(w, x, self.hidden),
            Form::Dit7b => {
                let hidden = linear(&w.at("proj_in"), x, self.hidden).gelu_by_tanh();
                linear(&w.at("proj_out"), &hidden, width(x))
            }
        }
    }

    /// Attention of windows and the text, before the last linear layer.
    fn attention(
        &self,
        w: &Scope<'_>,
        tokens: [&Value; 2],
        layout: &Layout,
        streams: [&str; 2],
        grid: Grid,
    ) -> Attended {
        let inner = self.heads * self.head_dim;
        let rotations = [Some(&layout.video), layout.text.as_ref()];
        let [video, text] = [0, 1].map(|stream| {
            let (name, x) = (streams[stream], tokens[stream]);
            let weights = w.at("proj_qkv").at(name).parts("weight", [3 * inner, self.dim], ["query", "key", "value"]);
            let [q, k, v] = weights.each_ref().map(|weight| x.linear(weight, None));
            let turned = |norm: &str, x: &Value| {
                let heads = x.reshape(&[grid.batch as i64, -1, self.heads as i64, self.head_dim as i64]);
                let scale = w.at(norm).at(name).tensor("weight", [self.head_dim]);
                let normalised = rms_norm(&heads, EPSILON) * scale;
                let turned = rotations[stream].map_or_else(|| normalised.clone(), |turn| turn.apply(&normalised));
                turned.reshape(&[-1, inner as i64])
            };
            [turned("norm_q", &q), turned("norm_k", &k), v]
        });
        let rows = std::array::from_fn(|i| video[i].concat(&[&text[i]], 0));
        let joint = Joint { batch: grid.batch, text: grid.text, heads: self.heads };
        layout.windows.joint_attention(&rows, joint)
    }

    fn layout(&self, w: &Scope<'_>, grid: Grid, shifted: bool) -> Layout {
        let size = [grid.frames, grid.rows, grid.columns];
        let windows = VideoWindows::new(size, window(size), shifted);
        let rotation = |angles: Vec<Vec<f64>>| Rotation::new(w.trace(), self.head_dim, &angles);
        let angles = |place| self.angles(place, grid.text);
        let video = rotation(windows.places().into_iter().map(angles).collect());
        let text = match self.form {
            Form::Dit3b => Some(rotation((0..grid.text).map(|token| self.angles_3b([token; 3])).collect())),
            Form::Dit7b => None,
        };
        Layout { windows, video, text }
    }

    /// The angles of a token of the video.
    fn angles(&self, place: Place, text: usize) -> Vec<f64> {
        let [frame, row, column] = place.position;
        match self.form {
            // In time, the video follows the text.
            Form::Dit3b => self.angles_3b([text + frame, row, column]),
            Form::Dit7b => {
                let frequencies = self.head_dim / 2 / 3 / 2;
                let each = |axis: usize| {
                    let at = between(-1.0, 1.0, place.position[axis], place.window[axis]);
                    (0..frequencies).map(move |i| at * PI * between(1.0, LARGEST, i, frequencies))
                };
                (0..3).flat_map(each).collect()
            }
        }
    }

    /// The angles of a token at this position in time, height and width.
    fn angles_3b(&self, position: [usize; 3]) -> Vec<f64> {
        let channels = self.head_dim / 3;
        let frequencies = move |i: usize| BASE.powf(-2.0 * i as f64 / channels as f64);
        position.into_iter().flat_map(|at| (0..channels / 2).map(move |i| at as f64 * frequencies(i))).collect()
    }
}

/// Number `i` of `count` numbers at equal distances from `first` to `last`; the first one where there is only one.
fn between(first: f64, last: f64, i: usize, count: usize) -> f64 {
    if count < 2 { first } else { first + (last - first) * i as f64 / (count - 1) as f64 }
}

/// Frames, rows and columns of a window, in tokens, for a video of this size in tokens: the window of a video that has
/// the same proportions and the size that the networks are trained on.
fn window([frames, rows, columns]: [usize; 3]) -> [usize; 3] {
    let scale = (TRAINED_TOKENS / (rows * columns) as f64).sqrt();
    let side = |length: usize, windows: usize| ((length as f64 * scale).round_ties_even() as usize).div_ceil(windows);
    let [along_frames, along_rows, along_columns] = WINDOWS;
    [frames.min(MOST_FRAMES).div_ceil(along_frames), side(rows, along_rows), side(columns, along_columns)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_the_reference() {
        assert_eq!(window([1, 22, 20]), [1, 21, 19]);
        assert_eq!(window([5, 3, 2]), [2, 25, 17]);
        assert_eq!(window([40, 45, 80]), [8, 15, 27]);
        assert_eq!(window([21, 68, 120]), [6, 15, 27]);
    }

    #[test]
    fn numbers_at_equal_distances_include_both_ends() {
        assert_eq!([0, 1, 2].map(|i| between(-1.0, 1.0, i, 3)), [-1.0, 0.0, 1.0]);
        assert_eq!(between(-1.0, 1.0, 0, 1), -1.0);
    }
}
