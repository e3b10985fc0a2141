//! The user's view of pictures: names, folders, pipes, metadata, colours, and existing outputs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use end_to_end::{Outcome, command, demo_engine, names_in, repository};
use tileforge_image::{Density, DensityUnit, Header, ImageReader, Limits, RowSource, Size};

/// A part of the photo, small enough for one tile.
fn photo(width: u32, height: u32) -> image::DynamicImage {
    image::open(repository("tests/images/coffee.png")).unwrap().crop_imm(100, 50, width, height).into_rgb8().into()
}

/// `runtime infer` in a folder, without the user's engines.
fn infer_in(work: &Path, arguments: &[&str]) -> Command {
    let line = ["infer"].iter().chain(arguments);
    let mut infer = command("runtime", line);
    infer.current_dir(work).env("HOME", work).env_remove("XDG_DATA_HOME").env_remove("TILEFORGE_ENGINE");
    infer
}

/// The same command with the tests' engine.
fn with_engine(work: &Path, arguments: &[&str]) -> Outcome {
    Outcome::of(infer_in(work, arguments).env("TILEFORGE_ENGINE", demo_engine()))
}

fn header(path: &Path) -> Header {
    ImageReader::open(path, &Limits::default()).unwrap().header().clone()
}

fn size(path: &Path) -> (u32, u32) {
    let Size { width, height } = header(path).size;
    (width, height)
}

#[test]
fn a_picture_alone_is_enough() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    photo(30, 20).save(at("photo.jpg")).unwrap();
    let nothing = Outcome::of(&mut infer_in(work.path(), &["photo.jpg"]));
    let _ = nothing.failure(2, &["no engine is given", "engines or ", ".local/share/tileforge/engines", "build one"]);
    // First in the user's data folder; then in the folder itself, which takes precedence.
    for folder in [".local/share/tileforge/engines/compact", "engines/cpu/compact"] {
        fs::create_dir_all(at(folder).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(demo_engine(), at(folder)).unwrap();
        let _ = Outcome::of(&mut infer_in(work.path(), &["photo.jpg"])).success();
        assert_eq!(size(&at("photo-x4.jpg")), (120, 80), "{folder}");
        let again = Outcome::of(&mut infer_in(work.path(), &["photo.jpg"]));
        let _ = again.failure(2, &["photo-x4.jpg: is there already", "--output"]);
        fs::remove_file(at("photo-x4.jpg")).unwrap();
    }
    // Of several engines, the one for this machine is used.
    std::os::unix::fs::symlink(demo_engine(), at("engines/other")).unwrap();
    let chosen = Outcome::of(&mut infer_in(work.path(), &["photo.jpg", "-o", "large.jpg"])).success();
    assert!(chosen.stderr.contains("chosen for this machine; another one is there"), "{}", chosen.stderr);
    assert_eq!(names_in(work.path()), [".local", "engines", "large.jpg", "photo.jpg"]);
}

#[test]
fn a_folder_of_everything_becomes_what_was_asked_for() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    fs::create_dir_all(at("in/trip/day")).unwrap();
    photo(30, 20).save(at("in/a.png")).unwrap();
    photo(30, 20).save(at("in/trip/b.bmp")).unwrap();
    let mut gif = gif_of(30, 20);
    fs::write(at("in/trip/day/c.gif"), &gif).unwrap();
    for name in ["in/d.avif", "in/e.avif", "in/f.mkv", "in/notes.txt"] {
        fs::write(at(name), "x").unwrap();
    }
    let template = "out/{stem}-x{scale}.{extension}";
    let made = with_engine(work.path(), &["in", "--recursive", "--format", "webp", "-o", template]).success();
    assert!(made.stderr.contains("left out: 2 .avif, which are not read"), "{}", made.stderr);
    assert!(made.stderr.contains("1 film .mkv: give it by name"), "{}", made.stderr);
    for name in ["out/a-x4.webp", "out/trip/b-x4.webp", "out/trip/day/c-x4.webp"] {
        assert_eq!(size(&at(name)), (120, 80), "{name}");
    }
    // The outputs are beside the folder, without its subfolders, under the inputs' own names.
    let _ = with_engine(work.path(), &["in"]).success();
    assert_eq!(names_in(&at("in-x4")), ["a.png"]);
    let _ =
        with_engine(work.path(), &["in/trip/b.bmp", "-o", "b.bmp"]).failure(2, &["b.bmp: expected a name that ends"]);
    // A truncated GIF gives its own error.
    gif.truncate(gif.len() / 2);
    fs::write(at("cut.gif"), gif).unwrap();
    let _ = with_engine(work.path(), &["cut.gif"]).failure(1, &["damaged GIF"]);
    assert!(!at("cut-x4.png").exists());
}

/// A GIF of one colour, written by hand: the codes of its pixels are literals of 3 bits, with a clear code before
/// every second one.
fn gif_of(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = b"GIF89a".to_vec();
    let sides = [width.to_le_bytes(), height.to_le_bytes()].concat();
    bytes.extend([&sides[..], &[0x80, 0, 0, 10, 20, 30, 200, 100, 50, 0x2c, 0, 0, 0, 0], &sides, &[0, 2]].concat());
    let (mut bits, mut data) = (Vec::new(), Vec::new());
    let mut code = |code: u8| bits.extend((0..3).map(|bit| code >> bit & 1));
    for _ in 0..u32::from(width) * u32::from(height) {
        code(4);
        code(1);
    }
    code(5);
    bits.resize(bits.len().next_multiple_of(8), 0);
    data.extend(bits.chunks(8).map(|eight| eight.iter().rev().fold(0, |byte, bit| byte << 1 | bit)));
    for block in data.chunks(255) {
        bytes.push(block.len() as u8);
        bytes.extend(block);
    }
    bytes.extend([0, 0x3b]);
    bytes
}

#[test]
fn another_scale_is_that_of_the_whole_picture_resampled() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    photo(101, 67).save(at("photo.png")).unwrap();
    let _ = with_engine(work.path(), &["photo.png", "-o", "x4.png"]).success();
    let whole = image::open(at("x4.png")).unwrap().into_rgb32f();
    for (factor, name, expected) in [("2", "photo-x2.png", (202, 134)), ("1.5", "photo-x1.5.png", (152, 101))] {
        let made = with_engine(work.path(), &["photo.png", "--outscale", factor]).success();
        assert_eq!(size(&at(name)), expected);
        assert!(made.stdout.contains(&format!(": {}×{}, ", expected.0, expected.1)), "{}", made.stdout);
        let found = image::open(at(name)).unwrap().into_rgb8();
        let right = image::imageops::resize(&whole, expected.0, expected.1, image::imageops::FilterType::CatmullRom);
        let levels = found.iter().zip(right.iter()).map(|(found, right)| (f32::from(*found) - 255.0 * right).abs());
        let largest = levels.fold(0.0, f32::max);
        assert!(largest < 0.6, "{factor}: {largest} levels, of which rounding is half a one");
    }
    let _ = with_engine(work.path(), &["photo.png", "--outscale", "0"]).failure(2, &["--outscale"]);
    let _ = with_engine(work.path(), &["photo.png", "--outscale", "nan"]).failure(2, &["--outscale"]);
}

fn piped(mut infer: Command, input: &[u8]) -> std::process::Output {
    infer.env("TILEFORGE_ENGINE", demo_engine());
    let mut child = infer.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

#[test]
fn pictures_go_through_pipes() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    photo(30, 20).save(at("photo.jpg")).unwrap();
    let _ = with_engine(work.path(), &["photo.jpg", "-o", "large.png"]).success();
    let (jpeg, expected) = (fs::read(at("photo.jpg")).unwrap(), fs::read(at("large.png")).unwrap());
    let through = piped(infer_in(work.path(), &["-", "-o", "-", "--format", "png"]), &jpeg);
    assert!(through.stdout == expected, "{}", String::from_utf8_lossy(&through.stderr));
    // Without --format, the output has the input's format, which its first bytes determine.
    let through = piped(infer_in(work.path(), &["-"]), &jpeg);
    assert!(through.stdout.starts_with(b"\xff\xd8\xff"), "{}", String::from_utf8_lossy(&through.stderr));
    let through = piped(infer_in(work.path(), &["--input", "-", "--output", "named.png"]), &jpeg);
    assert!(through.status.success() && fs::read(at("named.png")).unwrap() == expected);
    for (input, words) in [(&b""[..], "empty stream"), (&jpeg[..jpeg.len() / 2], "damaged JPEG")] {
        let through = piped(infer_in(work.path(), &["-", "-o", "-"]), input);
        let talk = String::from_utf8_lossy(&through.stderr);
        assert!(through.stdout.is_empty() && talk.contains(words), "{talk}");
        assert_eq!(through.status.code(), Some(1));
    }
    // A named pipe, which can be read only once.
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let (pipe, bytes) = (at("pipe"), jpeg.clone());
    let writer = std::thread::spawn(move || fs::write(pipe, bytes).unwrap());
    let _ = with_engine(work.path(), &["pipe", "-o", "piped.png"]).success();
    writer.join().unwrap();
    assert!(fs::read(at("piped.png")).unwrap() == expected);
    assert_eq!(names_in(work.path()), ["large.png", "named.png", "photo.jpg", "pipe", "piped.png"]);
}

/// EXIF with a maker and an orientation, and JFIF's density of 300 an inch, in a JPEG.
fn described(path: &Path, orientation: u8) {
    let mut jpeg = Vec::new();
    let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 95);
    encoder.set_pixel_density(image::codecs::jpeg::PixelDensity::dpi(300));
    let exif = [
        b"MM\0*\0\0\0\x08\0\x02".to_vec(),
        [&[1, 0x0f, 0, 2, 0, 0, 0, 10, 0, 0, 0, 38][..], &[1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0]].concat(),
        vec![0; 4],
        b"Camera 11\0".to_vec(),
    ];
    image::ImageEncoder::set_exif_metadata(&mut encoder, exif.concat()).unwrap();
    photo(30, 20).write_with_encoder(encoder).unwrap();
    fs::write(path, jpeg).unwrap();
}

#[test]
fn exif_and_density_are_kept_or_stripped() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    described(&at("turned.jpg"), 6);
    let inches = Density::whole(300, 300, DensityUnit::Inch).unwrap();
    for name in ["out.jpg", "out.png", "out.webp", "out.tif"] {
        let _ = with_engine(work.path(), &["turned.jpg", "-o", name]).success();
        let found = header(&at(name));
        assert_eq!(found.size, Size { width: 80, height: 120 }, "{name}: turned once");
        let bytes = fs::read(at(name)).unwrap();
        assert!(bytes.windows(9).any(|nine| nine == b"Camera 11"), "{name}");
        assert!(found.metadata.exif.is_some(), "{name}");
        let [across, _] = found.metadata.density.unwrap().ratios();
        let expected = if name == "out.png" { (11_811, 1) } else { (300, 1) };
        assert_eq!((across.numerator, across.denominator), expected, "{name}");
        let _ = with_engine(work.path(), &["turned.jpg", "-o", name, "--strip-metadata"]).success();
        assert_eq!(header(&at(name)).metadata, tileforge_image::Metadata::default(), "{name}");
        assert_eq!(size(&at(name)), (80, 120), "{name}");
    }
    assert_eq!(header(&at("turned.jpg")).metadata.density, Some(inches));
}

#[test]
fn a_gamma_is_kept_as_a_profile_and_used_for_srgb() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let mut encoder = png::Encoder::new(fs::File::create(at("linear.png")).unwrap(), 24, 24);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_source_gamma(png::ScaledFloat::new(1.0));
    encoder.write_header().unwrap().write_image_data(&[128; 24 * 24 * 3]).unwrap();
    let _ = with_engine(work.path(), &["linear.png", "-o", "kept.webp"]).success();
    assert!(header(&at("kept.webp")).icc_profile.is_some());
    let _ = with_engine(work.path(), &["linear.png", "-o", "srgb.png", "--srgb"]).success();
    assert_eq!(header(&at("srgb.png")).icc_profile, None);
    let mean = |name: &str| {
        let picture = image::open(at(name)).unwrap().into_rgb8();
        picture.iter().map(|&level| f64::from(level)).sum::<f64>() / picture.len() as f64
    };
    // 0.5 in linear light is 188 in sRGB; the network changes flat colours a little.
    assert!(mean("srgb.png") - mean("kept.webp") > 40.0, "{} {}", mean("srgb.png"), mean("kept.webp"));
}

#[test]
fn a_small_file_makes_no_large_picture() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    // 335 megapixels, of which the file has only the header and some zeros.
    let mut info = png::Info::with_size(18_300, 18_300);
    info.bit_depth = png::BitDepth::Eight;
    let mut bytes = Vec::new();
    drop(png::Encoder::with_info(&mut bytes, info).unwrap().write_header().unwrap());
    bytes.truncate(33);
    bytes.extend([0, 0, 2, 0]);
    bytes.extend(b"IDAT\x78\x01");
    bytes.resize(567, 0);
    fs::write(at("bomb.png"), bytes).unwrap();
    let refused = with_engine(work.path(), &["bomb.png", "--tolerant"]);
    let _ = refused.failure(1, &["0 of its 18300 rows can be read", "from 10 % of them on"]);
    assert_eq!(names_in(work.path()), ["bomb.png"]);
}

/// Several programs write into one folder; at the end, all outputs are finished, and no other files exist.
#[test]
fn shards_share_a_folder_and_its_record() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    for shard in ["one", "two"] {
        fs::create_dir(at(shard)).unwrap();
        for number in 0..6 {
            photo(30 + number, 20).save(at(shard).join(format!("{shard}-{number} é.png"))).unwrap();
        }
    }
    let children: Vec<_> = ["one", "two"]
        .map(|shard| {
            let mut infer = infer_in(work.path(), &[shard, "-o", "out"]);
            infer.env("TILEFORGE_ENGINE", demo_engine()).stdout(Stdio::null()).stderr(Stdio::null());
            infer.spawn().unwrap()
        })
        .into();
    assert!(children.into_iter().all(|mut child| child.wait().unwrap().success()));
    assert_eq!(names_in(&at("out")).len(), 12);
    let resumed = |more: &[&str]| {
        let line = [&["one", "two", "-o", "out", "--resume", "--json"][..], more].concat();
        let report = with_engine(work.path(), &line).success().json();
        (report["skipped"].clone(), report["made_again"].clone())
    };
    assert_eq!(resumed(&[]), (12.into(), serde_json::json!([])));
    // The same folder under another path, and copied with new modification times.
    let copied = Command::new("cp").args(["-r", "out", "moved"]).current_dir(work.path()).status().unwrap();
    assert!(copied.success());
    let moved = with_engine(work.path(), &["one", "two", "-o", "./moved/", "--resume", "--json"]).success().json();
    assert_eq!(moved["skipped"], 12);
    let (skipped, again) = resumed(&["--blend", "none"]);
    assert_eq!((skipped, again.as_array().unwrap().len()), (0.into(), 12));
    assert_eq!(again[0]["reason"], "it was made with other options: blend");
    // A folder with the name of an output is not an output.
    let name = at("out").join("one-0 é.png");
    fs::remove_file(&name).unwrap();
    fs::create_dir(&name).unwrap();
    let refused = with_engine(work.path(), &["one", "-o", "out", "--resume"]);
    let _ = refused.failure(2, &["one-0 é.png: expected the name of a file, found a folder"]);
    // A single output with its own name leaves no record beside it.
    let _ = with_engine(work.path(), &["one/one-1 é.png", "-o", "alone.png"]).success();
    let hidden = |folder: &Path| {
        let mut names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        names.any(|name| name == ".tileforge-outputs.jsonl")
    };
    assert!(!hidden(work.path()) && hidden(&at("out")));
}

#[test]
fn films_have_no_name_of_another_format() {
    let work = tempfile::tempdir().unwrap();
    let film: PathBuf = work.path().join("a.y4m");
    fs::write(&film, b"YUV4MPEG2 W2 H2 F24:1 Cmono\nFRAME\n\x10\x20\x30\x40").unwrap();
    for ending in ["mp4", "MKV", "webm", "mov", "gif", "rgb.mp4", "safetensors"] {
        let output = format!("b.{ending}");
        let refused = with_engine(work.path(), &["a.y4m", "-o", &output]);
        let _ = refused.failure(2, &["YUV4MPEG2 frames are no", "ffmpeg -i -"]);
    }
    assert_eq!(names_in(work.path()), ["a.y4m"]);
    let _ = with_engine(work.path(), &["a.y4m"]).success();
    assert_eq!(names_in(work.path()), ["a-x4.y4m", "a.y4m"]);
    let twice = with_engine(work.path(), &["a.y4m", "-o", "twice.y4m", "--outscale", "2"]).success();
    assert!(twice.stdout.contains("twice.y4m"));
    assert!(fs::read(work.path().join("twice.y4m")).unwrap().starts_with(b"YUV4MPEG2 W4 H4"));
}
