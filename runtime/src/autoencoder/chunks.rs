//! How a clip is cut in time.

use std::ops::Range;

use tileforge_contract::Extent;

use crate::error::Error;

/// A part of a clip that one run takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Its latent frames. The last chunk may end after the clip; the clip's last frame then repeats.
    pub(super) latents: Range<usize>,
    /// Its frames of pixels.
    pub(super) frames: Range<usize>,
}

/// How a clip is cut: the first chunk has the length of the first graph, all others the length of the graph for later
/// chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Latent frames of the first chunk, and how its frames of pixels follow from them.
    pub(super) first: (usize, Extent),
    /// The same of all later chunks, if there is a graph for them.
    pub(super) next: Option<(usize, Extent)>,
}

impl Cut {
    /// Latent frames of a clip with this many frames.
    pub(super) fn latents_of(&self, frames: usize) -> usize {
        self.first.1.size_for(frames.max(1))
    }

    /// Frames of a clip with this many latent frames; `None` if that is more than there can be.
    pub(super) fn frames_of(&self, latents: usize) -> Option<usize> {
        self.first.1.length(latents)
    }

    /// The chunk of this number, from 0; `None` if there is no graph for it.
    pub(super) fn chunk(&self, number: usize) -> Option<Chunk> {
        let (length, extent) = self.first;
        let (first_latents, first_frames) = (length, extent.length(length)?);
        let Some(before) = number.checked_sub(1) else {
            return Some(Chunk { latents: 0..first_latents, frames: 0..first_frames });
        };
        let (length, extent) = self.next?;
        let after = |first: usize, each: usize| {
            let start = before.checked_mul(each)?.checked_add(first)?;
            Some(start..start.checked_add(each)?)
        };
        Some(Chunk { latents: after(first_latents, length)?, frames: after(first_frames, extent.length(length)?)? })
    }

    /// How many chunks a clip has.
    pub(super) fn count(&self, latents: usize) -> usize {
        let later = latents.saturating_sub(self.first.0);
        1 + self.next.map_or(usize::from(later > 0), |(length, _)| later.div_ceil(length.max(1)))
    }

    /// The error for a clip that is longer than the first chunk, where there is no graph for later ones.
    pub(super) fn too_long(&self) -> Error {
        Error::ClipTooLong { frames: self.frames_of(self.first.0).unwrap_or(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_chunks_have_four_frames_for_each_latent_frame() {
        let (first, next) = (Extent::multiple_of(4).plus(-3), Extent::multiple_of(4));
        let cut = Cut { first: (2, first), next: Some((3, next)) };
        assert_eq!([1, 2, 5, 6].map(|frames| cut.latents_of(frames)), [1, 2, 2, 3]);
        assert_eq!(cut.frames_of(3), Some(9));
        let expected = [(0..2, 0..5), (2..5, 5..17), (5..8, 17..29)];
        for (number, (latents, frames)) in expected.into_iter().enumerate() {
            assert_eq!(cut.chunk(number), Some(Chunk { latents, frames }));
        }
        assert_eq!([1, 2, 3, 5, 6].map(|latents| cut.count(latents)), [1, 1, 2, 2, 3]);
        let alone = Cut { first: (2, first), next: None };
        assert_eq!((alone.count(2), alone.chunk(0).is_some(), alone.chunk(1)), (1, true, None));
        assert_eq!(alone.too_long().to_string().split(',').next(), Some("the clip has more than 5 frames"));
        assert_eq!(cut.chunk(usize::MAX), None);
    }
}
