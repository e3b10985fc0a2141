//! Axes of tensors, and the sizes that several tensors share.

use serde::{Deserialize, Serialize};

/// One axis of a tensor.
///
/// Axes of one kind grow together: all tensors of a contract have the same [`Sizes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Axis {
    /// Independent samples.
    Batch,
    /// A fixed number of channels or features.
    Channels(usize),
    /// Rows.
    Height(Extent),
    /// Columns.
    Width(Extent),
    /// Frames in time.
    Frames(Extent),
    /// Tokens of a text: at most this many, or any number.
    Tokens(Option<usize>),
    /// Any other fixed length.
    Fixed(usize),
}

/// The length of an axis as a function of a size `n` of [`Sizes`]: `step · n + offset`, for every `n` from `minimum`
/// to `maximum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extent {
    /// Elements for each unit of the size.
    pub step: usize,
    /// Elements to add: −3 for the frames `4 · n − 3` of a clip.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: isize,
    /// The least size, at least 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub minimum: usize,
    /// The largest size, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<usize>,
}

fn is_zero(value: &isize) -> bool {
    *value == 0
}

fn one() -> usize {
    1
}

fn is_one(value: &usize) -> bool {
    *value == 1
}

impl Extent {
    /// Exactly this length.
    pub const fn exactly(length: usize) -> Self {
        Self { step: length, offset: 0, minimum: 1, maximum: Some(1) }
    }

    /// `step · n` for every `n` from 1 on.
    pub const fn multiple_of(step: usize) -> Self {
        Self { step, offset: 0, minimum: 1, maximum: None }
    }

    /// The same extent with another offset.
    #[must_use]
    pub const fn plus(self, offset: isize) -> Self {
        Self { offset, ..self }
    }

    /// The same extent with a least length of `length`, rounded up to what the step allows.
    #[must_use]
    pub fn at_least(self, length: usize) -> Self {
        Self { minimum: self.size_for(length).max(1), ..self }
    }

    /// The same extent with `factor` times as many elements.
    #[must_use]
    pub fn times(self, factor: usize) -> Self {
        let offset = self.offset.saturating_mul(isize::try_from(factor).unwrap_or(isize::MAX));
        Self { step: self.step.saturating_mul(factor), offset, ..self }
    }

    /// The length, if there is only one.
    pub fn only(self) -> Option<usize> {
        (self.maximum == Some(self.minimum)).then(|| self.length(self.minimum)).flatten()
    }

    /// Whether a size is from the minimum to the maximum.
    fn allows(self, size: usize) -> bool {
        size >= self.minimum && self.maximum.is_none_or(|most| size <= most)
    }

    /// The length for a size; `None` if it is not at least 1.
    pub fn length(self, size: usize) -> Option<usize> {
        self.step.checked_mul(size)?.checked_add_signed(self.offset).filter(|length| *length > 0)
    }

    /// The size that gives exactly this length; `None` if no size from the minimum to the maximum does.
    pub fn size(self, length: usize) -> Option<usize> {
        let multiple = length.checked_add_signed(self.offset.checked_neg()?)?;
        let size = multiple.checked_div(self.step).filter(|_| multiple.is_multiple_of(self.step))?;
        self.allows(size).then_some(size)
    }

    /// The least size whose length is at least this; the largest size if there is none.
    pub fn size_for(self, length: usize) -> usize {
        let multiple = length.saturating_add_signed(self.offset.saturating_neg());
        multiple.div_ceil(self.step.max(1)).max(self.minimum).min(self.maximum.unwrap_or(usize::MAX))
    }

    /// The least length.
    pub fn least(self) -> usize {
        self.length(self.minimum).unwrap_or(0)
    }
}

impl std::fmt::Display for Extent {
    /// "a multiple of 8", "4 · n − 3", "a multiple of 2 from 16 on", "exactly 512".
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(only) = self.only() {
            return write!(formatter, "exactly {only}");
        }
        match (self.step, self.offset) {
            (1, 0) => formatter.write_str("any length")?,
            (step, 0) => write!(formatter, "a multiple of {step}")?,
            (step, offset @ ..0) => write!(formatter, "{step} · n − {}", offset.unsigned_abs())?,
            (step, offset) => write!(formatter, "{step} · n + {offset}")?,
        }
        match self.maximum.map(|most| self.length(most).unwrap_or(0)) {
            Some(most) => write!(formatter, " from {} to {most}", self.least()),
            None if self.minimum > 1 => write!(formatter, " from {} on", self.least()),
            None => Ok(()),
        }
    }
}

/// The sizes that all tensors of one run share: the `n` of [`Extent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Independent samples in a run.
    pub batch: usize,
    /// Size along the height.
    pub height: usize,
    /// Size along the width.
    pub width: usize,
    /// Size in time.
    pub frames: usize,
    /// Tokens of a text.
    pub tokens: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { batch: 1, height: 1, width: 1, frames: 1, tokens: 1 }
    }
}

impl Axis {
    /// The length for the given sizes; `None` if the axis does not allow them.
    pub fn length(self, sizes: &Sizes) -> Option<usize> {
        match self {
            Self::Batch => Some(sizes.batch).filter(|batch| *batch > 0),
            Self::Channels(length) | Self::Fixed(length) => Some(length),
            Self::Height(extent) => extent.length(sizes.height).filter(|_| extent.allows(sizes.height)),
            Self::Width(extent) => extent.length(sizes.width).filter(|_| extent.allows(sizes.width)),
            Self::Frames(extent) => extent.length(sizes.frames).filter(|_| extent.allows(sizes.frames)),
            Self::Tokens(most) => Some(sizes.tokens).filter(|tokens| (1..=most.unwrap_or(usize::MAX)).contains(tokens)),
        }
    }

    /// The field of [`Sizes`] that the axis grows with, and the value that gives this length; `None` if no value does.
    pub(crate) fn size(self, length: usize) -> Option<(Option<AxisKind>, usize)> {
        match self {
            Self::Batch => (length > 0).then_some((Some(AxisKind::Batch), length)),
            Self::Channels(fixed) | Self::Fixed(fixed) => (length == fixed).then_some((None, length)),
            Self::Height(extent) => Some((Some(AxisKind::Height), extent.size(length)?)),
            Self::Width(extent) => Some((Some(AxisKind::Width), extent.size(length)?)),
            Self::Frames(extent) => Some((Some(AxisKind::Frames), extent.size(length)?)),
            Self::Tokens(most) => {
                (1..=most.unwrap_or(usize::MAX)).contains(&length).then_some((Some(AxisKind::Tokens), length))
            }
        }
    }
}

impl std::fmt::Display for Axis {
    /// "batch", "3 channels", "height (a multiple of 8)".
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let with = |formatter: &mut std::fmt::Formatter<'_>, name: &str, extent: &Extent| match extent {
            Extent { step: 1, offset: 0, minimum: 1, maximum: None } => formatter.write_str(name),
            extent => write!(formatter, "{name} ({extent})"),
        };
        match self {
            Self::Batch => formatter.write_str("batch"),
            Self::Channels(count) => write!(formatter, "{count} channels"),
            Self::Height(extent) => with(formatter, "height", extent),
            Self::Width(extent) => with(formatter, "width", extent),
            Self::Frames(extent) => with(formatter, "frames", extent),
            Self::Tokens(None) => formatter.write_str("tokens"),
            Self::Tokens(Some(most)) => write!(formatter, "tokens (at most {most})"),
            Self::Fixed(length) => write!(formatter, "{length}"),
        }
    }
}

/// A field of [`Sizes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AxisKind {
    Batch,
    Height,
    Width,
    Frames,
    Tokens,
}

impl AxisKind {
    pub(crate) fn of(self, sizes: &mut Sizes) -> &mut usize {
        match self {
            Self::Batch => &mut sizes.batch,
            Self::Height => &mut sizes.height,
            Self::Width => &mut sizes.width,
            Self::Frames => &mut sizes.frames,
            Self::Tokens => &mut sizes.tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn clips_have_one_frame_and_four_more_for_each_latent_frame() {
        let pixels = Extent::multiple_of(4).plus(-3);
        assert_eq!([1, 2, 5].map(|latent| pixels.length(latent)), [Some(1), Some(5), Some(17)]);
        assert_eq!([1, 4, 5].map(|frames| pixels.size(frames)), [Some(1), None, Some(2)]);
        assert_eq!(pixels.to_string(), "4 · n − 3");
    }

    #[test]
    fn a_least_length_is_rounded_up_to_the_step() {
        let extent = Extent::multiple_of(16).at_least(17);
        assert_eq!((extent.minimum, extent.least(), extent.size(16), extent.size_for(1)), (2, 32, None, 2));
        assert_eq!(extent.to_string(), "a multiple of 16 from 32 on");
    }

    #[test]
    fn an_extent_without_a_step_has_no_sizes() {
        let broken = Extent { step: 0, offset: 0, minimum: 1, maximum: None };
        assert_eq!((broken.length(3), broken.size(0), broken.size(3)), (None, None, None));
    }

    #[test]
    fn an_extent_may_be_one_length() {
        let exact = Extent::exactly(512);
        assert_eq!((exact.only(), exact.times(2).only(), Extent::multiple_of(8).only()), (Some(512), Some(1024), None));
        assert_eq!([256, 512, 1024].map(|length| exact.size(length)), [None, Some(1), None]);
        assert_eq!([256, 512, 1024].map(|length| exact.size_for(length)), [1; 3]);
        assert_eq!(exact.to_string(), "exactly 512");
        let bounded = Extent { maximum: Some(4), ..Extent::multiple_of(8) };
        assert_eq!((bounded.size(32), bounded.size(40), bounded.size_for(99)), (Some(4), None, 4));
        assert_eq!(bounded.to_string(), "a multiple of 8 from 8 to 32");
    }

    proptest! {
        #[test]
        fn size_and_length_undo_each_other(step in 1_usize..64, offset in -3_isize..64, size in 1_usize..4096) {
            let extent = Extent::multiple_of(step).plus(offset);
            if let Some(length) = extent.length(size) {
                prop_assert_eq!(extent.size(length), Some(size));
                prop_assert_eq!(extent.size_for(length), size);
            }
        }

        #[test]
        fn no_numbers_make_it_panic(
            step: usize,
            offset: isize,
            minimum: usize,
            maximum: Option<usize>,
            value: usize,
        ) {
            let extent = Extent { step, offset, minimum, maximum };
            let _ = (extent.length(value), extent.size(value), extent.size_for(value));
            let _ = (extent.times(value), extent.at_least(value));
            let _ = extent.to_string();
        }
    }
}
