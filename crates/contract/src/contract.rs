//! The contract of a model, and checking tensors against it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::axis::AxisKind;
use crate::rule::rule;
use crate::{Axis, ChannelOrder, DataType, Error, Extent, Meaning, Precision, Result, Sizes, Task};

/// The lengths of a tensor's axes.
pub type Shape = Vec<usize>;

/// The shapes of several tensors, by name.
pub type Shapes = BTreeMap<String, Shape>;

/// Largest number of inputs, and of outputs. Text encoders have an output for each hidden state, video autoencoders a
/// cache for each convolution.
const TENSORS_MAXIMUM: usize = 512;
/// Largest number of axes of a tensor.
const AXES_MAXIMUM: usize = 8;
/// Largest fixed length, step and minimum of an axis.
const LENGTH_MAXIMUM: usize = 1 << 20;
/// Longest name of a tensor, in bytes.
const NAME_MAXIMUM: usize = 256;
/// Largest radius of a bounded receptive field, in input pixels.
const RECEPTIVE_FIELD_MAXIMUM: u32 = 1 << 14;

/// Everything that must be known to run a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// What the model does.
    pub task: Task,
    /// Its inputs, in the graph's order.
    pub inputs: Vec<TensorSpec>,
    /// Its outputs, in the graph's order.
    pub outputs: Vec<TensorSpec>,
    /// How far an output pixel sees.
    pub receptive_field: ReceptiveField,
    /// The precisions in which the whole network is known to keep its quality.
    pub safe_precisions: Vec<Precision>,
}

/// One input or output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Its name in the graph.
    pub name: String,
    /// The type of its elements.
    #[serde(rename = "type")]
    pub data_type: DataType,
    /// Its axes, the outermost first.
    pub axes: Vec<Axis>,
    /// What its values are.
    pub meaning: Meaning,
}

/// The distance, in each direction, within which an output pixel depends on input pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceptiveField {
    /// At most this many pixels. Tiles that overlap by twice this number give the same pixels as the whole picture.
    Radius(u32),
    /// The whole picture, or unknown.
    Unbounded,
}

impl ReceptiveField {
    /// The radius; `None` if it is unbounded.
    pub fn radius(self) -> Option<u32> {
        match self {
            Self::Radius(pixels) => Some(pixels),
            Self::Unbounded => None,
        }
    }
}

impl TensorSpec {
    /// A tensor of 32-bit floats.
    pub fn new(name: impl Into<String>, axes: impl Into<Vec<Axis>>, meaning: Meaning) -> Self {
        Self { name: name.into(), data_type: DataType::F32, axes: axes.into(), meaning }
    }

    /// The same tensor with elements of another type.
    #[must_use]
    pub fn of_type(self, data_type: DataType) -> Self {
        Self { data_type, ..self }
    }

    /// Its shape for the given sizes.
    ///
    /// # Errors
    /// [`Error::Shape`] with the first axis that does not allow the sizes.
    pub fn shape(&self, sizes: &Sizes) -> Result<Shape> {
        let length = |axis: &Axis| {
            axis.length(sizes).ok_or_else(|| Error::Shape {
                tensor: self.name.clone(),
                expected: axis.to_string(),
                found: format!("{sizes:?}"),
            })
        };
        self.axes.iter().map(length).collect()
    }

    /// What `find` returns for the first axis that it accepts.
    fn axis<T>(&self, find: impl Fn(&Axis) -> Option<T>) -> Option<T> {
        self.axes.iter().find_map(find)
    }

    /// The fixed number of its channels.
    pub fn channels(&self) -> Option<usize> {
        self.axis(|axis| if let Axis::Channels(count) = axis { Some(*count) } else { None })
    }

    /// The extent of its height.
    pub fn height(&self) -> Option<Extent> {
        self.axis(|axis| if let Axis::Height(extent) = axis { Some(*extent) } else { None })
    }

    /// The extent of its width.
    pub fn width(&self) -> Option<Extent> {
        self.axis(|axis| if let Axis::Width(extent) = axis { Some(*extent) } else { None })
    }

    /// The extent of its frames.
    pub fn frames(&self) -> Option<Extent> {
        self.axis(|axis| if let Axis::Frames(extent) = axis { Some(*extent) } else { None })
    }

    /// The largest number of tokens, if there is a limit.
    pub fn most_tokens(&self) -> Option<usize> {
        self.axis(|axis| if let Axis::Tokens(most) = axis { *most } else { None })
    }

    /// "[batch, 3 channels, height (a multiple of 8), width (a multiple of 8)]".
    fn axes_text(&self) -> String {
        format!("[{}]", self.axes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    }

    fn validate(&self, place: &str) -> Result<()> {
        let place = format!("{place}.{}", self.name.escape_debug());
        let named =
            !self.name.is_empty() && self.name.len() <= NAME_MAXIMUM && !self.name.chars().any(char::is_control);
        rule(
            named,
            &place,
            || format!("a name of 1 to {NAME_MAXIMUM} printable bytes"),
            || self.name.len().to_string(),
        )?;
        rule(
            self.axes.len() <= AXES_MAXIMUM,
            &place,
            || format!("at most {AXES_MAXIMUM} axes"),
            || self.axes.len().to_string(),
        )?;
        self.axes.iter().try_for_each(|axis| validate_axis(*axis, &place))?;
        let expected = match (&self.meaning, self.data_type) {
            (Meaning::Tokens { .. }, _) => DataType::I64,
            (Meaning::Values | Meaning::TextMask | Meaning::TextLength, DataType::I64) => DataType::I64,
            _ => DataType::F32,
        };
        rule(self.data_type == expected, &place, || format!("elements of {expected}"), || self.data_type.to_string())?;
        self.validate_meaning(&place)
    }

    fn validate_meaning(&self, place: &str) -> Result<()> {
        let channels = self.channels();
        let found_channels = || channels.map_or("none".into(), |count| count.to_string());
        let ascending = |[low, high]: [f32; 2]| {
            let sound = low < high && low.is_finite() && high.is_finite() && (high - low).is_finite();
            rule(sound, place, || "two numbers in ascending order".into(), || format!("{low} and {high}"))
        };
        let finite = |value: f32| rule(value.is_finite(), place, || "a number".into(), || value.to_string());
        match &self.meaning {
            Meaning::Pixels { range, normalisation, order, .. } => {
                ascending(*range)?;
                let expected = if *order == ChannelOrder::Grey { 1 } else { 3 };
                rule(channels == Some(expected), place, || format!("{expected} channels ({order})"), found_channels)?;
                let Some(normalisation) = normalisation else { return Ok(()) };
                rule(expected == 3, place, || "no normalisation of grey".into(), || "one".into())?;
                normalisation.mean.into_iter().try_for_each(finite)?;
                normalisation.deviation.into_iter().try_for_each(|deviation| {
                    rule(
                        deviation > 0.0 && deviation.is_finite(),
                        place,
                        || "deviations above 0".into(),
                        || deviation.to_string(),
                    )
                })
            }
            Meaning::Mask => rule(channels == Some(1), place, || "1 channel (a mask)".into(), found_channels),
            Meaning::Depth { missing, .. } => missing.map_or(Ok(()), finite),
            Meaning::Latent { scaling, shift } | Meaning::LatentDistribution { scaling, shift } => {
                rule(*scaling != 0.0, place, || "a scaling that is not 0".into(), || scaling.to_string())?;
                if matches!(self.meaning, Meaning::LatentDistribution { .. }) {
                    let even = channels.is_some_and(|count| count.is_multiple_of(2));
                    rule(even, place, || "an even number of channels".into(), found_channels)?;
                }
                finite(*scaling).and(finite(*shift))
            }
            Meaning::NoisyLatent { latent, condition, mask, masked_image } => {
                let parts = [*latent, *condition, *mask, *masked_image];
                let sum = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(*part));
                rule(channels.is_some() && channels == sum, place, || format!("{sum:?} channels"), found_channels)
            }
            Meaning::Timestep { range } | Meaning::Guidance { range } => ascending(*range),
            Meaning::TextMask => {
                let sound = matches!(*self.axes, [Axis::Batch, Axis::Tokens(_) | Axis::Fixed(_)]);
                rule(sound, place, || "[batch, tokens] (a mask of a text)".into(), || self.axes_text())
            }
            Meaning::TextLength => {
                let sound = *self.axes == [Axis::Batch];
                rule(sound, place, || "[batch] (the length of a text)".into(), || self.axes_text())
            }
            Meaning::Tokens { vocabulary } => {
                rule(*vocabulary > 0, place, || "a vocabulary of at least one token".into(), || "none".into())
            }
            Meaning::Prediction
            | Meaning::Embedding { .. }
            | Meaning::TimeIds
            | Meaning::Residual
            | Meaning::Carried { .. }
            | Meaning::Cache
            | Meaning::Values => Ok(()),
        }
    }
}

fn validate_axis(axis: Axis, place: &str) -> Result<()> {
    let bounded = |value: usize| {
        let sound = (1..=LENGTH_MAXIMUM).contains(&value);
        rule(sound, place, || format!("an axis of 1 to {LENGTH_MAXIMUM}"), || value.to_string())
    };
    match axis {
        Axis::Batch | Axis::Tokens(None) => Ok(()),
        Axis::Channels(length) | Axis::Fixed(length) | Axis::Tokens(Some(length)) => bounded(length),
        Axis::Height(extent) | Axis::Width(extent) | Axis::Frames(extent) => {
            bounded(extent.step)?;
            bounded(extent.minimum)?;
            let most = extent.maximum.unwrap_or(extent.minimum);
            bounded(most)?;
            rule(
                most >= extent.minimum,
                place,
                || format!("a maximum from {} on", extent.minimum),
                || most.to_string(),
            )?;
            rule(extent.least() > 0, place, || "an axis of at least 1".into(), || extent.to_string())
        }
    }
}

impl Contract {
    /// Checks the rules of every task.
    pub(crate) fn check_rules(&self) -> Result<()> {
        for (place, tensors) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            let sound = (1..=TENSORS_MAXIMUM).contains(&tensors.len());
            rule(sound, place, || format!("1 to {TENSORS_MAXIMUM} tensors"), || tensors.len().to_string())?;
            tensors.iter().try_for_each(|tensor| tensor.validate(place))?;
            let names: BTreeSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            rule(names.len() == tensors.len(), place, || "names that differ".into(), || "two equal ones".into())?;
        }
        for (input, output) in self.carried_names() {
            let place = format!("inputs.{}", input.name.escape_debug());
            let from = self.output(output);
            rule(from.is_some(), &place, || format!("an output `{}`", output.escape_debug()), || "none".into())?;
            let same = from.is_some_and(|from| from.axes == input.axes && from.data_type == input.data_type);
            rule(same, &place, || format!("the axes of `{}`", output.escape_debug()), || input.axes_text())?;
        }
        let radius = self.receptive_field.radius().unwrap_or(0);
        let expected = || format!("at most {RECEPTIVE_FIELD_MAXIMUM}");
        rule(radius <= RECEPTIVE_FIELD_MAXIMUM, "receptive_field", expected, || radius.to_string())
    }

    /// The input of this name.
    pub fn input(&self, name: &str) -> Option<&TensorSpec> {
        self.inputs.iter().find(|tensor| tensor.name == name)
    }

    /// The output of this name.
    pub fn output(&self, name: &str) -> Option<&TensorSpec> {
        self.outputs.iter().find(|tensor| tensor.name == name)
    }

    fn carried_names(&self) -> impl Iterator<Item = (&TensorSpec, &str)> {
        self.inputs.iter().filter_map(|input| match &input.meaning {
            Meaning::Carried { from } => Some((input, from.as_str())),
            _ => None,
        })
    }

    /// Each input that is carried over from the previous run, with the output that it comes from.
    pub fn carried(&self) -> impl Iterator<Item = (&TensorSpec, &TensorSpec)> {
        self.carried_names().filter_map(|(input, from)| Some((input, self.output(from)?)))
    }

    /// Whether every tensor has a part for each sample, and none is carried over to the next run. Then the samples of a
    /// run have nothing to do with each other.
    pub fn has_separate_samples(&self) -> bool {
        let is_separate = |tensor: &TensorSpec| {
            tensor.axes.first() == Some(&Axis::Batch)
                && !matches!(tensor.meaning, Meaning::Carried { .. } | Meaning::Cache)
        };
        self.inputs.iter().chain(&self.outputs).all(is_separate)
    }

    /// The shapes of all inputs for the given sizes.
    ///
    /// # Errors
    /// [`Error::Shape`]: an axis does not allow one of them.
    pub fn input_shapes(&self, sizes: &Sizes) -> Result<Shapes> {
        self.inputs.iter().map(|tensor| Ok((tensor.name.clone(), tensor.shape(sizes)?))).collect()
    }

    /// The shapes of all outputs for the given sizes.
    ///
    /// # Errors
    /// [`Error::Shape`]: an axis does not allow one of them.
    pub fn output_shapes(&self, sizes: &Sizes) -> Result<Shapes> {
        self.outputs.iter().map(|tensor| Ok((tensor.name.clone(), tensor.shape(sizes)?))).collect()
    }

    /// The sizes that follow from inputs of these shapes.
    ///
    /// # Errors
    /// [`Error::Shape`]: a tensor is missing or additional, has another number of axes or a length that its axis does
    /// not allow, or two tensors contradict each other.
    pub fn sizes(&self, inputs: &Shapes) -> Result<Sizes> {
        let mut known: Vec<(AxisKind, usize, &str)> = Vec::new();
        let mut sizes = Sizes::default();
        for tensor in &self.inputs {
            let wrong = |expected: String, found: String| Error::Shape { tensor: tensor.name.clone(), expected, found };
            let Some(shape) = inputs.get(&tensor.name) else { return Err(wrong("an input".into(), "none".into())) };
            if shape.len() != tensor.axes.len() {
                return Err(wrong(tensor.axes_text(), format!("{shape:?}")));
            }
            for (axis, length) in tensor.axes.iter().zip(shape) {
                let (kind, size) = axis.size(*length).ok_or_else(|| wrong(tensor.axes_text(), format!("{shape:?}")))?;
                let Some(kind) = kind else { continue };
                match known.iter().find(|(other, ..)| *other == kind) {
                    Some((_, other, first)) if *other != size => {
                        return Err(wrong(format!("{axis} as in `{first}`"), format!("{shape:?}")));
                    }
                    Some(_) => {}
                    None => {
                        known.push((kind, size, &tensor.name));
                        *kind.of(&mut sizes) = size;
                    }
                }
            }
        }
        match inputs.keys().find(|name| self.input(name).is_none()) {
            Some(name) => {
                Err(Error::Shape { tensor: name.clone(), expected: "no such input".into(), found: "one".into() })
            }
            None => Ok(sizes),
        }
    }

    /// The sizes of a graph whose inputs and outputs have these shapes.
    ///
    /// # Errors
    /// As [`Contract::sizes`]; or [`Error::Shape`]: an output is missing or additional, or has another shape than the
    /// sizes give.
    pub fn check(&self, inputs: &Shapes, outputs: &Shapes) -> Result<Sizes> {
        let sizes = self.sizes(inputs)?;
        let expected = self.output_shapes(&sizes)?;
        for name in expected.keys().chain(outputs.keys()) {
            let (expected, found) = (expected.get(name), outputs.get(name));
            if expected != found {
                let text = |shape: Option<&Shape>| shape.map_or("no such output".into(), |shape| format!("{shape:?}"));
                return Err(Error::Shape { tensor: name.clone(), expected: text(expected), found: text(found) });
            }
        }
        Ok(sizes)
    }
}
