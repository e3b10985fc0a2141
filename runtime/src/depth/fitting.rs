//! The size that a picture has in the network.

use tileforge_contract::Extent;
use tileforge_image::Size;

/// The default of the least length of the shorter side in the reference implementations.
pub(super) const INPUT_SIZE: u32 = 518;

/// The reference's rule: the picture is scaled so that no side is below `input_size`, and each side is rounded to the
/// nearest multiple, but not below `input_size`.
pub(super) fn network_size(picture: Size, input_size: u32, side: Extent) -> Size {
    let (least, step) = (f64::from(input_size), side.step as f64);
    let scale = (least / f64::from(picture.width)).max(least / f64::from(picture.height));
    let length = |length: u32| {
        let scaled = scale * f64::from(length) / step;
        let rounded = scaled.round_ties_even() * step;
        let fitting = if rounded < least { scaled.ceil() * step } else { rounded };
        fitting.clamp(step, f64::from(i32::MAX)) as u32
    };
    Size { width: length(picture.width), height: length(picture.height) }
}

/// How a picture gets the size of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fitted {
    /// Which of the sizes.
    pub(super) index: usize,
    /// No input size gives this size by the reference's rule, so the picture's proportions change.
    pub(super) stretched: bool,
}

/// Chooses one of the engine's sizes for a picture: a size that the reference's rule gives for some input size, with
/// the input size nearest to the default. If there is none, the size with the nearest proportions; of several, the
/// largest. With `input_size`, only the size that the rule gives for it.
pub(super) fn fit(picture: Size, sizes: &[Size], input_size: Option<u32>, side: Extent) -> Option<Fitted> {
    let by_rule = |size: &Size, input_size: u32| network_size(picture, input_size, side) == *size;
    let indexed = || sizes.iter().enumerate();
    if let Some(input_size) = input_size {
        return indexed()
            .find(|(_, size)| by_rule(size, input_size))
            .map(|(index, _)| Fitted { index, stretched: false });
    }
    let shorter = |size: &Size| size.width.min(size.height);
    let kept = indexed().filter(|(_, size)| by_rule(size, INPUT_SIZE) || by_rule(size, shorter(size)));
    if let Some((index, _)) = kept.min_by_key(|(_, size)| shorter(size).abs_diff(INPUT_SIZE)) {
        return Some(Fitted { index, stretched: false });
    }
    let proportion = |size: Size| (f64::from(size.width) / f64::from(size.height)).ln();
    let off = |size: &Size| (proportion(*size) - proportion(picture)).abs();
    let nearest = indexed()
        .min_by(|(_, one), (_, other)| off(one).total_cmp(&off(other)).then(other.pixels().cmp(&one.pixels())));
    nearest.map(|(index, _)| Fitted { index, stretched: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDE: Extent = Extent::multiple_of(14);

    fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    /// Made with the reference's `Resize.get_size`.
    #[test]
    fn sizes_are_those_of_the_reference() {
        for (picture, input_size, expected) in [
            (size(640, 480), 518, size(686, 518)),
            (size(480, 640), 518, size(518, 686)),
            (size(1920, 1080), 518, size(924, 518)),
            (size(100, 100), 56, size(56, 56)),
            (size(97, 61), 50, size(84, 56)),
        ] {
            assert_eq!(network_size(picture, input_size, SIDE), expected, "{picture}");
        }
    }

    #[test]
    fn a_size_of_the_rule_goes_before_nearer_proportions() {
        let sizes = [size(518, 518), size(686, 518), size(56, 42), size(1036, 518)];
        let fitted = |picture| fit(picture, &sizes, None, SIDE).unwrap();
        assert_eq!(fitted(size(640, 480)), Fitted { index: 1, stretched: false });
        assert_eq!(fitted(size(300, 300)), Fitted { index: 0, stretched: false });
        assert_eq!(fitted(size(4000, 2000)), Fitted { index: 3, stretched: false });
        assert_eq!(fitted(size(480, 640)), Fitted { index: 0, stretched: true });
        assert_eq!(fit(size(640, 480), &sizes, Some(42), SIDE), Some(Fitted { index: 2, stretched: false }));
        assert_eq!(fit(size(640, 480), &sizes, Some(70), SIDE), None);
    }
}
