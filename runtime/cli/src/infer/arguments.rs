//! The arguments of `runtime infer`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tileforge_image::frames::{Matrix, RawFrames};
use tileforge_image::{Depth, Format, JPEG_QUALITY, Limits, PngCompression};
use tileforge_terminal::{number, whole};

use super::super::chosen::{ChosenOrFound, Running};
use super::depth_arguments::DepthArguments;
use super::film_arguments::FilmArguments;
use super::inpaint_arguments::InpaintArguments;
use super::kind::is_standard_stream;
use super::picture::{Opening, Writing};
use super::realtime_arguments::RealtimeArguments;
use super::restoration_arguments::RestorationArguments;
use super::shard::Shard;
use super::standard::Piped;

const EXAMPLES: &str = "\
Examples:
  runtime infer photo.jpg
  runtime infer --engine engines/compact-x4 photo.png -o large.png
  runtime infer --engine engines/compact-x4 photos/ --recursive --format webp -o 'large/{stem}-x{scale}.{extension}'
  runtime infer --engine engines/compact-x4 photo.png --outscale 2 -o twice.png
  curl -s https://example.org/a.jpg | runtime infer - -o - --format png > large.png
  runtime infer --engine engines/compact-x4 --input photos/ --output large/
  runtime infer --engine engines/compact-x4 --input a.jpg b.webp --output large/ --json
  runtime infer --engine engines/compact-x4 --input 'photos/*.png' --output large/ --resume
  runtime infer --engine engines/compact-x4 --input photos/ --output large/ --resume --shard 3/16
  runtime infer --engine engines/compact-x4 --input photos/ --output large/ --provider tensorrt --strict --streams 2
  runtime infer --engine engines/rgbd-vitl --input colour.png --depth depth.png --output refined.png
  runtime infer --engine engines/depth-small --input photos/ --output depth/ --colour-map Spectral_r
  runtime infer --engine engines/lama --input photo.png --mask mask.png --output filled.png
  runtime infer --engine engines/lsd-unet --input camera.y4m --output shown.y4m --timesteps 40,30,20,10,0 \
    --target-fps 30 --late drop
  runtime infer --engine engines/seedvr2-3b --input old.mkv --output restored.mkv --size 720 --frame-overlap 1
  runtime infer --engine engines/compact-x4 --input film.mkv --output film-x4.mkv
  runtime infer --engine engines/compact-x4 --input film.mkv --output film-x4.mkv --from 1:00 --to 1:10
  runtime infer --engine engines/compact-x4 --input film.mkv --output film-x4.mkv --resume --codec libx265 --crf 18 \
    --pixel-format yuv420p10le --encoder-options preset=slow
  ffmpeg -i in.mp4 -f yuv4mpegpipe - | runtime infer --engine engines/compact-x4 --input - --output - |
    ffmpeg -i - out.mp4
  runtime infer --engine engines/compact-x4 --raw rgb24:640x480 --input frames.rgb --output large.rgb

Without --engine: the one of the environment variable TILEFORGE_ENGINE; else that in engines/ here, or else in
~/.local/share/tileforge/engines, the best for this machine if there are several. Without --output, photo.jpg becomes
photo-x4.jpg beside it, and a folder photos becomes photos-x4.

PNG and TIFF are read and written by rows, so their height costs no memory; JPEG, WebP, BMP, GIF, interlaced PNGs and
pictures that EXIF turns or mirrors are held whole. The output has the input's depth (8 or 16 bits, or float in
TIFF), channels, colour profile, EXIF and density. Frames keep their number, rate, aspect ratio and colour space; what is said
about them goes to standard error where they go to standard output.";

/// Send pictures or frames through an engine: larger pictures, depth, filled-in pictures, real-time networks, restoration.
///
/// What comes out follows from the engine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) engine: ChosenOrFound,
    /// Pictures, or folders of pictures: PNG, JPEG, WebP, TIFF, BMP, GIF (the first frame); or films (.mkv, .mp4, .mov,
    /// .webm, .ts …, through ffmpeg); or one stream of frames, a .y4m file. A picture or frames on standard input are -.
    #[arg(value_name = "IN", required_unless_present = "input")]
    inputs: Vec<PathBuf>,
    /// The same, for scripts.
    #[arg(long, num_args = 1.., value_name = "IN", conflicts_with = "inputs")]
    input: Vec<PathBuf>,
    /// The output file; a folder for several inputs; a template for names, with {stem}, {extension}, {scale} and
    /// {engine}; - for standard output [default: beside the input, as photo-x4.jpg].
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// The format of pictures in a folder or on standard output: png, jpg, webp or tif [default: as the input, or png].
    #[arg(long, value_name = "FORMAT", value_parser = ending)]
    pub(super) format: Option<Ending>,
    /// Pictures in the folders of a folder, too, and these folders in the output. Links out of the folder are left out.
    #[arg(long, help_heading = "Inputs")]
    pub(super) recursive: bool,
    /// Only part I of N of the pictures, from 0/N on, for several machines with the same inputs: by a hash of each
    /// picture's path from the folder that is given. Kubernetes: --shard "$JOB_COMPLETION_INDEX/16".
    #[arg(long, help_heading = "Inputs", value_name = "I/N", value_parser = str::parse::<Shard>)]
    pub(super) shard: Option<Shard>,
    /// How many times larger the output is than the input, whatever the engine's scale: its result is resampled
    /// (bicubic).
    #[arg(long, help_heading = "Outputs", value_name = "N", value_parser = number(0.01..=64.0))]
    pub(super) outscale: Option<f64>,
    #[command(flatten)]
    pub(super) running: Running,
    /// Frames are nothing but samples: the format, by ffmpeg's name, and the size (rgb24:1920x1080).
    #[arg(long, help_heading = "Inputs", value_name = "FORMAT:WxH", value_parser = str::parse::<RawFrames>)]
    pub(super) raw: Option<RawFrames>,
    /// What .y4m frames were made with, which they do not say, and films that do not say it: bt601, bt709 or bt2020
    /// [default: bt601 up to 576 lines].
    #[arg(long, help_heading = "Inputs", value_name = "MATRIX", value_parser = str::parse::<Matrix>)]
    pub(super) matrix: Option<Matrix>,
    /// Go on with damaged pictures and films, with a warning for each. What is missing of pictures is black or grey.
    #[arg(long, help_heading = "Inputs")]
    pub(super) tolerant: bool,
    /// Convert to sRGB by the picture's colour profile, instead of keeping both.
    #[arg(long, help_heading = "Inputs")]
    pub(super) srgb: bool,
    /// Leave out what is said beside the pixels: EXIF (camera, date, place) and density. The colour profile stays.
    #[arg(long, help_heading = "Outputs")]
    pub(super) strip_metadata: bool,
    /// Quality of JPEG outputs, 1 to 100 [default: 95].
    #[arg(long, help_heading = "Outputs", value_name = "N", value_parser = whole::<u8>(1..=100))]
    pub(super) quality: Option<u8>,
    /// How hard PNG outputs are compressed, all without loss: fast, default or best [default: default].
    #[arg(long, help_heading = "Outputs", value_name = "HOW", value_parser = str::parse::<PngCompression>)]
    pub(super) png_compression: Option<PngCompression>,
    /// Bits of the output's samples: 8, 16 or 32 (float, TIFF only) [default: as the input].
    #[arg(long, help_heading = "Outputs", value_name = "BITS", value_parser = depth)]
    pub(super) bit_depth: Option<Depth>,
    /// Refuse larger inputs.
    #[arg(long, help_heading = "Inputs", value_name = "N", default_value_t = Limits::default().megapixels,
        value_parser = whole::<u32>(..))]
    pub(super) max_megapixels: u32,
    /// Leave out pictures whose output is there already, made of the same input by the same engine with the same
    /// options. A hidden file in the folder of the outputs says what they were made of. Films are made in parts, which
    /// wait in a folder film-x4.mkv.part for the next run.
    #[arg(long, help_heading = "Outputs")]
    pub(super) resume: bool,
    /// Stop at the first picture that fails, instead of going on with the others.
    #[arg(long, help_heading = "Results")]
    pub(super) fail_fast: bool,
    /// Print one JSON object about everything.
    #[arg(long, help_heading = "Results", help_heading = "Outputs")]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) film: FilmArguments,
    #[command(flatten)]
    pub(super) depth: DepthArguments,
    #[command(flatten)]
    pub(super) inpaint: InpaintArguments,
    #[command(flatten)]
    pub(super) realtime: RealtimeArguments,
    #[command(flatten)]
    pub(super) restoration: RestorationArguments,
}

/// A format, by the ending of names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) name: &'static str,
    pub(super) format: Format,
}

fn ending(text: &str) -> Result<Ending, String> {
    let found = Format::WRITTEN.into_iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
    found.map(|(name, format)| Ending { name, format }).ok_or_else(|| "expected png, jpg, webp or tif".into())
}

fn depth(text: &str) -> Result<Depth, String> {
    match text {
        "8" => Ok(Depth::Eight),
        "16" => Ok(Depth::Sixteen),
        "32" => Ok(Depth::Float),
        _ => Err("expected 8, 16 or 32".into()),
    }
}

impl Arguments {
    /// The inputs, given in either way.
    pub(super) fn inputs(&self) -> &[PathBuf] {
        if self.input.is_empty() { &self.inputs } else { &self.input }
    }

    /// The output as given. Input from standard input goes to standard output by default.
    pub(super) fn output(&self) -> Option<&Path> {
        let stream = self.inputs().first().map(PathBuf::as_path).filter(|input| is_standard_stream(input));
        self.output.as_deref().or(stream)
    }

    /// The options that change an output, by their names, for the record of what it was made with.
    pub(super) fn making(&self) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> = self.running.making();
        let DepthArguments { depth: _, depth_scale, max_depth, input_size, channel_order, .. } = &self.depth;
        let DepthArguments { colour_map, colour_range, depth_format, .. } = &self.depth;
        for (name, value) in [
            ("quality", format!("{:?}", self.quality)),
            ("png-compression", format!("{:?}", self.png_compression)),
            ("bit-depth", format!("{:?}", self.bit_depth)),
            ("srgb", self.srgb.to_string()),
            ("tolerant", self.tolerant.to_string()),
            ("strip-metadata", self.strip_metadata.to_string()),
            ("outscale", format!("{:?}", self.outscale)),
            ("raw", format!("{:?}", self.raw)),
            ("matrix", format!("{:?}", self.matrix)),
            ("depth-scale", format!("{depth_scale:?}")),
            ("max-depth", format!("{max_depth:?}")),
            ("input-size", format!("{input_size:?}")),
            ("channel-order", format!("{channel_order:?}")),
            ("film", format!("{:?} {:?}", self.film.encoding(), self.film.part())),
            ("restoration", self.restoration.making()),
            ("colour-map", format!("{colour_map:?}")),
            ("colour-range", format!("{colour_range:?}")),
            ("depth-format", format!("{depth_format:?}")),
        ] {
            all.insert(name.into(), value);
        }
        all
    }

    /// The first given option about written pictures, to be refused by engines that write none.
    pub(super) fn for_written_pictures(&self) -> Option<&'static str> {
        let given = self.quality.map(|_| "--quality");
        let given = given.or(self.png_compression.map(|_| "--png-compression"));
        let given = given.or(self.bit_depth.map(|_| "--bit-depth")).or(self.matrix.map(|_| "--matrix"));
        given.or(self.format.map(|_| "--format")).or(self.outscale.map(|_| "--outscale"))
    }

    /// How pictures are opened.
    pub(super) fn opening(&self, piped: &Piped) -> Opening {
        let (srgb, tolerant, strip_metadata) = (self.srgb, self.tolerant, self.strip_metadata);
        Opening { limits: self.limits(), srgb, tolerant, strip_metadata, piped: piped.clone() }
    }

    /// How pictures are written.
    pub(super) fn writing(&self) -> Writing {
        Writing {
            depth: self.bit_depth,
            quality: self.quality.unwrap_or(JPEG_QUALITY),
            png_compression: self.png_compression.unwrap_or_default(),
            format: self.format.map(|ending| ending.format),
        }
    }

    /// The limits of an input.
    pub(super) fn limits(&self) -> Limits {
        Limits { megapixels: self.max_megapixels, ..Limits::default() }
    }
}
