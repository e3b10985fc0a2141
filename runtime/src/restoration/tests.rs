//! Compares single steps with the reference: `tests/golden-restoration/pieces`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tileforge_image::Size;

use super::batches::weights;
use super::colour::ColourCorrection;
use crate::pixels::Pixels;
use crate::random::TorchCpu;
use crate::tensor_file::{Contents, Stored, read};

/// The tensors and the texts of a file.
fn pieces(name: &str) -> (BTreeMap<String, Stored>, BTreeMap<String, String>) {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden-restoration/pieces"));
    match read(&folder.join(name)).unwrap() {
        Contents::Named { tensors, metadata } => (tensors, metadata),
        Contents::Single(_) => unreachable!("a file of safetensors"),
    }
}

/// The pictures of `[frames, 3, height, width]`, with each value changed.
fn pictures(stored: &Stored, value: impl Fn(f32) -> f32) -> Vec<Pixels> {
    let [_, 3, height, width] = *stored.shape.as_slice() else { panic!("{stored}") };
    let size = Size { width: width as u32, height: height as u32 };
    let values = stored.floats().unwrap();
    let picture = |planes: &[f32]| {
        let at = |sample: usize| value(planes[sample % 3 * height * width + sample / 3]);
        Pixels { size, channels: 3, samples: (0..planes.len()).map(at).collect() }
    };
    values.chunks_exact(3 * height * width).map(picture).collect()
}

/// The differences of all samples.
fn differences(found: &[Pixels], expected: &[Pixels]) -> Vec<f32> {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected).flat_map(|(found, expected)| {
        assert_eq!(found.size, expected.size);
        found.samples.iter().zip(&expected.samples)
    });
    pairs.map(|(found, expected)| found - expected).collect()
}

fn largest_error(found: &[Pixels], expected: &[Pixels]) -> f32 {
    differences(found, expected).into_iter().map(f32::abs).fold(0.0, f32::max)
}

/// The peak signal-to-noise ratio, in dB.
fn psnr_db(found: &[Pixels], expected: &[Pixels]) -> f32 {
    let differences = differences(found, expected);
    let squares = differences.iter().map(|difference| difference.powi(2)).sum::<f32>();
    10.0 * (differences.len() as f32 / squares).log10()
}

/// If two values of a distribution are equal up to rounding, their pixels may swap ranks and thus colours. So
/// corrections by rank are compared by their PSNR over all pixels.
#[test]
fn colours_are_those_of_the_reference() {
    let (tensors, _) = pieces("colour.safetensors");
    let half = |value: f32| value * 0.5 + 0.5;
    let mut cases = 0;
    for (name, colour) in ColourCorrection::NAMED.into_iter().filter(|(_, colour)| *colour != ColourCorrection::None) {
        for number in 0..3 {
            let of = |kind: &str| pictures(&tensors[&format!("{kind}.{number}")], half);
            let (mut frames, like) = (of("content"), of("style"));
            colour.correct(&mut frames, &like);
            let expected = of(&name.replace('-', "_"));
            let (error, db) = (largest_error(&frames, &expected), psnr_db(&frames, &expected));
            println!("{name} {number}: {error:.1e}, {db:.1} dB");
            // The other corrections have no two such values in these files.
            assert!(
                if colour == ColourCorrection::Lab { db > 70.0 } else { error < 2e-6 },
                "{name} {number}: {error}, {db} dB"
            );
            assert!(largest_error(&of("content"), &expected) > 0.02, "{name} {number}");
            cases += 1;
        }
    }
    assert_eq!(cases, 15);
}

#[test]
fn frames_are_resized_as_the_reference_does_it() {
    let (tensors, metadata) = pieces("resize.safetensors");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&metadata["rows"]).unwrap();
    let mut cases = 0;
    // The others are resized twice, to a largest side.
    for at in (0..rows.len()).filter(|at| rows[*at]["max_resolution"] == 0) {
        let input = &tensors[&format!("input.{at}")];
        let expected = pictures(&tensors[&format!("resized.{at}")], |value| value);
        let size = expected[0].size;
        let found: Vec<Pixels> =
            pictures(input, |value| value).iter().map(|frame| frame.resized(size).unwrap()).collect();
        let error = largest_error(&found, &expected);
        println!("{at}, {size}: {error:.1e}");
        assert!(error < 1e-6, "{at}: {error}");
        cases += 1;
    }
    assert!(cases >= 6, "{cases}");
}

#[test]
fn weights_of_shared_frames_are_those_of_the_reference() {
    let (tensors, _) = pieces("blend.safetensors");
    for shared in 1..=8 {
        let expected = tensors[&format!("previous.{shared}")].floats().unwrap();
        let found = weights(shared);
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(&expected).all(|(one, other)| (one - other).abs() < 1e-6), "{shared}: {found:?}");
    }
}

#[test]
fn noise_is_that_of_the_reference_bit_for_bit() {
    let (tensors, metadata) = pieces("noise.safetensors");
    let seed = metadata["seed"].parse().unwrap();
    let drawn = |count: usize| TorchCpu::new(seed).one_by_one(count);
    for (name, count) in [("1x4x4x4", 64), ("2x6x6x4", 288)] {
        assert_eq!(drawn(count), tensors[name].floats().unwrap(), "{name}");
    }
    let large = drawn(2 * 90 * 160 * 16);
    assert_eq!(large[..16], tensors["2x90x160x16.first"].floats().unwrap());
    assert_eq!(large[large.len() - 16..], tensors["2x90x160x16.last"].floats().unwrap());
}
