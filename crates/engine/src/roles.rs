//! The roles of the parts of a diffusion pipeline, and the conditions of its denoiser.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tileforge_contract::{Contract, Embedding, Meaning, TensorSpec};

use crate::error::Result;
use crate::validate::rule;

/// Text encoders among diffusers' components, and the folders of their tokenizers.
const TEXTS: [(&str, &str); 2] = [("text_encoder", "tokenizer"), ("text_encoder_2", "tokenizer_2")];

/// The roles of the parts of a diffusion pipeline, by the parts' names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roles {
    /// Predicts the noise in a latent.
    pub denoiser: String,
    /// Makes a picture from a latent.
    pub decoder: String,
    /// Makes a latent from a picture. Pipelines that only start from noise need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoder: Option<String>,
    /// The text encoders, which make states from a text.
    pub texts: Vec<TextRole>,
    /// For each text input of the denoiser, the text encoders' outputs that are concatenated in it. Older releases did
    /// not write them: use [`Pipeline::roles`](crate::Pipeline::roles), which adds them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, Vec<TextOutput>>,
}

/// An output of a text encoder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextOutput {
    /// The part.
    pub part: String,
    /// The output's name in its contract.
    pub output: String,
}

/// A text encoder among the parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextRole {
    /// The part.
    pub part: String,
    /// The folder of its tokenizer, beside the parts.
    pub tokenizer: String,
}

impl Roles {
    /// The roles of parts that have the names of diffusers' components. `parts` gives the contract of each.
    pub fn of_components(parts: &BTreeMap<&str, &Contract>) -> Self {
        let text = |(part, tokenizer): (&str, &str)| {
            parts.contains_key(part).then(|| TextRole { part: part.into(), tokenizer: tokenizer.into() })
        };
        let roles = Self {
            denoiser: "unet".into(),
            decoder: "vae_decoder".into(),
            encoder: parts.contains_key("vae_encoder").then(|| "vae_encoder".to_owned()),
            texts: TEXTS.into_iter().filter_map(text).collect(),
            conditions: BTreeMap::new(),
        };
        roles.conditioned(parts)
    }

    /// The same roles, with the conditions of Stable Diffusion or SDXL if none are stated. If the denoiser takes no
    /// projected vector: the last states of each text encoder. If it does: the states before the last layer of each
    /// text encoder, and the projected vector of the last encoder that has one.
    pub(crate) fn conditioned(mut self, parts: &BTreeMap<&str, &Contract>) -> Self {
        let Some(denoiser) = parts.get(&*self.denoiser).filter(|_| self.conditions.is_empty()) else { return self };
        let pools = denoiser.inputs.iter().any(|input| embedding(input) == Some(Embedding::Projected));
        let output = |part: &str, wanted: &dyn Fn(Embedding) -> bool| {
            let found = parts.get(part)?.outputs.iter().find(|output| embedding(output).is_some_and(wanted))?;
            Some(TextOutput { part: part.to_owned(), output: found.name.clone() })
        };
        let states = |text: &TextRole| {
            let layer = |output: &TensorSpec| match embedding(output) {
                Some(Embedding::Layer(layer)) => Some(layer),
                _ => None,
            };
            let last = parts.get(&*text.part)?.outputs.iter().filter_map(layer).max();
            let wanted = if pools { Embedding::Layer(last?.checked_sub(1)?) } else { Embedding::Last };
            output(&text.part, &|from| from == wanted)
        };
        let projected = |text: &TextRole| output(&text.part, &|from| from == Embedding::Projected);
        let condition = |input: &TensorSpec| {
            let outputs = match embedding(input)? {
                Embedding::Context => self.texts.iter().filter_map(states).collect(),
                Embedding::Projected => self.texts.iter().filter_map(projected).next_back().into_iter().collect(),
                _ => Vec::new(),
            };
            (!outputs.is_empty()).then(|| (input.name.clone(), outputs))
        };
        self.conditions = denoiser.inputs.iter().filter_map(condition).collect();
        self
    }

    /// All parts that have a role.
    fn parts(&self) -> impl Iterator<Item = &str> {
        let one = [&self.denoiser, &self.decoder].into_iter().chain(&self.encoder);
        one.chain(self.texts.iter().map(|text| &text.part)).map(String::as_str)
    }

    /// Checks that each part exists and has one role, that each tokenizer has a folder of files, and that conditions
    /// come from text encoders.
    pub(crate) fn validate(&self, is_part: impl Fn(&str) -> bool, is_folder: impl Fn(&str) -> bool) -> Result<()> {
        let mut seen = BTreeSet::new();
        for part in self.parts() {
            let name = part.escape_debug();
            rule(is_part(part), || format!("diffusion.roles: expected a part, found \"{name}\""))?;
            rule(seen.insert(part), || format!("diffusion.roles: the part \"{name}\" has two roles"))?;
        }
        for TextRole { tokenizer, .. } in &self.texts {
            rule(is_folder(tokenizer), || {
                let found = tokenizer.escape_debug();
                format!("diffusion.roles: expected the folder of a tokenizer's files, found \"{found}\"")
            })?;
        }
        for (input, outputs) in &self.conditions {
            let place = || format!("diffusion.roles.conditions.{}", input.escape_debug());
            rule(!outputs.is_empty(), || format!("{}: expected outputs of text encoders, found none", place()))?;
            for TextOutput { part, .. } in outputs {
                rule(self.texts.iter().any(|text| text.part == *part), || {
                    format!(
                        "{}: expected a part that makes states of texts, found \"{}\"",
                        place(),
                        part.escape_debug()
                    )
                })?;
            }
        }
        Ok(())
    }
}

fn embedding(tensor: &TensorSpec) -> Option<Embedding> {
    match tensor.meaning {
        Meaning::Embedding { from } => Some(from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tileforge_contract::{Axis, DataType, ReceptiveField, Task};

    use super::*;

    fn contract(task: Task, inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> Contract {
        Contract { task, inputs, outputs, receptive_field: ReceptiveField::Unbounded, safe_precisions: vec![] }
    }

    fn tensor(name: &str, from: Embedding) -> TensorSpec {
        TensorSpec::new(name, [Axis::Batch, Axis::Channels(8)], Meaning::Embedding { from })
    }

    /// A text encoder of two layers.
    fn text(pooled: (&str, Embedding)) -> Contract {
        let ids = TensorSpec::new("ids", [Axis::Batch, Axis::Tokens(None)], Meaning::Tokens { vocabulary: 9 });
        let layers = [0, 1, 2].map(|layer| tensor(&format!("layer{layer}"), Embedding::Layer(layer)));
        let outputs = [tensor("last", Embedding::Last), tensor(pooled.0, pooled.1)].into_iter().chain(layers).collect();
        contract(Task::TextEncoder, vec![ids.of_type(DataType::I64)], outputs)
    }

    fn denoiser(pools: bool) -> Contract {
        let context = tensor("states", Embedding::Context);
        let pooled = pools.then(|| tensor("vector", Embedding::Projected));
        let ids = TensorSpec::new("time_ids", [Axis::Batch, Axis::Fixed(6)], Meaning::TimeIds);
        let inputs = [context].into_iter().chain(pooled).chain([ids]).collect();
        contract(Task::Unet, inputs, vec![TensorSpec::new("made", [Axis::Batch], Meaning::Prediction)])
    }

    fn conditions<'r>(roles: &'r Roles) -> Vec<(&'r str, Vec<(&'r str, &'r str)>)> {
        let names =
            |outputs: &'r Vec<TextOutput>| outputs.iter().map(|output| (&*output.part, &*output.output)).collect();
        roles.conditions.iter().map(|(input, outputs)| (&**input, names(outputs))).collect()
    }

    #[test]
    fn parts_that_are_named_after_components_have_their_roles_and_conditions() {
        let (plain, xl) = (denoiser(false), denoiser(true));
        let [one, two] = [text(("pooled", Embedding::Pooled)), text(("vector", Embedding::Projected))];
        let stable = BTreeMap::from([("unet", &plain), ("text_encoder", &one), ("vae_decoder", &plain)]);
        let roles = Roles::of_components(&stable);
        assert_eq!((&*roles.denoiser, &*roles.decoder, &roles.encoder), ("unet", "vae_decoder", &None));
        assert_eq!(conditions(&roles), [("states", vec![("text_encoder", "last")])]);
        let both = BTreeMap::from([
            ("unet", &xl),
            ("text_encoder_2", &two),
            ("text_encoder", &one),
            ("vae_encoder", &plain),
            ("text", &one),
        ]);
        let roles = Roles::of_components(&both);
        assert_eq!(roles.encoder.as_deref(), Some("vae_encoder"));
        let texts: Vec<(&str, &str)> = roles.texts.iter().map(|text| (&*text.part, &*text.tokenizer)).collect();
        assert_eq!(texts, [("text_encoder", "tokenizer"), ("text_encoder_2", "tokenizer_2")]);
        let states = vec![("text_encoder", "layer1"), ("text_encoder_2", "layer1")];
        assert_eq!(conditions(&roles), [("states", states), ("vector", vec![("text_encoder_2", "vector")])]);
        // A text encoder without such a vector.
        let lacking = BTreeMap::from([("unet", &xl), ("text_encoder", &one)]);
        assert_eq!(conditions(&Roles::of_components(&lacking)), [("states", vec![("text_encoder", "layer1")])]);
        // No network at all.
        assert_eq!(Roles::of_components(&BTreeMap::new()).conditions, BTreeMap::new());
    }

    #[test]
    fn what_is_stated_is_kept_and_what_an_older_release_left_out_is_added() {
        let (plain, text) = (denoiser(false), text(("pooled", Embedding::Pooled)));
        let parts = BTreeMap::from([("net", &plain), ("words", &text)]);
        let role = TextRole { part: "words".into(), tokenizer: "tokenizer".into() };
        let (denoiser, decoder) = ("net".into(), "decoder".into());
        let older = Roles { denoiser, decoder, encoder: None, texts: vec![role], conditions: BTreeMap::new() };
        assert_eq!(conditions(&older.clone().conditioned(&parts)), [("states", vec![("words", "last")])]);
        let first = TextOutput { part: "words".into(), output: "layer0".into() };
        let stated = Roles { conditions: BTreeMap::from([("states".into(), vec![first])]), ..older };
        assert_eq!(stated.clone().conditioned(&parts), stated);
    }
}
