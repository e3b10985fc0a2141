//! The meaning of a PNG's samples: from the first of `cICP`, a profile, `sRGB`, or `gAMA` and `cHRM` that exists.
//! <https://www.w3.org/TR/png-3/#11addnlcolinfo>, and 13.13 for the order.
//!
//! Numbers become the equivalent profile, so that every format keeps them and one converter handles them.

use ::png::{CodingIndependentCodePoints, Info, SourceChromaticities};
use moxcms::{
    Chromaticity, CicpColorPrimaries, CicpProfile, ColorPrimaries, ColorProfile, LocalizableString, MatrixCoefficients,
    ProfileText, ToneReprCurve, TransferCharacteristics, XyY,
};

use crate::{CodePoints, Colour};

/// A PNG's colour description.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Colours {
    pub(super) icc_profile: Option<Vec<u8>>,
    pub(super) code_points: Option<CodePoints>,
    /// What is ignored, and why.
    pub(super) note: Option<&'static str>,
}

/// `gAMA` of sRGB, in steps of 1/100,000, and the tolerance within which a value counts as the same.
const SRGB_GAMMA: u32 = 45_455;
const GAMMA_TOLERANCE: u32 = 500;

/// `cHRM` of sRGB: white, red, green, blue.
const SRGB_CHROMATICITIES: [[u32; 2]; 4] = [[31_270, 32_900], [64_000, 33_000], [30_000, 60_000], [15_000, 6_000]];
const CHROMATICITY_TOLERANCE: u32 = 100;

/// The range of gammas that profiles can hold and displays have.
const GAMMAS: std::ops::RangeInclusive<f32> = 0.1..=10.0;

impl Colours {
    /// The colour description from the chunks before the pixels, for a picture of these channels.
    pub(super) fn of(info: &Info<'_>, colour: Colour) -> Self {
        let icc_profile = || info.icc_profile.as_ref().map(|profile| profile.to_vec());
        if let Some(points) = info.coding_independent_code_points {
            let code_points = CodePoints {
                primaries: points.color_primaries,
                transfer: points.transfer_function,
                full_range: points.is_video_full_range_image,
            };
            if code_points.beyond_profiles().is_some() {
                // An additional profile is for programs that do not know `cICP`.
                return Self { icc_profile: icc_profile(), code_points: Some(code_points), note: None };
            }
            return match of_code_points(points, colour) {
                Some(profile) => Self { icc_profile: profile, code_points: Some(code_points), note: None },
                None => Self {
                    note: Some("its code points (cICP) are unknown or unspecified, and are ignored"),
                    ..Self::without_code_points(info, colour, icc_profile())
                },
            };
        }
        Self::without_code_points(info, colour, icc_profile())
    }

    fn without_code_points(info: &Info<'_>, colour: Colour, icc_profile: Option<Vec<u8>>) -> Self {
        if icc_profile.is_some() || info.srgb.is_some() {
            return Self { icc_profile, ..Self::default() };
        }
        let gamma = info.gama_chunk.map(|gamma| gamma.into_scaled());
        let chromaticities = info.chrm_chunk.map(numbers);
        if gamma.is_none() && chromaticities.is_none() {
            return Self::default();
        }
        match of_numbers(gamma, chromaticities, colour) {
            Some(icc_profile) => Self { icc_profile, ..Self::default() },
            None => Self {
                note: Some("its gamma or primary colours (gAMA, cHRM) are impossible, and are ignored"),
                ..Self::default()
            },
        }
    }
}

fn numbers(chunk: SourceChromaticities) -> [[u32; 2]; 4] {
    [chunk.white, chunk.red, chunk.green, chunk.blue].map(|(x, y)| [x.into_scaled(), y.into_scaled()])
}

/// The profile that is equivalent to code points: `Some(None)` for sRGB, `None` if they define nothing.
fn of_code_points(points: CodingIndependentCodePoints, colour: Colour) -> Option<Option<Vec<u8>>> {
    let primaries = CicpColorPrimaries::try_from(points.color_primaries).ok()?;
    let transfer = TransferCharacteristics::try_from(points.transfer_function).ok()?;
    let is_srgb = (points.color_primaries == 1 || colour.colour_channels() == 1) && points.transfer_function == 13;
    if is_srgb {
        return Some(None);
    }
    let profile = ColorProfile::new_from_cicp(CicpProfile {
        color_primaries: primaries,
        transfer_characteristics: transfer,
        matrix_coefficients: MatrixCoefficients::Identity,
        full_range: true,
    });
    // The curve is not set if one of the numbers is reserved or means "unspecified".
    profile.red_trc.as_ref()?;
    Some(Some(encoded(profile, colour)?))
}

/// The profile of a gamma and primary colours, as [`of_code_points`].
fn of_numbers(gamma: Option<u32>, chromaticities: Option<[[u32; 2]; 4]>, colour: Colour) -> Option<Option<Vec<u8>>> {
    // Without colours, only the curve matters.
    let chromaticities = chromaticities.filter(|_| colour.colour_channels() > 1);
    let near = |found: [[u32; 2]; 4]| {
        let pairs = found.as_flattened().iter().zip(SRGB_CHROMATICITIES.as_flattened());
        pairs.into_iter().all(|(one, other)| one.abs_diff(*other) <= CHROMATICITY_TOLERANCE)
    };
    let has_srgb_curve = gamma.is_none_or(|gamma| gamma.abs_diff(SRGB_GAMMA) <= GAMMA_TOLERANCE);
    if has_srgb_curve && chromaticities.is_none_or(near) {
        return Some(None);
    }
    let mut profile = ColorProfile::new_srgb();
    let [white, red, green, blue] = chromaticities.unwrap_or(SRGB_CHROMATICITIES);
    profile.update_rgb_colorimetry(white_point(white)?, primaries([red, green, blue])?);
    // Programs encode with sRGB's curve but state 1/2.2, so this gamma means that curve.
    if let Some(gamma) = gamma.filter(|_| !has_srgb_curve) {
        let exponent = Some(1e5 / gamma as f32).filter(|exponent| GAMMAS.contains(exponent))?;
        let curve = ToneReprCurve::Parametric(vec![exponent]);
        (profile.red_trc, profile.green_trc) = (Some(curve.clone()), Some(curve.clone()));
        profile.blue_trc = Some(curve);
    }
    Some(Some(encoded(profile, colour)?))
}

fn white_point([x, y]: [u32; 2]) -> Option<XyY> {
    let is_possible = y >= 1000 && x >= 1000 && u64::from(x) + u64::from(y) <= 99_000;
    is_possible.then(|| XyY { x: f64::from(x) / 1e5, y: f64::from(y) / 1e5, yb: 1.0 })
}

/// Three primary colours that are not all on a line.
fn primaries(stored: [[u32; 2]; 3]) -> Option<ColorPrimaries> {
    // Primaries may be imaginary colours (ACES, ProPhoto), but not far from real ones. 0 is common; y = 0 is refused,
    // because it would be a divisor.
    if stored.as_flattened().iter().any(|&number| number > 200_000) || stored.iter().any(|[_, y]| *y == 0) {
        return None;
    }
    let [red, green, blue] = stored.map(|numbers| numbers.map(|number| f64::from(number) / 1e5));
    let area = (green[0] - red[0]) * (blue[1] - red[1]) - (blue[0] - red[0]) * (green[1] - red[1]);
    let of = |[x, y]: [f64; 2]| Chromaticity { x: x as f32, y: y as f32 };
    (area.abs() > 1e-3).then(|| ColorPrimaries { red: of(red), green: of(green), blue: of(blue) })
}

/// The profile's bytes, for grey where the picture has no colours.
fn encoded(mut profile: ColorProfile, colour: Colour) -> Option<Vec<u8>> {
    if colour.colour_channels() == 1 {
        let mut grey = ColorProfile::new_gray_with_gamma(1.0);
        grey.gray_trc = profile.red_trc.take();
        profile = grey;
    }
    let text = |text: &str| {
        let text = LocalizableString::new("en".into(), "US".into(), text.into());
        Some(ProfileText::Localizable(vec![text]))
    };
    (profile.description, profile.copyright) = (text("Colours of a PNG"), text("Public domain"));
    // Display profiles have the white point of their connection space (ICC.1:2022, 9.2.36).
    profile.media_white_point = Some(profile.white_point);
    let bytes = profile.encode().ok()?;
    // Numbers at the limits give matrices that no program can invert.
    ColorProfile::new_from_slice(&bytes).is_ok().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linear light of a grey and of red in the picture's middle, in sRGB, by the profile.
    fn converted(profile: &[u8], pixel: [f32; 3]) -> [f32; 3] {
        let source = ColorProfile::new_from_slice(profile).unwrap();
        let options = moxcms::TransformOptions {
            rendering_intent: moxcms::RenderingIntent::RelativeColorimetric,
            prefer_fixed_point: false,
            ..moxcms::TransformOptions::default()
        };
        let srgb = ColorProfile::new_srgb();
        let transform = source.create_transform_f32(moxcms::Layout::Rgb, &srgb, moxcms::Layout::Rgb, options).unwrap();
        let mut found = [0.0; 3];
        transform.transform(&pixel, &mut found).unwrap();
        found
    }

    fn close(found: [f32; 3], expected: [f32; 3]) {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.003), "{found:?} instead of {expected:?}");
    }

    fn points(primaries: u8, transfer: u8) -> CodingIndependentCodePoints {
        CodingIndependentCodePoints {
            color_primaries: primaries,
            transfer_function: transfer,
            matrix_coefficients: 0,
            is_video_full_range_image: true,
        }
    }

    #[test]
    fn code_points_become_the_same_profile() {
        // Display P3 (12, 13): white stays, and a middle red of P3 is outside of sRGB.
        let profile = of_code_points(points(12, 13), Colour::Rgb).unwrap().unwrap();
        close(converted(&profile, [1.0; 3]), [1.0; 3]);
        close(converted(&profile, [0.5; 3]), [0.5; 3]);
        // 0.5, 0.2, 0.2 is 0.2140, 0.0331, 0.0331 in linear light. The matrix of CSS Color 4 from Display P3 makes
        // 0.2547, 0.0255, 0.0295 of them, which are 0.542, 0.174, 0.188.
        close(converted(&profile, [0.5, 0.2, 0.2]), [0.542, 0.174, 0.188]);
        assert_eq!(of_code_points(points(1, 13), Colour::Rgb), Some(None));
        assert_eq!(of_code_points(points(12, 13), Colour::Grey), Some(None));
        for (primaries, transfer) in [(2, 13), (0, 13), (12, 2), (12, 0), (99, 13), (12, 99)] {
            assert_eq!(of_code_points(points(primaries, transfer), Colour::Rgb), None, "{primaries} {transfer}");
        }
        // Linear light (8) in grey.
        assert!(of_code_points(points(1, 8), Colour::Grey).unwrap().is_some());
    }

    #[test]
    fn a_gamma_becomes_a_curve_and_that_of_srgb_is_none() {
        // Linear light: 0.5 is 0.7354 in sRGB.
        let profile = of_numbers(Some(100_000), None, Colour::Rgb).unwrap().unwrap();
        close(converted(&profile, [0.5; 3]), [0.7354; 3]);
        // 1/1.8, as old Macintoshes have it: 0.5^1.8 = 0.2872, in sRGB 0.5727.
        let profile = of_numbers(Some(55_556), None, Colour::Rgb).unwrap().unwrap();
        close(converted(&profile, [0.5; 3]), [0.5727; 3]);
        for gamma in [45_455, 45_454, 45_000, 45_900] {
            assert_eq!(of_numbers(Some(gamma), Some(SRGB_CHROMATICITIES), Colour::Rgb), Some(None), "{gamma}");
        }
        let wide = [[31_270, 32_900], [64_000, 33_000], [21_000, 71_000], [15_000, 6_000]];
        // Adobe RGB's green.
        let profile = of_numbers(Some(45_455), Some(wide), Colour::Rgb).unwrap().unwrap();
        close(converted(&profile, [1.0; 3]), [1.0; 3]);
        assert!(converted(&profile, [0.3, 0.6, 0.3])[0] < 0.25);
        assert_eq!(of_numbers(Some(45_455), Some(wide), Colour::Grey), Some(None));
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let [white, red, green, blue] = SRGB_CHROMATICITIES;
        let impossible = [
            [[0, 0], red, green, blue],
            [[31_270, 0], red, green, blue],
            [[99_999, 99_999], red, green, blue],
            [white, red, red, blue],
            [white, [64_000, 0], green, blue],
            [white, [u32::MAX, u32::MAX], green, blue],
            [white, [10_000, 10_000], [20_000, 20_000], [30_000, 30_000]],
        ];
        for numbers in impossible {
            assert_eq!(of_numbers(None, Some(numbers), Colour::Rgb), None, "{numbers:?}");
        }
        for gamma in [1, 9_000, 2_000_000, u32::MAX] {
            assert_eq!(of_numbers(Some(gamma), None, Colour::Rgb), None, "{gamma}");
        }
    }
}
