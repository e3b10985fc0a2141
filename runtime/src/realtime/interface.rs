//! The roles of a contract's tensors.

use tileforge_contract::{Contract, Extent, Meaning};

use crate::error::{Error, Result};
use crate::pixels::PixelValues;

/// The tensors of a network that turns frames into frames.
pub(super) struct Interface {
    pub(super) frame: String,
    pub(super) frame_values: PixelValues,
    /// Heights and widths in the network.
    pub(super) sides: [Extent; 2],
    /// The input for the timestep and its least and largest value, if there is one.
    pub(super) timestep: Option<(String, [f32; 2])>,
    pub(super) shown: String,
    pub(super) shown_values: PixelValues,
}

/// Whether an engine with this contract turns frames into frames, with a timestep or a carried input.
pub fn is_realtime(contract: &Contract) -> bool {
    let steers = |meaning: &Meaning| matches!(meaning, Meaning::Timestep { .. } | Meaning::Carried { .. });
    Interface::of(contract).is_ok() && contract.inputs.iter().any(|input| steers(&input.meaning))
}

impl Interface {
    pub(super) fn of(contract: &Contract) -> Result<Self> {
        let unknown = |tensor: &str, expected: &str| Error::Tensor {
            tensor: tensor.to_owned(),
            expected: expected.to_owned(),
            found: "another contract".into(),
        };
        let (mut frame, mut timestep) = (None, None);
        for input in &contract.inputs {
            match (&input.meaning, PixelValues::of(input), input.height().zip(input.width())) {
                (_, Some(values), Some((height, width))) if frame.is_none() && input.frames().is_none() => {
                    frame = Some((input.name.clone(), values, [height, width]));
                }
                (Meaning::Timestep { range }, ..) if timestep.is_none() => {
                    timestep = Some((input.name.clone(), *range));
                }
                (Meaning::Carried { .. }, ..) => {}
                _ => return Err(unknown(&input.name, "a frame, a timestep or what was made before")),
            }
        }
        let (frame, frame_values, sides) = frame.ok_or_else(|| unknown("inputs", "a frame"))?;
        let shown = contract.outputs.iter().find_map(|output| {
            let same = (output.height(), output.width()) == (Some(sides[0]), Some(sides[1]));
            PixelValues::of(output).filter(|_| same).map(|values| (output.name.clone(), values))
        });
        let (shown, shown_values) = shown.ok_or_else(|| unknown("outputs", "a frame of the input's size"))?;
        Ok(Self { frame, frame_values, sides, timestep, shown, shown_values })
    }
}
