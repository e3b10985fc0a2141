//! Streams elements in another order.

use super::Weight;
use crate::Result;

/// Strides in elements of a row-major tensor.
pub(super) fn strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    strides
}

impl Weight {
    pub(super) fn stream_transposed(
        &self,
        permutation: &[usize],
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let source_strides = strides(&self.dims);
        // Computed from the source, because the result may have been reshaped since.
        let dims: Vec<usize> = permutation.iter().map(|&axis| self.dims[axis]).collect();
        let strides: Vec<usize> = permutation.iter().map(|&axis| source_strides[axis]).collect();
        gather(&self.to_bytes()?, self.data_type.size(), 0, &dims, &strides, sink)
    }
}

/// The elements `first + Σ index · stride`, in row-major order of the indices. `size` is the number of bytes of each.
pub(super) fn gather(
    bytes: &[u8],
    size: usize,
    first: usize,
    dims: &[usize],
    strides: &[usize],
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let steps: Vec<usize> = strides.iter().map(|stride| stride * size).collect();
    let (Some((&row_length, outer)), Some(&row_step)) = (dims.split_last(), steps.last()) else {
        return sink(&bytes[first * size..][..size]);
    };
    let mut row = Vec::with_capacity(row_length * size);
    let mut index = vec![0; outer.len()];
    for _ in 0..outer.iter().product() {
        let start: usize = first * size + index.iter().zip(&steps).map(|(i, step)| i * step).sum::<usize>();
        row.clear();
        for i in 0..row_length {
            row.extend_from_slice(&bytes[start + i * row_step..][..size]);
        }
        sink(&row)?;
        for axis in (0..outer.len()).rev() {
            index[axis] += 1;
            if index[axis] < outer[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Ok(())
}

impl Weight {
    pub(super) fn stream_rows(&self, indices: &[u32], sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let bytes = self.to_bytes()?;
        let row = bytes.len().checked_div(self.dims[0]).unwrap_or(0);
        let mut piece = Vec::with_capacity((1 << 16) + row);
        for index in indices {
            piece.extend_from_slice(&bytes[*index as usize * row..][..row]);
            if piece.len() >= 1 << 16 {
                sink(&piece)?;
                piece.clear();
            }
        }
        sink(&piece)
    }

    pub(super) fn stream_concatenated(
        parts: &[Weight],
        axis: usize,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let bytes = parts.iter().map(Weight::to_bytes).collect::<Result<Vec<_>>>()?;
        let block = |part: &Weight| part.dims[axis..].iter().product::<usize>() * part.data_type.size();
        let outer: usize = parts.first().map_or(0, |part| part.dims[..axis].iter().product());
        for i in 0..outer {
            for (part, bytes) in parts.iter().zip(&bytes) {
                let block = block(part);
                sink(&bytes[i * block..][..block])?;
            }
        }
        Ok(())
    }

    pub(super) fn stream_rows_scaled(&self, factors: &[u32], sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let row_length: usize = self.dims[1..].iter().product();
        let mut scaled = Vec::new();
        let mut position = 0;
        // Pieces of f32 tensors are whole elements: every source cuts its pieces at multiples of the element size.
        self.stream(&mut |piece| {
            scaled.clear();
            for b in piece.chunks_exact(4) {
                let factor = f32::from_bits(factors[position / row_length]);
                scaled.extend_from_slice(&(f32::from_le_bytes([b[0], b[1], b[2], b[3]]) * factor).to_le_bytes());
                position += 1;
            }
            sink(&scaled)
        })
    }
}
