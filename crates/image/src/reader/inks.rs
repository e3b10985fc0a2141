//! Inks converted to light as a standard printing condition has it, for pictures in CMYK without a colour profile.

use std::array;

use super::super::Depth;
use super::fogra39::{COLOURS, CURVES, PLACES, WHITE};
use super::rows::Rows;
use crate::error::Result;

/// Rows of CMYK, with 0 for no ink, as rows of sRGB.
pub(super) struct Inks {
    rows: Box<dyn Rows>,
    depth: Depth,
    row: Vec<u8>,
    paper: Paper,
}

impl Inks {
    pub(super) fn new(rows: Box<dyn Rows>, depth: Depth) -> Self {
        Inks { rows, depth, row: Vec::new(), paper: Paper::new() }
    }
}

impl Rows for Inks {
    fn next(&mut self, row: &mut [u8]) -> Result<()> {
        self.row.resize(row.len() / 3 * 4, 0);
        self.rows.next(&mut self.row)?;
        match self.depth {
            Depth::Sixteen => {
                let (into, _) = row.as_chunks_mut::<2>();
                let (from, _) = self.row.as_chunks::<2>();
                for (into, from) in into.as_chunks_mut::<3>().0.iter_mut().zip(from.as_chunks::<4>().0) {
                    let amounts = from.map(|ink| f32::from(u16::from_be_bytes(ink)) / 65_535.0);
                    *into = self.paper.colour(amounts).map(|light| ((light * 65_535.0 + 0.5) as u16).to_be_bytes());
                }
            }
            // No format stores inks as floats.
            Depth::Eight | Depth::Float => {
                for (into, from) in row.as_chunks_mut::<3>().0.iter_mut().zip(self.row.as_chunks::<4>().0) {
                    let amounts = from.map(|ink| f32::from(ink) / 255.0);
                    *into = self.paper.colour(amounts).map(|light| (light * 255.0 + 0.5) as u8);
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.rows.end()
    }
}

/// A colour, and a fourth number without meaning: processors compute with four at a time.
type Light = [f32; 4];

/// The table as the loop over pixels needs it. Between the three places of each ink lie two cells. In the number of
/// a cell, cyan is bit 3, magenta bit 2, yellow bit 1, and black bit 0. In a cell, a colour is a sum of terms, each
/// times the inks whose bits its number has: that takes fewer steps than interpolating between the sixteen corners.
struct Paper([[Light; 16]; 16]);

impl Paper {
    fn new() -> Self {
        Paper(array::from_fn(|cell| {
            let mut terms = array::from_fn(|corner| {
                let places = [3, 2, 1, 0].map(|bit| (cell >> bit & 1) + (corner >> bit & 1));
                let index = places.iter().fold(0, |index, place| index * PLACES + place);
                let [red, green, blue] = COLOURS[index].map(|value| f32::from(value) / WHITE);
                [red, green, blue, 0.0]
            });
            for ink in [1, 2, 4, 8] {
                for upper in (0..16).filter(|corner| corner & ink != 0) {
                    let lower: Light = terms[upper ^ ink];
                    terms[upper].iter_mut().zip(lower).for_each(|(upper, lower)| *upper -= lower);
                }
            }
            terms
        }))
    }

    /// The colour of amounts of cyan, magenta, yellow and black. All numbers are 0 to 1.
    #[inline]
    fn colour(&self, amounts: [f32; 4]) -> [f32; 3] {
        let places: [f32; 4] = array::from_fn(|ink| {
            let (amount, [first, second]) = (amounts[ink], CURVES[ink]);
            2.0 * (amount + amount * (1.0 - amount) * (first + second * amount))
        });
        let upper = places.map(|place| place >= 1.0);
        let cell = upper.iter().fold(0, |cell, &upper| cell << 1 | usize::from(upper));
        let [cyan, magenta, yellow, black] = array::from_fn(|ink| places[ink] - f32::from(upper[ink]));
        let plus = |term: Light, more: Light, part: f32| -> Light {
            array::from_fn(|channel| term[channel] + more[channel] * part)
        };
        let terms = &self.0[cell & 15];
        let terms: [Light; 8] = array::from_fn(|term| plus(terms[term], terms[term + 8], cyan));
        let terms: [Light; 4] = array::from_fn(|term| plus(terms[term], terms[term + 4], magenta));
        let terms: [Light; 2] = array::from_fn(|term| plus(terms[term], terms[term + 2], yellow));
        let [red, green, blue, _] = plus(terms[0], terms[1], black);
        [red, green, blue].map(|light| light.clamp(0.0, 1.0))
    }
}
