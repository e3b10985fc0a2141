//! Where models are published.

use serde::{Deserialize, Serialize};

/// Where the files of a model are published.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Origin {
    /// A repository of a hub with Hugging Face's addresses, `OWNER/NAME`, and its revision.
    Hub {
        /// `OWNER/NAME`.
        repository: String,
        /// A branch, a tag or a commit.
        revision: String,
    },
    /// The address of a folder that holds the files.
    Folder(String),
    /// A web page, for files that cannot be downloaded automatically.
    Page(String),
}
