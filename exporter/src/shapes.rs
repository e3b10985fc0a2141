//! The input shapes that a graph is made for.

use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tileforge_graph::{Dim, Port};

/// Fixed shapes of inputs by name; an input that is not named stays dynamic where the network allows it.
#[derive(Debug, Clone, Default)]
pub struct Shapes {
    fixed: BTreeMap<String, Vec<usize>>,
    /// The number of samples stays dynamic although these shapes have one.
    free_batch: bool,
}

impl Shapes {
    /// One input's fixed shape.
    pub fn of(input: &str, dims: &[usize]) -> Self {
        Self::from(BTreeMap::from([(input.to_owned(), dims.to_vec())]))
    }

    /// The same shapes for any number of samples: the batch stays dynamic.
    #[must_use]
    pub fn with_free_batch(self) -> Self {
        Self { free_batch: true, ..self }
    }

    /// Whether no input's shape is fixed.
    pub fn is_empty(&self) -> bool {
        self.fixed.is_empty()
    }

    /// Whether this input's shape is fixed.
    pub fn is_given(&self, input: &str) -> bool {
        self.fixed.contains_key(input)
    }

    /// The shape of an image input: fixed, or `[batch, channels, height, width]` with all but the channels dynamic.
    ///
    /// # Errors
    /// The fixed shape is not the shape of an image with this many channels.
    pub fn image(&self, input: &str, channels: usize) -> Result<Vec<Dim>> {
        let dims = [Dim::symbol("batch"), Dim::Fixed(channels), Dim::symbol("height"), Dim::symbol("width")];
        let [image] = self.resolve([(input, &dims)])?;
        Ok(image)
    }

    /// As [`Shapes::image`], where a dynamic height and width are multiples of `multiple`. Fixed ones need not be.
    ///
    /// # Errors
    /// As [`Shapes::image`].
    pub fn image_of_multiples(&self, input: &str, channels: usize, multiple: usize) -> Result<Vec<Dim>> {
        let dims = self.image(input, channels)?;
        let multiples = |dim: Dim| match dim.fixed() {
            Some(_) => dim,
            None => dim.times(multiple).unwrap_or(dim),
        };
        let mut dims = dims.into_iter();
        Ok(dims.by_ref().take(2).collect::<Vec<_>>().into_iter().chain(dims.map(multiples)).collect())
    }

    /// As [`Shapes::image`], where height and width are `side`.
    ///
    /// # Errors
    /// As [`Shapes::image`].
    pub fn image_of_side(&self, input: &str, channels: usize, side: usize) -> Result<Vec<Dim>> {
        let dims = [Dim::symbol("batch"), Dim::Fixed(channels), Dim::Fixed(side), Dim::Fixed(side)];
        let [image] = self.resolve([(input, &dims)])?;
        Ok(image)
    }

    /// The shapes of all inputs of a network, each given with its dynamic sizes. A size that is fixed for one input is
    /// fixed for all inputs that have it.
    ///
    /// # Errors
    /// A fixed shape does not fit its input, or two fixed shapes contradict each other.
    pub fn resolve<const N: usize>(&self, inputs: [(&str, &[Dim]); N]) -> Result<[Vec<Dim>; N]> {
        let mut known: BTreeMap<&[Arc<str>], (usize, &str)> = BTreeMap::new();
        for (input, pattern) in inputs {
            let Some(dims) = self.fixed.get(input) else { continue };
            let wrong = |reason: Option<String>| self.wrong(input, pattern, reason);
            if dims.len() != pattern.len() {
                return Err(wrong(None));
            }
            for (dim, &size) in pattern.iter().zip(dims) {
                match dim {
                    Dim::Fixed(expected) if *expected != size => return Err(wrong(None)),
                    Dim::Symbol { names, multiply, add, .. } => {
                        let Some(value) = named_size(size, *multiply, *add) else {
                            return Err(wrong(Some(format!("{size} {}", misfit(size, *multiply, *add)))));
                        };
                        let (known, first) = *known.entry(names).or_insert((value, input));
                        if known != value {
                            return Err(wrong(Some(format!("this contradicts the shape of `{first}`"))));
                        }
                    }
                    Dim::Fixed(_) => {}
                }
            }
        }
        let fix = |dim: &Dim| match dim {
            _ if self.free_batch && *dim == Dim::symbol("batch") => dim.clone(),
            Dim::Symbol { names, multiply, add, .. } => {
                let size =
                    known.get(&**names).and_then(|(value, _)| value.checked_mul(*multiply)?.checked_add_signed(*add));
                size.map_or_else(|| dim.clone(), Dim::Fixed)
            }
            Dim::Fixed(_) => dim.clone(),
        };
        Ok(inputs.map(|(_, pattern)| pattern.iter().map(fix).collect()))
    }

    /// The error that the fixed shape of `input` is not one of `pattern`.
    pub(crate) fn wrong(&self, input: &str, pattern: &[Dim], reason: Option<String>) -> Error {
        let expected: Vec<String> = pattern.iter().map(|dim| dim.to_string().to_uppercase()).collect();
        let expected = if pattern.is_empty() { "a scalar, which has no sizes".into() } else { expected.join("x") };
        let found = self.fixed.get(input).map_or_else(String::new, |dims| sizes(dims));
        Error::Shape { input: input.into(), expected, found, reason }
    }

    /// The shape of an image input whose sizes may not stay dynamic: `[batch, channels, height, width]`.
    ///
    /// # Errors
    /// No shape is fixed, or it is not the shape of an image with this many channels.
    pub fn fixed_image(&self, input: &str, channels: usize) -> Result<[usize; 4]> {
        let dims = self.image(input, channels)?;
        all_fixed(input, &dims, "its windows and masks are constants", [1, channels, 256, 256])
    }

    /// Checks that every shape is for an input that the model has.
    pub(crate) fn check_names(&self, inputs: &[Port]) -> Result<()> {
        match self.fixed.keys().find(|name| !inputs.iter().any(|input| input.name == **name)) {
            None => Ok(()),
            Some(name) => {
                let inputs = inputs.iter().map(|input| input.name.clone()).collect();
                Err(Error::NoSuchInput { name: name.clone(), inputs })
            }
        }
    }
}

/// The sizes of an input, all of which must be fixed because the graph depends on them.
pub(crate) fn all_fixed<const N: usize>(
    input: &str,
    dims: &[Dim],
    reason: &'static str,
    example: [usize; N],
) -> Result<[usize; N]> {
    let fixed: Option<Vec<usize>> = dims.iter().map(Dim::fixed).collect();
    let fixed = fixed.and_then(|dims| <[usize; N]>::try_from(dims).ok());
    fixed.ok_or_else(|| Error::NeedsFixedShape { input: input.into(), reason, example: example.into() })
}

/// `1x3x256x256`.
fn sizes(dims: &[usize]) -> String {
    dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

/// The `n` of `size = multiply · n + add`, which is at least 1; `None` if there is no such number.
fn named_size(size: usize, multiply: usize, add: isize) -> Option<usize> {
    let multiple = size.checked_add_signed(add.checked_neg()?)?;
    multiple.checked_div(multiply).filter(|n| *n > 0 && multiple.is_multiple_of(multiply))
}

/// Why `size` is not `multiply · n + add`, with the nearest sizes that are.
fn misfit(size: usize, multiply: usize, add: isize) -> String {
    if add == 0 {
        return format!("is no multiple of {multiply}");
    }
    let rest = isize::try_from(multiply).map_or(0, |multiply| add.rem_euclid(multiply));
    let fits = |size: &usize| named_size(*size, multiply, add).is_some();
    let below = (size.saturating_sub(multiply)..size).rev().find(fits);
    let nearest: Vec<String> =
        below.into_iter().chain((size..=size.saturating_add(multiply)).find(fits)).map(|n| n.to_string()).collect();
    format!("is no multiple of {multiply} plus {rest}; the nearest that fits is {}", nearest.join(" or "))
}

impl fmt::Display for Shapes {
    /// The text that [`Shapes::from_str`] reads; nothing where no shape is fixed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, dims)) in self.fixed.iter().enumerate() {
            write!(f, "{}{name}:{}", if number == 0 { "" } else { "," }, sizes(dims))?;
        }
        Ok(())
    }
}

impl From<BTreeMap<String, Vec<usize>>> for Shapes {
    fn from(shapes: BTreeMap<String, Vec<usize>>) -> Self {
        Self { fixed: shapes, free_batch: false }
    }
}

impl FromStr for Shapes {
    type Err = Error;

    /// `image:1x3x256x256`, several of them with commas.
    fn from_str(text: &str) -> Result<Self> {
        let mut shapes = Shapes::default();
        for part in text.split(',') {
            let wrong = || Error::ShapeText { found: part.to_owned() };
            let (name, sizes) = part.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
            // Larger sizes are typing errors, and their products would overflow in any runtime.
            let size =
                |size: &str| size.parse::<usize>().ok().filter(|size| (1..=1 << 20).contains(size)).ok_or_else(wrong);
            let dims = sizes.split('x').map(size).collect::<Result<Vec<_>>>()?;
            if shapes.fixed.insert(name.to_owned(), dims).is_some() {
                return Err(Error::TwoShapes { input: name.to_owned() });
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
        for wrong in
            ["", "image", "image:", "image:1x", "image:0x3x2x2", ":1x2", "image:1xax3", "image:1x3x4x4,image:1x3x4x4"]
        {
            assert!(wrong.parse::<Shapes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_size_that_is_fixed_once_is_fixed_everywhere() {
        let (batch, height) = (Dim::symbol("batch"), Dim::symbol("height").times(8).unwrap());
        let inputs = [("sample", [batch.clone(), height.clone()]), ("text", [batch.clone(), Dim::Fixed(5)])];
        let resolve = |text: &str| {
            text.parse::<Shapes>().and_then(|shapes| shapes.resolve(inputs.each_ref().map(|(n, d)| (*n, &d[..]))))
        };
        assert_eq!(resolve("sample:2x16").unwrap(), [[2, 16].map(Dim::Fixed), [2, 5].map(Dim::Fixed)]);
        assert_eq!(resolve("text:3x5").unwrap()[0], [Dim::Fixed(3), height]);
        let free = "sample:2x16".parse::<Shapes>().unwrap().with_free_batch();
        let found = free.resolve(inputs.each_ref().map(|(n, d)| (*n, &d[..]))).unwrap();
        assert_eq!(found, [[batch.clone(), Dim::Fixed(16)], [batch, Dim::Fixed(5)]]);
        for (wrong, reason) in [
            ("sample:2x12", "12 is no multiple of 8"),
            ("sample:2x8,text:1x5", "contradicts"),
            ("text:1x4", "expected BATCHx5"),
        ] {
            let error = resolve(wrong).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn shapes_are_written_as_they_are_read() {
        for text in ["image:1x3x256x128", "frame:2x3x16x16,timestep:1"] {
            assert_eq!(text.parse::<Shapes>().unwrap().to_string(), text);
        }
        assert_eq!(Shapes::default().to_string(), "");
    }

    #[test]
    fn a_scalar_has_no_sizes() {
        let error = "timestep:2".parse::<Shapes>().unwrap().resolve([("timestep", &[][..])]).unwrap_err().to_string();
        assert_eq!(error, "the input `timestep`: expected a scalar, which has no sizes, found 2");
    }

    #[test]
    fn a_size_may_be_a_multiple_and_a_rest() {
        let frames = Dim::symbol("frames").times(4).and_then(|frames| frames.plus(-3)).unwrap();
        let resolve = |text: &str| {
            text.parse::<Shapes>().and_then(|shapes| shapes.resolve([("sample", std::slice::from_ref(&frames))]))
        };
        for size in [1, 5, 17] {
            assert_eq!(resolve(&format!("sample:{size}")).unwrap(), [[Dim::Fixed(size)]]);
        }
        assert_eq!(resolve("other:8").unwrap(), [[frames.clone()]]);
        let error = resolve("sample:8").unwrap_err().to_string();
        assert_eq!(
            error,
            "the input `sample`: expected 4*FRAMES-3, found 8: 8 is no multiple of 4 plus 1; the nearest that fits is \
             5 or 9"
        );
    }

    #[test]
    fn an_input_that_does_not_exist_is_an_error() {
        let shapes: Shapes = "picture:1x3x8x8".parse().unwrap();
        assert_eq!(shapes.image("image", 3).unwrap().len(), 4);
        assert!(shapes.check_names(&[]).unwrap_err().to_string().contains("no input `picture`"));
    }
}
