//! Chooses the part of a picture that the network receives, and its size there.

use serde::Serialize;
use tileforge_image::Size;

/// The least number of pixels around the hole that the network receives.
const CONTEXT: u32 = 64;

/// A part of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Area {
    /// Columns to its left.
    pub left: u32,
    /// Rows above it.
    pub top: u32,
    /// Its size.
    pub size: Size,
}

/// A part of a picture, and how it goes into the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The graph, as an index into the list of sizes.
    pub(super) graph: usize,
    pub(super) area: Area,
    /// The size of the part in the graph, at the top left corner. The rest is mirrored.
    pub(super) shown: Size,
}

/// The place for a hole in a picture, among graphs of these sizes; `None` if there are none.
///
/// If a graph holds the whole picture, the network receives all of it. Otherwise it receives a part around the hole,
/// as large as the smallest graph that holds the hole with its surroundings. If no graph does, the part is scaled
/// down.
pub(super) fn place(picture: Size, hole: Area, sizes: &[Size]) -> Option<Place> {
    let holding = |wanted: Size| {
        let holds = |(_, size): &(usize, &Size)| size.width >= wanted.width && size.height >= wanted.height;
        sizes.iter().enumerate().filter(holds).min_by_key(|(_, size)| size.pixels())
    };
    if let Some((graph, _)) = holding(picture) {
        let area = Area { left: 0, top: 0, size: picture };
        return Some(Place { graph, area, shown: picture });
    }
    let wanted = Size {
        width: hole.size.width.saturating_add(2 * CONTEXT).min(picture.width),
        height: hole.size.height.saturating_add(2 * CONTEXT).min(picture.height),
    };
    if let Some((graph, size)) = holding(wanted) {
        let area = around(picture, hole, *size);
        return Some(Place { graph, area, shown: area.size });
    }
    // Chooses the graph in which the part is largest.
    let ratio = |size: &Size| {
        let ratio = |length: u32, of: u32| f64::from(length) / f64::from(of.max(1));
        ratio(size.width, wanted.width).min(ratio(size.height, wanted.height))
    };
    let (graph, size) = sizes.iter().enumerate().max_by(|(_, one), (_, other)| ratio(one).total_cmp(&ratio(other)))?;
    // The part has the graph's proportions, limited by the picture's edges.
    let factor = ratio(size);
    let unscaled = |length: u32| (f64::from(length) / factor).floor() as u32;
    let (width, height) = (unscaled(size.width).max(wanted.width), unscaled(size.height).max(wanted.height));
    let area = around(picture, hole, Size { width, height });
    let scaled = |length: u32, most: u32| ((f64::from(length) * factor).round() as u32).clamp(1, most);
    let shown = Size { width: scaled(area.size.width, size.width), height: scaled(area.size.height, size.height) };
    Some(Place { graph, area, shown })
}

/// The part of this size, at most the picture's, with the hole as near to its middle as the picture's edges allow.
fn around(picture: Size, hole: Area, size: Size) -> Area {
    let along = |start: u32, length: u32, wanted: u32, whole: u32| {
        let wanted = wanted.min(whole);
        let middle = u64::from(start) + u64::from(length) / 2;
        let first = middle.saturating_sub(u64::from(wanted) / 2).min(u64::from(whole - wanted));
        (u32::try_from(first).unwrap_or(0), wanted)
    };
    let (left, width) = along(hole.left, hole.size.width, size.width, picture.width);
    let (top, height) = along(hole.top, hole.size.height, size.height, picture.height);
    Area { left, top, size: Size { width, height } }
}

/// Channels of `from`, `[channels, height, width]`, in the top left corner of larger planes that mirror them: the
/// outermost pixels are not repeated.
pub(super) fn mirrored(planes: &[f32], from: Size, to: Size) -> Vec<f32> {
    let places = |length: u32, wanted: u32| -> Vec<usize> {
        let (last, length) = (length.saturating_sub(1).max(1) as usize, length as usize);
        let place = |at: usize| {
            let at = at % (2 * last);
            at.min(2 * last - at).min(length - 1)
        };
        (0..wanted as usize).map(place).collect()
    };
    let (columns, rows) = (places(from.width, to.width), places(from.height, to.height));
    let width = from.width as usize;
    let plane = |plane: &[f32]| -> Vec<f32> {
        rows.iter().flat_map(|y| columns.iter().map(move |x| plane[y * width + x])).collect()
    };
    planes.chunks_exact((from.pixels() as usize).max(1)).flat_map(plane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    fn area(left: u32, top: u32, width: u32, height: u32) -> Area {
        Area { left, top, size: size(width, height) }
    }

    const SIZES: [Size; 2] = [Size { width: 512, height: 512 }, Size { width: 1024, height: 1024 }];

    #[test]
    fn a_picture_that_a_graph_holds_is_shown_whole() {
        let found = place(size(500, 300), area(0, 0, 500, 300), &SIZES).unwrap();
        assert_eq!(found, Place { graph: 0, area: area(0, 0, 500, 300), shown: size(500, 300) });
        assert_eq!(place(size(513, 300), area(9, 9, 1, 1), &SIZES).unwrap().graph, 1);
        assert_eq!(place(size(5, 5), area(0, 0, 1, 1), &[]), None);
    }

    #[test]
    fn a_small_hole_in_a_large_picture_is_shown_as_it_is() {
        let found = place(size(4000, 3000), area(2000, 0, 100, 50), &SIZES).unwrap();
        assert_eq!(found, Place { graph: 0, area: area(1794, 0, 512, 512), shown: size(512, 512) });
        // Its surroundings need the larger graph, and the picture is lower than that.
        let found = place(size(4000, 700), area(3600, 100, 400, 500), &SIZES).unwrap();
        assert_eq!(found, Place { graph: 1, area: area(2976, 0, 1024, 700), shown: size(1024, 700) });
    }

    #[test]
    fn a_large_hole_is_shown_smaller() {
        let found = place(size(4000, 3000), area(0, 0, 4000, 3000), &SIZES).unwrap();
        assert_eq!(found, Place { graph: 1, area: area(0, 0, 4000, 3000), shown: size(1024, 768) });
        let found = place(size(4000, 3000), area(1000, 1000, 1920, 100), &SIZES).unwrap();
        assert_eq!(found.area, area(936, 26, 2048, 2048));
        assert_eq!(found.shown, size(1024, 1024));
    }

    #[test]
    fn what_is_too_small_is_mirrored_again_and_again() {
        assert_eq!(mirrored(&[1.0, 2.0, 3.0], size(3, 1), size(8, 1)), [1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
        assert_eq!(mirrored(&[5.0, 6.0], size(1, 1), size(2, 2)), [5.0, 5.0, 5.0, 5.0, 6.0, 6.0, 6.0, 6.0]);
    }

    proptest! {
        #[test]
        fn the_hole_is_always_within_what_is_shown(
            (width, height) in (1_u32..5000, 1_u32..5000),
            (left, top, right, bottom) in (0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64),
        ) {
            let at = |part: f64, of: u32| (part * f64::from(of)) as u32;
            let (left, top) = (at(left, width), at(top, height));
            let hole = area(left, top, 1 + at(right, width - left), 1 + at(bottom, height - top));
            let hole = Area { size: size(hole.size.width.min(width - left), hole.size.height.min(height - top)), ..hole };
            let found = place(size(width, height), hole, &SIZES).unwrap();
            let Area { left: from, top: above, size: part } = found.area;
            prop_assert!(from <= hole.left && above <= hole.top);
            prop_assert!(from + part.width >= hole.left + hole.size.width && from + part.width <= width);
            prop_assert!(above + part.height >= hole.top + hole.size.height && above + part.height <= height);
            let graph = SIZES[found.graph];
            prop_assert!(found.shown.width <= graph.width && found.shown.height <= graph.height);
            prop_assert!(found.shown.width >= 1 && found.shown.height >= 1);
        }
    }
}
