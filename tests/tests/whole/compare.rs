//! `runtime compare` and `runtime evaluate`: floors, folders, and the difference pictures.

use end_to_end::{Outcome, demo_engine, names_in, repository, run, words};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

fn compare(one: &Path, other: &Path, more: &[&dyn AsRef<OsStr>]) -> Outcome {
    run("runtime", words(&[&"compare", &one, &other]).into_iter().chain(words(more)))
}

/// A photo and a copy with changed samples in a square, each in its own folder.
fn folders(work: &Path) -> [std::path::PathBuf; 2] {
    let folders = ["expected", "made"].map(|name| work.join(name));
    let photo = image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(100, 50, 60, 40).into_rgb8();
    for (folder, level) in folders.iter().zip([0_u8, 24]) {
        fs::create_dir_all(folder.join("in")).unwrap();
        photo.save(folder.join("same.png")).unwrap();
        let mut changed = photo.clone();
        for (x, y) in (0..8).flat_map(|x| (0..8).map(move |y| (x, y))) {
            changed.get_pixel_mut(20 + x, 20 + y).0[0] ^= level;
        }
        changed.save(folder.join("in/changed.png")).unwrap();
    }
    folders
}

#[test]
fn two_pictures_have_figures_floors_and_pictures_of_the_difference() {
    let work = tempfile::tempdir().unwrap();
    let [expected, made] = folders(work.path()).map(|folder| folder.join("in/changed.png"));
    let text = compare(&expected, &made, &[]).success().stdout;
    assert!(text.starts_with("PSNR ") && text.contains("\nSSIM ") && text.contains("largest difference 24"), "{text}");
    let json = compare(&expected, &made, &[&"--json"]).success().json();
    let (psnr, ssim) = (json["psnr_db"].as_f64().unwrap(), json["ssim"].as_f64().unwrap());
    assert!((25.0..60.0).contains(&psnr) && (0.5..1.0).contains(&ssim), "{json}");
    let [below, above] = [psnr - 0.01, psnr + 0.01].map(|floor| floor.to_string());
    let _ = compare(&expected, &made, &[&"--minimum-psnr", &below]).success();
    let _ = compare(&expected, &made, &[&"--minimum-psnr", &above]).failure(4, &["expected a PSNR of at least"]);
    let _ = compare(&expected, &made, &[&"--minimum-ssim", &"0.99999"]).failure(4, &["expected an SSIM of at least"]);
    let same = compare(&made, &made, &[&"--minimum-psnr", &"1000", &"--minimum-ssim", &"1"]).success().stdout;
    assert!(same.contains("identical"), "{same}");
    for floor in ["nan", "-1", "1e9"] {
        let _ = compare(&expected, &made, &[&format!("--minimum-psnr={floor}")]).failure(2, &["--minimum-psnr"]);
    }

    let [beside, apart] = ["both.png", "difference.png"].map(|name| work.path().join(name));
    let drawn = [&"--side-by-side" as &dyn AsRef<OsStr>, &beside, &"--difference", &apart, &"--amplify", &"5"];
    let _ = compare(&expected, &made, &drawn).success();
    let [beside, apart, left, right] =
        [&beside, &apart, &expected, &made].map(|path| image::open(path).unwrap().into_rgb8());
    assert_eq!((beside.dimensions(), apart.dimensions()), ((120, 40), (60, 40)));
    for (x, y, pixel) in apart.enumerate_pixels() {
        let (one, other) = (left.get_pixel(x, y), right.get_pixel(x, y));
        assert_eq!((beside.get_pixel(x, y), beside.get_pixel(60 + x, y)), (one, other));
        let amplified = |channel: usize| one.0[channel].abs_diff(other.0[channel]).saturating_mul(5);
        assert_eq!(pixel.0, [0, 1, 2].map(amplified));
    }
}

#[test]
fn pictures_of_two_folders_are_pairs_by_name() {
    let work = tempfile::tempdir().unwrap();
    let [expected, made] = folders(work.path());
    let text = compare(&expected, &made, &[]).success().stdout;
    for line in ["in/changed.png: PSNR ", "same.png: PSNR identical", "worst  PSNR ", "2 pairs, 1 identical"] {
        assert!(text.contains(line), "{text}");
    }
    let json = compare(&expected, &made, &[&"--json", &"--minimum-psnr", &"20"]).success().json();
    assert_eq!((&json["worst"]["name"], &json["identical"]), (&"in/changed.png".into(), &1.into()), "{json}");
    assert_eq!(json["files"][1]["psnr_db"], serde_json::Value::Null);
    let _ = compare(&expected, &made, &[&"--minimum-psnr", &"90"])
        .failure(4, &["in/changed.png: expected a PSNR of at least 90 dB"]);

    let differences = work.path().join("new/differences");
    let _ = compare(&expected, &made, &[&"--difference", &differences]).success();
    assert_eq!(
        (names_in(&differences), names_in(&differences.join("in"))),
        (vec!["in".to_owned(), "same.png".to_owned()], vec!["changed.png".to_owned()])
    );
    // Difference pictures are never written over an input, nor into an input folder, where the next comparison would
    // read them.
    for output in [&made, &made.join("differences"), &expected] {
        let _ = compare(&expected, &made, &[&"--side-by-side", output]).failure(2, &["this output"]);
    }
    // Every picture that is read has a partner.
    let bmp = made.join("more.bmp");
    image::DynamicImage::new_rgb8(4, 4).save(&bmp).unwrap();
    let _ = compare(&expected, &made, &[]).failure(1, &["expected: expected the pictures", "lacks more.bmp"]);
    fs::remove_file(&bmp).unwrap();
    let same = compare(&made, &made, &[]).success().stdout;
    assert!(same.ends_with("2 pairs, all identical\n"), "{same}");

    let picture = made.join("same.png");
    let _ = compare(&picture, &expected, &[]).failure(2, &["expected two pictures or two folders"]);
    let _ = compare(&picture, &picture, &[&"--difference", &picture]).failure(2, &["this output is the input"]);
    let _ = compare(&picture, &expected.join("same.png"), &[&"--difference", &work.path().join("a.txt")])
        .failure(1, &["a.txt", "expected a name that ends in"]);
    image::open(&picture).unwrap().crop_imm(0, 0, 59, 40).save(&picture).unwrap();
    let _ = compare(&expected, &made, &[]).failure(1, &["made/same.png", "expected the size of", "60×40, found 59×40"]);
    fs::remove_file(&picture).unwrap();
    let _ = compare(&expected, &made, &[]).failure(1, &["made: expected the pictures", "lacks same.png"]);
    assert!(!names_in(&made).iter().any(|name| name.starts_with("both")));
}

/// A picture that is smaller than a window has no SSIM, and passes no SSIM floor.
#[test]
fn small_pictures_have_no_structural_similarity() {
    let work = tempfile::tempdir().unwrap();
    let [one, other] = [1_u8, 2].map(|level| {
        let path = work.path().join(format!("{level}.png"));
        image::RgbImage::from_pixel(300, 10, image::Rgb([level; 3])).save(&path).unwrap();
        path
    });
    assert!(compare(&one, &other, &[]).success().stdout.contains("SSIM               none"));
    let _ = compare(&one, &other, &[&"--minimum-ssim", &"0.5"]).failure(4, &["less than 11 pixels"]);
    let _ = compare(&one, &one, &[&"--minimum-ssim", &"0.5"]).success();
}

#[test]
fn photos_of_a_folder_are_evaluated_one_after_the_other() {
    let work = tempfile::tempdir().unwrap();
    let (photos, large, both) = (work.path().join("photos"), work.path().join("large"), work.path().join("both"));
    fs::create_dir(&photos).unwrap();
    let photo = image::open(repository("tests/images/coffee.png")).unwrap();
    photo.crop_imm(100, 50, 48, 48).save(photos.join("a.png")).unwrap();
    photo.crop_imm(200, 90, 53, 47).to_rgb8().save(photos.join("b.jpg")).unwrap();
    let evaluate = |more: &[&dyn AsRef<OsStr>]| {
        let line = words(&[&"evaluate", &"--engine", &demo_engine(), &"--input", &photos]);
        run("runtime", line.into_iter().chain(words(more)))
    };
    let json = evaluate(&[&"--json", &"--output", &large, &"--side-by-side", &both]).success().json();
    let files = json["files"].as_array().unwrap();
    assert_eq!(files.len(), 2, "{json}");
    for figure in ["engine_psnr_db", "bicubic_psnr_db", "engine_ssim", "bicubic_ssim", "gain_db"] {
        assert!(files.iter().all(|file| file[figure].is_f64()), "{figure}: {json}");
    }
    assert!(json["mean_psnr_db"].is_f64() && json["worst"]["psnr_db"].is_f64(), "{json}");
    for folder in [&large, &both] {
        assert_eq!(names_in(folder), ["a.png", "b.jpg.png"]);
    }
    assert_eq!(image::open(both.join("b.jpg.png")).unwrap().width(), 2 * 52);
    let text = evaluate(&[]).success().stdout;
    assert!(text.contains("a.png: engine ") && text.contains("2 pairs, 0 identical"), "{text}");
    let _ = evaluate(&[&"--minimum-psnr", &"999"]).failure(4, &["2 of 2 pictures", "at least 999 dB"]);
    let _ = evaluate(&[&"--minimum-gain", &"99"]).failure(4, &["b.jpg: expected a gain of at least 99.00 dB"]);
    let _ = evaluate(&[&"--output", &photos]).failure(2, &["this output is"]);
}
