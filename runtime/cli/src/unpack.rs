//! `runtime unpack`: unpacks an engine from its single file.

use std::path::PathBuf;

use tileforge_engine::{archive, share};
use tileforge_terminal::{print, report};

use super::chosen::Signed;
use super::failure::CommandResult;

const EXAMPLES: &str = "\
Examples:
  runtime unpack compact-x4.tar -o engines/compact-x4
  runtime unpack compact-x4.tar -o engines/compact-x4 --require-signature release.pub --share engines/";

/// Unpack an engine, refusing any file that is missing, additional or altered.
///
/// The folder appears when everything in it has been checked. An engine that is already there is replaced at once.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The tar file of `engine-builder pack`.
    #[arg(value_name = "FILE.tar")]
    archive: PathBuf,
    /// Where the engine's directory goes.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    #[command(flatten)]
    signed: Signed,
    /// Store files that engines below this folder have, too, only once, as hard links.
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let key = arguments.signed.key()?;
    let unpacked = archive::unpack(&arguments.archive, &arguments.output, key.as_ref())?;
    report(&format!("{}: {} files are whole", unpacked.name, unpacked.files));
    if let Some(folder) = &arguments.share {
        let saved = share::share_files(&arguments.output, folder)?;
        report(&format!("{:.1} MB of it shared with other engines", saved as f64 / 1e6));
    }
    Ok(print(&arguments.output.display().to_string())?)
}
