//! Tensors as other formats store them: compressed, big-endian, negated, or as a view of a larger tensor.

use super::{Weight, WeightSource, byte_length, layout};
use crate::mapped::Checksum;
use crate::{DataType, Error, MappedFile, Result};
use std::sync::Arc;

impl Weight {
    /// A range of a mapped file that holds the bytes compressed by DEFLATE (RFC 1951). Every read decompresses them
    /// and compares them with their checksum, if there is one.
    ///
    /// # Errors
    /// The range of `compressed` bytes is not inside the file.
    pub fn deflated(
        file: Arc<MappedFile>,
        offset: u64,
        compressed: u64,
        checksum: Option<Checksum>,
        data_type: DataType,
        dims: Vec<usize>,
    ) -> Result<Self> {
        byte_length(data_type, &dims)?;
        // Checks the range, and nothing else.
        let length = usize::try_from(compressed).unwrap_or(usize::MAX);
        Weight::mapped(file.clone(), offset, DataType::U8, vec![length])?;
        Ok(Weight { data_type, dims, source: WeightSource::Deflated { file, offset, compressed, checksum } })
    }

    /// The tensor whose elements this weight stores in big-endian byte order.
    pub fn from_big_endian(self) -> Self {
        if self.data_type.size() == 1 {
            return self;
        }
        Weight { data_type: self.data_type, dims: self.dims.clone(), source: WeightSource::BigEndian(Arc::new(self)) }
    }

    /// The negated values.
    ///
    /// # Errors
    /// This is not f32, f16, bf16 or f64.
    pub fn negated(self) -> Result<Self> {
        if !matches!(self.data_type, DataType::F32 | DataType::F16 | DataType::Bf16 | DataType::F64) {
            return Err(Error::weight("negation", format!("expected floating-point numbers, found {self:?}")));
        }
        Ok(Weight { data_type: self.data_type, dims: self.dims.clone(), source: WeightSource::Negated(Arc::new(self)) })
    }

    /// The part of an axis from `first` on with `length` entries.
    ///
    /// # Errors
    /// There is no such axis, or the part ends past it.
    pub fn part(&self, axis: usize, first: usize, length: usize) -> Result<Self> {
        let mut dims = self.dims.clone();
        let strides = layout::strides(&dims);
        match dims.get_mut(axis).filter(|dim| first.checked_add(length).is_some_and(|end| end <= **dim)) {
            Some(dim) => *dim = length,
            None => {
                let reason = format!("axis {axis} of {self:?} has no part of {length} from {first} on");
                return Err(Error::weight("part", reason));
            }
        }
        self.strided(first * strides[axis], dims, &strides)
    }

    /// A view: the element at an index is the element `first + Σ index · stride` of this weight in row-major order.
    ///
    /// Elements of a mapped file that lie one after another are a range of that file.
    ///
    /// # Errors
    /// There is not one stride for each size, or the view ends past this weight.
    pub fn strided(&self, first: usize, dims: Vec<usize>, strides: &[usize]) -> Result<Self> {
        let elements = byte_length(self.data_type, &dims)? as usize / self.data_type.size();
        if dims.len() != strides.len() {
            return Err(Error::weight("view", format!("{dims:?} and the strides {strides:?} differ in number")));
        }
        let last = dims
            .iter()
            .zip(strides)
            .try_fold(first, |last, (dim, stride)| last.checked_add(dim.saturating_sub(1).checked_mul(*stride)?));
        let end = if elements == 0 { Some(first) } else { last.and_then(|last| last.checked_add(1)) };
        if end.is_none_or(|end| end > self.elements()) {
            let reason =
                format!("{dims:?} with the strides {strides:?} from element {first} on is not inside {self:?}");
            return Err(Error::weight("view", reason));
        }
        // The stride of an axis of size 1 is never used.
        let row_major = layout::strides(&dims);
        let contiguous =
            elements == 0 || (0..dims.len()).all(|axis| dims[axis] == 1 || strides[axis] == row_major[axis]);
        let source = match &self.source {
            WeightSource::Range { file, offset } if contiguous => {
                WeightSource::Range { file: file.clone(), offset: offset + (first * self.data_type.size()) as u64 }
            }
            source if contiguous && elements == self.elements() => source.clone(),
            _ => {
                let strides = if contiguous { row_major.into() } else { strides.into() };
                // The result may be reshaped later, so the view keeps its own sizes.
                WeightSource::Strided { of: Arc::new(self.clone()), first, dims: dims.as_slice().into(), strides }
            }
        };
        Ok(Weight { data_type: self.data_type, dims, source })
    }

    /// The elements in the other byte order.
    pub(super) fn stream_swapped(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let size = self.data_type.size();
        let mut swapped: Vec<u8> = Vec::new();
        self.stream(&mut |piece| {
            // A piece may end inside an element, whose beginning then waits for the next piece.
            swapped.extend_from_slice(piece);
            let whole = swapped.len() - swapped.len() % size;
            swapped[..whole].chunks_exact_mut(size).for_each(<[u8]>::reverse);
            sink(&swapped[..whole])?;
            swapped.drain(..whole);
            Ok(())
        })
    }

    /// The negated elements. The sign is the highest bit of an element's last byte.
    pub(super) fn stream_negated(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let size = self.data_type.size();
        let (mut negated, mut position) = (Vec::new(), 0);
        self.stream(&mut |piece| {
            negated.clear();
            negated.extend_from_slice(piece);
            // A piece may end inside an element.
            let first = size - 1 - position;
            negated.iter_mut().skip(first).step_by(size).for_each(|byte| *byte ^= 0x80);
            position = (position + piece.len()) % size;
            sink(&negated)
        })
    }

    /// The elements of a view. A view without gaps is streamed; any other view needs all bytes of its source.
    pub(super) fn stream_view(
        &self,
        first: usize,
        dims: &[usize],
        strides: &[usize],
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let size = self.data_type.size();
        let elements: usize = dims.iter().product();
        if strides != layout::strides(dims) {
            return layout::gather(&self.to_bytes()?, size, first, dims, strides, sink);
        }
        let (mut skipped, mut left) = (first * size, elements * size);
        self.stream(&mut |piece| {
            let start = skipped.min(piece.len());
            skipped -= start;
            let wanted = &piece[start..][..left.min(piece.len() - start)];
            left -= wanted.len();
            if wanted.is_empty() { Ok(()) } else { sink(wanted) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoredEntry;
    use flate2::{Compression, Crc, write::DeflateEncoder};
    use proptest::prelude::*;
    use std::io::Write;

    fn counted(dims: &[usize]) -> Weight {
        let values = (0..dims.iter().product::<usize>()).flat_map(|i| (i as f32).to_le_bytes());
        Weight::from_bytes(DataType::F32, dims.to_vec(), values.collect::<Vec<u8>>()).unwrap()
    }

    fn compressed(bytes: &[u8]) -> (tempfile::NamedTempFile, u64) {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        let compressed = encoder.finish().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [&[7; 3], compressed.as_slice(), &[9; 5]].concat()).unwrap();
        (file, compressed.len() as u64)
    }

    #[test]
    fn compressed_tensors_have_exactly_their_bytes() {
        let values = counted(&[1000, 400]);
        let bytes = values.to_bytes().unwrap().into_owned();
        let (file, length) = compressed(&bytes);
        let map = MappedFile::open(file.path()).unwrap();
        let of = |dims: Vec<usize>| Weight::deflated(map.clone(), 3, length, None, DataType::F32, dims).unwrap();
        assert_eq!(of(vec![1000, 400]).to_bytes().unwrap().as_ref(), bytes);
        assert!(of(vec![1000, 400]).file_range().is_none());
        let part = of(vec![400_000]).strided(300_000, vec![2, 3], &[3, 1]).unwrap();
        assert_eq!(part.to_f32s().unwrap(), [300_000., 300_001., 300_002., 300_003., 300_004., 300_005.]);
        // Data that is longer or shorter than the header states is damaged. Decompression of a bomb stops at the
        // stated length.
        assert!(of(vec![399_999]).to_bytes().unwrap_err().to_string().contains("found more"));
        assert!(of(vec![400_001]).to_bytes().unwrap_err().to_string().contains("damaged"));
        assert!(Weight::deflated(map, 3, length + 6, None, DataType::F32, vec![1]).is_err());
    }

    #[test]
    fn checksums_are_compared() {
        let values = counted(&[1000, 400]);
        let bytes = values.to_bytes().unwrap().into_owned();
        let mut crc = Crc::new();
        crc.update(&bytes);
        let right = Checksum { entry: "a/data/0".into(), crc32: crc.sum() };
        let wrong = Checksum { crc32: crc.sum() ^ 1, ..right.clone() };
        let (file, length) = compressed(&bytes);
        let map = MappedFile::open(file.path()).unwrap();
        let of = |checksum: &Checksum| {
            Weight::deflated(map.clone(), 3, length, Some(checksum.clone()), DataType::F32, vec![400_000]).unwrap()
        };
        assert_eq!(of(&right).to_bytes().unwrap().as_ref(), bytes);
        assert!(of(&wrong).to_bytes().unwrap_err().to_string().contains("the entry `a/data/0` is damaged"));
        // Stored entries are compared all together, and once.
        let plain = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(plain.path(), [&[7; 3], bytes.as_slice(), &[0; 9]].concat()).unwrap();
        let stored =
            |checksum: &Checksum| StoredEntry { offset: 3, length: bytes.len() as u64, checksum: checksum.clone() };
        let empty = StoredEntry { offset: 5, length: 0, checksum: Checksum { entry: "b".into(), crc32: 0 } };
        let verified = |entries: Vec<StoredEntry>| {
            let map = MappedFile::open(plain.path()).unwrap();
            map.expect(entries);
            assert_eq!(format!("{:?}", map.verify()), format!("{:?}", map.verify()));
            map.verify()
        };
        assert!(verified(vec![stored(&right), empty.clone()]).is_ok() && verified(Vec::new()).is_ok());
        let error = verified(vec![empty.clone(), stored(&right), stored(&wrong)]).unwrap_err().to_string();
        assert!(error.contains("the entry `a/data/0` is damaged: expected the CRC-32"), "{error}");
        // A file that has become shorter.
        let past = StoredEntry { length: u64::MAX / 2, ..stored(&right) };
        assert!(verified(vec![past]).is_err());
    }

    #[test]
    fn the_other_sign_is_one_bit() {
        let values = [0.0, -0.0, 1.5, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE / 4.0];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let weight = Weight::from_bytes(DataType::F32, vec![6], bytes).unwrap();
        let negated = weight.clone().negated().unwrap();
        let bits = |weight: &Weight| weight.to_f32s().unwrap().iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&negated), values.map(|value| (-value).to_bits()));
        assert_eq!(bits(&negated.clone().negated().unwrap()), bits(&weight));
        assert_ne!(negated, weight);
        // Whatever the pieces are: those of compressed data end inside elements.
        let numbers = counted(&[100_003]);
        let doubles = numbers.cast(DataType::F64).unwrap().to_bytes().unwrap().into_owned();
        let (file, length) = compressed(&doubles[..800_019 / 8 * 8]);
        let map = MappedFile::open(file.path()).unwrap();
        let stored = Weight::deflated(map, 3, length, None, DataType::F64, vec![100_002]).unwrap();
        let found = stored.negated().unwrap().to_f32s().unwrap();
        assert!(found.iter().enumerate().all(|(place, value)| *value == -(place as f32)));
        let halves = numbers.cast(DataType::F16).unwrap();
        let expected: Vec<f32> = halves.to_f32s().unwrap().into_iter().map(|value| -value).collect();
        assert_eq!(halves.negated().unwrap().to_f32s().unwrap(), expected);
        assert!(Weight::zeros(DataType::I64, vec![1]).unwrap().negated().is_err());
    }

    #[test]
    fn big_endian_elements_are_turned() {
        let bytes: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|v| v.to_be_bytes()).collect();
        let weight = Weight::from_bytes(DataType::F32, vec![2], bytes).unwrap().from_big_endian();
        assert_eq!(weight.to_f32s().unwrap(), [1.5, -2.0]);
        assert_eq!(weight.strided(1, vec![1], &[1]).unwrap().to_f32s().unwrap(), [-2.0]);
    }

    #[test]
    fn views_without_gaps_are_ranges_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), counted(&[24]).to_bytes().unwrap()).unwrap();
        let stored = Weight::mapped(MappedFile::open(file.path()).unwrap(), 0, DataType::F32, vec![24]).unwrap();
        // The stride of a size of 1 is arbitrary.
        let view = stored.strided(4, vec![2, 1, 3], &[3, 77, 1]).unwrap();
        assert_eq!((view.file_range().unwrap().1, view.to_f32s().unwrap()), (16, vec![4., 5., 6., 7., 8., 9.]));
        assert!(stored.strided(0, vec![3, 2], &[1, 3]).unwrap().file_range().is_none());
        let turned = stored.strided(0, vec![3, 2], &[1, 3]).unwrap().reshaped(vec![6]).unwrap();
        assert_eq!(turned.to_f32s().unwrap(), [0., 3., 1., 4., 2., 5.]);
        assert_eq!(stored.strided(24, vec![0, 5], &[5, 1]).unwrap().to_f32s().unwrap(), [0.0_f32; 0]);
        let part = counted(&[3, 4]).part(1, 1, 2).unwrap();
        assert_eq!((part.dims(), part.to_f32s().unwrap()), (&[3, 2][..], vec![1.0, 2.0, 5.0, 6.0, 9.0, 10.0]));
        assert!(stored.part(1, 0, 1).is_err() && stored.part(0, usize::MAX, 2).is_err());
        assert_eq!(stored.strided(7, vec![], &[]).unwrap().to_f32s().unwrap(), [7.0]);
    }

    #[test]
    fn views_end_inside_their_source() {
        let of = counted(&[24]);
        assert!(of.strided(23, vec![2], &[1]).is_err());
        assert!(of.strided(0, vec![2, 2], &[23, 2]).is_err());
        assert!(of.strided(usize::MAX, vec![1], &[1]).is_err());
        assert!(of.strided(0, vec![3], &[usize::MAX]).is_err());
        assert!(of.strided(0, vec![3], &[]).is_err());
        assert!(of.strided(25, vec![0], &[1]).is_err());
    }

    proptest! {
        /// Any permutation, offset and gap of a view gives the elements that the definition names.
        #[test]
        fn views_have_the_elements_of_their_definition(
            dims in prop::collection::vec(0_usize..5, 0..4),
            strides in prop::collection::vec(0_usize..9, 4),
            first in 0_usize..9,
        ) {
            let of = counted(&[200]);
            let strides = &strides[..dims.len()];
            let view = of.strided(first, dims.clone(), strides).unwrap();
            let mut expected = vec![first];
            for (dim, stride) in dims.iter().zip(strides) {
                expected = expected.iter().flat_map(|at| (0..*dim).map(move |i| at + i * stride)).collect();
            }
            let expected: Vec<f32> = expected.into_iter().map(|at| at as f32).collect();
            prop_assert_eq!(view.to_f32s().unwrap(), expected);
        }
    }
}
