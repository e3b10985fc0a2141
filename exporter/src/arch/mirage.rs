//! Two real-time networks that turn a camera's frame into the frame that is shown: a pair of large UNets, which also
//! read the frame shown before, and one small UNet.
//!
//! Upstream: <https://github.com/toddllm/mirage-hello>, `examples/basic/gpu_stress_test.py` (`GPUStressTestModel`,
//! which has no name of its own there) and `examples/advanced/day2_fixed.py` (`SimpleOptimizedUNet`).

use super::{Architecture, Keys, Mismatch};
use crate::nn::{
    BATCH_NORM_EPSILON, Conv2d, Scope, Sequences, attention_of_rows, channels, conv_transpose2d, conv2d,
    conv2d_batch_norm, downsample, layer_norm, linear, mlp_of, query_key_value,
};
use crate::{Contract, Result, Shapes, Task};
use serde::Serialize;
use tileforge_contract::{Axis, ChannelOrder, Extent, Meaning, Precision, ReceptiveField, TensorSpec};
use tileforge_graph::{DataType, Dim, TensorType, Value};

/// The pair: two UNets one after the other, and a network that combines the result with the frame before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct UnetPair {
    /// Channels of a frame.
    channels: usize,
    /// Filters of the first UNet's first level. The second UNet has half as many.
    base: usize,
    /// Timesteps are divided by this.
    num_timesteps: usize,
}

/// The small UNet, which does not read the frame before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SmallUnet {
    channels: usize,
    base: usize,
    num_timesteps: usize,
}

/// Upstream's default, which no tensor determines.
const NUM_TIMESTEPS: usize = 100;
/// Convolutions of a block.
const CONVOLUTIONS: usize = 4;
/// Attention heads of the pair.
const HEADS: usize = 16;
/// Width of an attention head of the small UNet.
const HEAD_WIDTH: usize = 64;
/// PyTorch's default, for LayerNorm.
const EPSILON: f32 = 1e-5;

impl Architecture for UnetPair {
    const NAME: &'static str = "GPUStressTestModel";
    const TASK: Task = Task::Realtime;
    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "unets.0.enc1.conv_layers.0.weight",
        "unets.0.enc1.norms.0.running_mean",
        "unets.0.bottleneck.1.q_proj.weight",
        "unets.1.output.weight",
        "temporal_processor.0.conv_layers.0.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [base, inputs, ..] = keys.dims::<4>("unets.0.enc1.conv_layers.0.weight")?;
        if !base.is_multiple_of(HEADS) {
            return Err(Mismatch::new(format!(
                "expected a number of filters that {HEADS} attention heads can share, found {base}"
            )));
        }
        Ok(UnetPair { channels: inputs.saturating_sub(1), base, num_timesteps: num_timesteps(keys)? })
    }

    fn contract(&self) -> Contract {
        contract(self.channels, self.num_timesteps, 16, [0.0, 1.0], Some("previous_frame"))
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let [height, width] = ["height", "width"].map(|name| Dim::affine(name, 16, 0));
        let frame = [Dim::symbol("batch"), Dim::Fixed(self.channels), height, width];
        let [dims, timestep, previous] =
            shapes.resolve([("frame", &frame), ("timestep", &[Dim::Fixed(1)]), ("previous_frame", &frame)])?;
        let input = |name, dims: Vec<Dim>| w.trace().input(name, TensorType::new(DataType::F32, dims));
        let (frame, timestep, previous) =
            (input("frame", dims), input("timestep", timestep), input("previous_frame", previous));
        let timed = with_timestep(&frame, &timestep, self.num_timesteps);
        let first = unet(&w.at("unets.0"), &timed, self.base, self.channels);
        let second = unet(&w.at("unets.1"), &first, self.base / 2, self.channels);
        let w_temporal = w.at("temporal_processor");
        let x = heavy_block(&w_temporal.at("0"), &second.concat(&[&previous], 1), self.base);
        let x = heavy_attention(&w_temporal.at("1"), &x);
        w.trace().output("output_frame", &heavy_block(&w_temporal.at("2"), &x, self.channels));
        Ok(())
    }

    fn ignores(&self, name: &str) -> bool {
        name.ends_with(".num_batches_tracked")
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = UnetPair { channels: 3, base: 16, num_timesteps: NUM_TIMESTEPS };
        vec![
            ("tiny", tiny.clone()),
            ("base-192", UnetPair { base: 192, ..tiny.clone() }),
            ("base-256", UnetPair { base: 256, ..tiny }),
        ]
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        vec![("num_timesteps", self.num_timesteps.to_string())]
    }
}

impl Architecture for SmallUnet {
    const NAME: &'static str = "SimpleOptimizedUNet";
    const TASK: Task = Task::Realtime;
    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "conv_in.weight",
        "enc2.weight",
        "bottleneck_conv.weight",
        "attention.in_proj_weight",
        "dec1.weight",
        "conv_out.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let [base, inputs, ..] = keys.dims::<4>("conv_in.weight")?;
        let [outputs, ..] = keys.dims::<4>("conv_out.weight")?;
        if inputs != outputs + 1 || !(8 * base).is_multiple_of(HEAD_WIDTH) {
            let expected = format!("a frame of {outputs} channels and a timestep, and a multiple of 8 filters");
            return Err(Mismatch::new(format!("expected {expected}; found {inputs} channels and {base} filters")));
        }
        Ok(SmallUnet { channels: outputs, base, num_timesteps: num_timesteps(keys)? })
    }

    fn contract(&self) -> Contract {
        // Its last layer is a hyperbolic tangent.
        contract(self.channels, self.num_timesteps, 4, [-1.0, 1.0], None)
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let [height, width] = ["height", "width"].map(|name| Dim::affine(name, 4, 0));
        let frame = [Dim::symbol("batch"), Dim::Fixed(self.channels), height, width];
        let [dims, timestep] = shapes.resolve([("frame", &frame), ("timestep", &[Dim::Fixed(1)])])?;
        let frame = w.trace().input("frame", TensorType::new(DataType::F32, dims));
        let timestep = w.trace().input("timestep", TensorType::new(DataType::F32, timestep));
        let first =
            conv2d(&w.at("conv_in"), &with_timestep(&frame, &timestep, self.num_timesteps), self.base, 3).silu();
        let second = downsample(&w.at("enc1"), &first, 2 * self.base, [1, 1]).silu();
        let x = downsample(&w.at("enc2"), &second, 4 * self.base, [1, 1]).silu();
        let x = self_attention(&w.at("attention"), &conv2d(&w.at("bottleneck_conv"), &x, 8 * self.base, 3).silu());
        let x = conv_transpose2d(&w.at("dec2"), &x, 2 * self.base, 4, 2).silu() + second;
        let x = conv_transpose2d(&w.at("dec1"), &x, self.base, 4, 2).silu() + first;
        w.trace().output("output_frame", &conv2d(&w.at("conv_out"), &x, self.channels, 3).tanh());
        Ok(())
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = SmallUnet { channels: 3, base: 16, num_timesteps: NUM_TIMESTEPS };
        vec![
            ("tiny", tiny.clone()),
            ("base-96", SmallUnet { base: 96, ..tiny.clone() }),
            ("base-128", SmallUnet { base: 128, ..tiny }),
        ]
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        vec![("num_timesteps", self.num_timesteps.to_string())]
    }
}

fn num_timesteps(keys: &Keys<'_>) -> Result<usize, Mismatch> {
    let Some(hint) = keys.hint("num_timesteps") else { return Ok(NUM_TIMESTEPS) };
    let number = hint.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| Mismatch::new(format!("expected `num_timesteps` to be a number from 1, found `{hint}`")))
}

/// The contract of a network that takes a frame, a timestep and, with `previous`, its own output of the frame before.
/// Pixels are in `range`.
fn contract(
    channels: usize,
    num_timesteps: usize,
    multiple: usize,
    range: [f32; 2],
    previous: Option<&str>,
) -> Contract {
    let side = Extent::multiple_of(multiple);
    let frame = |name: &str, meaning| {
        TensorSpec::new(name, [Axis::Batch, Axis::Channels(channels), Axis::Height(side), Axis::Width(side)], meaning)
    };
    let pixels = || Meaning::Pixels { range, normalisation: None, order: ChannelOrder::Rgb, padding: None };
    let timestep = Meaning::Timestep { range: [0.0, num_timesteps as f32] };
    let mut inputs = vec![frame("frame", pixels()), TensorSpec::new("timestep", [Axis::Fixed(1)], timestep)];
    inputs.extend(previous.map(|name| frame(name, Meaning::Carried { from: "output_frame".into() })));
    Contract {
        task: Task::Realtime,
        inputs,
        outputs: vec![frame("output_frame", pixels())],
        receptive_field: ReceptiveField::Unbounded,
        safe_precisions: vec![Precision::Fp32, Precision::Fp16, Precision::Bf16],
    }
}

/// `frame` `[batch, channels, height, width]` with one more channel, whose value is the timestep divided by the number
/// of timesteps.
fn with_timestep(frame: &Value, timestep: &Value, num_timesteps: usize) -> Value {
    // A slice times 0 has the frame's size without the graph knowing that size as a number.
    let zeros = frame.slice(1, 0, 1).scale(0.0);
    frame.concat(&[&(zeros + timestep.scale(1.0 / num_timesteps as f32))], 1)
}

/// `x` `[batch, inputs, height, width]` → `[batch, outputs, height, width]`, with sizes that are multiples of 16.
fn unet(w: &Scope<'_>, x: &Value, base: usize, outputs: usize) -> Value {
    let encoder = |level: usize, x: &Value| heavy_block(&w.at(format!("enc{level}")), x, base << (level - 1));
    let decoder = |level: usize, below: &Value, beside: &Value| {
        let joined = below.upsample_bilinear(2).concat(&[beside], 1);
        heavy_block(&w.at(format!("dec{level}")), &joined, base << level.saturating_sub(2))
    };
    let x1 = encoder(1, x);
    let x2 = heavy_attention(&w.at("attn1"), &encoder(2, &x1.max_pool(2)));
    let x3 = heavy_attention(&w.at("attn2"), &encoder(3, &x2.max_pool(2)));
    let x4 = heavy_attention(&w.at("attn3"), &encoder(4, &x3.max_pool(2)));
    let x = heavy_block(&w.at("bottleneck.0"), &x4.max_pool(2), 16 * base);
    let x = heavy_attention(&w.at("bottleneck.1"), &x);
    let x = heavy_block(&w.at("bottleneck.2"), &x, 8 * base);
    let x = decoder(1, &decoder(2, &decoder(3, &decoder(4, &x, &x4), &x3), &x2), &x1);
    conv2d(&w.at("output"), &x, outputs, 1)
}

/// Four convolutions, each with a batch normalisation, whose statistics are constants after training, and SiLU.
fn heavy_block(w: &Scope<'_>, x: &Value, filters: usize) -> Value {
    (0..CONVOLUTIONS).fold(x.clone(), |x, number| {
        let (conv, norm) = (w.at(format!("conv_layers.{number}")), w.at(format!("norms.{number}")));
        conv2d_batch_norm(Conv2d::new(filters, 3), [&conv, &norm], &x, BATCH_NORM_EPSILON).silu()
    })
}

/// A block of a transformer on the pixels of `x` `[batch, channels, height, width]`.
fn heavy_attention(w: &Scope<'_>, x: &Value) -> Value {
    let pixels = x.transpose(&[0, 2, 3, 1]);
    let (width, sequences) = (channels(x), Sequences::new(&pixels));
    let rows = sequences.rows();
    let normalised = layer_norm(&w.at("norm1"), &rows, EPSILON);
    let project = |name: &str, x: &Value| linear(&w.at(name), x, width);
    let [q, k, v] = ["q_proj", "k_proj", "v_proj"].map(|name| project(name, &normalised));
    let rows = rows + project("out_proj", &attention_of_rows([&q, &k, &v], &sequences, &sequences, HEADS, false));
    let normalised = layer_norm(&w.at("norm2"), &rows, EPSILON);
    let rows = &rows + mlp_of([&w.at("ffn.0"), &w.at("ffn.2")], &normalised, 4 * width);
    sequences.restore(&rows).transpose(&[0, 3, 1, 2])
}

/// PyTorch's `MultiheadAttention` of the pixels of `x` with each other.
fn self_attention(w: &Scope<'_>, x: &Value) -> Value {
    let pixels = x.transpose(&[0, 2, 3, 1]);
    let (width, sequences) = (channels(x), Sequences::new(&pixels));
    let rows = sequences.rows();
    let [q, k, v] = query_key_value(w, &rows, ["in_proj_weight", "in_proj_bias"], true);
    let attended = attention_of_rows([&q, &k, &v], &sequences, &sequences, width / HEAD_WIDTH, false);
    sequences.restore(&linear(&w.at("out_proj"), &attended, width)).transpose(&[0, 3, 1, 2])
}
