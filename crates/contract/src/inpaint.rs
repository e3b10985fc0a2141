//! Networks that inpaint the area of a mask, with their contract as one struct.

use crate::rule::rule;
use crate::{
    Axis, ChannelOrder, Contract, Error, Extent, Meaning, Precision, ReceptiveField, Result, Task, TensorSpec,
};

/// The contract of a network that generates the pixels of a picture where a mask is 1.
///
/// Inputs: the picture `[batch, 3, height, width]` and the mask `[batch, 1, height, width]`; output
/// `[batch, 3, height, width]`; float32. The network sees the whole picture. The picture is not padded: the caller
/// chooses the area that the network gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Inpaint {
    /// Name of the picture.
    pub image: String,
    /// Name of the mask.
    pub mask: String,
    /// Name of the output.
    pub output: String,
    /// The values of black and of white, in and out.
    pub range: [f32; 2],
    /// Heights and widths are multiples of this.
    pub size_multiple: usize,
    /// The least height and width.
    pub size_minimum: usize,
    /// The precisions in which the whole network is known to keep its quality.
    pub safe_precisions: Vec<Precision>,
}

impl Inpaint {
    /// The contract.
    pub fn contract(&self) -> Contract {
        let side = Extent::multiple_of(self.size_multiple).at_least(self.size_minimum);
        let tensor = |name: &str, channels: usize, meaning: Meaning| {
            let axes = [Axis::Batch, Axis::Channels(channels), Axis::Height(side), Axis::Width(side)];
            TensorSpec::new(name, axes, meaning)
        };
        let pixels =
            || Meaning::Pixels { range: self.range, normalisation: None, order: ChannelOrder::Rgb, padding: None };
        Contract {
            task: Task::Inpaint,
            inputs: vec![tensor(&self.image, 3, pixels()), tensor(&self.mask, 1, Meaning::Mask)],
            outputs: vec![tensor(&self.output, 3, pixels())],
            receptive_field: ReceptiveField::Unbounded,
            safe_precisions: self.safe_precisions.clone(),
        }
    }

    /// Reads the contract of a network that inpaints the area of a mask.
    ///
    /// # Errors
    /// [`Error::Task`]: the contract is for another task; [`Error::Rule`]: it has other tensors than such networks
    /// have.
    pub fn of(contract: &Contract) -> Result<Self> {
        if contract.task != Task::Inpaint {
            return Err(Error::Task { expected: Task::Inpaint, found: contract.task });
        }
        let ([image, mask], [output]) = (contract.inputs.as_slice(), contract.outputs.as_slice()) else {
            return Err(Error::Rule {
                place: "inputs".into(),
                expected: "a picture, its mask, and one output".into(),
                found: format!("{} inputs and {} outputs", contract.inputs.len(), contract.outputs.len()),
            });
        };
        let (side, range) = (side(image, "inputs")?, range(image, "inputs")?);
        let is_mask = mask.meaning == Meaning::Mask;
        rule(is_mask, "inputs", || "a mask beside the picture".into(), || format!("{:?}", mask.meaning))?;
        for (tensor, place) in [(mask, "inputs"), (output, "outputs")] {
            let found = self::side(tensor, place)?;
            rule(found == side, place, || format!("sides as the picture's: {side}"), || found.to_string())?;
        }
        let found = self::range(output, "outputs")?;
        rule(found == range, "outputs", || format!("the range {range:?}"), || format!("{found:?}"))?;
        Ok(Self {
            image: image.name.clone(),
            mask: mask.name.clone(),
            output: output.name.clone(),
            range,
            size_multiple: side.step,
            size_minimum: side.least(),
            safe_precisions: contract.safe_precisions.clone(),
        })
    }
}

/// The extent of the height and of the width of a tensor, which are equal.
fn side(tensor: &TensorSpec, place: &str) -> Result<Extent> {
    let [Axis::Batch, Axis::Channels(_), Axis::Height(height), Axis::Width(width)] = *tensor.axes else {
        let found = tensor.axes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let expected = "[batch, channels, height, width]".into();
        return Err(Error::Rule { place: place.into(), expected, found: format!("[{found}]") });
    };
    rule(height == width, place, || format!("a width as the height: {height}"), || width.to_string())?;
    let plain = height.offset == 0 && height.step > 0 && height.maximum.is_none();
    rule(plain, place, || "multiples of a number".into(), || height.to_string())?;
    Ok(height)
}

/// The values of black and white of a tensor of pixels.
fn range(tensor: &TensorSpec, place: &str) -> Result<[f32; 2]> {
    match tensor.meaning {
        Meaning::Pixels { range, normalisation: None, order: ChannelOrder::Rgb, .. } => Ok(range),
        ref other => {
            let expected = "RGB pixels without normalisation".into();
            Err(Error::Rule { place: place.into(), expected, found: format!("{other:?}") })
        }
    }
}
