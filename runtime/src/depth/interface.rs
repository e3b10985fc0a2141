//! The roles of a contract's tensors.

use tileforge_contract::{Contract, DepthUnit, Extent, Meaning, TensorSpec};

use super::estimate::DepthKind;
use crate::error::{Error, Result};
use crate::pixels::PixelValues;

/// The tensors of a network that gives depth.
pub(super) struct Interface {
    pub(super) picture: String,
    pub(super) values: PixelValues,
    /// The sides that the picture can have in the network.
    pub(super) side: Extent,
    /// The rough map, if the network takes one, and its value where nothing was measured.
    pub(super) map: Option<(String, f32)>,
    pub(super) depth: String,
    pub(super) kind: DepthKind,
}

fn is_map(tensor: &TensorSpec) -> bool {
    matches!(tensor.meaning, Meaning::Depth { .. })
}

/// Whether an engine with this contract gives depth.
pub fn is_depth(contract: &Contract) -> bool {
    contract.outputs.iter().any(is_map)
}

/// Whether it takes a rough map beside the picture.
pub fn takes_map(contract: &Contract) -> bool {
    contract.inputs.iter().any(is_map)
}

impl Interface {
    pub(super) fn of(contract: &Contract) -> Result<Self> {
        let unknown = |tensor: &str, expected: &str| Error::Tensor {
            tensor: tensor.to_owned(),
            expected: expected.to_owned(),
            found: "another contract".into(),
        };
        let mut parts = (None, None);
        for input in &contract.inputs {
            match (&input.meaning, PixelValues::of(input)) {
                (_, Some(values)) if parts.0.is_none() => {
                    let side = input.height().filter(|side| input.width() == Some(*side));
                    let side = side.ok_or_else(|| unknown(&input.name, "a height and a width of one kind"))?;
                    parts.0 = Some((input.name.clone(), values, side));
                }
                (Meaning::Depth { unit: DepthUnit::InverseMetres, missing }, _) if parts.1.is_none() => {
                    parts.1 = Some((input.name.clone(), missing.unwrap_or(0.0)));
                }
                _ => return Err(unknown(&input.name, "pixels or inverse depth in metres, once")),
            }
        }
        let ((picture, values, side), map) =
            (parts.0.ok_or_else(|| unknown("inputs", "pixels of a picture"))?, parts.1);
        let output = contract.outputs.iter().find_map(|output| match output.meaning {
            Meaning::Depth { unit, .. } => Some((output.name.clone(), unit)),
            _ => None,
        });
        let (depth, unit) = output.ok_or_else(|| unknown("outputs", "depth"))?;
        let kind = match unit {
            DepthUnit::InverseMetres => DepthKind::Metres,
            DepthUnit::RelativeInverse => DepthKind::RelativeInverse,
        };
        Ok(Self { picture, values, side, map, depth, kind })
    }
}
