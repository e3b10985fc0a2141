//! How a film is written, known before its first frame.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tileforge_files::unfinished;
use tileforge_image::Size;
use tileforge_image::frames::{FrameLayout, Matrix};

use crate::child::Running;
use crate::colour::{self, ColourTags, Light};
use crate::container::{Container, WRITTEN};
use crate::encoder::{Encoder, Encoding};
use crate::error::{Error, Result};
use crate::film::{Film, name_of_track, only_this_file, url};
use crate::nut::{MILLISECONDS, NutWriter, Track};
use crate::pixel_format::Samples;
use crate::programs::Programs;

/// The presentation times of a trial's frames, in milliseconds. ffmpeg 5.1 cannot write some films of one or two
/// frames.
const TRIAL_TIMES: [i64; 5] = [0, 40, 80, 120, 160];

/// The colours of a new film.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// The colours of the source film.
    Kept,
    /// New colours of standard dynamic range, such as for a depth map.
    New,
}

/// How a film is written: everything that is known before its first frame.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) programs: Programs,
    pub(crate) output: PathBuf,
    container: Container,
    encoder: Encoder,
    /// The film that the other tracks come from.
    source: Option<Film>,
    layout: FrameLayout,
    tags: ColourTags,
    light: Option<Light>,
    notes: Vec<String>,
}

/// How the picture track is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Picture {
    /// Raw frames are encoded.
    Encoded,
    /// As `Encoded`, for a trial of a few frames with the beginning of the other tracks.
    Tried,
    /// Encoded frames are copied.
    Copied,
}

impl Plan {
    /// A plan for frames of `size`, with the other tracks of `source`.
    ///
    /// # Errors
    /// [`Error::Output`] for a name of another format, and for an encoder or pixel format that cannot be used.
    pub fn new(
        programs: Programs,
        output: &Path,
        encoding: &Encoding,
        source: Option<&Film>,
        colours: Colours,
        size: Size,
    ) -> Result<Self> {
        let container = Container::of_name(output)
            .ok_or_else(|| Error::output(output, format!("expected a film's name that ends in {WRITTEN}")))?;
        let described = source.map(Film::described_by);
        let like =
            described.map_or(Samples::Planar(tileforge_image::frames::ChromaSampling::Quarter, 8), |film| film.samples);
        let encoder = Encoder::choose(programs, output, container, encoding, like)?;
        let mut notes = Vec::new();
        if encoder.samples.bits() < like.bits() && encoding.pixel_format.is_none() && !like.is_rgb() {
            notes.push(format!(
                "{} takes at most {} bits of such frames, and the film has {}; --codec libx265 or --lossless takes more",
                encoder.name,
                encoder.samples.bits(),
                like.bits()
            ));
        }
        let kept =
            described.filter(|film| colours == Colours::Kept && film.samples.is_rgb() == encoder.samples.is_rgb());
        let (matrix, tags, full_range) = match kept {
            Some(film) => (film.matrix, film.tags.resized(film.size, size, film.matrix), film.full_range),
            // There is no source film, the colours are new, or frames change between RGB and luma with chroma.
            None => {
                let matrix = Matrix::likely(size);
                let primaries = described.filter(|_| colours == Colours::Kept).map(|film| &film.tags);
                let named = |text: &str| (!encoder.samples.is_rgb()).then(|| text.to_owned());
                let tags = ColourTags {
                    range: named("tv"),
                    matrix: named(colour::name(matrix)),
                    primaries: primaries.and_then(|tags| tags.primaries.clone()),
                    transfer: primaries.and_then(|tags| tags.transfer.clone()),
                    location: None,
                };
                (matrix, tags, false)
            }
        };
        let light =
            described.filter(|_| colours == Colours::Kept).map(|film| &film.light).filter(|light| light.is_said());
        if light.is_some() && !encoder.says_light() {
            notes.push(format!(
                "{} does not write what the film says about its display and light; libx264 and libx265 do",
                encoder.name
            ));
        }
        Ok(Self {
            programs,
            output: output.to_owned(),
            container,
            layout: encoder.samples.layout(full_range, tags.location(), matrix),
            light: light.filter(|_| encoder.says_light()).cloned(),
            encoder,
            source: source.cloned(),
            tags,
            notes,
        })
    }

    /// The layout of the frames that are written.
    pub fn layout(&self) -> FrameLayout {
        self.layout
    }

    /// Notes for the user before the film is written.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Writes a few frames of `size` and the beginning of the other tracks to a temporary file. So what the container
    /// or the encoder does not accept is known before any work.
    ///
    /// # Errors
    /// [`Error::Output`] with ffmpeg's reason; [`Error::File`], [`Error::Start`].
    pub fn check(&self, size: Size) -> Result<()> {
        let file = self.unfinished()?;
        let track = Track { width: size.width, height: size.height, pixel: [0, 0], time_base: MILLISECONDS };
        let mut running = Running::start(self.film_command(Picture::Tried, file.path()), "ffmpeg")?;
        let bytes = self.layout.frame_bytes(size).and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        let sent = running.stdin().map(|stdin| {
            let mut writer = NutWriter::new(stdin, track, self.encoder.samples.code())?;
            let frame = vec![0; bytes];
            TRIAL_TIMES.into_iter().try_for_each(|time| writer.write(time, &frame))?;
            writer.flush()
        });
        let ended = running.end()?;
        if ended.succeeded() {
            return Ok(());
        }
        drop(sent);
        Err(self.refusal(&ended.reason("ffmpeg")))
    }

    /// The error if ffmpeg does not write this film, with advice.
    pub(crate) fn refusal(&self, reason: &str) -> Error {
        let mut advice = String::new();
        let unknown = [
            "not currently supported in container",
            "Could not find tag for codec",
            "Only VP8 or VP9",
            "incorrect codec parameters",
        ];
        if unknown.iter().any(|words| reason.contains(words)) && self.container != Container::Matroska {
            let tracks = self.source.iter().flat_map(|film| &film.described_by().tracks).map(name_of_track);
            let tracks = tracks.collect::<Vec<_>>().join("; ");
            advice = format!("\n  a container that takes more tracks and codecs is .mkv; the film has {tracks}");
        } else if reason.contains("not divisible by") {
            advice =
                "\n  frames of an odd size need another format, such as --pixel-format yuv444p or --lossless".into();
        }
        Error::output(&self.output, format!("cannot be written: {reason}{advice}"))
    }

    /// A file beside the output.
    pub(crate) fn unfinished(&self) -> Result<unfinished::File> {
        let folder = self.output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The permissions of any new file.
        unfinished::file_in(folder, 0o666).map_err(|source| Error::file(folder, "create a file in it", source))
    }

    /// The command that writes the film to a file, from frames or encoded parts on its standard input.
    pub(crate) fn film_command(&self, picture: Picture, to: &Path) -> Command {
        let mut command = self.start_of_command();
        self.add_tracks(&mut command, picture);
        command.arg("-f").arg(self.container.muxer()).arg(url(to)).stdout(Stdio::null());
        command
    }

    /// The command that encodes frames from standard input to standard output, without other tracks.
    pub(crate) fn part_command(&self) -> Command {
        let mut command = self.start_of_command();
        command.args(["-map", "0:v:0"]);
        self.add_encoder(&mut command, 0);
        self.add_tags(&mut command, 0);
        // Frames keep the times of the whole film, even if the decoding order would make some times negative.
        command.args(["-avoid_negative_ts", "disabled", "-fflags", "+bitexact", "-f", "nut", "pipe:1"]);
        command
    }

    pub(crate) fn code(&self) -> [u8; 4] {
        self.encoder.samples.code()
    }

    /// The settings of a part, for the next run to compare.
    pub(crate) fn making(&self) -> String {
        let arguments = self.encoder.arguments(0, self.light.as_ref());
        format!("{arguments:?} {:?} {:?}", self.tags, self.layout)
    }

    /// Encodes the track of this number.
    fn add_encoder(&self, command: &mut Command, track: usize) {
        command.args(self.encoder.arguments(track, self.light.as_ref()));
        command.arg(format!("-enc_time_base:{track}")).arg(self.programs.time_base_of_input());
    }

    fn start_of_command(&self) -> Command {
        let mut command = self.programs.ffmpeg();
        command.arg("-y").arg("-copyts");
        // Without this option, ffmpeg reports success even if it could not write the end. With it, damage in copied
        // tracks would end it, too.
        let source = self.source.as_ref().map(Film::described_by);
        if !source.is_some_and(|film| film.reading.tolerant) {
            command.arg("-xerror");
        }
        for (option, tag) in self.tags.options() {
            command.arg(option).arg(tag);
        }
        command.args(["-f", "nut", "-i", "pipe:0"]).stdin(Stdio::piped());
        command
    }

    fn add_tags(&self, command: &mut Command, track: usize) {
        for (option, tag) in self.tags.options() {
            command.arg(format!("{option}:{track}")).arg(tag);
        }
    }

    /// Adds the tracks of the source in order, with the new picture in place of the old one.
    fn add_tracks(&self, command: &mut Command, picture: Picture) {
        let is_trial = picture == Picture::Tried;
        let described = self.source.as_ref().map(Film::described_by);
        let mut place = 0;
        if let Some(film) = described {
            let (from, to) = (film.reading.from, film.reading.to);
            if let Some(from) = from.filter(|_| !is_trial) {
                command.arg("-ss").arg(format!("{:.6}", from.as_secs_f64()));
                // The new picture begins at 0, and so do the other tracks.
                command.arg("-itsoffset").arg(format!("{:.6}", -film.start - from.as_secs_f64()));
            }
            if is_trial {
                command.args(["-t", "0.05"]);
            }
            only_this_file(command);
            command.arg("-i").arg(url(&film.path));
            for (index, track) in film.tracks.iter().enumerate() {
                if track.index == film.picture {
                    place = index;
                    command.args(["-map", "0:v:0"]);
                } else {
                    command.arg("-map").arg(format!("1:{}", track.index));
                }
                command.arg(format!("-map_metadata:s:{index}")).arg(format!("1:s:{}", track.index));
                command.arg(format!("-disposition:{index}")).arg(track.dispositions());
            }
            // These tags apply only to the old picture.
            let old = film.tracks.iter().find(|track| track.index == film.picture);
            for name in old.iter().flat_map(|track| track.tags.keys()).filter(|name| is_of_old_picture(name)) {
                command.arg(format!("-metadata:s:{place}")).arg(format!("{name}="));
            }
            command.args(["-map_metadata", "1", "-map_chapters", "1"]);
            // For a whole film, this also copies packets before time 0, such as the first samples of AAC.
            command.arg("-copypriorss").arg(if from.is_some() { "0" } else { "1" });
            if let Some(to) = to.filter(|_| !is_trial) {
                let begin = from.map_or(-film.start, |from| from.as_secs_f64());
                command.arg("-t").arg(format!("{:.6}", to.as_secs_f64() - begin));
            }
        } else {
            command.args(["-map", "0:v:0"]);
        }
        command.args(["-c", "copy"]);
        if picture != Picture::Copied {
            self.add_encoder(command, place);
        }
        self.add_tags(command, place);
        if matches!(self.container, Container::Mp4 | Container::QuickTime) && self.encoder.name == "libx265" {
            // Apple's players know H.265 only under this tag.
            command.arg(format!("-tag:{place}")).arg("hvc1");
        }
        // No random values and no ffmpeg version in the file, so that the same film has the same bytes.
        command.args(["-fflags", "+bitexact"]);
    }
}

/// Tags of a track that are about the bytes of its picture.
fn is_of_old_picture(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["BPS", "DURATION", "NUMBER_OF_", "_STATISTICS_", "ROTATE", "ENCODER"].iter().any(|start| name.starts_with(start))
}
