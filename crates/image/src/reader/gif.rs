//! GIF: the first frame, held whole.

use std::fs::File;
use std::io::BufReader;

use ::gif::{ColorOutput, DecodeOptions};

use super::{Colour, Decoded, Depth, Header, Opening};
use crate::Size;
use crate::error::Result;

/// Bytes of a pixel, as the decoder gives it.
const RGBA: usize = 4;

impl Opening<'_> {
    pub(super) fn gif(&self, file: BufReader<File>) -> Result<Decoded> {
        let mut options = DecodeOptions::new();
        options.set_color_output(ColorOutput::RGBA);
        // Checks that frames lie within the screen, and that their data ends properly.
        options.check_frame_consistency(true);
        options.check_lzw_end_code(true);
        let mut decoder = options.read_info(file).map_err(|error| self.damaged(error))?;
        let size = Size { width: decoder.width().into(), height: decoder.height().into() };
        self.check_size(size)?;
        let mut header = Header::new(size, Colour::Rgba, Depth::Eight);
        // The frame is decoded beside the screen that it is placed on.
        let held = header.bytes().and_then(|bytes| bytes.checked_mul(2));
        self.check_decoded("this GIF has to be decoded whole", held)?;
        let length = self.check_whole(&header, "has to be decoded whole")?;
        let frame = decoder.next_frame_info().map_err(|error| self.damaged(error))?;
        let frame = frame.ok_or_else(|| self.damaged("it has no frame"))?;
        let (left, top) = (usize::from(frame.left), usize::from(frame.top));
        let own = Size { width: frame.width.into(), height: frame.height.into() };
        // The frame does not cover the rest of the screen.
        self.check_part(size, own.pixels() as f64 / size.pixels() as f64)?;
        let mut frame = vec![0; decoder.buffer_size()];
        decoder.read_into_buffer(&mut frame).map_err(|error| self.damaged(error))?;
        let has_more = match decoder.next_frame_info() {
            Ok(next) => next.is_some(),
            Err(error) => {
                self.tolerate(self.damaged(error))?;
                false
            }
        };
        let mut bytes = if own == size { frame } else { placed(&frame, own, [left, top], size, length) };
        if bytes.len() != length {
            return Err(self.damaged(format!("expected {length} samples, found {}", bytes.len())));
        }
        // Most frames have no transparent pixel.
        if bytes.as_chunks::<RGBA>().0.iter().all(|pixel| pixel[3] == 255) {
            bytes =
                bytes.as_chunks::<RGBA>().0.iter().flat_map(|[red, green, blue, _]| [*red, *green, *blue]).collect();
            header.colour = Colour::Rgb;
        }
        let mut decoded = Decoded::new(header, self.whole(bytes));
        if has_more {
            decoded.notes.push("it is an animation, of which the first frame is read".into());
        }
        Ok(decoded)
    }
}

/// A frame at its place on a transparent screen.
fn placed(frame: &[u8], own: Size, [left, top]: [usize; 2], screen: Size, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let (row, own_row) = (screen.width as usize * RGBA, own.width as usize * RGBA);
    let rows = bytes.chunks_exact_mut(row.max(1)).skip(top);
    for (into, from) in rows.zip(frame.chunks_exact(own_row.max(1))) {
        if let Some(into) = into.get_mut(left * RGBA..left * RGBA + own_row) {
            into.copy_from_slice(from);
        }
    }
    bytes
}
