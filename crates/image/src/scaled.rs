//! Sizes of enlarged pictures.

use crate::Size;
use crate::error::TilingError;

impl Size {
    /// Both sides times `scale`.
    ///
    /// # Errors
    /// [`TilingError::PictureTooLarge`] if a side would exceed 2³¹ − 1, the longest of any image format.
    pub fn scaled(self, scale: u32) -> Result<Self, TilingError> {
        let scaled = |length: u32| length.checked_mul(scale).filter(|&length| length <= i32::MAX as u32);
        match (scaled(self.width), scaled(self.height)) {
            (Some(width), Some(height)) => Ok(Self { width, height }),
            _ => Err(TilingError::PictureTooLarge { size: self, scale }),
        }
    }
}
