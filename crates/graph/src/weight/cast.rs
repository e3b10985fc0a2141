//! Streams values in another floating-point type.

use super::Weight;
use crate::{DataType, Result};
use half::{bf16, f16};

impl Weight {
    /// The values as `to`, a piece at a time.
    pub(super) fn stream_cast(&self, to: DataType, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let size = self.data_type.size();
        let mut converted = Vec::new();
        // A piece may end inside an element.
        let mut left_over = Vec::new();
        self.stream(&mut |piece| {
            converted.clear();
            let mut piece = piece;
            if !left_over.is_empty() {
                let missing = (size - left_over.len()).min(piece.len());
                left_over.extend_from_slice(&piece[..missing]);
                piece = &piece[missing..];
                if left_over.len() < size {
                    return Ok(());
                }
                cast(self.data_type, to, &left_over, &mut converted);
                left_over.clear();
            }
            let whole = piece.len() - piece.len() % size;
            cast(self.data_type, to, &piece[..whole], &mut converted);
            left_over.extend_from_slice(&piece[whole..]);
            sink(&converted)
        })
    }
}

fn cast(from: DataType, to: DataType, bytes: &[u8], out: &mut Vec<u8>) {
    // Every cast goes through f64, which holds the values of all four types exactly, so each value is rounded once.
    let values = bytes.chunks_exact(from.size()).map(|b| match from {
        DataType::F16 => f16::from_le_bytes([b[0], b[1]]).to_f64(),
        DataType::Bf16 => bf16::from_le_bytes([b[0], b[1]]).to_f64(),
        DataType::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        _ => f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
    });
    for value in values {
        match to {
            DataType::F16 => out.extend_from_slice(&f16::from_f64(value).to_le_bytes()),
            DataType::Bf16 => out.extend_from_slice(&bf16::from_f64(value).to_le_bytes()),
            DataType::F32 => out.extend_from_slice(&(value as f32).to_le_bytes()),
            _ => out.extend_from_slice(&value.to_le_bytes()),
        }
    }
}
