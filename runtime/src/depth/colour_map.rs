//! Colours for numbers.

use std::str::FromStr;

/// Colours of the two ends and of the steps between them; colours between two steps are interpolated.
type Steps = &'static [[u8; 3]];

/// ColorBrewer's diverging schemes of 11 classes, and grey.
const MAPS: [(&str, Steps); 3] = [
    (
        "Spectral",
        &[
            [158, 1, 66],
            [213, 62, 79],
            [244, 109, 67],
            [253, 174, 97],
            [254, 224, 139],
            [255, 255, 191],
            [230, 245, 152],
            [171, 221, 164],
            [102, 194, 165],
            [50, 136, 189],
            [94, 79, 162],
        ],
    ),
    (
        "RdYlBu",
        &[
            [165, 0, 38],
            [215, 48, 39],
            [244, 109, 67],
            [253, 174, 97],
            [254, 224, 144],
            [255, 255, 191],
            [224, 243, 248],
            [171, 217, 233],
            [116, 173, 209],
            [69, 117, 180],
            [49, 54, 149],
        ],
    ),
    ("gray", &[[0, 0, 0], [255, 255, 255]]),
];

/// Number of colours in a table.
const LEVELS: usize = 256;

/// 256 colours, by matplotlib's names: `Spectral`, `RdYlBu` and `gray`, and reversed with `_r`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColourMap {
    name: String,
    table: Vec<[u8; 3]>,
}

impl Default for ColourMap {
    /// `Spectral`, red for the nearest.
    fn default() -> Self {
        Self { name: MAPS[0].0.into(), table: table(MAPS[0].1) }
    }
}

impl FromStr for ColourMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, backwards) = text.strip_suffix("_r").map_or((text, false), |name| (name, true));
        let found = MAPS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let (_, steps) = found.ok_or_else(|| {
            let names: Vec<_> = MAPS.iter().map(|(name, _)| *name).collect();
            format!("expected one of {}, or one of them with _r for the reverse", names.join(", "))
        })?;
        let mut table = table(steps);
        if backwards {
            table.reverse();
        }
        Ok(Self { name: text.into(), table })
    }
}

impl std::fmt::Display for ColourMap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.name)
    }
}

/// The colours that matplotlib computes for these steps, with its roundings.
fn table(steps: Steps) -> Vec<[u8; 3]> {
    let (last, top) = (steps.len() - 1, (LEVELS - 1) as f64);
    let place = |step: usize| if step == last { top } else { step as f64 * (1.0 / last as f64) * top };
    let colour = |level: usize| {
        let at = if level == LEVELS - 1 { top } else { top * (level as f64 * (1.0 / top)) };
        let step = (0..last).find(|step| at <= place(step + 1)).unwrap_or(last - 1);
        let part = (at - place(step)) / (place(step + 1) - place(step));
        let mixed = |channel: usize| {
            let [one, two] = [steps[step][channel], steps[step + 1][channel]].map(|value| f64::from(value) / 255.0);
            // The fraction is cut off.
            ((part * (two - one) + one) * 255.0) as u8
        };
        [mixed(0), mixed(1), mixed(2)]
    };
    (0..LEVELS).map(colour).collect()
}

impl ColourMap {
    /// The colour of a value from 0 to 1; values outside are clamped.
    pub(super) fn colour(&self, value: f32) -> [u8; 3] {
        // Casts saturate.
        let level = (value.clamp(0.0, 1.0) * LEVELS as f32) as usize;
        self.table[level.min(LEVELS - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with matplotlib: `(matplotlib.colormaps["Spectral"](x)[:3] * 255).astype(uint8)`.
    #[test]
    fn colours_are_those_of_matplotlib() {
        let map = ColourMap::default();
        for (value, expected) in SPECTRAL {
            assert_eq!(map.colour(value), expected, "{value}");
        }
        assert_eq!(map.colour(7.0), map.colour(1.0));
        assert_eq!("spectral_r".parse::<ColourMap>().unwrap().colour(0.0), map.colour(1.0));
        assert!("jet".parse::<ColourMap>().unwrap_err().contains("Spectral, RdYlBu, gray"));
    }

    const SPECTRAL: [(f32, [u8; 3]); 10] = [
        (0.0, [158, 1, 66]),
        (0.01, [162, 5, 67]),
        (0.1, [211, 60, 78]),
        (0.25, [248, 142, 82]),
        (0.333, [253, 190, 110]),
        (0.5, [254, 254, 190]),
        (0.6, [230, 245, 152]),
        (0.77, [120, 201, 164]),
        (0.9, [50, 134, 188]),
        (0.999, [94, 79, 162]),
    ];
}
