//! `runtime compare`: how far two pictures are apart.

use std::path::PathBuf;

use tileforge_image::{Limits, Picture};
use tileforge_terminal::{print, print_json};

use super::failure::CommandResult;
use super::figures::decibels;

const EXAMPLES: &str = "\
Examples:
  runtime compare before.png after.png
  runtime compare before.png after.png --crop 4 --json";

/// Compare two pictures of one size: PSNR, largest and mean difference, in levels of 8 bits.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// One picture.
    one: PathBuf,
    /// The other.
    other: PathBuf,
    /// Leave out this many pixels at each edge.
    #[arg(long, value_name = "N", default_value_t = 0)]
    crop: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let read = |path| Picture::read(path, &Limits::default());
    let difference = read(&arguments.one)?.difference(&read(&arguments.other)?, arguments.crop)?;
    if arguments.json {
        return Ok(print_json(&difference)?);
    }
    Ok(print(&format!(
        "PSNR               {}\nlargest difference {}\nmean difference    {:.4}",
        decibels(difference.psnr_db),
        difference.maximum,
        difference.mean
    ))?)
}
