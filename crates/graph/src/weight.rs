//! Weights that are described, not loaded.

mod arithmetic;
mod cast;
mod inflate;
mod layout;
mod quantised;
mod stored;

use crate::mapped::Checksum;
use crate::{DataType, Error, MappedFile, Result};
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A constant tensor: its type, its sizes, and where its bytes come from (little-endian, row-major, as in safetensors
/// and ONNX).
///
/// Cloning is cheap. Two weights are equal when they are made in the same way from the same bytes; the comparison reads
/// nothing.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Weight {
    data_type: DataType,
    dims: Vec<usize>,
    source: WeightSource,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum WeightSource {
    Range { file: Arc<MappedFile>, offset: u64 },
    Bytes(Bytes),
    Deflated { file: Arc<MappedFile>, offset: u64, compressed: u64, checksum: Option<Checksum> },
    Negated(Arc<Weight>),
    BigEndian(Arc<Weight>),
    Strided { of: Arc<Weight>, first: usize, dims: Arc<[usize]>, strides: Arc<[usize]> },
    Zeros,
    Cast(Arc<Weight>),
    Transpose { of: Arc<Weight>, permutation: Vec<usize> },
    Concat { parts: Arc<[Weight]>, axis: usize },
    Rows { of: Arc<Weight>, indices: Arc<[u32]> },
    // Factors are kept as bits: floats have no `Eq`.
    WeightedRows { of: Arc<Weight>, terms: Arc<[(u32, u64)]>, each: usize },
    ScaleRows { of: Arc<Weight>, factors: Arc<[u32]> },
    Product { left: Arc<Weight>, right: Arc<Weight> },
    Sum { left: Arc<Weight>, right: Arc<Weight> },
    Quantised { of: Arc<Weight>, axis: usize, scales: Arc<[u32]> },
    LowRank { base: Arc<Weight>, left: Arc<Weight>, right: Arc<Weight>, factor: u64 },
}

impl Weight {
    /// A range of a mapped file.
    ///
    /// # Errors
    /// The range is not inside the file.
    pub fn mapped(file: Arc<MappedFile>, offset: u64, data_type: DataType, dims: Vec<usize>) -> Result<Self> {
        let length = byte_length(data_type, &dims)?;
        let end = offset.checked_add(length).filter(|end| *end <= file.bytes().len() as u64);
        if end.is_none() {
            let size = file.bytes().len();
            return Err(Error::format(
                file.path(),
                format!("{length} bytes of data at offset {offset} end past the file's {size} bytes"),
            ));
        }
        Ok(Weight { data_type, dims, source: WeightSource::Range { file, offset } })
    }

    /// Bytes in memory, for small computed constants and for data inside an ONNX file.
    ///
    /// # Errors
    /// The type and the sizes need another number of bytes.
    pub fn from_bytes(data_type: DataType, dims: Vec<usize>, bytes: impl Into<Bytes>) -> Result<Self> {
        let (bytes, expected) = (bytes.into(), byte_length(data_type, &dims)?);
        if bytes.len() as u64 != expected {
            let reason = format!("expected {expected} bytes for {data_type}{dims:?}, found {}", bytes.len());
            return Err(Error::weight("constant", reason));
        }
        Ok(Weight { data_type, dims, source: WeightSource::Bytes(bytes) })
    }

    /// Values in memory, for small computed constants.
    ///
    /// # Errors
    /// The sizes are those of another number of values.
    pub fn from_f32s(dims: Vec<usize>, values: &[f32]) -> Result<Self> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::from_bytes(DataType::F32, dims, bytes)
    }

    /// Zeros that take no memory, as a stand-in for a tensor of which only the type and the sizes matter.
    ///
    /// # Errors
    /// The tensor is larger than memory can address.
    pub fn zeros(data_type: DataType, dims: Vec<usize>) -> Result<Self> {
        byte_length(data_type, &dims)?;
        Ok(Weight { data_type, dims, source: WeightSource::Zeros })
    }

    /// The element type.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The sizes, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Number of bytes.
    pub fn byte_length(&self) -> u64 {
        (self.elements() * self.data_type.size()) as u64
    }

    /// The file and the offset where exactly these bytes are stored, if they are stored in one piece.
    pub fn file_range(&self) -> Option<(&Arc<MappedFile>, u64)> {
        match &self.source {
            WeightSource::Range { file, offset } => Some((file, *offset)),
            _ => None,
        }
    }

    /// Calls `found` for every mapped file that the bytes come from.
    pub(crate) fn for_each_file(&self, found: &mut dyn FnMut(&Arc<MappedFile>)) {
        match &self.source {
            WeightSource::Range { file, .. } | WeightSource::Deflated { file, .. } => found(file),
            WeightSource::Bytes(_) | WeightSource::Zeros => {}
            WeightSource::Cast(of)
            | WeightSource::BigEndian(of)
            | WeightSource::Negated(of)
            | WeightSource::Strided { of, .. }
            | WeightSource::Transpose { of, .. }
            | WeightSource::Rows { of, .. }
            | WeightSource::WeightedRows { of, .. }
            | WeightSource::ScaleRows { of, .. }
            | WeightSource::Quantised { of, .. } => of.for_each_file(found),
            WeightSource::Concat { parts, .. } => parts.iter().for_each(|part| part.for_each_file(found)),
            WeightSource::Product { left, right } | WeightSource::Sum { left, right } => {
                [left, right].into_iter().for_each(|part| part.for_each_file(found));
            }
            WeightSource::LowRank { base, left, right, .. } => {
                [base, left, right].into_iter().for_each(|part| part.for_each_file(found));
            }
        }
    }

    /// The same bytes with other sizes.
    ///
    /// # Errors
    /// The number of elements differs.
    pub fn reshaped(&self, dims: Vec<usize>) -> Result<Self> {
        if byte_length(self.data_type, &dims)? != self.byte_length() {
            return Err(Error::weight(
                "reshape",
                format!("{:?} and {dims:?} have different numbers of elements", self.dims),
            ));
        }
        Ok(Weight { dims, ..self.clone() })
    }

    /// The same values in another floating-point type, rounded to nearest even.
    ///
    /// # Errors
    /// One of the types is not f32, f16, bf16 or f64.
    pub fn cast(&self, to: DataType) -> Result<Self> {
        if to == self.data_type {
            return Ok(self.clone());
        }
        for data_type in [self.data_type, to] {
            if !matches!(data_type, DataType::F32 | DataType::F16 | DataType::Bf16 | DataType::F64) {
                return Err(Error::weight("cast", format!("{} to {to}: {data_type} is not supported", self.data_type)));
            }
        }
        // A wider type holds the stored values exactly, so casting back gives the stored weight itself, without
        // computing a byte.
        if let WeightSource::Cast(of) = &self.source
            && of.widens_exactly_to(self.data_type)
        {
            return Weight { dims: self.dims.clone(), ..of.as_ref().clone() }.cast(to);
        }
        Ok(Weight { data_type: to, dims: self.dims.clone(), source: WeightSource::Cast(Arc::new(self.clone())) })
    }

    /// Whether casting to a type gives back the weight that this one was widened from.
    pub(crate) fn is_widened_from(&self, narrower: DataType) -> bool {
        let WeightSource::Cast(of) = &self.source else { return false };
        of.data_type == narrower && of.widens_exactly_to(self.data_type)
    }

    fn widens_exactly_to(&self, wider: DataType) -> bool {
        use DataType::{Bf16, F16, F32, F64};
        matches!((self.data_type, wider), (F16 | Bf16, F32) | (F16 | Bf16 | F32, F64))
    }

    /// Dimensions in another order: dimension `i` of the result is dimension `permutation[i]` of this.
    ///
    /// # Errors
    /// `permutation` is not a permutation of this weight's dimensions.
    pub fn transposed(&self, permutation: &[usize]) -> Result<Self> {
        let mut sorted = permutation.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.dims.len()) {
            return Err(Error::weight("transpose", format!("{permutation:?} is not a permutation of {:?}", self.dims)));
        }
        let dims = permutation.iter().map(|&axis| self.dims[axis]).collect();
        let source = WeightSource::Transpose { of: Arc::new(self.clone()), permutation: permutation.to_vec() };
        Ok(Weight { data_type: self.data_type, dims, source })
    }

    /// Several weights one after another along `axis`.
    ///
    /// # Errors
    /// There is none, or their types or their sizes on other axes differ.
    pub fn concatenated(parts: &[Weight], axis: usize) -> Result<Self> {
        let [first, rest @ ..] = parts else {
            return Err(Error::weight("concatenate", "expected at least one part"));
        };
        let mut dims = first.dims.clone();
        for part in rest {
            let same = |i: usize| i == axis || part.dims.get(i) == dims.get(i);
            if part.data_type != first.data_type
                || part.dims.len() != dims.len()
                || axis >= dims.len()
                || !(0..dims.len()).all(same)
            {
                return Err(Error::weight("concatenate", format!("{part:?} does not fit {first:?} on axis {axis}")));
            }
            dims[axis] += part.dims[axis];
        }
        Ok(Weight { data_type: first.data_type, dims, source: WeightSource::Concat { parts: parts.into(), axis } })
    }

    /// Rows (indices of the first dimension) of this weight, in any order and any number of times.
    ///
    /// Consecutive rows of a mapped file are a range of that file.
    ///
    /// # Errors
    /// This is a scalar, or it has no row of such an index.
    pub fn rows(&self, indices: impl Into<Arc<[u32]>>) -> Result<Self> {
        let indices = indices.into();
        let Some((&count, rest)) = self.dims.split_first() else {
            return Err(Error::weight("rows", "expected rows, found a scalar"));
        };
        if let Some(wrong) = indices.iter().find(|index| **index as usize >= count) {
            return Err(Error::weight("rows", format!("there is no row {wrong} in {self:?}")));
        }
        let dims = [&[indices.len()], rest].concat();
        byte_length(self.data_type, &dims)?;
        let consecutive = indices.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let source = match (&self.source, indices.first()) {
            (WeightSource::Range { file, offset }, Some(first)) if consecutive => {
                let row = rest.iter().product::<usize>() * self.data_type.size();
                WeightSource::Range { file: file.clone(), offset: offset + u64::from(*first) * row as u64 }
            }
            _ => WeightSource::Rows { of: Arc::new(self.clone()), indices },
        };
        Ok(Weight { data_type: self.data_type, dims, source })
    }

    /// Multiplies every row (index of the first dimension) by its own factor. This folds a normalisation into the layer
    /// before it.
    ///
    /// # Errors
    /// This is not f32, or there is not one factor for each row.
    pub fn rows_scaled(&self, factors: &[f32]) -> Result<Self> {
        if self.data_type != DataType::F32 || self.dims.first() != Some(&factors.len()) {
            return Err(Error::weight("scale", format!("expected f32 with {} rows, found {self:?}", factors.len())));
        }
        let factors = factors.iter().map(|f| f.to_bits()).collect();
        Ok(Weight { source: WeightSource::ScaleRows { of: Arc::new(self.clone()), factors }, ..self.clone() })
    }

    /// Passes all bytes to `sink` in order, a piece at a time.
    ///
    /// Most sources need only a small buffer. Some hold whole tensors: a transposition, a view with gaps, a choice of
    /// rows and weighted rows hold their source, a concatenation on an inner axis its parts, a product or a sum both
    /// operands, and a low-rank product its factors. Bytes of a mapped file are not copied for that.
    ///
    /// # Errors
    /// A file cannot be read, or `sink` fails.
    pub fn stream(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match &self.source {
            WeightSource::Range { file, offset } => file.stream(*offset, self.byte_length(), sink),
            WeightSource::Bytes(bytes) => sink(bytes),
            WeightSource::Deflated { file, offset, compressed, checksum } => {
                inflate::inflate(file, *offset..offset + compressed, self.byte_length(), checksum.as_ref(), sink)
            }
            WeightSource::BigEndian(of) => of.stream_swapped(sink),
            WeightSource::Negated(of) => of.stream_negated(sink),
            WeightSource::Strided { of, first, dims, strides } => of.stream_view(*first, dims, strides, sink),
            WeightSource::Zeros => stream_zeros(self.byte_length(), sink),
            WeightSource::Cast(of) => of.stream_cast(self.data_type, sink),
            WeightSource::Transpose { of, permutation } => of.stream_transposed(permutation, sink),
            WeightSource::Concat { parts, axis: 0 } => parts.iter().try_for_each(|part| part.stream(sink)),
            WeightSource::Concat { parts, axis } => Weight::stream_concatenated(parts, *axis, sink),
            WeightSource::Rows { of, indices } => of.stream_rows(indices, sink),
            WeightSource::ScaleRows { of, factors } => of.stream_rows_scaled(factors, sink),
            WeightSource::WeightedRows { of, terms, each } => of.stream_weighted_rows(terms, *each, sink),
            WeightSource::Product { left, right } => left.stream_product(right, sink),
            WeightSource::Sum { left, right } => left.stream_sum(right, sink),
            WeightSource::Quantised { of, axis, scales } => of.stream_quantised(*axis, scales, self.data_type, sink),
            WeightSource::LowRank { base, left, right, factor } => {
                base.stream_low_rank(left, right, f64::from_bits(*factor), sink)
            }
        }
    }

    /// All bytes, in memory, for small tensors. Large ones are streamed.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn to_bytes(&self) -> Result<Cow<'_, [u8]>> {
        match &self.source {
            WeightSource::Range { file, offset } => {
                // `mapped` has checked that the range is inside the file.
                let start = usize::try_from(*offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(self.elements() * self.data_type.size());
                let bytes = file.bytes().get(start..end);
                bytes
                    .map(Cow::Borrowed)
                    .ok_or_else(|| Error::format(file.path(), "the file became shorter while it was in use"))
            }
            WeightSource::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            _ => {
                let mut all = Vec::with_capacity(self.elements() * self.data_type.size());
                self.stream(&mut |piece| {
                    all.extend_from_slice(piece);
                    Ok(())
                })?;
                Ok(Cow::Owned(all))
            }
        }
    }

    /// All values as f32, for small floating-point tensors.
    ///
    /// # Errors
    /// This is not a floating-point tensor, or a file cannot be read.
    pub fn to_f32s(&self) -> Result<Vec<f32>> {
        let cast = self.cast(DataType::F32)?;
        Ok(cast.to_bytes()?.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// All values as i64, for the small integer tensors that hold shapes, axes and indices.
    ///
    /// # Errors
    /// This is not an i64 or i32 tensor, or a file cannot be read.
    pub fn to_i64s(&self) -> Result<Vec<i64>> {
        let bytes = self.to_bytes()?;
        match self.data_type {
            DataType::I64 => Ok(bytes
                .chunks_exact(8)
                .map(|b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
                .collect()),
            DataType::I32 => {
                Ok(bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect())
            }
            other => Err(Error::weight("constant", format!("expected integers, found {other}"))),
        }
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.data_type, self.dims)
    }
}

/// Bytes that a tensor of this type and these sizes needs.
fn byte_length(data_type: DataType, dims: &[usize]) -> Result<u64> {
    dims.iter()
        .try_fold(data_type.size() as u64, |product, &dim| product.checked_mul(dim as u64))
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(|| Error::weight("tensor", format!("{data_type}{dims:?} is larger than memory can address")))
}

fn stream_zeros(length: u64, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let zeros = [0; 4096];
    let mut left = length;
    while left > 0 {
        let step = left.min(zeros.len() as u64);
        sink(&zeros[..step as usize])?;
        left -= step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;
    use proptest::prelude::*;

    fn f32s(dims: &[usize]) -> Weight {
        let values = (0..dims.iter().product::<usize>()).flat_map(|i| (i as f32).to_le_bytes());
        Weight::from_bytes(DataType::F32, dims.to_vec(), values.collect::<Vec<u8>>()).unwrap()
    }

    #[test]
    fn a_transposition_moves_every_element() {
        let moved = f32s(&[2, 3, 4]).transposed(&[2, 0, 1]).unwrap();
        assert_eq!(moved.dims(), [4, 2, 3]);
        let values = moved.to_f32s().unwrap();
        for (a, b, c) in (0..4).flat_map(|a| (0..2).flat_map(move |b| (0..3).map(move |c| (a, b, c)))) {
            assert_eq!(values[a * 6 + b * 3 + c], (b * 12 + c * 4 + a) as f32);
        }
        assert_eq!(moved.reshaped(vec![24]).unwrap().to_f32s().unwrap(), values);
    }

    #[test]
    fn concatenation_works_on_any_axis() {
        let parts = [f32s(&[2, 2]), f32s(&[2, 1])];
        let joined = Weight::concatenated(&parts, 1).unwrap();
        assert_eq!((joined.dims(), joined.to_f32s().unwrap()), (&[2, 3][..], vec![0., 1., 0., 2., 3., 1.]));
        let stacked = Weight::concatenated(&[f32s(&[1, 2]), f32s(&[2, 2])], 0).unwrap();
        assert_eq!(stacked.to_f32s().unwrap(), [0., 1., 0., 1., 2., 3.]);
        assert!(Weight::concatenated(&[f32s(&[1, 2]), f32s(&[1, 3])], 0).is_err());
    }

    #[test]
    fn rows_are_chosen_in_any_order() {
        let table = f32s(&[3, 2]);
        let chosen = table.rows([2, 0, 2]).unwrap();
        assert_eq!((chosen.dims(), chosen.to_f32s().unwrap()), (&[3, 2][..], vec![4., 5., 0., 1., 4., 5.]));
        assert_eq!(chosen.transposed(&[1, 0]).unwrap().to_f32s().unwrap(), [4., 0., 4., 5., 1., 5.]);
        assert_eq!(table.rows([]).unwrap().to_f32s().unwrap(), [0.0_f32; 0]);
        assert!(table.rows([3]).is_err());
        assert!(f32s(&[]).rows([0]).is_err());
    }

    #[test]
    fn consecutive_rows_of_a_file_are_a_range_of_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let values: Vec<u8> = (0..8_u8).flat_map(|v| f32::from(v).to_le_bytes()).collect();
        std::fs::write(file.path(), values).unwrap();
        let table = Weight::mapped(MappedFile::open(file.path()).unwrap(), 0, DataType::F32, vec![4, 2]).unwrap();
        let part = table.rows([1, 2]).unwrap();
        assert_eq!((part.file_range().unwrap().1, part.to_f32s().unwrap()), (8, vec![2., 3., 4., 5.]));
        assert!(table.rows([2, 1]).unwrap().file_range().is_none());
    }

    #[test]
    fn rows_are_scaled_each_by_its_own_factor() {
        assert_eq!(f32s(&[2, 2]).rows_scaled(&[2.0, 10.0]).unwrap().to_f32s().unwrap(), [0., 2., 20., 30.]);
        assert!(f32s(&[2, 2]).rows_scaled(&[2.0]).is_err());
    }

    #[test]
    fn a_range_must_lie_inside_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0; 10]).unwrap();
        let map = MappedFile::open(file.path()).unwrap();
        assert!(Weight::mapped(map.clone(), 2, DataType::F32, vec![2]).is_ok());
        assert!(Weight::mapped(map.clone(), 3, DataType::F32, vec![2]).is_err());
        assert!(Weight::mapped(map, u64::MAX, DataType::F32, vec![usize::MAX, 2]).is_err());
    }

    proptest! {
        #[test]
        fn casts_round_as_the_half_crate_does(values in prop::collection::vec(any::<f32>(), 1..50)) {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let weight = Weight::from_bytes(DataType::F32, vec![values.len()], bytes).unwrap();
            let halves = weight.cast(DataType::F16).unwrap().to_f32s().unwrap();
            for (value, half) in values.iter().zip(halves) {
                prop_assert_eq!(f16::from_f32(*value).to_f32().to_bits(), half.to_bits());
            }
        }
    }
}
