//! Latents and their files.

use std::collections::BTreeMap;
use std::path::Path;

use tileforge_contract::DataType;
use tileforge_image::Size;

use crate::error::{Error, Result};
use crate::tensor_file::{self, Contents, Description, Stored};

/// Name of the tensor in files.
const NAME: &str = "latent";
/// Names of the texts in files.
const WIDTH: &str = "width";
const HEIGHT: &str = "height";
const FRAMES: &str = "frames";

/// A latent picture or clip, as diffusion models work on it: `(latent − shift) · scaling`.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// Channels.
    pub channels: usize,
    /// Latent frames; `None` for a picture.
    pub frames: Option<usize>,
    /// Latent columns and rows.
    pub size: Size,
    /// `[channels, frames, height, width]`.
    pub values: Vec<f32>,
    /// Width and height of the pixels that it was made of; `None` if unknown.
    pub pixels: Option<Size>,
    /// Frames of the clip that it was made of; `None` if unknown.
    pub clip_frames: Option<usize>,
}

impl Latent {
    /// Reads a latent: a safetensors file with one tensor `[1, channels, height, width]`, or with frames before the
    /// height; also `.npy`.
    ///
    /// # Errors
    /// [`Error::TensorFile`] for another file, and for values that are not finite.
    pub fn read(path: &Path) -> Result<Self> {
        let refused = |problem: String| Error::tensor_file(path, problem);
        let (stored, metadata) = match tensor_file::read_checked(path, |found| check(path, found))? {
            Contents::Single(stored) => (stored, BTreeMap::new()),
            Contents::Named { mut tensors, metadata } => {
                let only = if tensors.len() == 1 { tensors.pop_first().map(|(_, stored)| stored) } else { None };
                let stored = only.or_else(|| tensors.remove(NAME));
                (stored.ok_or_else(|| refused(format!("expected a tensor `{NAME}`, found none")))?, metadata)
            }
        };
        let found = stored.to_string();
        let (channels, frames, height, width) = match *stored.shape.as_slice() {
            [1, channels, height, width] => (channels, None, height, width),
            [1, channels, frames, height, width] => (channels, Some(frames), height, width),
            _ => {
                let expected = "[1, channels, height, width], or with frames before the height";
                return Err(refused(format!("expected a latent {expected}, found {found}")));
            }
        };
        let side = |length: usize| u32::try_from(length).ok().filter(|length| *length > 0);
        let size = side(width).zip(side(height)).map(|(width, height)| Size { width, height });
        let size = size.ok_or_else(|| refused(format!("expected a latent of at least one pixel, found {found}")))?;
        let values = stored.floats();
        let values = values.ok_or_else(|| refused(format!("expected a latent of f32, f16 or bf16, found {found}")))?;
        if frames == Some(0) || channels == 0 {
            return Err(refused(format!("expected a latent of at least one frame and channel, found {found}")));
        }
        if values.iter().any(|value| !value.is_finite()) {
            return Err(refused("expected a latent of numbers, found NaN or infinity".into()));
        }
        let number = |name: &str| metadata.get(name).and_then(|text| text.parse::<u32>().ok()).filter(|side| *side > 0);
        let pixels = number(WIDTH).zip(number(HEIGHT)).map(|(width, height)| Size { width, height });
        let clip_frames = number(FRAMES).map(|frames| frames as usize);
        Ok(Self { channels, frames, size, values, pixels, clip_frames })
    }

    /// Checks that there is at least one element, and a value for each. All fields are public, so that a caller's
    /// latent need not come from [`read`](Self::read). `refused` makes an error of what was expected and found.
    pub(crate) fn check<E>(&self, refused: impl FnOnce(String, String) -> E) -> Result<(), E> {
        let Size { width, height } = self.size;
        let frames = self.frames.map_or(String::new(), |frames| format!(" and {frames} frames"));
        let shape = format!("{} channels of {}{frames}", self.channels, self.size);
        let lengths = [self.channels, self.frames.unwrap_or(1), height as usize, width as usize];
        if lengths.contains(&0) {
            return Err(refused("at least one channel, frame and pixel".into(), shape));
        }
        let count = lengths.into_iter().try_fold(1_usize, usize::checked_mul);
        if count == Some(self.values.len()) {
            return Ok(());
        }
        let expected = count.map_or_else(|| "more values than there can be".into(), |count| format!("{count} values"));
        Err(refused(format!("{expected} for {shape}"), self.values.len().to_string()))
    }

    /// Writes the latent, with the size of its pixels. The file appears only when it is complete.
    ///
    /// # Errors
    /// [`Error::File`]: it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let (height, width) = (self.size.height as usize, self.size.width as usize);
        let mut shape = vec![1, self.channels];
        shape.extend(self.frames);
        shape.extend([height, width]);
        let bytes = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let stored = Stored { data_type: DataType::F32, shape, bytes };
        let mut metadata = BTreeMap::new();
        if let Some(Size { width, height }) = self.pixels {
            metadata.extend([(WIDTH.to_owned(), width.to_string()), (HEIGHT.to_owned(), height.to_string())]);
        }
        metadata.extend(self.clip_frames.map(|frames| (FRAMES.to_owned(), frames.to_string())));
        tensor_file::write(path, &[(NAME.to_owned(), stored)], &metadata)
    }
}

/// Refuses a file whose tensor is no latent, by its type and its number of axes, before the elements are read.
fn check(path: &Path, found: &BTreeMap<String, Description>) -> Result<()> {
    let refused = |problem: String| Err(Error::tensor_file(path, problem));
    let only = found.values().next().filter(|_| found.len() == 1);
    let Some(tensor) = only.or_else(|| found.get(NAME)) else {
        let names = found.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return refused(format!("expected a tensor `{NAME}`, found {names}"));
    };
    if !matches!(tensor.shape.as_slice(), [1, _, _, _] | [1, _, _, _, _]) {
        let expected = "[1, channels, height, width], or with frames before the height";
        return refused(format!("expected a latent {expected}, found {tensor}"));
    }
    if !matches!(tensor.data_type, DataType::F32 | DataType::F16 | DataType::Bf16) {
        return refused(format!("expected a latent of f32, f16 or bf16, found {tensor}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latent_has_a_value_for_each_of_its_elements() {
        let check = |channels: usize, frames: Option<usize>, [width, height]: [u32; 2], values: usize| {
            let (size, values) = (Size { width, height }, vec![0.0; values]);
            let latent = Latent { channels, frames, size, values, pixels: None, clip_frames: None };
            latent.check(|expected, found| format!("expected {expected}, found {found}"))
        };
        assert_eq!(check(4, None, [3, 2], 24), Ok(()));
        assert_eq!(check(4, Some(2), [3, 2], 48), Ok(()));
        for (refused, expected) in [
            (check(4, None, [3, 2], 23), "expected 24 values for 4 channels of 3×2, found 23"),
            (check(4, None, [3, 2], 25), "expected 24 values for 4 channels of 3×2, found 25"),
            (check(4, Some(2), [3, 2], 24), "expected 48 values for 4 channels of 3×2 and 2 frames, found 24"),
            (
                check(4, Some(0), [3, 2], 0),
                "expected at least one channel, frame and pixel, found 4 channels of 3×2 and 0 frames",
            ),
            (check(0, None, [3, 2], 0), "expected at least one channel, frame and pixel, found 0 channels of 3×2"),
            (check(4, None, [0, 2], 0), "expected at least one channel, frame and pixel, found 4 channels of 0×2"),
            (
                check(usize::MAX, None, [3, 2], 1),
                &format!("expected more values than there can be for {} channels of 3×2, found 1", usize::MAX),
            ),
        ] {
            assert_eq!(refused, Err(expected.to_owned()));
        }
    }
}
