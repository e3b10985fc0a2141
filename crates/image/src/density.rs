//! The print size of a picture: pixels for each inch or centimetre.

/// Pixels for each unit of length, across and down. An enlarged picture keeps its density, and so becomes larger on
/// paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Density {
    across: Ratio,
    down: Ratio,
    unit: DensityUnit,
}

/// The unit of length of a [`Density`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DensityUnit {
    /// Only the proportions of a pixel are known.
    None,
    /// TIFF, JPEG and EXIF.
    Inch,
    /// TIFF, JPEG and EXIF.
    Centimetre,
    /// PNG.
    Metre,
}

/// A fraction above zero, as TIFF and EXIF store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// The numerator.
    pub numerator: u32,
    /// The denominator.
    pub denominator: u32,
}

/// A density outside these limits is damage: the limits reach from a wall to the grain of a film.
const LEAST: f64 = 1e-3;
const MOST: f64 = 1e6;

/// Fractions of a density in pixels an inch that comes from metres: 11,811 pixels a metre are 300 an inch.
const HUNDREDTHS: f64 = 100.0;

impl Ratio {
    fn value(self) -> f64 {
        f64::from(self.numerator) / f64::from(self.denominator)
    }

    /// The nearest fraction of hundredths, shortened.
    fn in_hundredths(value: f64) -> Self {
        let numerator = (value * HUNDREDTHS).round() as u32;
        let (mut divisor, mut rest) = (numerator.max(1), 100_u32);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        Self { numerator: numerator / divisor, denominator: 100 / divisor }
    }
}

impl Density {
    /// `None` for meaningless numbers: zero, or far from anything that is printed or shown.
    pub fn new(across: Ratio, down: Ratio, unit: DensityUnit) -> Option<Self> {
        let is_possible = |ratio: Ratio| {
            let most = if unit == DensityUnit::Metre { MOST * 100.0 } else { MOST };
            ratio.numerator > 0 && ratio.denominator > 0 && (LEAST..=most).contains(&ratio.value())
        };
        (is_possible(across) && is_possible(down)).then_some(Self { across, down, unit })
    }

    /// The same in whole numbers.
    pub fn whole(across: u32, down: u32, unit: DensityUnit) -> Option<Self> {
        let ratio = |numerator| Ratio { numerator, denominator: 1 };
        // A square pixel without a unit has no information.
        if unit == DensityUnit::None && across == down {
            return None;
        }
        Self::new(ratio(across), ratio(down), unit)
    }

    /// Its unit.
    pub fn unit(&self) -> DensityUnit {
        self.unit
    }

    /// Pixels across and down.
    pub fn ratios(&self) -> [Ratio; 2] {
        [self.across, self.down]
    }

    /// The same after a turn by 90°.
    pub(crate) fn turned(self) -> Self {
        Self { across: self.down, down: self.across, ..self }
    }

    /// The form of TIFF and EXIF: fractions, in inches, centimetres, or without a unit.
    pub(crate) fn as_fractions(self) -> (DensityUnit, [Ratio; 2]) {
        match self.unit {
            DensityUnit::Metre => {
                (DensityUnit::Inch, self.ratios().map(|ratio| Ratio::in_hundredths(ratio.value() * 0.0254)))
            }
            unit => (unit, self.ratios()),
        }
    }

    /// The form of PNG: integers, in metres, or without a unit.
    pub(crate) fn in_metres(self) -> Option<(DensityUnit, [u32; 2])> {
        let (unit, factor) = match self.unit {
            DensityUnit::None => return Some((DensityUnit::None, self.proportions(u32::MAX)?)),
            DensityUnit::Inch => (DensityUnit::Metre, 1.0 / 0.0254),
            DensityUnit::Centimetre => (DensityUnit::Metre, 100.0),
            DensityUnit::Metre => (DensityUnit::Metre, 1.0),
        };
        Some((unit, self.rounded(factor, u32::MAX)?))
    }

    /// The form of JPEG: integers of 16 bits, in inches, centimetres, or without a unit.
    pub(crate) fn in_sixteen_bits(self) -> Option<(DensityUnit, [u16; 2])> {
        let narrow = |values: [u32; 2]| values.map(|value| value as u16);
        let most = u32::from(u16::MAX);
        let is_whole = self.ratios().iter().all(|ratio| ratio.value().fract() == 0.0);
        let (unit, factor) = match self.unit {
            DensityUnit::None => return Some((DensityUnit::None, narrow(self.proportions(most)?))),
            DensityUnit::Inch => (DensityUnit::Inch, 1.0),
            DensityUnit::Centimetre if is_whole => (DensityUnit::Centimetre, 1.0),
            DensityUnit::Centimetre => (DensityUnit::Inch, 2.54),
            DensityUnit::Metre => (DensityUnit::Inch, 0.0254),
        };
        Some((unit, narrow(self.rounded(factor, most)?)))
    }

    /// The density as integers; `None` if one would be 0 or larger than `most`.
    fn rounded(self, factor: f64, most: u32) -> Option<[u32; 2]> {
        let values = self.ratios().map(|ratio| (ratio.value() * factor).round());
        let fits = values.iter().all(|value| (1.0..=f64::from(most)).contains(value));
        fits.then_some(values.map(|value| value as u32))
    }

    /// Two integers in the proportions of a pixel.
    fn proportions(self, most: u32) -> Option<[u32; 2]> {
        let wide = |one: u32, other: u32| u64::from(one) * u64::from(other);
        let mut numbers =
            [wide(self.across.numerator, self.down.denominator), wide(self.down.numerator, self.across.denominator)];
        while numbers.iter().any(|&number| number > u64::from(most)) {
            numbers = numbers.map(|number| number / 2);
        }
        numbers.iter().all(|&number| number > 0).then_some(numbers.map(|number| number as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(number: u32, unit: DensityUnit) -> Density {
        Density::whole(number, number, unit).unwrap()
    }

    #[test]
    fn three_hundred_an_inch_stay_that_through_every_format() {
        let inches = whole(300, DensityUnit::Inch);
        assert_eq!(inches.in_metres(), Some((DensityUnit::Metre, [11_811; 2])));
        let metres = whole(11_811, DensityUnit::Metre);
        assert_eq!(metres.in_sixteen_bits(), Some((DensityUnit::Inch, [300; 2])));
        let (unit, [across, _]) = metres.as_fractions();
        assert_eq!((unit, across), (DensityUnit::Inch, Ratio { numerator: 300, denominator: 1 }));
        assert_eq!(whole(2835, DensityUnit::Metre).in_sixteen_bits(), Some((DensityUnit::Inch, [72; 2])));
        assert_eq!(whole(118, DensityUnit::Centimetre).in_sixteen_bits(), Some((DensityUnit::Centimetre, [118; 2])));
        assert_eq!(whole(118, DensityUnit::Centimetre).in_metres(), Some((DensityUnit::Metre, [11_800; 2])));
    }

    #[test]
    fn what_no_format_can_hold_is_left_out() {
        assert_eq!(Density::whole(0, 1, DensityUnit::Inch), None);
        assert_eq!(Density::whole(u32::MAX, 1, DensityUnit::Inch), None);
        let broken = Ratio { numerator: 1, denominator: 0 };
        assert_eq!(Density::new(broken, broken, DensityUnit::Inch), None);
        assert_eq!(Density::whole(1, 1, DensityUnit::None), None);
        assert_eq!(whole(1_000_000, DensityUnit::Inch).in_sixteen_bits(), None);
        let tiny = Ratio { numerator: 1, denominator: 900 };
        assert_eq!(Density::new(tiny, tiny, DensityUnit::Inch).unwrap().in_sixteen_bits(), None);
        let narrow = Density::whole(1 << 30, 1 << 29, DensityUnit::None);
        assert_eq!(narrow, None);
        let narrow = Density::whole(200_000, 100_000, DensityUnit::None).unwrap();
        assert_eq!(narrow.in_sixteen_bits(), Some((DensityUnit::None, [50_000, 25_000])));
        assert_eq!(narrow.turned().in_metres(), Some((DensityUnit::None, [100_000, 200_000])));
    }
}
