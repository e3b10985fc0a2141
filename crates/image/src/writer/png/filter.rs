//! Filters of PNG rows (<https://www.w3.org/TR/png-3/#9Filters>).
//!
//! Each row gets the filter with the least sum of absolute values, as the specification recommends. The result depends
//! only on the row and the row above, so bands can be filtered on several threads.

/// None, Sub, Up, Average and Paeth: their numbers are their positions.
const FILTERS: [fn(u8, u8, u8) -> u8; 5] = [
    |_, _, _| 0,
    |left, _, _| left,
    |_, above, _| above,
    |left, above, _| u16::midpoint(u16::from(left), u16::from(above)) as u8,
    paeth,
];

/// Filters rows one after another.
pub(super) struct Filter {
    /// Bytes of a pixel.
    pixel: usize,
    /// The row with each filter.
    tried: [Vec<u8>; FILTERS.len()],
}

impl Filter {
    pub(super) fn new(row_bytes: usize, pixel: usize) -> Self {
        Self { pixel, tried: std::array::from_fn(|_| vec![0; row_bytes]) }
    }

    /// Appends the number of the best filter and the filtered row to `made`. `above` is empty for the first row.
    pub(super) fn add(&mut self, row: &[u8], above: &[u8], made: &mut Vec<u8>) {
        let zeros;
        let above = if above.is_empty() {
            zeros = vec![0; row.len()];
            &zeros
        } else {
            above
        };
        let [none, sub, up, average, path] = &mut self.tried;
        filtered::<0>(row, above, self.pixel, none);
        filtered::<1>(row, above, self.pixel, sub);
        filtered::<2>(row, above, self.pixel, up);
        filtered::<3>(row, above, self.pixel, average);
        filtered::<4>(row, above, self.pixel, path);
        let best = (0..FILTERS.len()).min_by_key(|filter| magnitude(&self.tried[*filter])).unwrap_or(0);
        made.push(best as u8);
        made.extend_from_slice(&self.tried[best]);
    }
}

/// The filter is a const parameter, so that the compiler makes a loop for each filter.
fn filtered<const FILTER: usize>(row: &[u8], above: &[u8], pixel: usize, made: &mut [u8]) {
    let first = pixel.min(row.len());
    for ((made, byte), above) in made.iter_mut().zip(row).zip(above).take(first) {
        *made = byte.wrapping_sub(FILTERS[FILTER](0, *above, 0));
    }
    let neighbours = row.iter().zip(above.iter().zip(above.get(first..).unwrap_or_default()));
    let rest = made[first..].iter_mut().zip(row.get(first..).unwrap_or_default());
    for ((made, byte), (left, (above_left, above))) in rest.zip(neighbours) {
        *made = byte.wrapping_sub(FILTERS[FILTER](*left, *above, *above_left));
    }
}

/// The neighbour that is nearest to left + above − above left.
fn paeth(left: u8, above: u8, above_left: u8) -> u8 {
    let [a, b, c] = [left, above, above_left].map(i16::from);
    let [to_left, to_above, to_above_left] = [(b - c).abs(), (a - c).abs(), (a + b - 2 * c).abs()];
    if to_left <= to_above && to_left <= to_above_left {
        left
    } else if to_above <= to_above_left {
        above
    } else {
        above_left
    }
}

/// The sum of the bytes' absolute values, as signed numbers.
fn magnitude(row: &[u8]) -> u64 {
    row.chunks(1 << 16)
        .map(|part| u64::from(part.iter().map(|byte| u32::from(byte.cast_signed().unsigned_abs())).sum::<u32>()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_the_filter_that_suits_it() {
        let chosen = |row: &[u8], above: &[u8]| {
            let mut made = Vec::new();
            Filter::new(row.len(), 1).add(row, above, &mut made);
            (made[0], made[1..].to_vec())
        };
        let ramp: Vec<u8> = (0..64).map(|at| at * 3).collect();
        assert_eq!(chosen(&ramp, &[]).0, 1, "neighbours to the left");
        let noise: Vec<u8> = (0..64_u32).map(|at| (at * at * 97 % 251) as u8).collect();
        assert_eq!(chosen(&noise, &noise), (2, vec![0; 64]), "the row above");
        assert_eq!(chosen(&[1, 0, 255, 0], &[200; 4]), (0, vec![1, 0, 255, 0]), "as it is");
        let between: Vec<u8> = (0..64_usize)
            .scan(0, |left, at| {
                *left = u16::midpoint(*left, u16::from(noise[at]));
                Some(*left as u8)
            })
            .collect();
        assert_eq!(chosen(&between, &noise), (3, vec![0; 64]), "the mean of both");
    }

    #[test]
    fn paeth_takes_the_nearest_neighbour() {
        assert_eq!([paeth(10, 20, 10), paeth(20, 10, 10), paeth(0, 100, 50), paeth(7, 7, 7)], [20, 20, 50, 7]);
    }
}
