//! Pictures that are stored turned or mirrored.

use ::image::metadata::Orientation;

use super::{Decoded, Opening};
use crate::Size;
use crate::error::Result;

impl Opening<'_> {
    /// The picture in its upright orientation. A picture in another stored orientation is held whole.
    pub(super) fn upright(&self, decoded: Decoded) -> Result<Decoded> {
        if decoded.orientation == Orientation::NoTransforms {
            return Ok(decoded);
        }
        let Decoded { mut header, orientation, mut rows, notes } = decoded;
        let length = self.check_whole(&header, "is stored turned or mirrored and has to be held whole")?;
        let mut stored = vec![0; length];
        let row_bytes = length / header.size.height as usize;
        stored.chunks_exact_mut(row_bytes).try_for_each(|row| rows.next(row))?;
        rows.end()?;
        let (size, bytes) = turned(&stored, header.size, orientation);
        if is_swapped(orientation) {
            header.metadata.density = header.metadata.density.map(crate::Density::turned);
        }
        header.size = size;
        Ok(Decoded { notes, ..Decoded::new(header, self.whole(bytes)) })
    }
}

/// Whether width and height are swapped.
fn is_swapped(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH)
}

/// The pixels in the order of the upright picture, row by row.
fn turned(stored: &[u8], size: Size, orientation: Orientation) -> (Size, Vec<u8>) {
    let (width, height) = (size.width as usize, size.height as usize);
    let pixel = stored.len() / (width * height);
    let swapped = is_swapped(orientation);
    let (across, down) = if swapped { (height, width) } else { (width, height) };
    let mut bytes = Vec::with_capacity(stored.len());
    for y in 0..down {
        for x in 0..across {
            let (column, row) = match orientation {
                Orientation::NoTransforms => (x, y),
                Orientation::FlipHorizontal => (width - 1 - x, y),
                Orientation::Rotate180 => (width - 1 - x, height - 1 - y),
                Orientation::FlipVertical => (x, height - 1 - y),
                Orientation::Rotate90FlipH => (y, x),
                Orientation::Rotate90 => (y, height - 1 - x),
                Orientation::Rotate270FlipH => (width - 1 - y, height - 1 - x),
                Orientation::Rotate270 => (width - 1 - y, x),
            };
            bytes.extend_from_slice(&stored[(row * width + column) * pixel..][..pixel]);
        }
    }
    let size = if swapped { Size { width: size.height, height: size.width } } else { size };
    (size, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_orientation_is_undone() {
        // The picture of each orientation that is ab/cd/ef when upright; see the figure of EXIF 2.32, 4.6.4.A.
        let stored: [(&[u8], u32); 8] = [
            (b"abcdef", 2),
            (b"badcfe", 2),
            (b"fedcba", 2),
            (b"efcdab", 2),
            (b"acebdf", 3),
            (b"bdface", 3),
            (b"fdbeca", 3),
            (b"ecafdb", 3),
        ];
        for (index, (stored, width)) in stored.into_iter().enumerate() {
            let orientation = Orientation::from_exif(index as u8 + 1).unwrap();
            let (size, bytes) = turned(stored, Size { width, height: 6 / width }, orientation);
            assert_eq!((size, bytes.as_slice()), (Size { width: 2, height: 3 }, &b"abcdef"[..]), "{orientation:?}");
        }
    }
}
