//! The input sizes of an engine's graphs.

use super::{Memory, Tile};
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The input sizes of an engine's graphs: one graph for each tile and batch, up to the largest run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shapes {
    /// Heights and widths.
    pub tiles: Vec<Tile>,
    /// If the network allows it, one graph takes tiles of any size with at most as many pixels as this tile; `tiles`
    /// are then only the measured sizes. `None`: each tile has its own graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_tile: Option<Tile>,
    /// The most memory that one step of a run may read and write: if the largest tile takes more, it gets fewer
    /// pixels. `None`: any amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_step: Option<Memory>,
    /// Pictures in one run; one number, or a list of them.
    #[serde(default)]
    pub batch: Batches,
    /// The tile whose number of pixels is the limit of a run: larger batches of a tile are left out, except for the
    /// tile's smallest batch. `None`: each tile has a graph for each batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_run: Option<Tile>,
}

impl Shapes {
    /// All combinations of these tiles and batches.
    pub(crate) fn new(tiles: Vec<Tile>, batch: Batches) -> Self {
        Self { tiles, largest_tile: None, largest_step: None, batch, largest_run: None }
    }

    /// The batches of a tile's graphs, the smallest first.
    pub(crate) fn batches_of(&self, tile: Tile) -> impl Iterator<Item = usize> {
        let Batches(batches) = &self.batch;
        let most = self.largest_run.map(|largest| (largest.pixels() / tile.pixels()).max(1));
        let batches = batches.iter().map(|batch| *batch as usize).enumerate();
        batches.filter(move |(at, batch)| *at == 0 || most.is_none_or(|most| *batch <= most)).map(|(_, batch)| batch)
    }

    /// The error for shapes that no engine can have.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.batch.check()?;
        if self.tiles.is_empty() {
            return Err("`tiles`: expected at least one tile shape".into());
        }
        if self.largest_step.is_some() && self.largest_tile.is_none() {
            return Err("`largest_step` is for graphs of any size: expected `largest_tile`, too".into());
        }
        if let Some(largest) = self.largest_tile
            && let Some(tile) = self.tiles.iter().find(|tile| tile.pixels() > largest.pixels())
        {
            return Err(format!("`largest_tile`: expected as many pixels as {tile} at least, found {largest}"));
        }
        Ok(())
    }
}

/// Shapes whose sizes are multiples of `MULTIPLE`. They are checked while they are read, so that an error has its line
/// and column.
pub(super) fn shapes<'de, D: Deserializer<'de>, const MULTIPLE: usize>(
    deserializer: D,
) -> Result<Option<Shapes>, D::Error> {
    let shapes = Option::<Shapes>::deserialize(deserializer)?;
    if let Some(shapes) = &shapes {
        shapes.check().map_err(D::Error::custom)?;
        let mut tiles = shapes.tiles.iter();
        if let Some(tile) = tiles.find(|tile| tile.height % MULTIPLE != 0 || tile.width % MULTIPLE != 0) {
            return Err(D::Error::custom(format!("`tiles`: expected multiples of {MULTIPLE}, found {tile}")));
        }
    }
    Ok(shapes)
}

/// Numbers of pictures in one run, in ascending order and without duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Batches(Vec<u32>);

/// The most pictures in one run. Larger batches only add latency, because every GPU is already busy.
const LARGEST_BATCH: u32 = 64;

impl Batches {
    fn new(mut batches: Vec<u32>) -> Self {
        batches.sort_unstable();
        batches.dedup();
        Self(batches)
    }

    /// The error for batches that no engine can have.
    fn check(&self) -> Result<(), String> {
        let Self(batches) = self;
        match batches.iter().find(|batch| !(1..=LARGEST_BATCH).contains(*batch)) {
            Some(wrong) => Err(format!("`batch`: expected 1 to {LARGEST_BATCH}, found {wrong}")),
            None if batches.is_empty() => Err(format!("`batch`: expected at least one of 1 to {LARGEST_BATCH}")),
            None => Ok(()),
        }
    }
}

impl Default for Batches {
    /// One picture at a time.
    fn default() -> Self {
        Self(vec![1])
    }
}

impl<'de> Deserialize<'de> for Batches {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrList;

        impl<'de> Visitor<'de> for NumberOrList {
            type Value = Batches;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number of pictures or a list of such numbers, as in [1, 4]")
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Batches, E> {
                let number = u32::try_from(value);
                Ok(Batches(vec![
                    number.map_err(|_| E::custom(format!("expected 1 to {LARGEST_BATCH}, found {value}")))?,
                ]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Batches, A::Error> {
                let mut batches = Vec::new();
                while let Some(batch) = list.next_element()? {
                    batches.push(batch);
                }
                Ok(Batches::new(batches))
            }
        }

        deserializer.deserialize_any(NumberOrList)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(side: usize) -> Tile {
        Tile { height: side, width: side }
    }

    #[test]
    fn a_run_has_no_more_pixels_than_the_largest() {
        let of = |batch: &[u32], largest_run| Shapes {
            largest_run,
            ..Shapes::new(vec![tile(64)], Batches::new(batch.into()))
        };
        let batches = |shapes: &Shapes, side| shapes.batches_of(tile(side)).collect::<Vec<_>>();
        let limited = of(&[8, 1, 4, 2, 4], Some(tile(1024)));
        assert_eq!(batches(&limited, 64), [1, 2, 4, 8]);
        assert_eq!(batches(&limited, 512), [1, 2, 4]);
        assert_eq!(batches(&limited, 1024), [1]);
        assert_eq!(batches(&limited, 2048), [1], "a tile that is listed has a graph");
        assert_eq!(batches(&of(&[2, 4], Some(tile(64))), 64), [2]);
        assert_eq!(batches(&of(&[1, 4], None), 4096), [1, 4]);
    }
}
