//! Arithmetic on weights, for layers that a checkpoint holds in factors and a graph computes as one.
//!
//! All of it is computed in f64. Products and sums stay f64, so that a chain of them is cast, and thus rounded, once at
//! its end.

use super::{Weight, WeightSource};
use crate::{DataType, Error, Result};
use std::sync::Arc;

impl Weight {
    /// The matrix product of this f64 matrix `[rows, inner]` and `other` `[inner, columns]`.
    ///
    /// # Errors
    /// One of the two is not an f64 matrix, or the inner sizes differ.
    pub fn product(&self, other: &Weight) -> Result<Self> {
        match (self.dims.as_slice(), other.dims.as_slice()) {
            ([rows, inner], [other_inner, columns]) if inner == other_inner && self.is_f64() && other.is_f64() => {
                let source = WeightSource::Product { left: Arc::new(self.clone()), right: Arc::new(other.clone()) };
                Ok(Weight { data_type: DataType::F64, dims: vec![*rows, *columns], source })
            }
            _ => Err(Error::weight(
                "product",
                format!("expected f64 matrices that fit each other, found {self:?} and {other:?}"),
            )),
        }
    }

    /// This f64 weight plus `other`, element by element.
    ///
    /// # Errors
    /// One of the two is not f64, or their sizes differ.
    pub fn plus(&self, other: &Weight) -> Result<Self> {
        if self.dims != other.dims || !self.is_f64() || !other.is_f64() {
            return Err(Error::weight(
                "sum",
                format!("expected two f64 tensors of one shape, found {self:?} and {other:?}"),
            ));
        }
        let source = WeightSource::Sum { left: Arc::new(self.clone()), right: Arc::new(other.clone()) };
        Ok(Weight { source, ..self.clone() })
    }

    /// Rows that are weighted sums of `N` rows of this floating-point weight, to resample a table. The result is f32.
    ///
    /// # Errors
    /// This is not a floating-point tensor, it is a scalar, or it has no row of such an index.
    pub fn weighted_rows<const N: usize>(&self, rows: &[[(u32, f64); N]]) -> Result<Self> {
        let Some((&count, rest)) = self.dims.split_first() else {
            return Err(Error::weight("weighted rows", "expected rows, found a scalar"));
        };
        if let Some((wrong, _)) = rows.iter().flatten().find(|(row, _)| *row as usize >= count) {
            return Err(Error::weight("weighted rows", format!("there is no row {wrong} in {self:?}")));
        }
        let of = Arc::new(self.cast(DataType::F64)?);
        let terms = rows.iter().flatten().map(|(row, factor)| (*row, factor.to_bits())).collect();
        let source = WeightSource::WeightedRows { of, terms, each: N };
        Ok(Weight { data_type: DataType::F32, dims: [&[rows.len()], rest].concat(), source })
    }

    /// This weight, as a matrix of its first size by all others, plus `factor` times the matrix product of `left`
    /// `[rows, rank]` and `right` `[rank, columns]`. The types may be any floating-point types; the sum is computed in
    /// f64 and rounded once to this weight's type. Only the factors are held in memory as a whole.
    ///
    /// # Errors
    /// One of the three is not a floating-point tensor, or the sizes do not fit each other.
    pub fn plus_product(&self, left: &Weight, right: &Weight, factor: f64) -> Result<Self> {
        let rows = self.dims.first().copied().unwrap_or_default();
        let columns: usize = self.dims.iter().skip(1).product();
        match (left.dims.as_slice(), right.dims.as_slice()) {
            ([left_rows, rank], [right_rank, right_columns])
                if [*left_rows, *right_columns, *rank] == [rows, columns, *right_rank] =>
            {
                let of = |weight: &Weight| weight.cast(DataType::F64).map(Arc::new);
                let source = WeightSource::LowRank {
                    base: of(self)?,
                    left: of(left)?,
                    right: of(right)?,
                    factor: factor.to_bits(),
                };
                Weight { data_type: DataType::F64, dims: self.dims.clone(), source }.cast(self.data_type)
            }
            _ => Err(Error::weight("product", format!("{left:?} times {right:?} does not fit {self:?}"))),
        }
    }

    fn is_f64(&self) -> bool {
        self.data_type == DataType::F64
    }

    fn to_f64s(&self) -> Result<Vec<f64>> {
        let bytes = self.to_bytes()?;
        Ok(bytes
            .chunks_exact(8)
            .map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
            .collect())
    }

    pub(super) fn stream_weighted_rows(
        &self,
        terms: &[(u32, u64)],
        each: usize,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let length = self.dims[1..].iter().product::<usize>();
        let values = self.to_f64s()?;
        let mut sums = vec![0.0_f64; length];
        for row in terms.chunks_exact(each.max(1)) {
            sums.fill(0.0);
            for (index, factor) in row {
                let factor = f64::from_bits(*factor);
                let terms = &values[*index as usize * length..][..length];
                sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += factor * term);
            }
            sink(&sums.iter().flat_map(|sum| (*sum as f32).to_le_bytes()).collect::<Vec<u8>>())?;
        }
        Ok(())
    }

    pub(super) fn stream_product(&self, right: &Weight, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (inner, columns) = (right.dims[0], right.dims[1]);
        let (left, right) = (self.to_f64s()?, right.to_f64s()?);
        // Sizes of 0 are legal, but chunks of 0 are not.
        if left.is_empty() || right.is_empty() {
            let rows = left.len().checked_div(inner).unwrap_or(0);
            return sink(&vec![0; rows * columns * 8]);
        }
        for row in left.chunks_exact(inner) {
            let mut sums = vec![0.0_f64; columns];
            for (factor, terms) in row.iter().zip(right.chunks_exact(columns)) {
                sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += factor * term);
            }
            sink(&to_bytes(&sums))?;
        }
        Ok(())
    }

    pub(super) fn stream_low_rank(
        &self,
        left: &Weight,
        right: &Weight,
        factor: f64,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (rank, columns) = (right.dims[0], right.dims[1]);
        let (left, right) = (left.to_f64s()?, right.to_f64s()?);
        let (mut row, mut pending, length) = (0, Vec::new(), columns * 8);
        // The pieces of the base need not end where a row ends.
        self.stream(&mut |piece| {
            pending.extend_from_slice(piece);
            let whole = pending.len() - pending.len().checked_rem(length).unwrap_or(0);
            for bytes in pending[..whole].chunks_exact(length.max(1)) {
                let mut sums: Vec<f64> = bytes
                    .chunks_exact(8)
                    .map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
                    .collect();
                for (weight, terms) in left[row * rank..][..rank].iter().zip(right.chunks_exact(columns)) {
                    sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += factor * weight * term);
                }
                row += 1;
                sink(&to_bytes(&sums))?;
            }
            pending.drain(..whole);
            Ok(())
        })
    }

    pub(super) fn stream_sum(&self, right: &Weight, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (mut sums, right) = (self.to_f64s()?, right.to_f64s()?);
        sums.iter_mut().zip(&right).for_each(|(sum, term)| *sum += term);
        sink(&to_bytes(&sums))
    }
}

fn to_bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f64s(dims: &[usize], values: &[f64]) -> Weight {
        Weight::from_bytes(DataType::F64, dims.to_vec(), to_bytes(values)).unwrap()
    }

    #[test]
    fn rows_are_resampled() {
        let table = Weight::from_bytes(
            DataType::F16,
            vec![3, 1],
            [1.0, 2.0, 4.0].iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect::<Vec<u8>>(),
        );
        let table = table.unwrap();
        let halfway = table.weighted_rows(&[[(0, 0.5), (1, 0.5)], [(2, 2.0), (0, -1.0)]]).unwrap();
        assert_eq!(
            (halfway.data_type(), halfway.dims(), halfway.to_f32s().unwrap()),
            (DataType::F32, &[2, 1][..], vec![1.5, 7.0])
        );
        assert!(table.weighted_rows(&[[(3, 1.0)]]).is_err());
    }

    #[test]
    fn products_and_sums_are_those_of_matrices() {
        let (a, b) = (f64s(&[2, 3], &[1., 2., 3., 4., 5., 6.]), f64s(&[3, 2], &[1., 0., 0., 1., 2., -1.]));
        let product = a.product(&b).unwrap();
        assert_eq!((product.dims(), product.to_f64s().unwrap()), (&[2, 2][..], vec![7., -1., 16., -1.]));
        let sum = product.plus(&f64s(&[2, 2], &[0.5, 1., 0., 2.])).unwrap();
        assert_eq!(sum.to_f64s().unwrap(), [7.5, 0., 16., 1.]);
    }

    #[test]
    fn a_chain_is_rounded_once() {
        // f32 cannot hold 1 + 2⁻³⁰. Its square minus 1 is nearest to 2⁻²⁹; rounding in between would give 0.
        let (x, minus_one) = (f64s(&[1, 1], &[1.0 + 2_f64.powi(-30)]), f64s(&[1, 1], &[-1.0]));
        let chain = x
            .product(&x)
            .and_then(|square| square.plus(&minus_one))
            .and_then(|difference| difference.cast(DataType::F32));
        assert_eq!(chain.unwrap().to_f32s().unwrap(), [2_f32.powi(-29)]);
    }

    #[test]
    fn a_product_of_low_rank_is_added_row_by_row() {
        // Rows of 300 kB, so that the pieces of the base end inside them.
        let (rows, columns) = (5, 150_000);
        let base: Vec<u8> =
            (0..rows * columns).flat_map(|i| half::f16::from_f32((i % 7) as f32).to_le_bytes()).collect();
        let base = Weight::from_bytes(DataType::F16, vec![rows, columns / 2, 2], base).unwrap();
        let left = f64s(&[rows, 1], &[1., 2., 3., 4., 5.]);
        let right = f64s(&[1, columns], &(0..columns).map(|i| (i % 3) as f64).collect::<Vec<_>>());
        let sum = base.plus_product(&left, &right, 0.5).unwrap();
        assert_eq!((sum.data_type(), sum.dims()), (DataType::F16, base.dims()));
        for (i, value) in sum.to_f32s().unwrap().into_iter().enumerate() {
            assert_eq!(value, (i % 7) as f32 + 0.5 * (i / columns + 1) as f32 * (i % columns % 3) as f32);
        }
        assert!(base.plus_product(&right, &left, 1.0).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (a, b) = (f64s(&[2, 3], &[0.; 6]), f64s(&[2], &[0.; 2]));
        assert!(a.product(&a).is_err() && a.product(&b).is_err() && a.plus(&b).is_err());
        let half = Weight::zeros(DataType::F32, vec![3, 2]).unwrap();
        assert!(a.product(&half).unwrap_err().to_string().contains("f32[3, 2]"));
        let nothing = f64s(&[2, 0], &[]).product(&f64s(&[0, 3], &[])).unwrap();
        assert!(nothing.to_f64s().unwrap().is_empty());
    }
}
