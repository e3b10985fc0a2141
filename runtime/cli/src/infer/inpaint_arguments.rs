//! The arguments of `runtime infer` for engines that fill in pictures.

use std::path::PathBuf;

/// For engines that fill in what a mask covers.
#[derive(clap::Args)]
#[command(next_help_heading = "Inpainting")]
pub(super) struct InpaintArguments {
    /// The mask of the picture, of the same size: white where the picture is filled in, black where it is kept. For
    /// several pictures, a folder with a mask of the same name for each.
    #[arg(long, value_name = "MASK")]
    pub(super) mask: Option<PathBuf>,
}

impl InpaintArguments {
    /// The first option that was given, for other engines to refuse.
    pub(super) fn given(&self) -> Option<&'static str> {
        self.mask.as_ref().map(|_| "--mask")
    }
}
