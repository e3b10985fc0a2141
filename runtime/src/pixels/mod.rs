//! Converts pixels of pictures to values of tensors and back, by the contract's meaning.

mod resample;
mod samples;

use tileforge_contract::{ChannelOrder, Meaning, Normalisation, TensorSpec};
use tileforge_image::{Colour, Depth, Header, Limits, RowSink, RowSource, Size};

pub(crate) use resample::{bilinear_with_corners, nearest_as_opencv, nearest_as_pytorch};
pub(crate) use samples::Decoding;

use crate::error::{Error, Result};

/// A picture or a frame in memory: grey, or red, green and blue; without alpha.
#[derive(Clone, Debug, PartialEq)]
pub struct Pixels {
    /// Width and height.
    pub size: Size,
    /// 1 or 3.
    pub channels: usize,
    /// `[height, width, channels]`, from 0 (black) to 1 (white).
    pub samples: Vec<f32>,
}

impl Pixels {
    /// Reads a picture to its end. Alpha is left out.
    ///
    /// # Errors
    /// [`Error::Image`] for a picture that is damaged, or that needs more memory than `limits` allow.
    pub fn read(source: &mut dyn RowSource, limits: &Limits) -> Result<Self> {
        let Header { size, colour, depth, .. } = *source.header();
        let channels = colour.colour_channels();
        let samples = size.pixels().checked_mul(channels as u64);
        let bytes = samples.and_then(|samples| samples.checked_mul(4)).filter(|bytes| *bytes <= limits.decoded_bytes);
        let count = bytes.and_then(|bytes| usize::try_from(bytes / 4).ok());
        let count = count.ok_or_else(|| {
            let most = limits.decoded_bytes;
            let problem = format!("{size} has to be held whole, in at most {most} bytes of 32-bit floats; crop it");
            tileforge_image::Error::image(source.name(), problem)
        })?;
        let mut row = vec![0; source.header().row_bytes().unwrap_or(0)];
        let mut plane = vec![0.0; size.width as usize];
        let mut samples = vec![0.0; count];
        let decoding = Decoding::new([0.0, 1.0], depth);
        for line in samples.chunks_exact_mut(size.width as usize * channels) {
            source.read_row(&mut row)?;
            for channel in 0..channels {
                decoding.decode(&row, colour.channels(), channel, &mut plane);
                for (pixel, value) in line.chunks_exact_mut(channels).zip(&plane) {
                    pixel[channel] = *value;
                }
            }
        }
        Ok(Self { size, channels, samples })
    }

    /// Writes the picture, clamped to 0 … 1, in the depth of the sink's header, which must have its size.
    ///
    /// # Errors
    /// [`Error::Image`]: it cannot be written.
    pub fn write(&self, mut sink: Box<dyn RowSink>) -> Result<()> {
        let Header { colour, depth, .. } = *sink.header();
        let width = self.size.width as usize * self.channels;
        let mut row = Vec::with_capacity(sink.header().row_bytes().unwrap_or(0));
        for line in self.samples.chunks_exact(width) {
            row.clear();
            for pixel in line.chunks_exact(self.channels) {
                for channel in 0..colour.channels() {
                    let opaque = colour.has_alpha() && channel == colour.colour_channels();
                    let value = if opaque { 1.0 } else { pixel[channel.min(self.channels - 1)] };
                    push_sample(&mut row, value, depth);
                }
            }
            sink.write_rows(&row)?;
        }
        Ok(sink.finish()?)
    }

    /// The largest part of the picture in its middle that has the proportions of `of`.
    pub(crate) fn middle(&self, of: Size) -> Self {
        let Size { width, height } = self.size;
        let share = |length: u32, part: u32, whole: u32| {
            let exact = u64::from(length) * u64::from(part);
            // Rounded to the nearest pixel.
            ((exact + u64::from(whole / 2)) / u64::from(whole.max(1))).max(1)
        };
        let limited = |length: u64, most: u32| u32::try_from(length).unwrap_or(most).min(most);
        let size = Size {
            width: limited(share(height, of.width, of.height), width),
            height: limited(share(width, of.height, of.width), height),
        };
        self.part((width - size.width) / 2, (height - size.height) / 2, size)
    }

    /// A part of the picture, which lies within it.
    pub(crate) fn part(&self, left: u32, top: u32, size: Size) -> Self {
        let row = |row: &[f32]| row[left as usize * self.channels..][..size.width as usize * self.channels].to_vec();
        let rows = self.samples.chunks_exact((self.size.width as usize * self.channels).max(1));
        let samples = rows.skip(top as usize).take(size.height as usize).flat_map(row).collect();
        Self { size, channels: self.channels, samples }
    }

    /// The picture padded with black at its right and bottom to `size`.
    pub(crate) fn extended(&self, size: Size) -> Self {
        let (own, row) = (self.size.width as usize * self.channels, size.width as usize * self.channels);
        let mut samples = vec![0.0; row * size.height as usize];
        for (line, into) in self.samples.chunks_exact(own.max(1)).zip(samples.chunks_exact_mut(row.max(1))) {
            into[..own].copy_from_slice(line);
        }
        Self { size, channels: self.channels, samples }
    }

    /// The header of a file of this picture.
    pub fn header(&self, depth: Depth) -> Header {
        let colour = if self.channels == 1 { Colour::Grey } else { Colour::Rgb };
        Header::new(self.size, colour, depth)
    }

    /// The same picture with 3 channels, or with 1, which is the luma of ITU-R BT.601.
    pub(crate) fn with_channels(&self, channels: usize) -> std::borrow::Cow<'_, Self> {
        let samples = match (self.channels, channels) {
            (1, 3) => self.samples.iter().flat_map(|value| [*value; 3]).collect(),
            (3, 1) => {
                let luma = |pixel: &[f32; 3]| 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
                self.samples.as_chunks::<3>().0.iter().map(luma).collect()
            }
            _ => return std::borrow::Cow::Borrowed(self),
        };
        std::borrow::Cow::Owned(Self { size: self.size, channels, samples })
    }
}

/// Appends a sample of 0 … 1, clamped, to a row of samples of this depth.
pub(crate) fn push_sample(row: &mut Vec<u8>, value: f32, depth: Depth) {
    // Casts saturate, so they clamp.
    let level = value * depth.maximum() + 0.5;
    match depth {
        Depth::Eight => row.push(level as u8),
        Depth::Sixteen => row.extend_from_slice(&(level as u16).to_be_bytes()),
        Depth::Float => row.extend_from_slice(&value.clamp(0.0, 1.0).to_ne_bytes()),
    }
}

/// How a tensor represents pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PixelValues {
    range: [f32; 2],
    normalisation: Option<Normalisation>,
    order: ChannelOrder,
}

impl PixelValues {
    /// Reads the contract's meaning of a tensor; `None` if it has no pixels.
    pub(crate) fn of(tensor: &TensorSpec) -> Option<Self> {
        match &tensor.meaning {
            Meaning::Pixels { range, normalisation, order, .. } => {
                Some(Self { range: *range, normalisation: *normalisation, order: *order })
            }
            _ => None,
        }
    }

    /// The same with the channels in another order. Means and deviations keep their places in the tensor.
    pub(crate) fn in_order(self, order: ChannelOrder) -> Self {
        Self { order, ..self }
    }

    pub(crate) fn channels(&self) -> usize {
        if self.order == ChannelOrder::Grey { 1 } else { 3 }
    }

    /// The channel of a picture at this place of the tensor.
    fn source(&self, place: usize) -> usize {
        if self.order == ChannelOrder::Bgr { 2 - place } else { place }
    }

    /// Factor and offset that map a sample of 0 … 1 to the tensor's value in this channel.
    fn line(&self, place: usize) -> [f32; 2] {
        let [low, high] = self.range;
        match self.normalisation {
            Some(Normalisation { mean, deviation }) => {
                [(high - low) / deviation[place], (low - mean[place]) / deviation[place]]
            }
            None => [high - low, low],
        }
    }

    /// Writes a picture to `planes`, `[channels, height, width]` of the picture's size.
    pub(crate) fn encode(&self, pixels: &Pixels, planes: &mut [f32]) {
        let pixels = pixels.with_channels(self.channels());
        let area = pixels.samples.len() / pixels.channels;
        for (place, plane) in planes.chunks_exact_mut(area).enumerate() {
            let ([gain, offset], channel) = (self.line(place), self.source(place));
            for (value, pixel) in plane.iter_mut().zip(pixels.samples.chunks_exact(pixels.channels)) {
                *value = pixel[channel] * gain + offset;
            }
        }
    }

    /// The picture of `planes`, `[channels, height, width]`; not clamped.
    ///
    /// # Errors
    /// [`Error::Image`] for values that are not finite.
    pub(crate) fn decode(&self, planes: &[f32], size: Size) -> Result<Pixels> {
        let channels = self.channels();
        let area = planes.len() / channels;
        check_finite(planes, size)?;
        let mut samples = vec![0.0; planes.len()];
        for (place, plane) in planes.chunks_exact(area.max(1)).enumerate() {
            let ([gain, offset], channel) = (self.line(place), self.source(place));
            for (pixel, value) in samples.chunks_exact_mut(channels).zip(plane) {
                pixel[channel] = (value - offset) / gain;
            }
        }
        Ok(Pixels { size, channels, samples })
    }
}

/// Refuses values of planes of this size that are not finite.
pub(crate) fn check_finite(values: &[f32], size: Size) -> Result<()> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => {
            let (width, area) = (size.width.max(1) as usize, size.pixels().max(1) as usize);
            let (x, y) = ((at % area % width) as u32, (at % area / width) as u32);
            Err(Error::Image(tileforge_image::Error::NotFinite { x, y }))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileforge_contract::Axis;

    const SIZE: Size = Size { width: 2, height: 1 };

    fn values(range: [f32; 2], normalisation: Option<Normalisation>, order: ChannelOrder) -> PixelValues {
        let meaning = Meaning::Pixels { range, normalisation, order, padding: None };
        PixelValues::of(&TensorSpec::new("x", [Axis::Batch], meaning)).unwrap()
    }

    #[test]
    fn values_are_those_of_the_meaning_and_come_back() {
        let pixels = Pixels { size: SIZE, channels: 3, samples: vec![0.0, 0.5, 1.0, 0.25, 0.5, 0.75] };
        let normalisation = Normalisation { mean: [0.5, 0.25, 0.0], deviation: [0.5, 0.25, 1.0] };
        for (values, expected) in [
            (values([0.0, 1.0], None, ChannelOrder::Rgb), [0.0, 0.25, 0.5, 0.5, 1.0, 0.75]),
            (values([-1.0, 1.0], None, ChannelOrder::Bgr), [1.0, 0.5, 0.0, 0.0, -1.0, -0.5]),
            (values([0.0, 1.0], Some(normalisation), ChannelOrder::Rgb), [-1.0, -0.5, 1.0, 1.0, 1.0, 0.75]),
        ] {
            let mut planes = [0.0; 6];
            values.encode(&pixels, &mut planes);
            assert_eq!(planes, expected);
            assert_eq!(values.decode(&planes, SIZE).unwrap(), pixels);
        }
    }

    #[test]
    fn the_middle_has_the_proportions_that_are_wanted() {
        let size = |width, height| Size { width, height };
        let picture = |width: u32, height: u32| {
            let samples = (0..width * height).map(|index| index as f32).collect();
            Pixels { size: size(width, height), channels: 1, samples }
        };
        assert_eq!(picture(4, 2).middle(size(8, 8)), Pixels { samples: vec![1.0, 2.0, 5.0, 6.0], ..picture(2, 2) });
        assert_eq!(picture(2, 5).middle(size(1, 1)).samples, [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(picture(3, 3).middle(size(7, 7)), picture(3, 3));
        for (from, to, expected) in [
            (size(81, 70), size(64, 64), size(70, 70)),
            (size(1, 500), size(64, 64), size(1, 1)),
            (size(500, 1), size(64, 4096), size(1, 1)),
            (size(30, 20), size(768, 512), size(30, 20)),
            (size(7, 7), size(u32::MAX, 1), size(7, 1)),
        ] {
            assert_eq!(picture(from.width, from.height).middle(to).size, expected, "{from} to {to}");
        }
    }

    #[test]
    fn grey_and_colours_become_each_other() {
        let grey = Pixels { size: SIZE, channels: 1, samples: vec![0.25, 1.0] };
        let mut planes = [0.0; 6];
        values([0.0, 1.0], None, ChannelOrder::Rgb).encode(&grey, &mut planes);
        assert_eq!(planes, [0.25, 1.0, 0.25, 1.0, 0.25, 1.0]);
        let colours = Pixels { size: SIZE, channels: 3, samples: vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0] };
        let mut plane = [0.0; 2];
        values([0.0, 1.0], None, ChannelOrder::Grey).encode(&colours, &mut plane);
        assert_eq!(plane, [0.299, 0.587]);
    }

    #[test]
    fn values_that_are_not_finite_are_refused() {
        let values = values([0.0, 1.0], None, ChannelOrder::Rgb);
        let error = values.decode(&[0.0, 0.0, 0.0, f32::NAN, 0.0, 0.0], SIZE).unwrap_err();
        assert!(matches!(error, Error::Image(tileforge_image::Error::NotFinite { x: 1, y: 0 })));
    }
}
