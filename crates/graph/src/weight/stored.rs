//! Tensors as other formats store them: compressed, big-endian, or as a view of a larger tensor.

use super::{Source, Weight, byte_length, layout};
use crate::mapped::CHUNK;
use crate::{DataType, Error, MappedFile, Result};
use flate2::read::DeflateDecoder;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

impl Weight {
    /// A range of a mapped file that holds the bytes compressed by DEFLATE (RFC 1951). They are decompressed whenever
    /// they are read.
    ///
    /// # Errors
    /// The range of `compressed` bytes is not inside the file.
    pub fn deflated(
        file: Arc<MappedFile>,
        offset: u64,
        compressed: u64,
        data_type: DataType,
        dims: Vec<usize>,
    ) -> Result<Self> {
        byte_length(data_type, &dims)?;
        // Checks the range, and nothing else.
        let length = usize::try_from(compressed).unwrap_or(usize::MAX);
        Weight::mapped(file.clone(), offset, DataType::U8, vec![length])?;
        Ok(Weight { data_type, dims, source: Source::Deflated { file, offset, compressed } })
    }

    /// The tensor whose elements this holds with their highest byte first.
    pub fn from_big_endian(self) -> Self {
        if self.data_type.size() == 1 {
            return self;
        }
        Weight { data_type: self.data_type, dims: self.dims.clone(), source: Source::BigEndian(Arc::new(self)) }
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
        // A stride over a single element is never taken.
        let row_major = layout::strides(&dims);
        let contiguous =
            elements == 0 || (0..dims.len()).all(|axis| dims[axis] == 1 || strides[axis] == row_major[axis]);
        let source = match &self.source {
            Source::Range { file, offset } if contiguous => {
                Source::Range { file: file.clone(), offset: offset + (first * self.data_type.size()) as u64 }
            }
            source if contiguous && elements == self.elements() => source.clone(),
            _ => {
                let strides = if contiguous { row_major.into() } else { strides.into() };
                // The result may be reshaped later, so the view keeps its own sizes.
                Source::Strided { of: Arc::new(self.clone()), first, dims: dims.as_slice().into(), strides }
            }
        };
        Ok(Weight { data_type: self.data_type, dims, source })
    }
}

/// The decompressed bytes of `range`, which must be exactly `length`.
pub(super) fn inflate(
    file: &MappedFile,
    range: Range<u64>,
    length: u64,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut decoder = DeflateDecoder::new(file.reader(range.start, range.end - range.start));
    let mut buffer = vec![0; CHUNK.min(usize::try_from(length).unwrap_or(CHUNK))];
    let damaged = |reason: String| {
        let place = format!("the compressed data at byte {}", range.start);
        Error::file(file.path(), "decompress", format!("{place}: {reason}; the file is damaged"))
    };
    let mut left = length;
    while left > 0 {
        let step = buffer.len().min(usize::try_from(left).unwrap_or(CHUNK));
        let piece = &mut buffer[..step];
        decoder.read_exact(piece).map_err(|e| damaged(format!("expected {length} bytes: {e}")))?;
        sink(piece)?;
        left -= step as u64;
    }
    match decoder.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(damaged(format!("expected {length} bytes, found more"))),
        Err(error) => Err(damaged(error.to_string())),
    }
}

pub(super) fn swap_bytes(of: &Weight, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let size = of.data_type.size();
    let mut swapped: Vec<u8> = Vec::new();
    of.stream(&mut |piece| {
        // A piece may end inside an element, whose beginning then waits for the next piece.
        swapped.extend_from_slice(piece);
        let whole = swapped.len() - swapped.len() % size;
        swapped[..whole].chunks_exact_mut(size).for_each(<[u8]>::reverse);
        sink(&swapped[..whole])?;
        swapped.drain(..whole);
        Ok(())
    })
}

/// The elements of a view. One without gaps is streamed; any other needs all bytes of its source.
pub(super) fn view(
    of: &Weight,
    first: usize,
    dims: &[usize],
    strides: &[usize],
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let size = of.data_type.size();
    let elements: usize = dims.iter().product();
    if strides != layout::strides(dims) {
        return layout::gather(&of.to_bytes()?, size, first, dims, strides, sink);
    }
    let (mut skipped, mut left) = (first * size, elements * size);
    of.stream(&mut |piece| {
        let start = skipped.min(piece.len());
        skipped -= start;
        let wanted = &piece[start..][..left.min(piece.len() - start)];
        left -= wanted.len();
        if wanted.is_empty() { Ok(()) } else { sink(wanted) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::DeflateEncoder};
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
        let of = |dims: Vec<usize>| Weight::deflated(map.clone(), 3, length, DataType::F32, dims).unwrap();
        assert_eq!(of(vec![1000, 400]).to_bytes().unwrap().as_ref(), bytes);
        assert!(of(vec![1000, 400]).file_range().is_none());
        let part = of(vec![400_000]).strided(300_000, vec![2, 3], &[3, 1]).unwrap();
        assert_eq!(part.to_f32s().unwrap(), [300_000., 300_001., 300_002., 300_003., 300_004., 300_005.]);
        // What is longer or shorter than the header says is damaged, and a bomb ends where it should have ended.
        assert!(of(vec![399_999]).to_bytes().unwrap_err().to_string().contains("found more"));
        assert!(of(vec![400_001]).to_bytes().unwrap_err().to_string().contains("damaged"));
        assert!(Weight::deflated(map, 3, length + 6, DataType::F32, vec![1]).is_err());
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
