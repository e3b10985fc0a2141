//! Attention in windows of a video, together with a text.
//!
//! The tokens of a video are rows in raster order: frame by frame, row by row. All sizes are known while the graph is
//! made. So every partition into windows is a gather of rows, and windows of equal sizes form the batch of one
//! attention.

use super::{Sequences, width};
use std::collections::BTreeMap;
use std::ops::Range;
use tileforge_graph::Value;

/// The windows of a video, by frames, rows and columns of tokens. They may have different sizes.
#[derive(Debug, Clone)]
pub struct VideoWindows {
    /// Frames, rows and columns of the video.
    size: [usize; 3],
    /// Where each axis is cut.
    cuts: [Vec<Range<usize>>; 3],
}

/// Where a token stands in its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Frame, row and column in the window.
    pub position: [usize; 3],
    /// Frames, rows and columns of the window.
    pub window: [usize; 3],
}

/// The rows of several videos of one size, followed by those of a text for each.
#[derive(Debug, Clone, Copy)]
pub struct Joint {
    /// How many videos, and how many texts.
    pub batch: usize,
    /// Tokens of each text.
    pub text: usize,
    /// Number of attention heads.
    pub heads: usize,
}

/// The results of [`VideoWindows::joint_attention`].
#[derive(Debug, Clone)]
pub struct Attended {
    /// Window by window, each with its text.
    rows: Value,
    /// The row of each token of the videos.
    of_video: Vec<i64>,
    /// The row of each token of the texts, for each window.
    of_text: Vec<i64>,
    /// Tokens of all texts.
    texts: usize,
}

impl Attended {
    /// The rows of the videos.
    pub fn video(&self) -> Value {
        gather_rows(&self.rows, &self.of_video)
    }

    /// The rows of the texts. Each is the mean over the windows, with equal weights.
    pub fn text(&self) -> Value {
        let of_windows = [-1, self.texts as i64, width(&self.rows) as i64];
        Sequences::new(&self.rows.gather(&self.of_text, 0).reshape(&of_windows).mean(0)).rows()
    }
}

impl VideoWindows {
    /// Cuts a video of `size` into windows of the size `window`, each as frames, rows and columns. The last window of
    /// an axis may be shorter. With `shifted`, the first window of an axis with several windows has half the size.
    pub fn new(size: [usize; 3], window: [usize; 3], shifted: bool) -> Self {
        VideoWindows { size, cuts: std::array::from_fn(|axis| cuts(size[axis], window[axis], shifted)) }
    }

    /// The place of each token, in raster order.
    pub fn places(&self) -> Vec<Place> {
        let tokens: usize = self.size.iter().product();
        let mut places = vec![Place { position: [0; 3], window: [0; 3] }; tokens];
        for window in self.windows() {
            let size = window.each_ref().map(Range::len);
            for [frame, row, column] in tokens_of(&window) {
                let position = [frame - window[0].start, row - window[1].start, column - window[2].start];
                places[self.number([frame, row, column])] = Place { position, window: size };
            }
        }
        places
    }

    /// Attention within each window together with the whole text: the queries, keys and values of both. Queries, keys
    /// and values are rows as [`Joint`] has them, `[batch · (tokens of a video + tokens of a text), heads · width]`.
    pub fn joint_attention(&self, rows: &[Value; 3], joint: Joint) -> Attended {
        let Joint { batch, text, heads } = joint;
        let tokens: usize = self.size.iter().product();
        let mut of_video = vec![0; batch * tokens];
        let (mut of_text, mut attended, mut start) = (Vec::new(), Vec::new(), 0);
        let groups = self.groups();
        for windows in &groups {
            let mut sequences = Vec::new();
            for window in windows {
                let window = tokens_of(window).map(|token| self.number(token)).collect::<Vec<_>>();
                for sample in 0..batch {
                    for token in &window {
                        of_video[sample * tokens + token] = (start + sequences.len()) as i64;
                        sequences.push((sample * tokens + token) as i64);
                    }
                    for token in 0..text {
                        of_text.push((start + sequences.len()) as i64);
                        sequences.push((batch * tokens + sample * text + token) as i64);
                    }
                }
            }
            start += sequences.len();
            let shape = [(windows.len() * batch) as i64, -1, width(&rows[0]) as i64];
            let [q, k, v] = rows.each_ref().map(|rows| gather_rows(rows, &sequences).reshape(&shape));
            let made = Sequences::new(&q.attention(&k, &v, heads, false)).rows();
            attended.push(made);
        }
        let rows = match attended.split_first() {
            Some((first, rest)) if !rest.is_empty() => first.concat(&rest.iter().collect::<Vec<_>>(), 0),
            Some((only, _)) => only.clone(),
            None => rows[0].clone(),
        };
        Attended { rows, of_video, of_text, texts: batch * text }
    }

    /// All windows, as ranges of frames, rows and columns.
    fn windows(&self) -> Vec<[Range<usize>; 3]> {
        let [frames, rows, columns] = &self.cuts;
        let mut windows = Vec::new();
        for frames in frames {
            for rows in rows {
                windows.extend(columns.iter().map(|columns| [frames.clone(), rows.clone(), columns.clone()]));
            }
        }
        windows
    }

    /// The windows, grouped by size.
    fn groups(&self) -> Vec<Vec<[Range<usize>; 3]>> {
        let mut groups: BTreeMap<[usize; 3], Vec<_>> = BTreeMap::new();
        for window in self.windows() {
            groups.entry(window.each_ref().map(Range::len)).or_default().push(window);
        }
        groups.into_values().collect()
    }

    /// The number of a token in raster order.
    fn number(&self, [frame, row, column]: [usize; 3]) -> usize {
        let [_, rows, columns] = self.size;
        (frame * rows + row) * columns + column
    }
}

/// Where an axis is cut: at multiples of `window`, and half a window later with `shifted`.
fn cuts(length: usize, window: usize, shifted: bool) -> Vec<Range<usize>> {
    let first = if shifted && window < length { window / 2 } else { window };
    let mut ends: Vec<usize> = (first..length).step_by(window.max(1)).collect();
    ends.push(length);
    let mut start = 0;
    let ranges = ends.into_iter().map(|end| std::mem::replace(&mut start, end)..end);
    ranges.filter(|range| !range.is_empty()).collect()
}

/// Frame, row and column of each token of a window, in raster order.
fn tokens_of([frames, rows, columns]: &[Range<usize>; 3]) -> impl Iterator<Item = [usize; 3]> + use<> {
    let (rows, columns) = (rows.clone(), columns.clone());
    frames.clone().flat_map(move |frame| {
        let columns = columns.clone();
        rows.clone().flat_map(move |row| columns.clone().map(move |column| [frame, row, column]))
    })
}

/// Rows in another order, or the same rows where the order is the same.
fn gather_rows(rows: &Value, order: &[i64]) -> Value {
    let is_same = order.len() == rows.fixed(0) && order.iter().enumerate().all(|(place, row)| place as i64 == *row);
    if is_same { rows.clone() } else { rows.gather(order, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn axes_are_cut_as_in_the_reference() {
        assert_eq!(cuts(22, 21, false), [0..21, 21..22]);
        assert_eq!(cuts(22, 21, true), [0..10, 10..22]);
        assert_eq!(cuts(5, 2, true), [0..1, 1..3, 3..5]);
        assert_eq!(cuts(2, 1, true), [0..1, 1..2]);
        assert_eq!(cuts(4, 4, true), [Range { start: 0, end: 4 }]);
        assert_eq!(cuts(3, 7, false), [Range { start: 0, end: 3 }]);
    }

    proptest! {
        #[test]
        fn windows_hold_each_token_once(
            size in [1_usize..9, 1_usize..9, 1_usize..9],
            window in [1_usize..9, 1_usize..9, 1_usize..9],
            shifted: bool,
        ) {
            let windows = VideoWindows::new(size, window, shifted);
            let mut numbers: Vec<usize> = windows
                .windows()
                .iter()
                .flat_map(|window| tokens_of(window).map(|token| windows.number(token)).collect::<Vec<_>>())
                .collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..size.iter().product()).collect::<Vec<_>>());
            let inside = |place: &Place| (0..3).all(|axis| place.position[axis] < place.window[axis]);
            prop_assert!(windows.places().iter().all(inside));
        }
    }
}
