//! Sound, subtitles, chapters, attachments and their metadata.

use super::*;

/// A film with everything that Matroska holds.
fn full(work: &Work) -> PathBuf {
    std::fs::write(work.path("one.srt"), "1\n00:00:00,100 --> 00:00:00,300\nHello, <i>film</i>\n\n").unwrap();
    std::fs::write(work.path("font.ttf"), [7; 3000]).unwrap();
    let chapters = ";FFMETADATA1\ntitle=A film\nartist=Somebody\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=200\ntitle=One\n\
                    [CHAPTER]\nTIMEBASE=1/1000\nSTART=200\nEND=400\ntitle=Two\n";
    std::fs::write(work.path("chapters.txt"), chapters).unwrap();
    work.film(
        "full.mkv",
        &format!(
            "{MOVING} -f lavfi -i sine=frequency=440:duration=0.4 -f lavfi -i sine=frequency=880:duration=0.4 -i one.srt \
             -i chapters.txt -map 1 -map 0 -map 2 -map 3 -map_metadata 4 -map_chapters 4 -c:v libx264 -preset ultrafast \
             -pix_fmt yuv420p -c:a:0 aac -c:a:1 flac -c:s srt -metadata:s:a:0 language=deu -metadata:s:v:0 \
             title=Picture -metadata:s:v:0 BPS=12345 -disposition:a:0 default -disposition:a:1 comment -attach font.ttf \
             -metadata:s:t:0 mimetype=font/ttf -metadata:s:t:0 filename=font.ttf"
        ),
    )
}

#[test]
fn everything_but_the_picture_is_copied_bit_for_bit() {
    let work = Work::new();
    let input = full(&work);
    let output = work.enlarged(&input, "large.mkv", &[]);
    let (before, after) = (probed(&input, &["-show_chapters"]), probed(&output, &["-show_chapters"]));
    let tracks = |film: &Json| -> Vec<(Json, Json)> {
        let streams = film["streams"].as_array().unwrap().iter();
        streams.map(|stream| (stream["codec_type"].clone(), stream["disposition"].clone())).collect()
    };
    assert_eq!(tracks(&before), tracks(&after));
    // The picture keeps its position among the tracks.
    assert_eq!((&after["streams"][1]["width"], &after["streams"][1]["height"]), (&240.into(), &176.into()));
    for track in [0, 2, 3] {
        assert_eq!(track_digest(&input, track), track_digest(&output, track), "track {track}");
    }
    let packets = |film: &Path, track: &str| {
        probed(film, &["-select_streams", track, "-show_packets", "-show_entries", "packet=pts_time,size"])["packets"]
            .clone()
    };
    for track in ["0", "2", "3"] {
        assert_eq!(packets(&input, track), packets(&output, track), "track {track}");
    }
    assert_eq!(before["chapters"].as_array().unwrap().len(), 2);
    for (before, after) in before["chapters"].as_array().unwrap().iter().zip(after["chapters"].as_array().unwrap()) {
        let said = |chapter: &Json| ["start_time", "end_time"].map(|key| chapter[key].clone());
        assert_eq!((said(before), &before["tags"]), (said(after), &after["tags"]));
    }
    assert_eq!(after["format"]["tags"]["title"], "A film");
    assert_eq!(after["format"]["tags"]["ARTIST"], before["format"]["tags"]["ARTIST"]);
    assert_eq!(
        (&after["streams"][0]["tags"]["language"], &after["streams"][1]["tags"]["title"]),
        (&"deu".into(), &"Picture".into())
    );
    // Metadata that was true only of the old picture is removed.
    assert_eq!(after["streams"][1]["tags"]["BPS"], Json::Null);
    assert_eq!(after["streams"][4]["tags"]["filename"], "font.ttf");
    let attached = |film: &Path, name: &str| {
        let path = work.path(name);
        let mut command = Command::new("ffmpeg");
        // Without an output, ffmpeg ends with an error after it has written the attachment.
        let _ =
            command.args(["-loglevel", "quiet", "-y", "-dump_attachment:t:0"]).arg(&path).arg("-i").arg(film).status();
        std::fs::read(path).unwrap()
    };
    assert_eq!(attached(&output, "attached"), [7; 3000]);
    assert_eq!(times(&input), times(&output));
}

#[test]
fn sound_of_mp4_keeps_its_first_samples() {
    let work = Work::new();
    let input = work.film(
        "in.mp4",
        &format!("{MOVING} -f lavfi -i sine=duration=0.4 -c:v libx264 -bf 2 -preset fast -pix_fmt yuv420p -c:a aac"),
    );
    for output in ["large.mp4", "large.mov", "large.mkv"] {
        let output = work.enlarged(&input, output, &["--encoder-options", "preset=ultrafast"]);
        assert_eq!(track_digest(&input, 1), track_digest(&output, 1), "{}", output.display());
        assert_eq!(picture(&output)["codec_name"], "h264");
        let first = |film: &Path| {
            let sound = ["-select_streams", "a", "-show_packets", "-show_entries", "packet=pts_time"];
            let time = |packet: &Json| packet["pts_time"].as_str().unwrap().parse::<f64>().unwrap();
            time(&probed(film, &sound)["packets"][0])
        };
        // Matroska has no negative times: all tracks are shifted together.
        let moved = |film: &Path| times(film)[0] as f64 / 1000.0 - first(film);
        assert!((moved(&input) - moved(&output)).abs() < 0.0015, "{} {}", moved(&input), moved(&output));
        assert_eq!(times(&input).len(), times(&output).len());
    }
}

#[test]
fn a_cover_is_copied_and_not_enlarged() {
    let work = Work::new();
    let _ = work.film("cover.png", "-f lavfi -i color=red:size=30x30 -frames:v 1");
    let input = work.film(
        "in.mp4",
        &format!(
            "-i cover.png {MOVING} -map 0 -map 1 -c:v:0 copy -c:v:1 libx264 -pix_fmt:v:1 yuv420p -disposition:v:0 \
             attached_pic"
        ),
    );
    for output in ["large.mp4", "large.mkv"] {
        let output = work.enlarged(&input, output, &["--encoder-options", "preset=ultrafast"]);
        let probed = probed(&output, &[]);
        let streams = probed["streams"].as_array().unwrap();
        let mut widths: Vec<_> = streams.iter().map(|stream| stream["width"].as_u64()).collect();
        widths.sort_unstable();
        assert_eq!(widths, [Some(30), Some(240)], "{}", output.display());
    }
}

#[test]
fn of_two_pictures_the_first_is_made_anew() {
    let work = Work::new();
    let input = work.film(
        "in.mkv",
        &format!("{MOVING} -f lavfi -i testsrc=size=32x32:rate=25:duration=0.4 -map 0 -map 1 -c:v ffv1"),
    );
    let outcome = work.enlarge(&input, "large.mkv", &["--lossless"]).success();
    assert!(outcome.stderr.contains("2 picture tracks"), "{}", outcome.stderr);
    let output = work.path("large.mkv");
    assert_eq!(track_digest(&input, 1), track_digest(&output, 1));
    assert_eq!(picture(&output)["width"], 240);
}

#[test]
fn a_container_that_lacks_a_track_is_refused_before_any_work() {
    let work = Work::new();
    let input = full(&work);
    for output in ["large.mp4", "large.webm"] {
        let refused = work.enlarge(&input, output, &[]);
        let _ =
            refused.failure(1, &[output, "cannot be written", "a container that takes more tracks and codecs is .mkv"]);
        assert!(!work.path(output).exists());
    }
}
