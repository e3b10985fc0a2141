//! Shapes of fixed and of dynamic sizes. A dynamic size has a name until a session is made.
// Dimensions come from files: no text may cause a panic here.
#![warn(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::integer_division)]

use crate::DataType;
use std::fmt;
use std::sync::Arc;

/// One dimension of a shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A number of elements.
    Fixed(usize),
    /// `names · multiply / divide + add`, where the division leaves no remainder: an operator that divides a size, such
    /// as SpaceToDepth, demands that. A division that may round becomes a new name instead.
    Symbol {
        /// The names that are multiplied with each other, sorted; each as an ONNX `dim_param`: `height`.
        names: Arc<[Arc<str>]>,
        /// Numerator of the factor.
        multiply: usize,
        /// Denominator of the factor.
        divide: usize,
        /// Added at the end.
        add: isize,
    },
}

/// Longest text of a computed dimension. A graph from a file could make the text grow without limit.
const TEXT_MAXIMUM: usize = 1 << 10;

/// Most names that are multiplied with each other, for the same reason.
const NAMES_MAXIMUM: usize = 64;

impl Dim {
    /// A size that is not known yet.
    pub fn symbol(name: impl AsRef<str>) -> Self {
        Dim::affine(name, 1, 0)
    }

    /// `multiply · name + add` for a size `name` that is not known yet: `8*height`, `4*frames-3`.
    pub fn affine(name: impl AsRef<str>, multiply: usize, add: isize) -> Self {
        Dim::Symbol { names: Arc::new([name.as_ref().into()]), multiply, divide: 1, add }
    }

    /// The dimension of an ONNX `dim_param`: the formula, if it is [`Dim`]'s own text form, else a size of this name.
    pub fn parse(text: &str) -> Self {
        Self::parse_formula(text).unwrap_or_else(|| Dim::symbol(text))
    }

    fn parse_formula(text: &str) -> Option<Self> {
        let (product, add) = match text.rfind(['+', '-']) {
            Some(sign) => {
                let (product, add) = text.split_at_checked(sign)?;
                (product, add.parse().ok()?)
            }
            None => (text, 0),
        };
        let (product, divide) =
            product.split_once('/').map_or((product, Some(1)), |(product, divide)| (product, divide.parse().ok()));
        let mut factors: Vec<&str> = product.split('*').collect();
        let multiply = factors.first()?.parse().ok();
        if multiply.is_some() {
            factors.remove(0);
        }
        let is_name = |name: &&str| {
            name.starts_with(char::is_alphabetic) && name.chars().all(|c| c.is_alphanumeric() || "_.".contains(c))
        };
        let names: Vec<Arc<str>> = factors.into_iter().filter(is_name).map(Into::into).collect();
        // A size of zero times a name, and a division by zero, are no sizes.
        let (multiply, divide) = (multiply.unwrap_or(1), divide?);
        if names.is_empty() || multiply == 0 || divide == 0 {
            return None;
        }
        let parsed = Dim::Symbol { names: names.into(), multiply, divide, add };
        // Any text that is not in the normal form is a name that another program chose.
        (parsed.to_string() == text && text.contains(char::is_alphabetic)).then_some(parsed)
    }

    /// The number of elements, if it is known.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Dim::Fixed(size) => Some(*size),
            Dim::Symbol { .. } => None,
        }
    }

    /// `self · factor`; `None` if a fixed size overflows.
    #[must_use]
    pub fn times(&self, factor: usize) -> Option<Self> {
        match self {
            Dim::Fixed(size) => size.checked_mul(factor).map(Dim::Fixed),
            Dim::Symbol { names, multiply, divide, add } => {
                if factor == 0 {
                    return Some(Dim::Fixed(0));
                }
                let (multiply, divide) = reduced(multiply.checked_mul(factor)?, *divide)?;
                let add = add.checked_mul(isize::try_from(factor).ok()?)?;
                Some(Dim::Symbol { names: names.clone(), multiply, divide, add })
            }
        }
    }

    /// The product of any dimensions; `None` if it overflows.
    #[must_use]
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Option<Self> {
        let dims: Vec<&Dim> = dims.into_iter().collect();
        let fixed = dims.iter().filter_map(|dim| dim.fixed()).try_fold(1_usize, usize::checked_mul)?;
        if let [symbol] = dims.iter().filter(|dim| dim.fixed().is_none()).collect::<Vec<_>>().as_slice()
            && fixed > 0
        {
            return symbol.times(fixed);
        }
        let (mut all, mut factor, mut divisor) = (Vec::new(), 1_usize, 1_usize);
        for dim in dims {
            match dim {
                Dim::Fixed(size) => factor = factor.checked_mul(*size)?,
                Dim::Symbol { names, multiply, divide, add: 0 } => {
                    all.extend(names.iter().cloned());
                    factor = factor.checked_mul(*multiply)?;
                    divisor = divisor.checked_mul(*divide)?;
                }
                sum => all.push(bounded(format!("({sum})"))?.into()),
            }
        }
        if all.is_empty() || factor == 0 {
            return Some(Dim::Fixed(factor));
        }
        if all.len() > NAMES_MAXIMUM {
            return None;
        }
        all.sort_unstable();
        let (multiply, divide) = reduced(factor, divisor)?;
        Some(Dim::Symbol { names: all.into(), multiply, divide, add: 0 })
    }

    /// `self / divisor` where `divisor` is one of the factors of a product, so that the result is a whole number;
    /// `None` if that is not known.
    #[must_use]
    pub fn divided_by(&self, divisor: &Dim) -> Option<Self> {
        match (self, divisor) {
            (_, Dim::Fixed(divisor)) => self.divided_exactly(*divisor),
            (
                Dim::Symbol { names, multiply, divide, add: 0 },
                Dim::Symbol { names: factors, multiply: times, divide: over, add: 0 },
            ) => {
                let mut rest = names.to_vec();
                for factor in factors.iter() {
                    rest.remove(rest.iter().position(|name| name == factor)?);
                }
                let (multiply, divide) = reduced(multiply.checked_mul(*over)?, divide.checked_mul(*times)?)?;
                match rest.as_slice() {
                    [] => (divide == 1).then_some(Dim::Fixed(multiply)),
                    // A sum that was a factor of a product becomes that sum again.
                    [sum] if divide == 1 => {
                        in_brackets(sum).map_or_else(|| Dim::symbol(sum), Dim::parse).times(multiply)
                    }
                    _ => Some(Dim::Symbol { names: rest.into(), multiply, divide, add: 0 }),
                }
            }
            _ => (self == divisor).then_some(Dim::Fixed(1)),
        }
    }

    /// The smallest possible size. Every named size is at least 1.
    pub(crate) fn minimum(&self) -> usize {
        match self {
            Dim::Fixed(size) => *size,
            // Names with brackets are formulas without a normal form: `floor((n-1)/2)` may be 0.
            Dim::Symbol { names, .. } if names.iter().any(|name| name.contains('(')) => 0,
            Dim::Symbol { multiply, divide, add, .. } => multiply.div_ceil(*divide).saturating_add_signed(*add),
        }
    }

    /// `self + offset`; `None` if a fixed size would be negative or overflow.
    #[must_use]
    pub fn plus(&self, offset: isize) -> Option<Self> {
        match self {
            Dim::Fixed(size) => size.checked_add_signed(offset).map(Dim::Fixed),
            Dim::Symbol { names, multiply, divide, add } => Some(Dim::Symbol {
                names: names.clone(),
                multiply: *multiply,
                divide: *divide,
                add: add.checked_add(offset)?,
            }),
        }
    }

    /// `self / divisor` where the operator demands a division without remainder; `None` if a fixed size is not a
    /// multiple.
    #[must_use]
    pub fn divided_exactly(&self, divisor: usize) -> Option<Self> {
        match self {
            Dim::Fixed(size) => size.checked_div(divisor).filter(|_| size.is_multiple_of(divisor)).map(Dim::Fixed),
            Dim::Symbol { names, multiply, divide, add } => {
                let signed = isize::try_from(divisor).ok().filter(|d| *d > 0)?;
                if add.checked_rem(signed)? != 0 {
                    return bounded(format!("({self})/{divisor}")).map(Dim::symbol);
                }
                let (multiply, divide) = reduced(*multiply, divide.checked_mul(divisor)?)?;
                Some(Dim::Symbol { names: names.clone(), multiply, divide, add: add.checked_div(signed)? })
            }
        }
    }

    /// `⌊self / divisor⌋`; `None` for a divisor of zero.
    #[must_use]
    pub fn divided_rounding_down(&self, divisor: usize) -> Option<Self> {
        match self {
            Dim::Fixed(size) => size.checked_div(divisor).map(Dim::Fixed),
            _ if divisor == 1 => Some(self.clone()),
            // ⌊(m · d · n + a) / d⌋ = m · n + ⌊a / d⌋
            Dim::Symbol { names, multiply, divide: 1, add } if divisor > 0 && multiply.is_multiple_of(divisor) => {
                let add = add.checked_div_euclid(isize::try_from(divisor).ok()?)?;
                Some(Dim::Symbol { names: names.clone(), multiply: multiply.checked_div(divisor)?, divide: 1, add })
            }
            Dim::Symbol { .. } if divisor > 0 => bounded(format!("floor(({self})/{divisor})")).map(Dim::symbol),
            Dim::Symbol { .. } => None,
        }
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Dim::Fixed(size)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => write!(f, "{size}"),
            Dim::Symbol { names, multiply, divide, add } => {
                if *multiply != 1 {
                    write!(f, "{multiply}*")?;
                }
                f.write_str(&names.join("*"))?;
                if *divide != 1 {
                    write!(f, "/{divide}")?;
                }
                if *add != 0 {
                    write!(f, "{add:+}")?;
                }
                Ok(())
            }
        }
    }
}

/// An element type and a shape. Images are `[batch, channels, height, width]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The element type.
    pub data_type: DataType,
    /// The shape, outermost dimension first; empty for a scalar.
    pub dims: Vec<Dim>,
}

impl TensorType {
    /// A type from an element type and any list of dimensions.
    pub fn new(data_type: DataType, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Self {
        TensorType { data_type, dims: dims.into_iter().map(Into::into).collect() }
    }

    /// Number of bytes, if every size is known and memory can address them.
    pub fn byte_length(&self) -> Option<u64> {
        let elements = self.dims.iter().try_fold(1_usize, |product, dim| product.checked_mul(dim.fixed()?))?;
        let bytes = elements.checked_mul(self.data_type.size())?;
        isize::try_from(bytes).ok()?;
        u64::try_from(bytes).ok()
    }

    /// Whether the known sizes alone need more bytes than memory can address.
    pub(crate) fn is_too_large(&self) -> bool {
        // A size of zero makes any tensor empty.
        let known = || self.dims.iter().filter_map(Dim::fixed);
        let bytes = known().try_fold(self.data_type.size(), usize::checked_mul);
        known().all(|size| size > 0) && bytes.is_none_or(|bytes| isize::try_from(bytes).is_err())
    }

    /// The sizes, if every one of them is known.
    pub fn fixed_dims(&self) -> Option<Vec<usize>> {
        self.dims.iter().map(Dim::fixed).collect()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.data_type)?;
        for (position, dim) in self.dims.iter().enumerate() {
            write!(f, "{}{dim}", if position == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

/// The text, if it is not too long.
fn bounded(text: String) -> Option<String> {
    (text.len() <= TEXT_MAXIMUM).then_some(text)
}

/// The text inside its only pair of brackets.
fn in_brackets(text: &str) -> Option<&str> {
    text.strip_prefix('(')?.strip_suffix(')').filter(|inner| !inner.contains(['(', ')']))
}

/// Numerator and denominator of a factor in lowest terms; `None` for a denominator of zero.
fn reduced(multiply: usize, divide: usize) -> Option<(usize, usize)> {
    let common = greatest_common_divisor(multiply, divide);
    Some((multiply.checked_div(common)?, divide.checked_div(common)?)).filter(|(_, divide)| *divide > 0)
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    a.checked_rem(b).map_or(a, |rest| greatest_common_divisor(b, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_keep_a_normal_form() {
        let height = Dim::symbol("height");
        let half = height.divided_exactly(2).unwrap();
        assert_eq!(half.to_string(), "height/2");
        assert_eq!(half.times(2).unwrap(), height);
        assert_eq!(height.times(4).unwrap().divided_rounding_down(2).unwrap().to_string(), "2*height");
        assert_eq!(height.plus(-1).unwrap().divided_rounding_down(2).unwrap().to_string(), "floor((height-1)/2)");
        assert_eq!(half.times(4).unwrap().plus(3).unwrap().to_string(), "2*height+3");
    }

    #[test]
    fn products_keep_a_normal_form() {
        let [batch, height, width] = ["batch", "height", "width"].map(Dim::symbol);
        let pixels =
            Dim::product([&batch, &height.times(4).unwrap(), &Dim::Fixed(3), &width.divided_exactly(2).unwrap()])
                .unwrap();
        assert_eq!(pixels.to_string(), "6*batch*height*width");
        assert_eq!(pixels, Dim::product([&width, &Dim::Fixed(6), &height, &batch]).unwrap());
        assert_eq!(pixels.divided_by(&batch).unwrap().to_string(), "6*height*width");
        assert_eq!(pixels.divided_by(&pixels), Some(Dim::Fixed(1)));
        assert_eq!(batch.divided_by(&pixels), None);
        let odd = Dim::product([&height.plus(1).unwrap(), &batch]).unwrap();
        assert_eq!(odd.to_string(), "(height+1)*batch");
        assert_eq!(odd.times(2).unwrap().divided_by(&batch).unwrap().to_string(), "2*height+2");
        assert_eq!(Dim::product([&Dim::Fixed(3), &Dim::Fixed(5)]), Some(Dim::Fixed(15)));
    }

    #[test]
    fn the_text_form_is_read_back() {
        for text in [
            "height",
            "8*height",
            "6*batch*height*width",
            "3*n/2-1",
            "floor((n-1)/2)",
            "batch_size + 1",
            "n.1",
            "2*2*n",
        ] {
            assert_eq!(Dim::parse(text).to_string(), text);
        }
        assert_eq!(Dim::parse("8*height"), Dim::symbol("height").times(8).unwrap());
        assert_eq!(Dim::parse("2*2*n"), Dim::symbol("2*2*n"));
    }

    #[test]
    fn any_text_of_a_file_is_a_size() {
        for text in
            ["n/0", "0*n", "0/0", "n/-1", "*", "/", "n*", "99999999999999999999*n", "n+99999999999999999999", "+"]
        {
            let dim = Dim::parse(text);
            assert_eq!(dim.to_string(), text);
            let _ = (dim.minimum(), dim.times(7), dim.plus(-1), dim.divided_exactly(4), dim.divided_rounding_down(3));
            let _ = (Dim::product([&dim, &dim, &Dim::Fixed(3)]), dim.divided_by(&dim));
        }
        let nothing = Dim::symbol("n").times(0).unwrap();
        assert_eq!((nothing.fixed(), nothing.divided_by(&nothing)), (Some(0), None));
        let mut grown = Dim::parse("n");
        let steps = std::iter::from_fn(|| {
            grown = grown.plus(1)?.divided_rounding_down(2)?;
            Some(())
        });
        assert!(steps.take(1000).count() < 200, "the text of a size grows without end");
        let mut product = Dim::parse("n");
        let doublings = std::iter::from_fn(|| {
            product = Dim::product([&product, &product])?;
            Some(())
        });
        assert!(doublings.take(100).count() < 10, "the names of a size grow without end");
    }

    #[test]
    fn a_strided_convolution_halves_a_multiple() {
        // ⌊(8n + 2 − 2 − 1) / 2⌋ + 1
        let size = Dim::symbol("n").times(8).and_then(|d| d.plus(-1)).and_then(|d| d.divided_rounding_down(2));
        assert_eq!(size.and_then(|d| d.plus(1)).unwrap().to_string(), "4*n");
    }

    #[test]
    fn named_sizes_are_at_least_one() {
        let frames = Dim::symbol("frames");
        let least = |dim: Option<Dim>| dim.unwrap().minimum();
        assert_eq!([least(frames.times(4)), least(frames.plus(2)), least(frames.plus(-3))], [4, 3, 0]);
        assert_eq!(
            [least(frames.divided_exactly(2)), least(frames.divided_rounding_down(2)), Dim::Fixed(7).minimum()],
            [1, 0, 7]
        );
    }

    #[test]
    fn fixed_sizes_refuse_what_does_not_fit() {
        assert_eq!(Dim::Fixed(7).divided_exactly(2), None);
        assert_eq!(Dim::Fixed(7).divided_rounding_down(2), Some(Dim::Fixed(3)));
        assert_eq!(Dim::Fixed(2).plus(-3), None);
        assert_eq!(Dim::Fixed(usize::MAX).times(2), None);
    }
}
