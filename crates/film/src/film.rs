//! A film and its properties.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tileforge_image::Size;
use tileforge_image::frames::{FrameLayout, Matrix};

use crate::child::Running;
use crate::colour::{ColourTags, Light};
use crate::container::DEMUXERS;
use crate::error::{Error, Result};
use crate::pixel_format::Samples;
use crate::probe::{Probe, ProbedStream, seconds};
use crate::programs::Programs;

/// How a film is read.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Where it begins, from the film's start.
    pub from: Option<Duration>,
    /// Where it ends, from the film's start.
    pub to: Option<Duration>,
    /// The matrix of a film that does not state one.
    pub matrix: Option<Matrix>,
    /// Whether damage is only a warning.
    pub tolerant: bool,
}

/// A film whose picture can be read.
#[derive(Clone, Debug)]
pub struct Film(Arc<Described>);

#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) programs: Programs,
    pub(crate) path: PathBuf,
    pub(crate) reading: Reading,
    /// The tracks that the new film gets, in order, with their numbers in this film.
    pub(crate) tracks: Vec<ProbedStream>,
    /// The number of the picture track.
    pub(crate) picture: usize,
    /// Size of the frames, after the rotation that players apply.
    pub(crate) size: Size,
    pub(crate) samples: Samples,
    pub(crate) full_range: bool,
    pub(crate) matrix: Matrix,
    pub(crate) tags: ColourTags,
    pub(crate) light: Light,
    /// Seconds at which the file starts.
    pub(crate) start: f64,
    frames: Option<u64>,
    notes: Vec<String>,
}

/// The URL of a file. ffmpeg does not interpret a protocol or pattern in the name.
pub(crate) fn url(path: &Path) -> OsString {
    let mut url = OsString::from("file:");
    url.push(path);
    url
}

/// Lets ffmpeg open only this file, and no other file that its content may name.
pub(crate) fn only_this_file(command: &mut Command) {
    command.args(["-protocol_whitelist", "file,pipe", "-format_whitelist", DEMUXERS]);
}

impl Film {
    /// Inspects a film: its tracks, its colours, and whether it can be read to its end. The whole file is read once.
    ///
    /// # Errors
    /// [`Error::Film`] for what is not a film, is damaged, or has a picture that cannot be read; [`Error::Start`].
    pub fn open(programs: Programs, path: &Path, reading: Reading) -> Result<Self> {
        // ffprobe reports a folder or a missing file in the same way as a damaged file.
        let found = std::fs::metadata(path).map_err(|source| Error::file(path, "open", source))?;
        if !found.is_file() {
            return Err(Error::film(path, "expected a film in a regular file, found something else"));
        }
        let part = interval(&reading);
        let mut asked = vec!["-count_packets", "-show_streams", "-show_format"];
        if let Some(part) = &part {
            asked.extend(["-read_intervals", part]);
        }
        let (probe, messages) = probed(programs, path, &asked)?;
        let mut notes = Vec::new();
        if !messages.is_empty() {
            let problem = format!("truncated or damaged: ffprobe reports\n  {messages}");
            if !reading.tolerant {
                return Err(Error::film(path, format!("{problem}\n  go on with what can be read: --tolerant")));
            }
            notes.push(problem);
        }
        let pictures: Vec<&ProbedStream> = probe
            .streams
            .iter()
            .filter(|stream| stream.is("video") && !stream.has_disposition("attached_pic"))
            .collect();
        let picture = *pictures.first().ok_or_else(|| {
            let kinds: Vec<_> = probe.streams.iter().map(name_of_track).collect();
            let found = if kinds.is_empty() { "no track at all".into() } else { kinds.join(", ") };
            Error::film(path, format!("expected a film with a picture track, found {found}"))
        })?;
        if pictures.len() > 1 {
            notes.push(format!(
                "{} picture tracks: the first one (track {}) is made anew, the others are copied",
                pictures.len(),
                picture.index
            ));
        }
        let index = picture.index.to_string();
        // Inspects the first frames: an interlaced track need not be marked as interlaced.
        let first = ["-select_streams", &index, "-read_intervals", "%+#5", "-show_frames"];
        let (frames, _) = probed(programs, path, &first)?;
        Self::described(programs, path, reading, &probe, picture, &frames, notes)
    }

    fn described(
        programs: Programs,
        path: &Path,
        reading: Reading,
        probe: &Probe,
        picture: &ProbedStream,
        frames: &Probe,
        mut notes: Vec<String>,
    ) -> Result<Self> {
        let refused = |problem: String| Err(Error::film(path, problem));
        let codec = picture.codec_name.clone().unwrap_or_else(|| "unknown".into());
        let (Some(width @ 1..), Some(height @ 1..), Some(format)) = (picture.width, picture.height, &picture.pix_fmt)
        else {
            return refused(format!(
                "the picture track (codec {codec}) cannot be decoded: this ffmpeg has no decoder for it, or the film \
                 is damaged"
            ));
        };
        let order = picture.field_order.as_deref().filter(|order| !matches!(*order, "progressive" | "unknown"));
        if order.is_some() || frames.frames.iter().any(|frame| frame.interlaced_frame == Some(1)) {
            return refused(
                "expected progressive frames, found interlaced ones; deinterlace first, such as with ffmpeg -i IN -map \
                 0 -c copy -c:v ffv1 -vf bwdif OUT.mkv (or -vf setfield=prog instead of bwdif, if both fields of each \
                 frame were taken at the same time)"
                    .into(),
            );
        }
        let Some(samples) = Samples::of_name(format) else {
            return refused(format!(
                "its frames are {format}, with transparency, a palette or a sampling that is not read; convert it \
                 first, such as with ffmpeg -i IN -map 0 -c copy -c:v ffv1 -pix_fmt yuv444p OUT.mkv"
            ));
        };
        let tags = picture.colour.clone().known();
        let size =
            if picture.rotation() % 180 == 0 { Size { width, height } } else { Size { width: height, height: width } };
        let matrix = match tags.matrix(size, reading.matrix) {
            Ok(matrix) => matrix,
            Err(_) if samples.is_rgb() => Matrix::likely(size),
            Err(other) => {
                return refused(format!(
                    "its colours have the matrix {other}, which is not read; convert it first, such as with ffmpeg -i \
                     IN -map 0 -c copy -c:v ffv1 -vf scale=out_color_matrix=bt709 OUT.mkv"
                ));
            }
        };
        if let Some(curve) = tags.hdr_curve() {
            notes.push(format!(
                "HDR ({curve}): the network sees the film in its own curve, as if it were SDR, and so it is written; \
                 networks are trained on SDR, so look at the result first (--from, --to)"
            ));
        }
        if let Some(kind) = frames.changing_light(picture) {
            notes.push(format!("{kind} is not written: it changes from frame to frame"));
        }
        let is_full = format.starts_with("yuvj") || (format.starts_with("gray") && tags.range.is_none());
        let full_range = is_full || tags.range.as_deref() == Some("pc");
        let mut tracks = Vec::new();
        for stream in &probe.streams {
            // ffmpeg writes data tracks only for some containers; it writes time codes and chapters anew by itself.
            if stream.is("data") || stream.codec_type.is_none() {
                notes.push(format!("left out: {}", name_of_track(stream)));
            } else {
                tracks.push(stream.clone());
            }
        }
        let start = seconds(probe.format.start_time.as_ref()).unwrap_or(0.0);
        if reading.from.is_none() && seconds(picture.start_time.as_ref()).is_some_and(|start| start < 0.0) {
            notes.push("its first frame has a negative time, which becomes 0".into());
        }
        let light = frames.light(picture);
        let frames = picture.nb_read_packets.as_ref().and_then(|count| count.parse().ok());
        Ok(Self(Arc::new(Described {
            programs,
            path: path.to_owned(),
            reading,
            tracks,
            picture: picture.index,
            size,
            samples,
            full_range,
            matrix,
            tags,
            light,
            start,
            frames,
            notes,
        })))
    }

    /// The film's file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The size of its frames, after the rotation that players apply.
    pub fn size(&self) -> Size {
        self.0.size
    }

    /// The layout of its frames in pipes.
    pub fn layout(&self) -> FrameLayout {
        let Described { samples, full_range, tags, matrix, .. } = self.described_by();
        samples.layout(*full_range, tags.location(), *matrix)
    }

    /// The approximate number of frames: the packets of the picture track.
    pub fn frames(&self) -> Option<u64> {
        self.0.frames
    }

    /// Notes for the user before the film is processed.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    pub(crate) fn described_by(&self) -> &Described {
        &self.0
    }
}

/// The part of a film that is read, for ffprobe.
fn interval(reading: &Reading) -> Option<String> {
    let seconds = |time: Option<Duration>| time.map(|time| format!("{:.6}", time.as_secs_f64())).unwrap_or_default();
    let Reading { from, to, .. } = reading;
    (from.is_some() || to.is_some()).then(|| format!("{}%{}", seconds(*from), seconds(*to)))
}

/// A track's kind and codec, for messages.
pub(crate) fn name_of_track(stream: &ProbedStream) -> String {
    let kind = match stream.codec_type.as_deref() {
        Some("audio") => "sound",
        Some("subtitle") => "subtitles",
        Some("video") if stream.has_disposition("attached_pic") => "a cover picture",
        Some("video") => "a picture",
        Some("attachment") => "an attached file",
        _ => "data",
    };
    let codec = stream.codec_name.as_deref().map(|codec| format!(" ({codec})")).unwrap_or_default();
    format!("track {}, {kind}{codec}", stream.index)
}

/// ffprobe's result, and its messages.
fn probed(programs: Programs, path: &Path, asked: &[&str]) -> Result<(Probe, String)> {
    let mut command = programs.ffprobe();
    command.args(["-print_format", "json"]).args(asked);
    only_this_file(&mut command);
    command.arg("-i").arg(url(path)).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running::start(command, "ffprobe")?;
    let mut json = Vec::new();
    if let Some(mut stdout) = running.stdout() {
        std::io::Read::read_to_end(&mut stdout, &mut json)
            .map_err(|source| Error::Start { program: "ffprobe", source })?;
    }
    let ended = running.end()?;
    if !ended.succeeded() {
        let problem = format!("expected a film that ffmpeg can read (of {DEMUXERS}); {}", ended.reason("ffprobe"));
        return Err(Error::film(path, problem));
    }
    let probe = Probe::of_json(&json)
        .map_err(|error| Error::film(path, format!("expected JSON from ffprobe, found something else: {error}")))?;
    Ok((probe, ended.messages()))
}
