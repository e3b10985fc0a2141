//! A picture with its stored samples, and the hole that a mask makes in it.

use std::path::Path;

use tileforge_image::{Header, Limits, RowSink, RowSource, Size};

use super::place::Area;
use crate::error::Result;
use crate::pixels::{Decoding, Pixels, push_sample};

/// A picture in memory, twice: its stored samples, and its samples as floats.
pub(super) struct Picture {
    header: Header,
    /// Rows as the header describes them.
    rows: Vec<u8>,
    pub(super) pixels: Pixels,
}

/// A source whose rows are kept.
struct Kept<'s> {
    source: &'s mut dyn RowSource,
    rows: Vec<u8>,
}

impl RowSource for Kept<'_> {
    fn name(&self) -> &Path {
        self.source.name()
    }

    fn header(&self) -> &Header {
        self.source.header()
    }

    fn read_row(&mut self, row: &mut [u8]) -> tileforge_image::Result<()> {
        self.source.read_row(row)?;
        self.rows.extend_from_slice(row);
        Ok(())
    }
}

impl Picture {
    /// # Errors
    /// As [`Pixels::read`].
    pub(super) fn read(source: &mut dyn RowSource, limits: &Limits) -> Result<Self> {
        let header = source.header().clone();
        let mut kept = Kept { source, rows: Vec::new() };
        let pixels = Pixels::read(&mut kept, limits)?;
        Ok(Self { header, rows: kept.rows, pixels })
    }

    /// The header of the result's file.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Writes the picture with the pixels of `made` in the hole; `made` shows `area` of it. If the sink has the
    /// picture's depth, all samples outside the hole keep the bytes that were read. Alpha never changes.
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image): it cannot be written.
    pub(super) fn write(&self, hole: &Hole, made: Option<(&Pixels, Area)>, mut sink: Box<dyn RowSink>) -> Result<()> {
        let Header { size, colour, depth, .. } = self.header;
        let (channels, own, width) = (colour.channels(), colour.colour_channels(), size.width as usize);
        let made = made.map(|(made, area)| (made.with_channels(own), area));
        let target = sink.header().depth;
        let bytes = depth.bytes();
        let mut samples = vec![0.0; width];
        let mut values = vec![0.0; width * channels];
        let mut row = Vec::with_capacity(sink.header().row_bytes().unwrap_or(0));
        for (y, stored) in self.rows.chunks_exact((width * channels * bytes).max(1)).enumerate() {
            if target != depth {
                for channel in 0..channels {
                    Decoding::new([0.0, 1.0], depth).decode(stored, channels, channel, &mut samples);
                    for (pixel, sample) in values.chunks_exact_mut(channels).zip(&samples) {
                        pixel[channel] = *sample;
                    }
                }
            }
            row.clear();
            for x in 0..width {
                let filled = made.as_ref().filter(|_| hole.has(x, y)).and_then(|(made, area)| {
                    let (x, y) = (x.checked_sub(area.left as usize)?, y.checked_sub(area.top as usize)?);
                    let start = (y * made.size.width as usize + x) * made.channels;
                    made.samples.get(start..start + own)
                });
                for channel in 0..channels {
                    let at = x * channels + channel;
                    match filled.and_then(|pixel| pixel.get(channel)) {
                        Some(value) => push_sample(&mut row, *value, target),
                        None if target == depth => row.extend_from_slice(&stored[at * bytes..][..bytes]),
                        None => push_sample(&mut row, values[at], target),
                    }
                }
            }
            sink.write_rows(&row)?;
        }
        Ok(sink.finish()?)
    }
}

/// The pixels to regenerate.
pub(super) struct Hole {
    size: Size,
    /// `[height, width]`.
    pub(super) filled: Vec<bool>,
}

impl Hole {
    /// The pixels where a mask is at least 0.5.
    pub(super) fn new(mask: &Pixels) -> Self {
        let grey = mask.with_channels(1);
        Self { size: mask.size, filled: grey.samples.iter().map(|value| *value >= 0.5).collect() }
    }

    fn has(&self, x: usize, y: usize) -> bool {
        self.filled.get(y * self.size.width as usize + x).copied().unwrap_or(false)
    }

    /// How many pixels it has.
    pub(super) fn count(&self) -> usize {
        self.filled.iter().filter(|filled| **filled).count()
    }

    /// The smallest area that contains the hole; `None` if it is empty.
    pub(super) fn bounds(&self) -> Option<Area> {
        let width = self.size.width.max(1) as usize;
        let rows: Vec<&[bool]> = self.filled.chunks_exact(width).collect();
        let is_used = |row: &&[bool]| row.contains(&true);
        let top = rows.iter().position(is_used)?;
        let bottom = rows.iter().rposition(is_used)?;
        let columns = || rows.iter().filter(|row| is_used(row));
        let left = columns().filter_map(|row| row.iter().position(|filled| *filled)).min()?;
        let right = columns().filter_map(|row| row.iter().rposition(|filled| *filled)).max()?;
        let length = |first: usize, last: usize| u32::try_from(last - first + 1).unwrap_or(u32::MAX);
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let size = Size { width: length(left, right), height: length(top, bottom) };
        Some(Area { left: place(left), top: place(top), size })
    }

    /// The hole in a part of the picture, resized to `to`: 1 inside, 0 outside. A pixel of the resized picture is in
    /// the hole if its resize kernel touches the hole.
    pub(super) fn shown(&self, area: Area, to: Size) -> Vec<f32> {
        let Area { left, top, size } = area;
        let row = |y: usize| {
            let start = (y + top as usize) * self.size.width as usize + left as usize;
            &self.filled[start..start + size.width as usize]
        };
        if to == size {
            return (0..size.height as usize)
                .flat_map(|y| row(y).iter().map(|filled| f32::from(u8::from(*filled))))
                .collect();
        }
        let (columns, rows) = (reads(size.width, to.width), reads(size.height, to.height));
        let narrow: Vec<Vec<bool>> = (0..size.height as usize)
            .map(|y| columns.iter().map(|range| row(y)[range.clone()].contains(&true)).collect())
            .collect();
        let shown = |range: &std::ops::Range<usize>, x: usize| narrow[range.clone()].iter().any(|row| row[x]);
        rows.iter().flat_map(|range| (0..to.width as usize).map(|x| f32::from(u8::from(shown(range, x))))).collect()
    }
}

/// The range of source pixels along an axis for each pixel of a smaller picture, by a bicubic kernel: two of the
/// smaller pixels on each side of its centre.
fn reads(from: u32, to: u32) -> Vec<std::ops::Range<usize>> {
    let scale = f64::from(from) / f64::from(to.max(1));
    let reach = 2.0 * scale.max(1.0);
    let of = |at: u32| {
        let centre = (f64::from(at) + 0.5) * scale;
        let first = (centre - reach).floor().max(0.0) as usize;
        let last = ((centre + reach).ceil() as usize).min(from as usize);
        first.min(last.saturating_sub(1))..last
    };
    (0..to).map(of).collect()
}
