//! Colours, bits and HDR stay unchanged from input to output.

use super::*;
use std::io::Write;
use std::process::Stdio;

/// The frames that the same work through YUV4MPEG2 gives.
fn by_hand(film: &Path, pixel_format: &str, more: &[&str]) -> Vec<u8> {
    let mut decode = Command::new("ffmpeg");
    decode.args(["-loglevel", "error", "-i"]).arg(film).args(["-map", "0:v:0", "-pix_fmt", pixel_format]);
    // A film without a chroma location has its chroma at the left.
    let stream = decode.args(["-chroma_sample_location", "left", "-strict", "-1", "-f", "yuv4mpegpipe", "-"]);
    let mut stream = stream.output().unwrap().stdout;
    if let Some(at) = stream.windows(8).position(|bytes| bytes == b"C420jpeg") {
        stream.splice(at..at + 8, *b"C420mpeg2");
    }
    let mut enlarge = infer(demo_engine(), Path::new("-"), Path::new("-"), more);
    let mut child = enlarge.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || stdin.write_all(&stream).unwrap());
    let output = child.wait_with_output().unwrap().stdout;
    feeder.join().unwrap();
    let first = output.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut rest = &output[first..];
    let mut frames = Vec::new();
    let frame_bytes = (rest.len() / 10) - "FRAME\n".len();
    while !rest.is_empty() {
        let (frame, later) = rest.strip_prefix(b"FRAME\n").unwrap().split_at(frame_bytes);
        frames.extend_from_slice(frame);
        rest = later;
    }
    frames
}

#[test]
fn the_picture_is_that_of_a_pipe() {
    let work = Work::new();
    for (format, tags, matrix) in [
        ("yuv420p", "-vf setparams=colorspace=bt709:color_primaries=bt709:color_trc=bt709:range=tv", "bt709"),
        ("yuv422p10le", "-vf setparams=colorspace=smpte170m:range=tv", "bt601"),
        ("yuv444p", "-vf setparams=colorspace=bt2020nc:color_primaries=bt2020:range=tv", "bt2020"),
        ("yuv420p12le", "", "bt601"),
    ] {
        let name = format!("{format}.mkv");
        let input = work.film(&name, &format!("{MOVING} -pix_fmt {format} -c:v ffv1 -level 3 {tags}"));
        let output = work.enlarged(&input, &format!("large-{name}"), &["--lossless"]);
        let found = picture(&output);
        assert_eq!((&found["codec_name"], &found["pix_fmt"]), (&"ffv1".into(), &format.into()));
        assert!(samples(&output, format) == by_hand(&input, format, &["--matrix", matrix]), "{format}");
    }
}

const TAGS: [&str; 5] = ["color_range", "color_space", "color_primaries", "color_transfer", "chroma_location"];

#[test]
fn tags_of_colour_and_bits_come_out_as_they_went_in() {
    let work = Work::new();
    for (name, format, tags, more) in [
        ("a", "yuv420p", "-vf setparams=colorspace=bt709:color_primaries=bt709:color_trc=bt709:range=tv", &[][..]),
        ("b", "yuv420p", "-vf setparams=colorspace=bt470bg:color_primaries=bt470bg:color_trc=bt470bg:range=pc", &[]),
        (
            "c",
            "yuv420p10le",
            "-vf setparams=colorspace=bt2020nc:color_primaries=bt2020:color_trc=arib-std-b67:range=tv",
            &[],
        ),
        (
            "d",
            "yuv422p10le",
            "-vf setparams=colorspace=smpte240m:color_primaries=smpte240m:color_trc=smpte240m:range=tv",
            &["--lossless"],
        ),
        (
            "e",
            "yuv420p12le",
            "-vf setparams=colorspace=bt2020nc:color_primaries=bt2020:color_trc=bt2020-12:range=tv",
            &["--codec", "libx265", "--encoder-options", "preset=ultrafast"],
        ),
        (
            "f",
            "yuv420p",
            "-vf setparams=colorspace=bt709:range=tv -chroma_sample_location topleft",
            &["--codec", "libx265"],
        ),
    ] {
        let input = work.film(
            &format!("{name}.mkv"),
            &format!(
                "{MOVING} -pix_fmt {format} -c:v {} {tags}",
                if name == "f" { "libx265 -x265-params log-level=none" } else { "ffv1 -level 3" }
            ),
        );
        // FFV1 is possible only in Matroska.
        let containers = if more.contains(&"--lossless") { &["mkv"][..] } else { &["mkv", "mp4"] };
        for container in containers {
            let output = work.enlarged(&input, &format!("{name}-large.{container}"), more);
            let (before, after) = (picture(&input), picture(&output));
            // H.264 has another name for full range.
            let found = after["pix_fmt"].as_str().unwrap().replace("yuvj", "yuv");
            assert_eq!(found, format, "{name} {container}");
            for tag in TAGS {
                // A missing chroma location means left, and encoders write that.
                let is_default = tag == "chroma_location" && before[tag].is_null();
                assert!(
                    is_default || before[tag] == after[tag],
                    "{name} {container} {tag}: {} {}",
                    before[tag],
                    after[tag]
                );
            }
        }
    }
}

#[test]
fn a_small_film_that_says_no_matrix_is_shown_as_it_was() {
    let work = Work::new();
    let input = work.film(
        "in.mkv",
        "-f lavfi -i testsrc2=size=64x480:rate=25:duration=0.08 -pix_fmt yuv420p -c:v libx264 -preset ultrafast",
    );
    assert_eq!(picture(&input)["color_space"], Json::Null);
    let output = work.enlarged(&input, "large.mkv", &["--encoder-options", "preset=ultrafast"]);
    assert_eq!(picture(&output)["height"], 1920);
    assert_eq!(picture(&output)["color_space"], "smpte170m");
}

#[test]
fn hdr_keeps_its_curve_and_what_it_says_about_light() {
    let work = Work::new();
    let light = "master-display=G(8500,39850)B(6550,2300)R(35400,14600)WP(15635,16450)L(10000000,50):max-cll=1000,400";
    let input = work.film(
        "hdr.mkv",
        &format!(
            "{MOVING} -pix_fmt yuv420p10le -c:v libx265 -preset ultrafast -x265-params log-level=none:{light} \
             -vf setparams=colorspace=bt2020nc:color_primaries=bt2020:color_trc=smpte2084:range=tv"
        ),
    );
    let first = |film: &Path| {
        let asked = ["-select_streams", "v:0", "-read_intervals", "%+#1", "-show_frames"];
        let data = probed(film, &asked)["frames"][0]["side_data_list"].clone();
        let is_light = |data: &&Json| {
            data["side_data_type"].as_str().is_some_and(|kind| kind.contains("light") || kind.contains("Mastering"))
        };
        data.as_array().unwrap().iter().filter(is_light).cloned().collect::<Vec<_>>()
    };
    assert_eq!(first(&input).len(), 2);
    let fast = ["--codec", "libx265", "--crf", "30", "--encoder-options", "preset=ultrafast"];
    for output in ["large.mkv", "large.mp4"] {
        let outcome = work.enlarge(&input, output, &fast).success();
        assert!(outcome.stderr.contains("HDR (PQ)"), "{}", outcome.stderr);
        let output = work.path(output);
        assert_eq!(first(&input), first(&output));
        assert_eq!(picture(&output)["color_transfer"], "smpte2084");
        assert_eq!(picture(&output)["pix_fmt"], "yuv420p10le");
    }
    assert_eq!(picture(&work.path("large.mp4"))["codec_tag_string"], "hvc1");
    // The default is H.264, which also states it; FFV1 does not, and warns.
    let output = work.enlarged(&input, "default.mkv", &["--encoder-options", "preset=ultrafast"]);
    assert_eq!(
        (&picture(&output)["codec_name"], &picture(&output)["pix_fmt"]),
        (&"h264".into(), &"yuv420p10le".into())
    );
    let outcome = work.enlarge(&input, "lossless.mkv", &["--lossless"]).success();
    assert!(outcome.stderr.contains("does not write what the film says about its display"), "{}", outcome.stderr);
}

#[test]
fn grey_and_rgb_films_stay_so_without_loss() {
    let work = Work::new();
    for (format, expected) in [("gray", "gray"), ("gray10le", "gray10le"), ("gbrp", "gbrp"), ("bgr0", "bgr0")] {
        let input = work.film(&format!("{format}.mkv"), &format!("{MOVING} -pix_fmt {format} -c:v ffv1 -level 3"));
        let output = work.enlarged(&input, &format!("large-{format}.mkv"), &["--lossless"]);
        let found = picture(&output)["pix_fmt"].as_str().unwrap().to_owned();
        assert!(found == expected || (expected == "gbrp" && found == "bgr0"), "{format}: {found}");
    }
    // Enlarged like pictures of the same samples.
    let input = work.path("gbrp.mkv");
    let _ = work.film("first.png", "-i gbrp.mkv -frames:v 1 -pix_fmt rgb24");
    let _ = Outcome::of(&mut infer(demo_engine(), &work.path("first.png"), &work.path("large.png"), &[])).success();
    let picture_samples = image::open(work.path("large.png")).unwrap().into_rgb8().into_raw();
    assert!(samples(&work.path("large-gbrp.mkv"), "rgb24")[..picture_samples.len()] == picture_samples);
    // For H.264, red, green and blue become luma and chroma of BT.601 or BT.709, and the film states which.
    let output = work.enlarged(&input, "coded.mp4", &["--encoder-options", "preset=ultrafast"]);
    let found = picture(&output);
    assert_eq!(
        (&found["pix_fmt"], &found["color_space"], &found["color_range"]),
        (&"yuv444p".into(), &"smpte170m".into(), &"tv".into())
    );
    let rgb = samples(&output, "rgb24");
    let far = rgb.iter().zip(&picture_samples).filter(|(one, other)| one.abs_diff(**other) > 40).count();
    assert!(far < picture_samples.len() / 50, "{far}");
}

#[test]
fn the_encoder_is_the_users_choice() {
    let work = Work::new();
    let input = work.film("in.mkv", &format!("{MOVING} -pix_fmt yuv420p -c:v libx264"));
    let choice =
        ["--codec", "libx265", "--crf", "28", "--pixel-format", "yuv420p10le", "--encoder-options", "preset=ultrafast"];
    let output =
        work.enlarged(&input, "a.mp4", &[&choice[..], &["--encoder-options", "x265-params=log-level=none"]].concat());
    assert_eq!(
        (&picture(&output)["codec_name"], &picture(&output)["pix_fmt"]),
        (&"hevc".into(), &"yuv420p10le".into())
    );
    let output =
        work.enlarged(&input, "a.webm", &["--encoder-options", "deadline=realtime", "--encoder-options", "cpu-used=8"]);
    assert_eq!((&picture(&output)["codec_name"], &picture(&output)["pix_fmt"]), (&"vp9".into(), &"yuv420p".into()));
    // Without an output name, the output is beside the input.
    let beside = words(&[&"infer", &"--engine", &demo_engine(), &input, &"--lossless"]);
    let _ = Outcome::of(&mut command("runtime", beside)).success();
    assert_eq!(picture(&work.path("in-x4.mkv"))["codec_name"], "ffv1");
    let refused = |more: &[&str], expected: &[&str]| {
        let _ = work.enlarge(&input, "refused.mp4", more).failure(1, expected);
        assert!(!work.path("refused.mp4").exists());
    };
    refused(&["--codec", "nope"], &["expected an encoder of pictures", "nope"]);
    refused(&["--codec", "aac"], &["expected an encoder of pictures", "aac"]);
    refused(&["--pixel-format", "yuv420p12le"], &["libx264 does not take yuv420p12le", "yuv420p10le"]);
    refused(&["--encoder-options", "preset=sideways"], &["cannot be written", "preset"]);
    refused(&["--codec", "libvpx", "--crf", "10"], &["cannot be written"]);
}
