//! Frame times, and frames that are left out.

use super::*;

#[test]
fn times_are_kept_where_they_vary_and_start_late() {
    let work = Work::new();
    // Frames 0, 3, 4, 7 … of 25 in a second, from 2.5 seconds on, with B-frames between.
    let select = "-vf select='not(mod(n\\,4))+not(mod(n+1\\,4))',setpts=PTS+2.5/TB -fps_mode vfr";
    let film = "-f lavfi -i testsrc2=size=60x44:rate=25:duration=1.2 -f lavfi -i sine=duration=4";
    for (name, to) in [("in.mkv", "large.mkv"), ("in.mp4", "large.mp4"), ("in.ts", "ts.mkv"), ("in.mkv", "cross.mp4")] {
        let input = work.film(name, &format!("{film} {select} -c:v libx264 -bf 2 -g 6 -pix_fmt yuv420p -c:a aac"));
        let output = work.enlarged(&input, to, &["--encoder-options", "preset=fast"]);
        let (before, after) = (times(&input), times(&output));
        assert!(before[0] >= 2400 && before.windows(2).any(|pair| pair[1] - pair[0] > 60), "{before:?}");
        assert!(
            before.iter().zip(&after).all(|(one, other)| one.abs_diff(*other) <= 1),
            "{name}: {before:?} {after:?}"
        );
        assert_eq!(before.len(), after.len(), "{name}");
        if name == "in.ts" {
            // Only there, packets of AAC have their own headers; the sound is the same.
            assert!(sound(&input) == sound(&output));
        } else {
            assert_eq!(track_digest(&input, 1), track_digest(&output, 1), "{name}");
        }
    }
}

/// All samples of the sound.
fn sound(film: &Path) -> Vec<u8> {
    let mut command = Command::new("ffmpeg");
    command.args(["-loglevel", "error", "-i"]).arg(film).args(["-map", "0:a", "-f", "s16le", "-"]);
    command.output().unwrap().stdout
}

#[test]
fn a_part_begins_at_zero_with_its_sound() {
    let work = Work::new();
    // The grey level of a frame encodes its number, and the sound is silent until the second second.
    let input = work.film(
        "in.mkv",
        "-f lavfi -i color=black:size=32x32:rate=25:duration=4,geq=lum=16+2*N:cb=128:cr=128 -f lavfi -i \
         aevalsrc='if(lt(t\\,2)\\,0\\,0.5*sin(2000*t))':d=4 -c:v libx264 -g 13 -pix_fmt yuv420p -c:a pcm_s16le",
    );
    let part = ["--from", "1.6", "--to", "0:02.4", "--lossless"];
    let output = work.enlarged(&input, "part.mkv", &part);
    assert_eq!(times(&output), (0..20).map(|frame| frame * 40).collect::<Vec<_>>());
    let first = samples(&output, "gray")[64 * 128 + 64];
    // Frame 40 of the film.
    assert!(first.abs_diff(96) <= 2 || first.abs_diff(93) <= 2, "{first}");
    let sound = sound(&output);
    let loud = sound.as_chunks::<2>().0.iter().position(|sample| i16::from_le_bytes(*sample).unsigned_abs() > 500);
    let begins = loud.unwrap() as f64 / 44_100.0;
    assert!((begins - 0.4).abs() < 0.06, "{begins}");
    let seconds = sound.len() as f64 / 88_200.0;
    assert!((seconds - 0.8).abs() < 0.12, "{seconds}");
    let _ = work.enlarge(&input, "none.mkv", &["--from", "3", "--to", "2"]).failure(2, &["--from", "before --to"]);
    let _ = work.enlarge(&input, "none.mkv", &["--from", "9"]).failure(1, &["in.mkv: ends before 9 s", "--from"]);
}

#[test]
fn equal_frames_in_sequence_are_computed_once() {
    let work = Work::new();
    // Each picture is repeated four times.
    let input =
        work.film("in.mkv", "-f lavfi -i testsrc2=size=60x44:rate=5:duration=1.2,fps=20 -c:v ffv1 -pix_fmt yuv420p");
    let frames = times(&input).len() as u64;
    let report = |output: &str, more: &[&str]| {
        let more = [&["--lossless", "--json"], more].concat();
        work.enlarge(&input, output, &more).success().json()["files"][0].clone()
    };
    let (once, each) = (report("once.mkv", &[]), report("each.mkv", &["--no-deduplicate"]));
    assert_eq!((&once["frames"], &each["frames"]), (&frames.into(), &frames.into()), "{once} {each}");
    let (few, many) = (once["tiles"].as_u64().unwrap(), each["tiles"].as_u64().unwrap());
    assert_eq!(few * frames, many * 6, "{once} {each}");
    assert_eq!(std::fs::read(work.path("once.mkv")).unwrap(), std::fs::read(work.path("each.mkv")).unwrap());
}

#[test]
fn pixels_that_are_not_square_stay_so_and_turned_films_are_turned() {
    let work = Work::new();
    let wide = work.film("wide.mkv", &format!("{MOVING} -vf setsar=4/3 -c:v libx264 -pix_fmt yuv420p"));
    let output = work.enlarged(&wide, "wide-large.mkv", &["--encoder-options", "preset=ultrafast"]);
    assert_eq!(picture(&output)["sample_aspect_ratio"], "4:3");
    let flat = work.film("flat.mp4", &format!("{MOVING} -c:v libx264 -qp 0 -pix_fmt yuv420p"));
    let turned = work.path("turned.mp4");
    std::fs::write(&turned, turned_by_90_degrees(std::fs::read(&flat).unwrap())).unwrap();
    assert!(picture(&turned).to_string().contains("rotation"), "{}", picture(&turned));
    let upright = work.film("upright.mkv", "-i turned.mp4 -c:v ffv1");
    let (one, other) = (
        work.enlarged(&turned, "turned-large.mkv", &["--lossless"]),
        work.enlarged(&upright, "upright-large.mkv", &["--lossless"]),
    );
    assert_eq!((&picture(&one)["width"], &picture(&one)["height"]), (&176.into(), &240.into()));
    assert!(!picture(&one).to_string().contains("rotation"), "{}", picture(&one));
    assert!(samples(&one, "yuv420p") == samples(&other, "yuv420p"));
}

/// An MP4 file with another matrix in the header of its track (ISO/IEC 14496-12, 8.3.2), as phones write it. The
/// options for that differ between releases of ffmpeg.
fn turned_by_90_degrees(mut film: Vec<u8>) -> Vec<u8> {
    let fixed = |numbers: [i32; 9]| numbers.map(i32::to_be_bytes).concat();
    let upright = fixed([1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30]);
    let turned = fixed([0, 1 << 16, 0, -1 << 16, 0, 0, 0, 0, 1 << 30]);
    let header = film.windows(4).position(|bytes| bytes == b"tkhd").unwrap();
    let matrix = header + film[header..].windows(36).position(|bytes| bytes == upright).unwrap();
    film[matrix..matrix + 36].copy_from_slice(&turned);
    film
}
