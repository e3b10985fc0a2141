//! The options about an ONNX file of another program.

use super::super::failure::Failure;
use std::path::PathBuf;
use tileforge_contract::{ChannelOrder, Contract, Task};
use tileforge_engine::manifest::ForeignRecipe;
use tileforge_engine_builder::Error;
use tileforge_terminal::whole;

/// The maximum size of a contract's file.
const CONTRACT_MAXIMUM_BYTES: u64 = 1 << 20;

/// What an ONNX file of another program does not say itself.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "ONNX files of other programs")]
pub(super) struct ForeignArguments {
    /// What the network does: `upscale` (a picture to the same picture, larger or cleaner) or `tensors` (anything else,
    /// without a meaning). Channels, scale, sizes and the order of axes are found
    #[arg(long, value_name = "TASK", value_parser = ["upscale", "tensors"], conflicts_with = "component")]
    task: Option<String>,
    /// The values of black and of white, in and out [default: 0:1, and 0:255 for a file that takes bytes]
    #[arg(long, value_name = "LOW:HIGH", value_parser = range, allow_hyphen_values = true)]
    input_range: Option<[f32; 2]>,
    /// The order of the channels, in and out: rgb or bgr [default: rgb]
    #[arg(long, value_name = "ORDER", value_parser = ["rgb", "bgr"])]
    channel_order: Option<String>,
    /// What heights and widths are multiples of [default: found by running the network]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(1..=1024))]
    size_multiple: Option<u32>,
    /// What the network wants subtracted from red, green and blue: one value or three, with commas. The output gets it
    /// added again
    #[arg(long, value_name = "VALUES", value_parser = channels, allow_hyphen_values = true)]
    mean: Option<[f32; 3]>,
    /// What the network wants red, green and blue divided by afterwards: one value or three, with commas. The output is
    /// multiplied by it
    #[arg(long, value_name = "VALUES", value_parser = channels)]
    deviation: Option<[f32; 3]>,
    /// A file with the contract, as JSON (docs/metadata.md): everything about every tensor, for any task
    #[arg(long, value_name = "FILE")]
    contract: Option<PathBuf>,
}

impl ForeignArguments {
    /// The given facts, with the contract's file read.
    pub(super) fn said(&self) -> Result<ForeignRecipe, Failure> {
        let Self { task, input_range, channel_order, size_multiple, mean, deviation, contract } = self.clone();
        Ok(ForeignRecipe {
            task: task.map(|task| parsed::<Task>(&task)).transpose()?,
            input_range,
            channel_order: channel_order.map(|order| parsed::<ChannelOrder>(&order)).transpose()?,
            size_multiple,
            mean,
            deviation,
            contract: contract.map(read).transpose()?,
        })
    }
}

fn parsed<T: std::str::FromStr<Err = String>>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(Failure::Usage)
}

fn read(path: PathBuf) -> Result<Contract, Failure> {
    let failed = |source| Error::File { path: path.clone(), action: "read", source };
    let bytes = tileforge_files::read(&path, CONTRACT_MAXIMUM_BYTES).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let wrong = |error: tileforge_contract::Error| {
        let reason = match error {
            tileforge_contract::Error::Metadata { reason, .. } => format!("it is no contract: {reason}"),
            other => other.to_string(),
        };
        Error::Input { path: path.clone(), reason }
    };
    Ok(Contract::from_json(&text).map_err(wrong)?)
}

/// `0:255`
fn range(text: &str) -> Result<[f32; 2], String> {
    let ends = text.split_once(':').and_then(|(low, high)| Some([low.parse().ok()?, high.parse().ok()?]));
    let is_sound = |[low, high]: &[f32; 2]| low.is_finite() && high.is_finite() && low < high;
    ends.filter(is_sound).ok_or_else(|| "expected two numbers, the smaller one first, as in 0:255".into())
}

/// `0.5` or `0.485,0.456,0.406`
fn channels(text: &str) -> Result<[f32; 3], String> {
    let numbers = text.split(',').map(|number| number.parse().ok().filter(|value: &f32| value.is_finite()));
    match numbers.collect::<Option<Vec<f32>>>().as_deref() {
        Some([all]) => Ok([*all; 3]),
        Some([red, green, blue]) => Ok([*red, *green, *blue]),
        _ => Err("expected one number, or three with commas, as in 0.485,0.456,0.406".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        assert_eq!(range("0:255"), Ok([0.0, 255.0]));
        assert_eq!(range("-1:1"), Ok([-1.0, 1.0]));
        for wrong in ["", "0", "1:0", "0:0", "0:nan", "0:inf", "a:b"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
        assert_eq!(channels("0.5"), Ok([0.5; 3]));
        assert_eq!(channels("1,2,3"), Ok([1.0, 2.0, 3.0]));
        assert!(channels("1,2").is_err() && channels("nan").is_err());
    }
}
