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
