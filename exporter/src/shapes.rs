//! The input shapes that a graph is made for.

use crate::{Error, Result};
use graph::{Dim, Port};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Fixed shapes of inputs by name; an input that is not named stays dynamic where the network allows it.
#[derive(Debug, Clone, Default)]
pub struct Shapes(BTreeMap<String, Vec<usize>>);

impl Shapes {
    /// One input's fixed shape.
    pub fn of(input: &str, dims: &[usize]) -> Self {
        Shapes(BTreeMap::from([(input.to_owned(), dims.to_vec())]))
    }

    /// Whether no input's shape is fixed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The shape of an image input: fixed, or `[batch, channels, height, width]` with all but the channels dynamic.
    ///
    /// # Errors
    /// The fixed shape is not that of an image with this many channels.
    pub fn image(&self, input: &str, channels: usize) -> Result<Vec<Dim>> {
        match self.0.get(input).map(Vec::as_slice) {
            None => Ok(vec![Dim::symbol("batch"), Dim::Fixed(channels), Dim::symbol("height"), Dim::symbol("width")]),
            Some(dims) if dims.len() == 4 && dims[1] == channels => Ok(dims.iter().copied().map(Dim::Fixed).collect()),
            Some(dims) => {
                let found = dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
                Err(Error::Option(format!("--shapes {input}: expected BATCHx{channels}xHEIGHTxWIDTH for this model, found {found}")))
            }
        }
    }

    /// The shape of an image input whose sizes may not stay dynamic: `[batch, channels, height, width]`.
    ///
    /// # Errors
    /// It is not asked for, or it is not that of an image with this many channels.
    pub fn fixed_image(&self, input: &str, channels: usize) -> Result<[usize; 4]> {
        let fixed: Option<Vec<usize>> = self.image(input, channels)?.iter().map(Dim::fixed).collect();
        let fixed = fixed.and_then(|dims| <[usize; 4]>::try_from(dims).ok());
        fixed.ok_or_else(|| {
            let example = format!("--shapes {input}:1x{channels}x256x256");
            Error::Option(format!(
                "this model's graph is of one size, since its windows and masks are constants: give one, as in {example}"
            ))
        })
    }

    /// That every named shape is of an input that the model has.
    pub(crate) fn check_names(&self, inputs: &[Port]) -> Result<()> {
        match self.0.keys().find(|name| !inputs.iter().any(|input| input.name == **name)) {
            None => Ok(()),
            Some(name) => {
                let inputs = inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
                Err(Error::Option(format!("--shapes: the model has no input `{name}`; its inputs are: {inputs}")))
            }
        }
    }
}

impl FromStr for Shapes {
    type Err = Error;

    /// `image:1x3x256x256`, several of them with commas.
    fn from_str(text: &str) -> Result<Self> {
        let mut shapes = Shapes::default();
        for part in text.split(',') {
            let wrong = || Error::Option(format!("expected NAME:SIZExSIZE…, as in image:1x3x256x256, found `{part}`"));
            let (name, sizes) = part.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
            // Larger sizes are typing errors, and their products would overflow in any runtime.
            let size = |size: &str| size.parse::<usize>().ok().filter(|size| (1..=1 << 20).contains(size)).ok_or_else(wrong);
            let dims = sizes.split('x').map(size).collect::<Result<Vec<_>>>()?;
            if shapes.0.insert(name.to_owned(), dims).is_some() {
                return Err(Error::Option(format!("the input `{name}` is given two shapes")));
            }
        }
        Ok(shapes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_strictly() {
        let shapes: Shapes = "image:1x3x256x128".parse().unwrap();
        assert_eq!(shapes.image("image", 3).unwrap(), [1, 3, 256, 128].map(Dim::Fixed));
        assert!(shapes.image("image", 1).unwrap_err().to_string().contains("BATCHx1xHEIGHTxWIDTH"));
        for wrong in ["", "image", "image:", "image:1x", "image:0x3x2x2", ":1x2", "image:1xax3", "image:1x3x4x4,image:1x3x4x4"] {
            assert!(wrong.parse::<Shapes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_input_that_does_not_exist_is_an_error() {
        let shapes: Shapes = "picture:1x3x8x8".parse().unwrap();
        assert_eq!(shapes.image("image", 3).unwrap().len(), 4);
        assert!(shapes.check_names(&[]).unwrap_err().to_string().contains("no input `picture`"));
    }
}
