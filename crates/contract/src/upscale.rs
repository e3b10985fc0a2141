//! Networks from picture to picture, with their contract as one struct.

use crate::rule::rule;
use crate::{
    Axis, ChannelOrder, Contract, Error, Extent, Meaning, Padding, Precision, ReceptiveField, Result, Task, TensorSpec,
};

/// Largest enlargement, along each axis.
const SCALE_MAXIMUM: usize = 64;

/// The contract of a network that maps a picture to a picture: one input of pixels, one output of pixels.
///
/// Input `[batch, channels, height, width]`, output `[batch, channels, height · scale, width · scale]`, float32.
#[derive(Clone, Debug, PartialEq)]
pub struct Upscale {
    /// Name of the input.
    pub input: String,
    /// Name of the output.
    pub output: String,
    /// Output pixels for each input pixel, along each axis: 1 to 64.
    pub scale: usize,
    /// Channels in and out: 1 (grey) or 3 (red, green, blue).
    pub channels: usize,
    /// The values of black and of white, in and out.
    pub range: [f32; 2],
    /// Heights and widths of the input are multiples of this.
    pub size_multiple: usize,
    /// The least height and width of the input.
    pub size_minimum: usize,
    /// Height and width of every picture, for a network that takes only whole pictures of this size, such as an
    /// aligned face. `None`: pictures may have any size, because they are padded and cut into tiles.
    pub only_size: Option<usize>,
    /// How pictures that are too small, or no multiple of `size_multiple`, are padded.
    pub padding: Padding,
    /// How far an output pixel sees.
    pub receptive_field: ReceptiveField,
    /// The precisions in which the whole network is known to keep its quality.
    pub safe_precisions: Vec<Precision>,
}

impl Upscale {
    /// The contract.
    pub fn contract(&self) -> Contract {
        let free = Extent::multiple_of(self.size_multiple).at_least(self.size_minimum);
        let side = self.only_size.map_or(free, Extent::exactly);
        let order = if self.channels == 1 { ChannelOrder::Grey } else { ChannelOrder::Rgb };
        let tensor = |name: &str, side: Extent, padding: Option<Padding>| {
            let axes = [Axis::Batch, Axis::Channels(self.channels), Axis::Height(side), Axis::Width(side)];
            TensorSpec::new(name, axes, Meaning::Pixels { range: self.range, normalisation: None, order, padding })
        };
        Contract {
            task: Task::Upscale,
            inputs: vec![tensor(&self.input, side, Some(self.padding))],
            outputs: vec![tensor(&self.output, side.times(self.scale), None)],
            receptive_field: self.receptive_field,
            safe_precisions: self.safe_precisions.clone(),
        }
    }

    /// Reads the contract of a network from picture to picture.
    ///
    /// # Errors
    /// [`Error::Task`]: the contract is for another task; [`Error::Rule`]: it has other tensors than such networks
    /// have.
    pub fn of(contract: &Contract) -> Result<Self> {
        if contract.task != Task::Upscale {
            return Err(Error::Task { expected: Task::Upscale, found: contract.task });
        }
        let ([input], [output]) = (contract.inputs.as_slice(), contract.outputs.as_slice()) else {
            let found = format!("{} inputs and {} outputs", contract.inputs.len(), contract.outputs.len());
            return Err(broken("inputs", "one input and one output of an upscaler", found));
        };
        let (side, channels, range, padding) = picture(input, "inputs")?;
        let (enlarged, output_channels, output_range, _) = picture(output, "outputs")?;
        let padding = padding.ok_or_else(|| broken("inputs", "a way to extend pictures", "none".into()))?;
        let scale = enlarged.step / side.step;
        let same = side.times(scale) == enlarged && (1..=SCALE_MAXIMUM).contains(&scale);
        rule(same, "outputs", || format!("sides of 1 to {SCALE_MAXIMUM} times the input's"), || enlarged.to_string())?;
        rule(
            channels == output_channels,
            "outputs",
            || format!("{channels} channels"),
            || output_channels.to_string(),
        )?;
        rule(range == output_range, "outputs", || format!("the range {range:?}"), || format!("{output_range:?}"))?;
        Ok(Self {
            input: input.name.clone(),
            output: output.name.clone(),
            scale,
            channels,
            range,
            size_multiple: side.step,
            size_minimum: side.least(),
            only_size: side.only(),
            padding,
            receptive_field: contract.receptive_field,
            safe_precisions: contract.safe_precisions.clone(),
        })
    }
}

/// The sides, channels, range and padding of a tensor of pixels.
fn picture(tensor: &TensorSpec, place: &str) -> Result<(Extent, usize, [f32; 2], Option<Padding>)> {
    let [Axis::Batch, Axis::Channels(channels), Axis::Height(height), Axis::Width(width)] = tensor.axes.as_slice()
    else {
        let found = tensor.axes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(broken(place, "[batch, channels, height, width]", format!("[{found}]")));
    };
    rule(height == width, place, || format!("a width as the height: {height}"), || width.to_string())?;
    rule(height.offset == 0 && height.step > 0, place, || "multiples of a number".into(), || height.to_string())?;
    match &tensor.meaning {
        Meaning::Pixels { range, normalisation: None, order: ChannelOrder::Grey | ChannelOrder::Rgb, padding } => {
            Ok((*height, *channels, *range, *padding))
        }
        other => Err(broken(place, "grey or RGB pixels without normalisation", format!("{other:?}"))),
    }
}

fn broken(place: &str, expected: &str, found: String) -> Error {
    Error::Rule { place: place.into(), expected: expected.into(), found }
}
