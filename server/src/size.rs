//! Sizes of pictures, as clients write them.

use tileforge::{Picture, Size};

use crate::failure::{Failure, Result};

/// A size as clients write it.
pub(crate) fn shown(size: Size) -> String {
    format!("{}x{}", size.width, size.height)
}

/// A size as clients write it: `512x768`.
pub(crate) fn size_of(text: &str) -> Result<Size> {
    let side = |text: &str| text.parse().ok().filter(|side| *side > 0);
    let sides = text.split_once('x').and_then(|(width, height)| Some((side(width)?, side(height)?)));
    let (width, height) = sides.ok_or_else(|| Failure::invalid("size: expected WIDTHxHEIGHT, such as 512x512"))?;
    Ok(Size { width, height })
}

/// Refuses a mask of another size than its picture's.
pub(crate) fn check_mask(picture: &Picture, mask: &Picture) -> Result<()> {
    if mask.size() == picture.size() {
        return Ok(());
    }
    let [expected, found] = [picture.size(), mask.size()].map(shown);
    Err(Failure::invalid(format!("mask: expected {expected}, as the picture, found {found}")))
}
