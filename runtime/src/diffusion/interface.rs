//! The roles of a denoiser's tensors, by the meanings in its contract.

use tileforge_contract::{Axis, Contract, DataType, Embedding, Meaning, TensorSpec};
use tileforge_engine::{Roles, TextOutput};

/// The tensors of a denoising network.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interface {
    /// In the contract's order.
    pub(super) inputs: Vec<Input>,
    /// The noisy latent.
    pub(super) sample: String,
    /// Channels of the noisy latent, of the mask, and of the masked picture's latent.
    pub(super) channels: [usize; 3],
    /// The prediction.
    pub(super) output: String,
}

/// What an input holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    Sample,
    Timestep,
    Condition(Condition),
}

/// An input that the prediction is conditioned on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    /// The input's name.
    pub(super) input: String,
    /// Whether its elements are integers.
    pub(super) is_whole: bool,
    pub(super) on: On,
}

/// The condition that an input takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum On {
    /// A state for each token, of this width: these outputs of text encoders, side by side. `tokens` is the only number
    /// of tokens that the input takes; `None` if it takes any number, so that a long text can have several pieces.
    States { outputs: Vec<TextOutput>, width: usize, tokens: Option<usize> },
    /// A vector for the whole text, of this width: these outputs of text encoders, side by side.
    Vector { outputs: Vec<TextOutput>, width: usize },
    /// The mask of the tokens that these outputs have states for; `tokens` as in `States`.
    Mask { outputs: Vec<TextOutput>, tokens: Option<usize> },
    /// The number of the tokens that these outputs have states for.
    Length { outputs: Vec<TextOutput> },
    /// This many numbers about the picture.
    TimeIds(usize),
    /// The guidance scale.
    Guidance,
    /// The residuals of a control network. Pipelines have none, so they are zeros, which change nothing.
    Residual,
}

impl On {
    /// The outputs of text encoders that it takes or counts; `None` if it is no matter of texts.
    pub(super) fn outputs(&self) -> Option<&[TextOutput]> {
        match self {
            Self::States { outputs, .. }
            | Self::Vector { outputs, .. }
            | Self::Mask { outputs, .. }
            | Self::Length { outputs } => Some(outputs),
            Self::TimeIds(_) | Self::Guidance | Self::Residual => None,
        }
    }
}

impl Interface {
    /// The tensors of a network with these conditions; `None` for another network.
    pub(super) fn of(contract: &Contract, roles: &Roles) -> Option<Self> {
        let (mut inputs, mut noisy) = (Vec::new(), None);
        let states = contract.inputs.iter().filter(|spec| is_states(spec));
        let states: Vec<TextOutput> =
            states.filter_map(|spec| roles.conditions.get(&spec.name)).flatten().cloned().collect();
        for spec in &contract.inputs {
            let input = match &spec.meaning {
                // A model that restores a picture needs its latent, which these pipelines do not make.
                Meaning::NoisyLatent { latent, condition: 0, mask, masked_image } => {
                    noisy = Some((spec.name.clone(), [*latent, *mask, *masked_image]));
                    Input::Sample
                }
                Meaning::Timestep { .. } => Input::Timestep,
                _ => Input::Condition(condition(spec, roles, &states)?),
            };
            if inputs.contains(&input) {
                return None;
            }
            inputs.push(input);
        }
        let has_text =
            inputs.iter().any(|input| matches!(input, Input::Condition(Condition { on: On::States { .. }, .. })));
        let (sample, channels) = noisy.filter(|_| has_text && inputs.contains(&Input::Timestep))?;
        let output = contract.outputs.iter().find(|output| output.meaning == Meaning::Prediction)?;
        Some(Self { inputs, sample, channels, output: output.name.clone() })
    }

    /// What the prediction is conditioned on.
    pub(super) fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.inputs
            .iter()
            .filter_map(|input| if let Input::Condition(condition) = input { Some(condition) } else { None })
    }

    /// How many numbers about the picture it takes; `None` if it takes none.
    pub(super) fn time_ids(&self) -> Option<usize> {
        self.conditions().find_map(|condition| if let On::TimeIds(count) = condition.on { Some(count) } else { None })
    }

    /// For each input that takes states of this text encoder: the only number of tokens that the input takes, if there
    /// is one.
    pub(super) fn tokens_of(&self, part: &str) -> impl Iterator<Item = Option<usize>> {
        self.conditions().filter_map(move |condition| match &condition.on {
            On::States { outputs, tokens, .. } if outputs.iter().any(|output| output.part == part) => Some(*tokens),
            _ => None,
        })
    }

    /// Whether it takes the guidance scale as an input, so that one evaluation is enough.
    pub(super) fn takes_guidance(&self) -> bool {
        self.conditions().any(|condition| condition.on == On::Guidance)
    }
}

/// Whether an input takes a state for each token of a text.
fn is_states(spec: &TensorSpec) -> bool {
    spec.meaning == (Meaning::Embedding { from: Embedding::Context })
}

/// What an input is conditioned on; `None` if it has another meaning. `states`: what all inputs of states take. A mask
/// and a length are of these unless the roles name others.
fn condition(spec: &TensorSpec, roles: &Roles, states: &[TextOutput]) -> Option<Condition> {
    let named = roles.conditions.get(&spec.name).cloned();
    // If there are none, the parts do not fit together; the check of the texts reports how.
    let outputs = || named.clone().unwrap_or_default();
    let counted = || named.clone().unwrap_or_else(|| states.to_vec());
    let fixed = |axis: &Axis| if let Axis::Fixed(length) = axis { Some(*length) } else { None };
    let on = match (&spec.meaning, spec.axes.as_slice()) {
        (_, [Axis::Batch, tokens @ (Axis::Tokens(_) | Axis::Fixed(_)), Axis::Channels(width)]) if is_states(spec) => {
            On::States { outputs: outputs(), width: *width, tokens: fixed(tokens) }
        }
        (
            Meaning::Embedding { from: Embedding::Pooled | Embedding::Projected },
            [Axis::Batch, Axis::Channels(width)],
        ) => On::Vector { outputs: outputs(), width: *width },
        (Meaning::TextMask, [_, tokens]) => On::Mask { outputs: counted(), tokens: fixed(tokens) },
        (Meaning::TextLength, _) => On::Length { outputs: counted() },
        (Meaning::TimeIds, [Axis::Batch, Axis::Fixed(count @ 5..=6)]) => On::TimeIds(*count),
        (Meaning::Guidance { .. }, [] | [Axis::Batch]) => On::Guidance,
        (Meaning::Residual, _) => On::Residual,
        _ => return None,
    };
    Some(Condition { input: spec.name.clone(), is_whole: spec.data_type == DataType::I64, on })
}

#[cfg(test)]
mod tests {
    use tileforge_contract::{Extent, ReceptiveField, Task};

    use super::*;

    const WIDTH: usize = 12;

    fn contract(conditions: Vec<TensorSpec>) -> Contract {
        let side = Extent::multiple_of(1);
        let latent = |channels| [Axis::Batch, Axis::Channels(channels), Axis::Height(side), Axis::Width(side)];
        let noisy = Meaning::NoisyLatent { latent: 4, condition: 0, mask: 1, masked_image: 4 };
        let mut inputs = vec![
            TensorSpec::new("t", [Axis::Batch], Meaning::Timestep { range: [0.0, 1000.0] }),
            TensorSpec::new("x", latent(9), noisy),
        ];
        inputs.extend(conditions);
        let outputs = vec![TensorSpec::new("made", latent(4), Meaning::Prediction)];
        let (receptive_field, safe_precisions) = (ReceptiveField::Unbounded, vec![]);
        Contract { task: Task::Transformer, inputs, outputs, receptive_field, safe_precisions }
    }

    fn states(name: &str) -> TensorSpec {
        let axes = [Axis::Batch, Axis::Tokens(None), Axis::Channels(WIDTH)];
        TensorSpec::new(name, axes, Meaning::Embedding { from: Embedding::Context })
    }

    fn roles(conditions: &[(&str, &str)]) -> Roles {
        let output = |output: &str| TextOutput { part: "words".into(), output: output.into() };
        let conditions = conditions.iter().map(|(input, from)| ((*input).into(), vec![output(from)])).collect();
        Roles { denoiser: "net".into(), decoder: "pictures".into(), encoder: None, texts: vec![], conditions }
    }

    #[test]
    fn every_input_is_told_by_its_meaning_whatever_its_name() {
        let vector = Meaning::Embedding { from: Embedding::Projected };
        let side = Axis::Height(Extent::multiple_of(1));
        let inputs = vec![
            states("first"),
            TensorSpec { axes: vec![Axis::Batch, Axis::Fixed(9), Axis::Channels(WIDTH)], ..states("second") },
            TensorSpec::new("whole", [Axis::Batch, Axis::Channels(5)], vector),
            TensorSpec::new("mask", [Axis::Batch, Axis::Tokens(None)], Meaning::TextMask).of_type(DataType::I64),
            TensorSpec::new("length", [Axis::Batch], Meaning::TextLength),
            TensorSpec::new("numbers", [Axis::Batch, Axis::Fixed(6)], Meaning::TimeIds),
            TensorSpec::new("scale", [Axis::Batch], Meaning::Guidance { range: [1.0, 9.0] }),
            TensorSpec::new("control", [Axis::Batch, Axis::Channels(8), side], Meaning::Residual),
        ];
        let roles = roles(&[("first", "last"), ("second", "layer2"), ("whole", "vector"), ("length", "layer2")]);
        let interface = Interface::of(&contract(inputs), &roles).unwrap();
        assert_eq!((&*interface.sample, &*interface.output, interface.channels), ("x", "made", [4, 1, 4]));
        assert_eq!(interface.inputs[..2], [Input::Timestep, Input::Sample]);
        let output = |output: &str| vec![TextOutput { part: "words".into(), output: output.into() }];
        let both = [output("last"), output("layer2")].concat();
        let condition = |input: &str, is_whole, on| Condition { input: input.into(), is_whole, on };
        let expected = [
            condition("first", false, On::States { outputs: output("last"), width: WIDTH, tokens: None }),
            condition("second", false, On::States { outputs: output("layer2"), width: WIDTH, tokens: Some(9) }),
            condition("whole", false, On::Vector { outputs: output("vector"), width: 5 }),
            condition("mask", true, On::Mask { outputs: both, tokens: None }),
            condition("length", false, On::Length { outputs: output("layer2") }),
            condition("numbers", false, On::TimeIds(6)),
            condition("scale", false, On::Guidance),
            condition("control", false, On::Residual),
        ];
        assert!(interface.conditions().eq(&expected), "{interface:?}");
        assert!(interface.takes_guidance());
        assert_eq!(interface.time_ids(), Some(6));
        assert!(interface.tokens_of("words").eq([None, Some(9)]) && interface.tokens_of("others").next().is_none());
    }

    #[test]
    fn networks_of_other_tasks_are_none() {
        let roles = roles(&[("text", "last")]);
        let of = |contract: &Contract| Interface::of(contract, &roles);
        let plain = contract(vec![states("text")]);
        let interface = of(&plain).unwrap();
        assert!(!interface.takes_guidance() && interface.time_ids().is_none());
        assert_eq!(of(&contract(vec![])), None, "no text");
        for removed in 0..2 {
            let mut lacking = plain.clone();
            drop(lacking.inputs.remove(removed));
            assert_eq!(of(&lacking), None);
            let mut twice = plain.clone();
            twice.inputs.push(TensorSpec { name: "again".into(), ..plain.inputs[removed].clone() });
            assert_eq!(of(&twice), None);
        }
        let restores = Meaning::NoisyLatent { latent: 4, condition: 4, mask: 1, masked_image: 0 };
        let mut restoring = plain.clone();
        restoring.inputs[1].meaning = restores;
        assert_eq!(of(&restoring), None);
        let vector = Meaning::Embedding { from: Embedding::Pooled };
        for other in [
            TensorSpec::new("y", [Axis::Batch], Meaning::Values),
            // Known meanings with axes that no condition fills.
            TensorSpec::new("y", [Axis::Batch, Axis::Fixed(2)], Meaning::Guidance { range: [1.0, 2.0] }),
            TensorSpec::new("y", [Axis::Batch, Axis::Fixed(7)], Meaning::TimeIds),
            TensorSpec::new("y", [Axis::Batch, Axis::Channels(5), Axis::Fixed(2)], vector),
            TensorSpec::new("y", [Axis::Batch, Axis::Channels(5)], Meaning::Embedding { from: Embedding::Context }),
        ] {
            assert_eq!(of(&contract(vec![states("text"), other.clone()])), None, "{other:?}");
        }
        assert_eq!(of(&Contract { outputs: vec![states("made")], ..plain }), None);
    }
}
