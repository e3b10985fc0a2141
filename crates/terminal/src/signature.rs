//! The option of every command that may insist on a signature.

use std::path::PathBuf;

/// Whose an engine must be. The option has one name and one meaning in all programs.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RequiredSignature {
    /// Refuse the engine unless it was signed with this key, before anything else of it is read: a .pub file of
    /// `engine-builder keygen`
    #[arg(long = "require-signature", value_name = "KEY", help_heading = "Engine")]
    pub key: Option<PathBuf>,
}
