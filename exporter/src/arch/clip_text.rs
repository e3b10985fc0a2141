//! The text encoders of CLIP and OpenCLIP, as latent diffusion uses them.
//!
//! Paper: <https://arxiv.org/abs/2103.00020>. Reference: transformers 5.23.0, `models/clip/modeling_clip.py`.

use super::{Architecture, Keys, Mismatch};
use crate::nn::{Scope, Sequences, attention_of_rows, embedding, layer_norm, linear, linear_unbiased};
use crate::{Contract, Result, Shapes, Task};
use serde::{Deserialize, Serialize};
use tileforge_contract::{Axis, Embedding, Meaning, Precision, ReceptiveField, TensorSpec};
use tileforge_graph::{DataType, Dim, TensorType, Value};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ClipText {
    vocab_size: usize,
    max_position_embeddings: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    hidden_act: Activation,
    layer_norm_eps: f64,
    /// The token at the end of a text. Its state represents the whole text.
    eos_token_id: usize,
    /// The width that this state is projected to; `None` without a projection.
    projection_dim: Option<usize>,
    /// Whether the names begin with `text_model.`. They do, except in transformers 5's encoders without projection.
    #[serde(skip)]
    prefixed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Activation {
    /// OpenAI's: `x · sigmoid(1.702 · x)`.
    QuickGelu,
    /// OpenCLIP's.
    Gelu,
}

/// Configurations of transformers before 4.31 give 2 as the end token, which is wrong. With this value, the reference
/// takes the largest token number of a text instead.
const LARGEST: usize = 2;
/// Width of a head in all published text encoders.
const HEAD: usize = 64;
/// OpenAI's encoder is the only published one of this width, and the only one with its activation.
const WIDTH_OF_OPENAI: usize = 768;

impl Architecture for ClipText {
    const NAME: &'static str = "CLIPText";
    const TASK: Task = Task::TextEncoder;
    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &[
            "text_model.embeddings.token_embedding.weight",
            "text_model.encoder.layers.0.self_attn.q_proj.weight",
            "text_model.final_layer_norm.weight",
        ],
        &["embeddings.token_embedding.weight", "encoder.layers.0.self_attn.q_proj.weight", "final_layer_norm.weight"],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let prefixed = keys.any_with_prefix("text_model.");
        let name = |name: &str| format!("{}{name}", prefix(prefixed));
        let [vocab_size, hidden_size] = keys.dims::<2>(&name("embeddings.token_embedding.weight"))?;
        let [max_position_embeddings, _] = keys.dims::<2>(&name("embeddings.position_embedding.weight"))?;
        let [intermediate_size, _] = keys.dims::<2>(&name("encoder.layers.0.mlp.fc1.weight"))?;
        let projected = keys.contains("text_projection.weight");
        let projection_dim =
            projected.then(|| keys.dims::<2>("text_projection.weight")).transpose()?.map(|[width, _]| width);
        let num_hidden_layers = keys.count(&name("encoder.layers."));
        keys.only("model_type", "clip_text_model")?;
        keys.agree("architectures", [if projected { "CLIPTextModelWithProjection" } else { "CLIPTextModel" }])?;
        keys.agree("vocab_size", vocab_size)?;
        keys.agree("hidden_size", hidden_size)?;
        keys.agree("intermediate_size", intermediate_size)?;
        keys.agree("max_position_embeddings", max_position_embeddings)?;
        keys.agree("num_hidden_layers", num_hidden_layers)?;
        if let Some(width) = projection_dim {
            keys.agree("projection_dim", width)?;
        }
        let num_attention_heads = keys.setting("num_attention_heads")?.unwrap_or(hidden_size / HEAD);
        if num_attention_heads == 0 || hidden_size % num_attention_heads != 0 {
            return Err(Mismatch::new(format!(
                "a width of {hidden_size} does not divide into {num_attention_heads} heads (`num_attention_heads`)"
            )));
        }
        let published = if hidden_size == WIDTH_OF_OPENAI { Activation::QuickGelu } else { Activation::Gelu };
        Ok(ClipText {
            vocab_size,
            max_position_embeddings,
            hidden_size,
            intermediate_size,
            num_hidden_layers,
            num_attention_heads,
            hidden_act: keys.setting("hidden_act")?.unwrap_or(published),
            layer_norm_eps: keys.setting("layer_norm_eps")?.unwrap_or(1e-5),
            eos_token_id: keys.setting("eos_token_id")?.unwrap_or(LARGEST),
            projection_dim,
            prefixed,
        })
    }

    fn contract(&self) -> Contract {
        let tokens = Axis::Tokens(Some(self.max_position_embeddings));
        let embedding =
            |name: &str, axes: &[Axis], from: Embedding| TensorSpec::new(name, axes, Meaning::Embedding { from });
        let state = |name: &str, from| embedding(name, &[Axis::Batch, tokens, Axis::Channels(self.hidden_size)], from);
        let last = state("last_hidden_state", Embedding::Last);
        let mut outputs = match self.projection_dim {
            Some(width) => {
                vec![embedding("text_embeds", &[Axis::Batch, Axis::Channels(width)], Embedding::Projected), last]
            }
            None => {
                let axes = [Axis::Batch, Axis::Channels(self.hidden_size)];
                vec![last, embedding("pooler_output", &axes, Embedding::Pooled)]
            }
        };
        let states = 0..=self.num_hidden_layers;
        outputs.extend(states.map(|layer| state(&format!("hidden_states.{layer}"), Embedding::Layer(layer))));
        let vocabulary = Meaning::Tokens { vocabulary: self.vocab_size };
        Contract {
            task: Self::TASK,
            inputs: vec![TensorSpec::new("input_ids", [Axis::Batch, tokens], vocabulary).of_type(DataType::I64)],
            outputs,
            receptive_field: ReceptiveField::Unbounded,
            safe_precisions: vec![Precision::Fp32, Precision::Fp16, Precision::Bf16],
        }
    }

    /// Without a fixed shape, a text has as many tokens as there are positions: tokenizers pad texts to this length.
    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let [dims] = shapes.resolve([("input_ids", &[Dim::symbol("batch"), Dim::symbol("sequence")])])?;
        let [batch, tokens] = [0, 1].map(|axis| dims[axis].clone());
        let tokens = tokens.fixed().unwrap_or(self.max_position_embeddings);
        if tokens > self.max_position_embeddings {
            let most = self.max_position_embeddings;
            return Err(crate::Error::Shape {
                input: "input_ids".into(),
                expected: format!("at most {most} tokens"),
                found: tokens.to_string(),
                reason: None,
            });
        }
        let ids = w.trace().input("input_ids", TensorType::new(DataType::I64, [batch, Dim::Fixed(tokens)]));
        self.network(w, &ids, tokens);
        Ok(())
    }

    fn ignores(&self, name: &str) -> bool {
        // A buffer of 0, 1, 2, … that older versions saved, and the scale with which training compared texts with
        // pictures.
        name.ends_with("embeddings.position_ids") || name == "logit_scale"
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = ClipText {
            vocab_size: 40,
            max_position_embeddings: 7,
            hidden_size: 8,
            intermediate_size: 12,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            hidden_act: Activation::QuickGelu,
            layer_norm_eps: 1e-5,
            eos_token_id: LARGEST,
            projection_dim: None,
            prefixed: true,
        };
        let openai = ClipText {
            vocab_size: 49408,
            max_position_embeddings: 77,
            hidden_size: WIDTH_OF_OPENAI,
            intermediate_size: 3072,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            ..tiny.clone()
        };
        let sd2 = ClipText {
            hidden_size: 1024,
            intermediate_size: 4096,
            num_hidden_layers: 23,
            num_attention_heads: 16,
            hidden_act: Activation::Gelu,
            ..openai.clone()
        };
        let big = ClipText {
            hidden_size: 1280,
            intermediate_size: 5120,
            num_hidden_layers: 32,
            num_attention_heads: 20,
            projection_dim: Some(1280),
            ..sd2.clone()
        };
        vec![
            ("tiny", tiny.clone()),
            (
                "tiny-projection",
                ClipText { hidden_act: Activation::Gelu, eos_token_id: 39, projection_dim: Some(6), ..tiny.clone() },
            ),
            ("tiny-unprefixed", ClipText { prefixed: false, ..tiny }),
            ("clip-l", openai),
            ("sd21", sd2),
            ("openclip-bigg", big),
        ]
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        let activation = if self.hidden_act == Activation::Gelu { "gelu" } else { "quick_gelu" };
        vec![
            ("num_attention_heads", self.num_attention_heads.to_string()),
            ("hidden_act", activation.into()),
            ("eos_token_id", self.eos_token_id.to_string()),
        ]
    }
}

fn prefix(prefixed: bool) -> &'static str {
    if prefixed { "text_model." } else { "" }
}

impl ClipText {
    /// `ids` `[batch, tokens]` → the states before and after each layer, the normalised last states, and the state of
    /// the whole text.
    fn network(&self, w: &Scope<'_>, ids: &Value, tokens: usize) {
        let trace = w.trace();
        let text = |name: &str| w.at(format!("{}{name}", prefix(self.prefixed)));
        let positions =
            text("embeddings.position_embedding").tensor("weight", [self.max_position_embeddings, self.hidden_size]);
        let positions = if tokens < self.max_position_embeddings { positions.slice(0, 0, tokens) } else { positions };
        let words = embedding(&text("embeddings.token_embedding"), ids, self.vocab_size, self.hidden_size);
        let embedded = words + positions;
        let sequences = Sequences::new(&embedded);
        let mut x = sequences.rows();
        let mut states = vec![embedded.clone()];
        for layer in 0..self.num_hidden_layers {
            x = self.layer(&text(&format!("encoder.layers.{layer}")), &x, &sequences);
            states.push(sequences.restore(&x));
        }
        let last = sequences.restore(&layer_norm(&text("final_layer_norm"), &x, self.layer_norm_eps as f32));
        let whole = self.whole(w, &last, ids);
        // Pipelines take the first output as the text's states, and the others by their names.
        if self.projection_dim.is_some() {
            trace.output("text_embeds", &whole);
            trace.output("last_hidden_state", &last);
        } else {
            trace.output("last_hidden_state", &last);
            trace.output("pooler_output", &whole);
        }
        for (number, state) in states.iter().enumerate() {
            trace.output(&format!("hidden_states.{number}"), state);
        }
    }

    /// y = x + attention(norm(x)), then y + mlp(norm(y)). `x` are rows.
    fn layer(&self, w: &Scope<'_>, x: &Value, sequences: &Sequences) -> Value {
        let a = w.at("self_attn");
        let normalised = layer_norm(&w.at("layer_norm1"), x, self.layer_norm_eps as f32);
        let [q, k, v] = ["q_proj", "k_proj", "v_proj"].map(|name| linear(&a.at(name), &normalised, self.hidden_size));
        let attended = attention_of_rows([&q, &k, &v], sequences, sequences, self.num_attention_heads, true);
        let x = x + linear(&a.at("out_proj"), &attended, self.hidden_size);
        let normalised = layer_norm(&w.at("layer_norm2"), &x, self.layer_norm_eps as f32);
        let wide = linear(&w.at("mlp.fc1"), &normalised, self.intermediate_size);
        let active = match self.hidden_act {
            Activation::QuickGelu => &wide * wide.scale(1.702).sigmoid(),
            Activation::Gelu => wide.gelu(),
        };
        x + linear(&w.at("mlp.fc2"), &active, self.hidden_size)
    }

    /// The state `[batch, width]` of each text's end token.
    fn whole(&self, w: &Scope<'_>, last: &Value, ids: &Value) -> Value {
        // f32 holds token numbers exactly, and every runtime can compare and search it.
        let numbers = ids.cast(DataType::F32);
        let end = match self.eos_token_id {
            LARGEST => numbers.arg_max(1),
            token => numbers.is_equal_to(token as f32).arg_max(1),
        };
        let state = last.gather_each(&end);
        match self.projection_dim {
            Some(width) => linear_unbiased(&w.at("text_projection"), &state, width),
            None => state,
        }
    }
}
