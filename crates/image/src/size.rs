//! Width and height.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Size {
    /// Columns times rows.
    pub fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}×{}", self.width, self.height)
    }
}

impl FromStr for Size {
    type Err = String;

    /// Parses "256x128": width and height, both at least 1.
    fn from_str(text: &str) -> Result<Self, String> {
        let size = || {
            let (width, height) = text.split_once('x')?;
            Some(Self { width: width.parse().ok()?, height: height.parse().ok()? }).filter(|size| size.pixels() > 0)
        };
        size().ok_or_else(|| "expected a width and a height, such as 1024x1024".into())
    }
}
