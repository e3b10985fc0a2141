//! Quantities with their units, in the form that profiles use.

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A tile's size in pixels, `HEIGHTxWIDTH` in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Tile {
    /// Number of pixels.
    pub(crate) fn pixels(self) -> usize {
        self.height * self.width
    }
}

/// The largest side of a tile. No image model with larger tiles fits on any device, so such sizes are typing errors.
const LARGEST_SIDE: usize = 16384;

impl FromStr for Tile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |text: &str| text.parse::<usize>().ok().filter(|side| (1..=LARGEST_SIDE).contains(side));
        let tile =
            text.split_once('x').and_then(|(height, width)| Some(Tile { height: side(height)?, width: side(width)? }));
        tile.ok_or_else(|| {
            format!("expected a tile HEIGHTxWIDTH of 1 to {LARGEST_SIDE} pixels, as in 256x256, found `{text}`")
        })
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}x{}", self.height, self.width)
    }
}

/// A GPU's compute capability, such as 8.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    /// The major number: the architecture.
    pub major: u32,
    /// The minor number: the variant.
    pub minor: u32,
}

impl FromStr for ComputeCapability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = |text: &str, most: u32| text.parse::<u32>().ok().filter(|number| *number <= most);
        let parts = text
            .split_once('.')
            .and_then(|(major, minor)| Some(Self { major: digits(major, 99)?, minor: digits(minor, 9)? }));
        parts.ok_or_else(|| format!("expected a compute capability, as in 8.9, found `{text}`"))
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// An amount of memory, such as `24 GB` or `4 GiB`. It keeps its original text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// In bytes.
    pub bytes: u64,
    text: String,
}

/// The bandwidth of memory, such as `1008 GB/s`. It keeps its original text.
#[derive(Debug, Clone, PartialEq)]
pub struct Bandwidth {
    /// In 10⁹ bytes per second.
    pub gigabytes_per_second: f64,
    text: String,
}

/// A clock rate, such as `2520 MHz`. It keeps its original text.
#[derive(Debug, Clone, PartialEq)]
pub struct Clock {
    /// In cycles per second.
    pub hertz: f64,
    text: String,
}

/// Reads `NUMBER UNIT` and returns the number times the unit's factor.
fn quantity(text: &str, units: &[(&str, f64)], example: &str) -> Result<f64, String> {
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    let wrong =
        || format!("expected a number and one of the units {}, as in `{example}`, found `{text}`", names.join(", "));
    let (number, unit) = text.split_once(' ').ok_or_else(wrong)?;
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0).ok_or_else(wrong)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    Ok(number * factor)
}

/// More than any device has. Larger numbers are typing errors.
const MOST_MEMORY: f64 = 1e15;

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("MB", 1e6), ("MiB", 1024.0 * 1024.0), ("GB", 1e9), ("GiB", 1024.0 * 1024.0 * 1024.0)];
        let bytes = quantity(text, &units, "24 GB")?;
        if bytes > MOST_MEMORY {
            return Err(format!("expected less than a petabyte, found `{text}`"));
        }
        Ok(Self { bytes: bytes as u64, text: text.into() })
    }
}

impl FromStr for Bandwidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let gigabytes_per_second = quantity(text, &[("GB/s", 1.0), ("TB/s", 1000.0)], "1008 GB/s")?;
        Ok(Self { gigabytes_per_second, text: text.into() })
    }
}

impl FromStr for Clock {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hertz = quantity(text, &[("MHz", 1e6), ("GHz", 1e9)], "2520 MHz")?;
        Ok(Self { hertz, text: text.into() })
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Read and written as text, because YAML would turn the compute capability 12.0 into the number 12.
macro_rules! as_text {
    ($($name:ident),+) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}

as_text!(Tile, ComputeCapability, Memory, Bandwidth, Clock);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        assert_eq!("24 GB".parse::<Memory>().unwrap().bytes, 24_000_000_000);
        assert_eq!("1.5 GiB".parse::<Memory>().unwrap().bytes, 3 << 29);
        assert_eq!("3.35 TB/s".parse::<Bandwidth>().unwrap().gigabytes_per_second, 3350.0);
        for wrong in ["24", "24GB", "24 Gb", "-1 GB", "inf GB", "1e99 GB", "24 GB/s", ""] {
            assert!(wrong.parse::<Memory>().is_err(), "{wrong}");
        }
        assert_eq!("2.52 GHz".parse::<Clock>().unwrap().hertz, 2.52e9);
        for wrong in ["1008 GB", "1008", "fast"] {
            assert!(wrong.parse::<Bandwidth>().is_err() && wrong.parse::<Clock>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn capabilities_are_ordered_by_number_and_keep_their_zero() {
        let capability = |text: &str| text.parse::<ComputeCapability>().unwrap();
        assert!(capability("12.0") > capability("8.9"));
        assert_eq!(capability("12.0").to_string(), "12.0");
        for wrong in ["8", "8.", ".9", "8.10", "sm_89", "8.9.1"] {
            assert!(wrong.parse::<ComputeCapability>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn tiles_are_height_by_width() {
        assert_eq!("64x96".parse::<Tile>().unwrap(), Tile { height: 64, width: 96 });
        for wrong in ["64", "0x64", "64x0", "64x99999", "64 x 64", "-1x1"] {
            assert!(wrong.parse::<Tile>().is_err(), "{wrong}");
        }
    }
}
