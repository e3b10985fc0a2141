//! Whether a JPEG holds data for all of its pixels.
//!
//! Decoders fill missing parts with grey. So they would accept a file that was cut and closed with an end marker, or
//! whose header states a larger picture than its data covers. Therefore, the Huffman codes of every scan are read once
//! before the picture is decoded, without computing pixels.
//!
//! Source: ITU-T T.81, <https://www.w3.org/Graphics/JPEG/itu-t81.pdf>; sections are named below.

use super::segments::{HUFFMAN_TABLES, RESTART_INTERVAL, START_OF_SCAN, Segments};

/// Coefficients of a block.
const COEFFICIENTS: usize = 64;

/// The maximum number of scans, more than any program writes. Each scan takes as long as decoding the picture once.
const SCANS_MAXIMUM: usize = 256;

/// Why the data is not complete.
type Problem = String;

/// The properties of complete data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Complete {
    /// Whether coefficients come in several scans, so that a decoder holds all of them.
    pub(super) several_scans: bool,
}

/// Reads all scans of `bytes`, a file up to its end marker.
///
/// # Errors
/// A message about what is missing or impossible, and the fraction of the picture that has data, from 0 to 1.
pub(super) fn check(bytes: &[u8]) -> Result<Complete, (Problem, f64)> {
    let mut picture = None;
    read_scans(bytes, &mut picture).map_err(|problem| (problem, picture.map_or(0.0, |picture| picture.covered)))
}

fn read_scans(bytes: &[u8], picture: &mut Option<Picture>) -> Result<Complete, Problem> {
    let mut tables = Tables::default();
    let mut scans = 0;
    let mut segments = Segments::of(bytes);
    while let Some((marker, data)) = segments.next() {
        match marker {
            // Baseline, extended sequential and progressive, with Huffman codes (B.2.2). The decoder refuses others.
            0xc0..=0xc2 => *picture = Some(Picture::parse(data, marker == 0xc2)?),
            HUFFMAN_TABLES => tables.define(data)?,
            RESTART_INTERVAL => tables.restart_interval = read_u16(data, 0).ok_or("a restart interval is cut")?.into(),
            START_OF_SCAN => {
                let picture: &mut Picture = picture.as_mut().ok_or("a scan comes before the picture's header")?;
                scans += 1;
                if scans > SCANS_MAXIMUM {
                    return Err(format!("it has more than {SCANS_MAXIMUM} scans"));
                }
                picture.scan(data, &tables, segments.rest())?;
            }
            _ => {}
        }
    }
    let picture = picture.as_ref().ok_or("it has no header")?;
    picture.check_scans()?;
    Ok(Complete { several_scans: scans > 1 || picture.progressive })
}

fn read_u16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

/// A table of Huffman codes of lengths 1 to 16, looked up by the next 16 bits of the data (C.2, F.2.2.3).
struct Huffman {
    /// For each 16-bit value, the length of the code that it begins with, and the code's symbol. Length 0: no code.
    codes: Vec<(u8, u8)>,
}

impl Huffman {
    /// The table, and the number of bytes that define it.
    fn parse(data: &[u8]) -> Option<(Self, usize)> {
        let counts = data.get(..16)?;
        let symbols: usize = counts.iter().map(|&count| usize::from(count)).sum();
        let mut symbol = data.get(16..16 + symbols)?.iter();
        let mut codes = Vec::with_capacity(1 << 16);
        for (length, &count) in (1_u8..).zip(counts) {
            for &symbol in symbol.by_ref().take(count.into()) {
                let entries = 1_usize << (16 - length);
                if codes.len() + entries > 1 << 16 {
                    return None;
                }
                codes.resize(codes.len() + entries, (length, symbol));
            }
        }
        codes.resize(1 << 16, (0, 0));
        Some((Self { codes }, 16 + symbols))
    }
}

/// The tables that segments define for later scans.
#[derive(Default)]
struct Tables {
    /// By class (DC, AC) and number.
    huffman: [[Option<Huffman>; 4]; 2],
    restart_interval: usize,
}

impl Tables {
    fn define(&mut self, mut data: &[u8]) -> Result<(), Problem> {
        while let Some((&target, rest)) = data.split_first() {
            let (class, number) = (usize::from(target >> 4), usize::from(target & 15));
            let place = self.huffman.get_mut(class).and_then(|class| class.get_mut(number));
            let (place, (table, length)) =
                place.zip(Huffman::parse(rest)).ok_or("a table of Huffman codes is damaged")?;
            *place = Some(table);
            data = &rest[length..];
        }
        Ok(())
    }

    fn of(&self, class: usize, number: u8) -> Result<&Huffman, Problem> {
        let table = self.huffman[class].get(usize::from(number)).and_then(Option::as_ref);
        Ok(table.ok_or("a scan names a table of Huffman codes that is missing")?)
    }
}

/// Extracts one of the two numbers in a byte.
type HalfOfByte = fn(u8) -> u8;

struct Component {
    id: u8,
    /// Sampling factors: blocks of this component in a unit of interleaved data.
    sampling: [usize; 2],
    /// Blocks across and down that hold its samples (A.2.2), and blocks that interleaved data holds (A.2.3).
    own: [usize; 2],
    padded: [usize; 2],
    /// The lowest bit that has been sent of each coefficient (G.1.2.1); `None` before any.
    lowest_bit: [Option<u8>; COEFFICIENTS],
    /// For each block, the coefficients that are not zero. Only progressive pictures need them (G.1.2.3).
    history: Vec<u64>,
}

struct Picture {
    progressive: bool,
    /// Units of interleaved data across and down.
    units: [usize; 2],
    components: Vec<Component>,
    /// The fraction of the picture that has its first coefficients, from 0 to 1.
    covered: f64,
}

impl Picture {
    /// Parses a frame header (B.2.2).
    fn parse(data: &[u8], progressive: bool) -> Result<Self, Problem> {
        let cut = "its header is cut";
        let height = usize::from(read_u16(data, 1).ok_or(cut)?);
        let width = usize::from(read_u16(data, 3).ok_or(cut)?);
        let count = usize::from(*data.get(5).ok_or(cut)?);
        let parts = data.get(6..6 + 3 * count).ok_or(cut)?.as_chunks::<3>().0;
        let factors = |factor: HalfOfByte| parts.iter().map(move |part| usize::from(factor(part[1])));
        let (across, down): (HalfOfByte, HalfOfByte) = (|both| both >> 4, |both| both & 15);
        if factors(across).chain(factors(down)).any(|factor| !(1..=4).contains(&factor)) {
            return Err("a sampling factor is not 1 to 4".into());
        }
        let most = [factors(across).max().unwrap_or(1), factors(down).max().unwrap_or(1)];
        let units = [width.div_ceil(8 * most[0]), height.div_ceil(8 * most[1])];
        let component = |part: &[u8; 3]| {
            // A single component is never interleaved: its factors do not matter (A.2.2).
            let sampling = if count == 1 { most } else { [usize::from(across(part[1])), usize::from(down(part[1]))] };
            let blocks = |side: usize, axis: usize| (side * sampling[axis]).div_ceil(most[axis]).div_ceil(8);
            let padded = [units[0] * sampling[0], units[1] * sampling[1]];
            let history = if progressive { vec![0; padded[0] * padded[1]] } else { Vec::new() };
            let own = [blocks(width, 0), blocks(height, 1)];
            Component { id: part[0], sampling, own, padded, lowest_bit: [None; COEFFICIENTS], history }
        };
        Ok(Self { progressive, units, components: parts.iter().map(component).collect(), covered: 0.0 })
    }

    /// Reads the data of one scan. `header` is the content of its segment (B.2.3).
    fn scan(&mut self, header: &[u8], tables: &Tables, data: &[u8]) -> Result<(), Problem> {
        let cut = "a scan's header is cut";
        let count = usize::from(*header.first().ok_or(cut)?);
        let chosen = header.get(1..1 + 2 * count).ok_or(cut)?.as_chunks::<2>().0;
        let &[start, end, bits] = header.get(1 + 2 * count..4 + 2 * count).and_then(|b| b.as_array()).ok_or(cut)?;
        let (high, low) = (bits >> 4, bits & 15);
        // Sequential scans always hold everything. Some writers leave these fields at 0.
        let (start, end, high, low) =
            if self.progressive { (usize::from(start), usize::from(end), high, low) } else { (0, 63, 0, 0) };
        if start > end || end >= COEFFICIENTS || (self.progressive && start == 0 && end > 0) || low > 13 {
            return Err("a scan has impossible coefficients".into());
        }
        let kind = match (self.progressive, start, high) {
            (false, ..) => ScanKind::Sequential,
            (true, 0, 0) => ScanKind::First,
            (true, 0, _) => ScanKind::Refined,
            (true, _, 0) => ScanKind::FirstBand { start, end },
            (true, ..) => ScanKind::RefinedBand { start, end },
        };
        let mut parts = Vec::new();
        for &[id, numbers] in chosen {
            let at = self.components.iter().position(|component| component.id == id);
            let at = at.ok_or("a scan names a component that the picture lacks")?;
            // A scan defines only the tables that it needs.
            let [dc, ac] = [(0, numbers >> 4), (1, numbers & 15)].map(|(class, number)| tables.of(class, number));
            let (dc, ac) = match kind {
                ScanKind::Sequential => (Some(dc?), Some(ac?)),
                ScanKind::First => (Some(dc?), None),
                ScanKind::Refined => (None, None),
                ScanKind::FirstBand { .. } | ScanKind::RefinedBand { .. } => (None, Some(ac?)),
            };
            self.components[at].lowest_bit[start..=end].fill(Some(low));
            parts.push((at, dc, ac));
        }
        if parts.is_empty() || (start > 0 && parts.len() > 1) {
            return Err("a scan has an impossible number of components".into());
        }
        let alone = parts.len() == 1;
        let units = if alone { self.components[parts[0].0].own } else { self.units };
        let mut coded = Coded { bits: Bits::of(data), end_of_band: 0 };
        let missing = |row: usize| {
            format!("the data of its scan ends at {:.0} % of the picture", 100.0 * row as f64 / units[1].max(1) as f64)
        };
        let mut until_restart = tables.restart_interval;
        let is_first = matches!(kind, ScanKind::Sequential | ScanKind::First) && parts.iter().any(|(at, ..)| *at == 0);
        for row in 0..units[1] {
            if is_first {
                self.covered = self.covered.max(row as f64 / units[1] as f64);
            }
            for column in 0..units[0] {
                if tables.restart_interval > 0 {
                    if until_restart == 0 {
                        coded.restart().ok_or("a restart marker is missing")?;
                        until_restart = tables.restart_interval;
                    }
                    until_restart -= 1;
                }
                for (at, dc, ac) in &parts {
                    let component = &mut self.components[*at];
                    let [across, down] = if alone { [1, 1] } else { component.sampling };
                    for (y, x) in (0..down).flat_map(|y| (0..across).map(move |x| (y, x))) {
                        let place = (row * down + y) * component.padded[0] + column * across + x;
                        let history = component.history.get_mut(place);
                        coded.block(kind, *dc, *ac, history).map_err(|lack| match lack {
                            Lack::Data => missing(row),
                            Lack::Code => "its data has an impossible code".into(),
                        })?;
                    }
                }
            }
        }
        if is_first {
            self.covered = 1.0;
        }
        Ok(())
    }

    /// Checks that every component has data, and that every coefficient with data is complete.
    fn check_scans(&self) -> Result<(), Problem> {
        for component in &self.components {
            if component.lowest_bit[0].is_none() || component.lowest_bit.iter().flatten().any(|&bit| bit > 0) {
                return Err("scans are missing at its end".into());
            }
        }
        Ok(())
    }
}

/// The part of each block that a scan holds.
#[derive(Clone, Copy)]
enum ScanKind {
    /// Everything (F.1.2).
    Sequential,
    /// The DC coefficient, without its lowest bits (G.1.2.1).
    First,
    /// The next bit of the DC coefficient.
    Refined,
    /// AC coefficients, without their lowest bits (G.1.2.2).
    FirstBand { start: usize, end: usize },
    /// The next bit of AC coefficients (G.1.2.3).
    RefinedBand { start: usize, end: usize },
}

enum Lack {
    /// The data has ended.
    Data,
    /// The bits are no Huffman code, or a block has more than 64 coefficients.
    Code,
}

/// Entropy-coded data.
struct Coded<'d> {
    bits: Bits<'d>,
    /// Blocks that have no further coefficients in this band.
    end_of_band: u32,
}

impl Coded<'_> {
    fn restart(&mut self) -> Option<()> {
        self.end_of_band = 0;
        self.bits.restart()
    }

    fn block(
        &mut self,
        kind: ScanKind,
        dc: Option<&Huffman>,
        ac: Option<&Huffman>,
        history: Option<&mut u64>,
    ) -> Result<(), Lack> {
        if let Some(dc) = dc {
            let length = self.bits.symbol(dc)?;
            if length > 16 {
                return Err(Lack::Code);
            }
            self.bits.take(length)?;
        }
        match (kind, ac, history) {
            (ScanKind::Sequential, Some(ac), _) => self.sequential(ac),
            (ScanKind::Refined, ..) => self.bits.take(1).map(drop),
            (ScanKind::FirstBand { start, end }, Some(ac), Some(history)) => self.first_band(ac, history, start, end),
            (ScanKind::RefinedBand { start, end }, Some(ac), Some(history)) => {
                self.refined_band(ac, history, start, end)
            }
            _ => Ok(()),
        }
    }

    fn sequential(&mut self, ac: &Huffman) -> Result<(), Lack> {
        let mut at = 1;
        while at < COEFFICIENTS {
            let symbol = self.bits.symbol(ac)?;
            let (zeros, length) = (usize::from(symbol >> 4), symbol & 15);
            if length == 0 && zeros < 15 {
                return Ok(());
            }
            at += zeros + 1;
            self.bits.take(length)?;
        }
        if at == COEFFICIENTS { Ok(()) } else { Err(Lack::Code) }
    }

    /// The number of blocks that an "end of band" code stands for, with this one.
    fn bands(&mut self, exponent: u8) -> Result<u32, Lack> {
        Ok((1 << exponent) + self.bits.take(exponent)?)
    }

    fn first_band(&mut self, ac: &Huffman, history: &mut u64, start: usize, end: usize) -> Result<(), Lack> {
        if self.end_of_band > 0 {
            self.end_of_band -= 1;
            return Ok(());
        }
        let mut at = start;
        while at <= end {
            let symbol = self.bits.symbol(ac)?;
            let (zeros, length) = (symbol >> 4, symbol & 15);
            if length == 0 && zeros < 15 {
                self.end_of_band = self.bands(zeros)? - 1;
                return Ok(());
            }
            at += usize::from(zeros);
            if at > end {
                return Err(Lack::Code);
            }
            if length > 0 {
                self.bits.take(length)?;
                *history |= 1 << at;
            }
            at += 1;
        }
        Ok(())
    }

    fn refined_band(&mut self, ac: &Huffman, history: &mut u64, start: usize, end: usize) -> Result<(), Lack> {
        let mut at = start;
        while self.end_of_band == 0 && at <= end {
            let symbol = self.bits.symbol(ac)?;
            let (mut zeros, length) = (symbol >> 4, symbol & 15);
            if length == 0 && zeros < 15 {
                self.end_of_band = self.bands(zeros)?;
                break;
            }
            // The sign of the new coefficient.
            self.bits.take(u8::from(length > 0))?;
            while at <= end {
                if *history & 1 << at != 0 {
                    self.bits.take(1)?;
                } else if zeros == 0 {
                    break;
                } else {
                    zeros -= 1;
                }
                at += 1;
            }
            if length > 0 {
                if at > end {
                    return Err(Lack::Code);
                }
                *history |= 1 << at;
            }
            at += 1;
        }
        if self.end_of_band > 0 {
            let known = (at..=end).filter(|at| *history & 1 << at != 0).count();
            (0..known).try_for_each(|_| self.bits.take(1).map(drop))?;
            self.end_of_band -= 1;
        }
        Ok(())
    }
}

/// The bits of entropy-coded data up to the next marker (F.2.2.5).
struct Bits<'d> {
    data: &'d [u8],
    at: usize,
    /// The next bits, from the highest of `count` down.
    buffer: u64,
    count: u32,
}

impl<'d> Bits<'d> {
    fn of(data: &'d [u8]) -> Self {
        Self { data, at: 0, buffer: 0, count: 0 }
    }

    fn fill(&mut self) {
        while self.count <= 56 {
            match self.data.get(self.at..) {
                Some([0xff, 0x00, ..]) => {
                    self.buffer = self.buffer << 8 | 0xff;
                    self.at += 2;
                }
                Some([0xff, ..] | []) | None => return,
                Some(&[byte, ..]) => {
                    self.buffer = self.buffer << 8 | u64::from(byte);
                    self.at += 1;
                }
            }
            self.count += 8;
        }
    }

    /// The next `count` bits, at most 16.
    fn take(&mut self, count: u8) -> Result<u32, Lack> {
        let wanted = u32::from(count);
        if self.count < wanted {
            self.fill();
        }
        self.count = self.count.checked_sub(wanted).ok_or(Lack::Data)?;
        Ok((self.buffer >> self.count & ((1 << wanted) - 1)) as u32)
    }

    fn symbol(&mut self, table: &Huffman) -> Result<u8, Lack> {
        if self.count < 16 {
            self.fill();
        }
        // After the end, bits are 1 (F.1.2.3).
        let next = match self.count.checked_sub(16) {
            Some(beyond) => self.buffer >> beyond,
            None => self.buffer << (16 - self.count) | ((1 << (16 - self.count)) - 1),
        };
        let (length, symbol) = table.codes[(next & 0xffff) as usize];
        if u32::from(length) > self.count || (length == 0 && self.count < 16) {
            return Err(Lack::Data);
        }
        if length == 0 {
            return Err(Lack::Code);
        }
        self.count -= u32::from(length);
        Ok(symbol)
    }

    /// Moves past the next restart marker; `None` if there is another marker or none.
    fn restart(&mut self) -> Option<()> {
        (self.buffer, self.count) = (0, 0);
        // Bytes before the marker are padding or surplus; a few bytes were read ahead.
        let rest = self.data.get(self.at..)?;
        let found = rest.windows(2).position(|pair| pair[0] == 0xff && !matches!(pair[1], 0x00 | 0xff))?;
        if !matches!(rest[found + 1], 0xd0..=0xd7) {
            return None;
        }
        self.at += found + 2;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_resolved_and_the_end_is_noticed() {
        // Two codes: 0 for symbol 5, 10 for symbol 7.
        let mut definition = vec![0; 16];
        (definition[0], definition[1]) = (1, 1);
        definition.extend([5, 7]);
        let (table, length) = Huffman::parse(&definition).unwrap();
        assert_eq!(length, 18);
        // Codes 0, 10, 0, 10 and 11.
        let mut bits = Bits::of(&[0b0100_1011, 0xff, 0x00, 0xff, 0xd9]);
        let found: Vec<_> = (0..4).map_while(|_| bits.symbol(&table).ok()).collect();
        assert_eq!(found, [5, 7, 5, 7]);
        assert!(bits.symbol(&table).is_err());
        assert_eq!(bits.take(10).ok(), Some(0x3ff));
        assert!(matches!(bits.take(1), Err(Lack::Data)));
    }

    #[test]
    fn more_codes_than_there_are_is_an_error() {
        let mut definition = vec![0; 16];
        definition[0] = 3;
        definition.extend([1, 2, 3]);
        assert!(Huffman::parse(&definition).is_none());
    }
}
