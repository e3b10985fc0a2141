//! The size of the result, and the graph that it goes through.

use std::str::FromStr;

use tileforge_contract::Extent;
use tileforge_engine::Pipeline;
use tileforge_image::Size;

use super::interface::transformer_of;
use crate::autoencoder::{AutoencoderPart, Direction, factor_of, pixels_of};
use crate::error::{Error, Result};

/// Results have an even number of rows and columns, as in the reference.
const EVEN: u32 = 2;

/// The size that a result should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The largest size that the engine takes, with the frames' proportions.
    #[default]
    Largest,
    /// The length of the shorter side, with the frames' proportions.
    ShorterSide(u32),
    /// This size, with any proportions.
    Exactly(Size),
}

impl FromStr for Wanted {
    type Err = String;

    /// "1080" or "1920x1080".
    fn from_str(text: &str) -> Result<Self, String> {
        let shorter = text.parse::<u32>().ok().filter(|length| *length > 0).map(Self::ShorterSide);
        let exact = || text.parse::<Size>().ok().map(Self::Exactly);
        let found = shorter.or_else(exact);
        found.ok_or_else(|| "expected the length of the shorter side, or a size: 1080 or 1920x1080".into())
    }
}

/// The sizes of frames in an engine. Known before a session opens.
#[derive(Clone, Debug)]
pub struct Fitting {
    /// Pixels of the transformer's graphs.
    graphs: Vec<Size>,
    /// Pixels along a side that one patch of the transformer takes.
    patch: Extent,
    wanted: Wanted,
}

/// The sizes of a frame through its processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// The frame is resized to this.
    pub(super) resized: Size,
    /// The result: the same without an odd last row and column.
    pub(super) result: Size,
    /// The size in the networks: padded at the right and at the bottom.
    pub(super) whole: Size,
}

impl Fitting {
    /// The fitting for an engine's graphs and a wanted size.
    ///
    /// # Errors
    /// [`Error::NoPart`]: the engine lacks a part.
    pub fn new(pipeline: &Pipeline, wanted: Wanted) -> Result<Self> {
        let (transformer, interface) = transformer_of(pipeline)?;
        let encoder = AutoencoderPart::of_parts(pipeline, Direction::Encode)?;
        let factor = factor_of(&encoder.engine.manifest().contract)?;
        let shapes = transformer.manifest().graphs.iter().filter_map(|graph| interface.shape_of(graph));
        let graphs = shapes.map(|(shape, _)| pixels_of(shape.size, factor)).collect();
        let side = transformer.manifest().contract.inputs.iter().find_map(|input| input.height());
        Ok(Self { graphs, patch: side.unwrap_or(Extent::multiple_of(1)).times(factor), wanted })
    }

    /// The sizes of the engine's graphs.
    pub fn sizes(&self) -> &[Size] {
        &self.graphs
    }

    /// The same for another wanted size.
    pub(super) fn with(&self, wanted: Wanted) -> Self {
        Self { wanted, ..self.clone() }
    }

    /// The size of the results of frames of a size.
    ///
    /// # Errors
    /// [`Error::NoSuchGraph`]: it is larger than the engine's graphs; [`Error::TooThin`]: a side of it would have one
    /// pixel.
    pub fn result(&self, frame: Size) -> Result<Size> {
        self.fit(frame).map(|fit| fit.result)
    }

    pub(super) fn fit(&self, frame: Size) -> Result<Fit> {
        let resized = match self.wanted {
            Wanted::Exactly(size) => size,
            Wanted::ShorterSide(length) => with_shorter_side(frame, length),
            Wanted::Largest => {
                let within = self.graphs.iter().map(|graph| within(frame, *graph));
                within.max_by_key(|size| size.pixels()).unwrap_or(frame)
            }
        };
        let even = |length: u32| length / EVEN * EVEN;
        let result = Size { width: even(resized.width), height: even(resized.height) };
        let no_graph = || Error::NoSuchGraph { wanted: resized, known: self.graphs.clone() };
        if result.pixels() == 0 {
            return Err(Error::TooThin { frame, resized });
        }
        let padded = |length: u32| self.patch.length(self.patch.size_for(length as usize)).unwrap_or(usize::MAX);
        let (width, height) = (padded(resized.width), padded(resized.height));
        let holds = |graph: &&Size| graph.width as usize >= width && graph.height as usize >= height;
        let whole = self.graphs.iter().filter(holds).min_by_key(|graph| graph.pixels());
        Ok(Fit { resized, result, whole: *whole.ok_or_else(no_graph)? })
    }
}

/// The size with this shorter side; the longer one is rounded down.
fn with_shorter_side(frame: Size, length: u32) -> Size {
    let Size { width, height } = frame;
    let longer = |long: u32, short: u32| {
        let exact = u64::from(length) * u64::from(long) / u64::from(short.max(1));
        u32::try_from(exact).unwrap_or(u32::MAX)
    };
    if width <= height {
        Size { width: length, height: longer(height, width) }
    } else {
        Size { width: longer(width, height), height: length }
    }
}

/// The largest size in the proportions of a frame within another one.
fn within(frame: Size, most: Size) -> Size {
    let [width, height, most_width, most_height] = [frame.width, frame.height, most.width, most.height].map(u64::from);
    let limited = |length: u64, most: u32| u32::try_from(length).unwrap_or(most).clamp(1, most);
    if most_width * height <= most_height * width {
        Size { width: most.width, height: limited(most_width * height / width.max(1), most.height) }
    } else {
        Size { width: limited(most_height * width / height.max(1), most.width), height: most.height }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    fn fitting(wanted: Wanted) -> Fitting {
        let graphs = vec![size(64, 48), size(48, 64), size(128, 96)];
        Fitting { graphs, patch: Extent::multiple_of(16), wanted }
    }

    #[test]
    fn the_shorter_side_is_met_and_the_longer_one_is_rounded_down() {
        for (frame, length, expected) in
            [(size(50, 37), 48, size(64, 48)), (size(37, 50), 48, size(48, 64)), (size(7, 7), 5, size(5, 5))]
        {
            assert_eq!(with_shorter_side(frame, length), expected, "{frame}");
        }
        let fit = fitting(Wanted::ShorterSide(45)).fit(size(50, 37)).unwrap();
        assert_eq!(fit, Fit { resized: size(60, 45), result: size(60, 44), whole: size(64, 48) });
        assert_eq!(fitting(Wanted::ShorterSide(45)).fit(size(37, 50)).unwrap().whole, size(48, 64));
    }

    #[test]
    fn without_a_wish_the_largest_graph_is_filled() {
        for (frame, expected) in [
            (size(640, 480), size(128, 96)),
            (size(4, 3), size(128, 96)),
            (size(1920, 1080), size(128, 72)),
            (size(9, 16), size(54, 96)),
            (size(u32::MAX, u32::MAX), size(96, 96)),
            (size(1280, 20), size(128, 2)),
        ] {
            assert_eq!(fitting(Wanted::Largest).result(frame).unwrap(), expected, "{frame}");
        }
    }

    #[test]
    fn what_no_graph_holds_is_refused() {
        for wanted in [Wanted::ShorterSide(97), Wanted::Exactly(size(144, 16))] {
            let error = fitting(wanted).fit(size(4, 3)).unwrap_err();
            assert!(matches!(error, Error::NoSuchGraph { .. }), "{error}");
        }
        for (wanted, frame) in [(Wanted::Exactly(size(1, 16)), size(4, 3)), (Wanted::Largest, size(1000, 1))] {
            let error = fitting(wanted).fit(frame).unwrap_err();
            assert!(matches!(error, Error::TooThin { .. }), "{error}");
        }
        assert_eq!("1080".parse(), Ok(Wanted::ShorterSide(1080)));
        assert_eq!("19x10".parse(), Ok(Wanted::Exactly(size(19, 10))));
        assert!(["0", "x", "-1", "1080p"].iter().all(|text| text.parse::<Wanted>().is_err()));
    }
}
