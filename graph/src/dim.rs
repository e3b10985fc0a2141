//! Shapes: fixed sizes, and sizes known only by name until a session is made.

use crate::DataType;
use std::fmt;
use std::sync::Arc;

/// One dimension of a shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A number of elements.
    Fixed(usize),
    /// `name · multiply / divide + add`, where the division leaves no remainder: an operator that divides a size
    /// (SpaceToDepth) already demands that, and a division that may round is kept as a new name instead.
    Symbol {
        /// The name, as an ONNX `dim_param`: `height`.
        name: Arc<str>,
        /// Numerator of the factor.
        multiply: usize,
        /// Denominator of the factor.
        divide: usize,
        /// Added at the end.
        add: isize,
    },
}

impl Dim {
    /// A size that is not known yet.
    pub fn symbol(name: impl AsRef<str>) -> Self {
        Dim::Symbol { name: name.as_ref().into(), multiply: 1, divide: 1, add: 0 }
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
            Dim::Symbol { name, multiply, divide, add } => {
                let multiply = multiply.checked_mul(factor)?;
                let common = greatest_common_divisor(multiply, *divide);
                let add = add.checked_mul(isize::try_from(factor).ok()?)?;
                Some(Dim::Symbol { name: name.clone(), multiply: multiply / common, divide: divide / common, add })
            }
        }
    }

    /// `self + offset`; `None` if a fixed size would be negative or overflow.
    #[must_use]
    pub fn plus(&self, offset: isize) -> Option<Self> {
        match self {
            Dim::Fixed(size) => size.checked_add_signed(offset).map(Dim::Fixed),
            Dim::Symbol { name, multiply, divide, add } => {
                Some(Dim::Symbol { name: name.clone(), multiply: *multiply, divide: *divide, add: add.checked_add(offset)? })
            }
        }
    }

    /// `self / divisor` where the operator demands that nothing remains; `None` if a fixed size is not a multiple.
    #[must_use]
    pub fn divided_exactly(&self, divisor: usize) -> Option<Self> {
        match self {
            Dim::Fixed(size) => (divisor > 0 && size.is_multiple_of(divisor)).then(|| Dim::Fixed(size / divisor)),
            Dim::Symbol { name, multiply, divide, add } => {
                let signed = isize::try_from(divisor).ok().filter(|d| *d > 0)?;
                if add % signed != 0 {
                    return Some(Dim::symbol(format!("({self})/{divisor}")));
                }
                let divide = divide.checked_mul(divisor)?;
                let common = greatest_common_divisor(*multiply, divide);
                Some(Dim::Symbol { name: name.clone(), multiply: multiply / common, divide: divide / common, add: add / signed })
            }
        }
    }

    /// `⌊self / divisor⌋`; `None` for a divisor of zero.
    #[must_use]
    pub fn divided_rounding_down(&self, divisor: usize) -> Option<Self> {
        match self {
            Dim::Fixed(size) => size.checked_div(divisor).map(Dim::Fixed),
            _ if divisor == 1 => Some(self.clone()),
            Dim::Symbol { multiply, divide: 1, add, .. }
                if multiply.is_multiple_of(divisor) && add.unsigned_abs().is_multiple_of(divisor) =>
            {
                self.divided_exactly(divisor)
            }
            Dim::Symbol { .. } => (divisor > 0).then(|| Dim::symbol(format!("floor(({self})/{divisor})"))),
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
            Dim::Symbol { name, multiply, divide, add } => {
                if *multiply != 1 {
                    write!(f, "{multiply}*")?;
                }
                f.write_str(name)?;
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
    /// A type from anything that is a list of dimensions.
    pub fn new(data_type: DataType, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Self {
        TensorType { data_type, dims: dims.into_iter().map(Into::into).collect() }
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

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
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
    fn fixed_sizes_refuse_what_does_not_fit() {
        assert_eq!(Dim::Fixed(7).divided_exactly(2), None);
        assert_eq!(Dim::Fixed(7).divided_rounding_down(2), Some(Dim::Fixed(3)));
        assert_eq!(Dim::Fixed(2).plus(-3), None);
        assert_eq!(Dim::Fixed(usize::MAX).times(2), None);
    }
}
