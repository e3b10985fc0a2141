//! The arguments of `runtime infer`.

use std::path::PathBuf;

use tileforge_image::frames::{Matrix, RawFrames};
use tileforge_image::{Depth, JPEG_QUALITY, Limits, PngCompression};

use super::super::chosen::{Chosen, Running};
use super::depth_arguments::DepthArguments;
use super::picture::{Opening, Writing};
use super::realtime_arguments::RealtimeArguments;

const EXAMPLES: &str = "\
Examples:
  runtime infer --engine engines/compact-x4 --input photo.png --output large.png
  runtime infer --engine engines/compact-x4 --input photos/ --output large/
  runtime infer --engine engines/compact-x4 --input a.jpg b.webp --output large/ --json
  runtime infer --engine engines/compact-x4 --input 'photos/*.png' --output large/ --resume
  runtime infer --engine engines/compact-x4 --input photos/ --output large/ --provider tensorrt --strict --streams 2
  runtime infer --engine engines/rgbd-vitl --input colour.png --depth depth.png --output refined.png
  runtime infer --engine engines/depth-small --input photos/ --output depth/ --colour-map Spectral_r
  runtime infer --engine engines/lsd-unet --input camera.y4m --output shown.y4m --timesteps 40,30,20,10,0 \
    --target-fps 30 --late drop
  ffmpeg -i in.mp4 -f yuv4mpegpipe - | runtime infer --engine engines/compact-x4 --input - --output - |
    ffmpeg -i - out.mp4
  runtime infer --engine engines/compact-x4 --raw rgb24:640x480 --input frames.rgb --output large.rgb

PNG and TIFF are read and written by rows, so their height costs no memory; JPEG, WebP, interlaced PNGs and
pictures that EXIF turns or mirrors are held whole. The output has the input's depth (8 or 16 bits, or float in
TIFF), channels and colour profile. Frames keep their number, rate, aspect ratio and colour space; what is said
about them goes to standard error where they go to standard output.";

/// Send pictures or frames through an engine: larger pictures, depth, real-time networks.
///
/// What comes out follows from the engine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) engine: Chosen,
    /// Pictures, or folders of pictures: PNG, JPEG, WebP, TIFF; or one stream of frames, a .y4m file or - for standard
    /// input.
    #[arg(long, required = true, num_args = 1.., value_name = "IN")]
    pub(super) input: Vec<PathBuf>,
    /// The output file; a folder for several inputs; for frames, a file or - for standard output.
    #[arg(long, value_name = "OUT")]
    pub(super) output: PathBuf,
    #[command(flatten)]
    pub(super) running: Running,
    /// Frames are nothing but samples: the format, by ffmpeg's name, and the size (rgb24:1920x1080).
    #[arg(long, value_name = "FORMAT:WxH", value_parser = str::parse::<RawFrames>)]
    pub(super) raw: Option<RawFrames>,
    /// What .y4m frames were made with, which they do not say: bt601 or bt709 [default: bt601 up to 576 lines].
    #[arg(long, value_name = "MATRIX", value_parser = str::parse::<Matrix>)]
    pub(super) matrix: Option<Matrix>,
    /// Go on with damaged pictures, with a warning for each. What is missing of them is black or grey.
    #[arg(long)]
    pub(super) tolerant: bool,
    /// Convert to sRGB by the picture's colour profile, instead of keeping both.
    #[arg(long)]
    pub(super) srgb: bool,
    /// Quality of JPEG outputs, 1 to 100 [default: 95].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: Option<u8>,
    /// How hard PNG outputs are compressed, all without loss: fast, default or best [default: default].
    #[arg(long, value_name = "HOW", value_parser = str::parse::<PngCompression>)]
    png_compression: Option<PngCompression>,
    /// Bits of the output's samples: 8, 16 or 32 (float, TIFF only) [default: as the input].
    #[arg(long, value_name = "BITS", value_parser = depth)]
    pub(super) bit_depth: Option<Depth>,
    /// Refuse larger inputs.
    #[arg(long, value_name = "N", default_value_t = Limits::default().megapixels)]
    pub(super) max_megapixels: u32,
    /// Leave out pictures whose output is there already: it is finished, as every output gets its name at the very end.
    #[arg(long)]
    pub(super) resume: bool,
    /// Stop at the first picture that fails, instead of going on with the others.
    #[arg(long)]
    pub(super) fail_fast: bool,
    /// Print one JSON object about everything.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) depth: DepthArguments,
    #[command(flatten)]
    pub(super) realtime: RealtimeArguments,
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
    /// The first option that was given of those about pictures that are written, for engines that write none to refuse.
    pub(super) fn for_written_pictures(&self) -> Option<&'static str> {
        let given = self.quality.map(|_| "--quality");
        let given = given.or(self.png_compression.map(|_| "--png-compression"));
        given.or(self.bit_depth.map(|_| "--bit-depth")).or(self.matrix.map(|_| "--matrix"))
    }

    /// How pictures are opened.
    pub(super) fn opening(&self) -> Opening {
        Opening { limits: self.limits(), srgb: self.srgb, tolerant: self.tolerant }
    }

    /// How pictures are written.
    pub(super) fn writing(&self) -> Writing {
        Writing {
            depth: self.bit_depth,
            quality: self.quality.unwrap_or(JPEG_QUALITY),
            png_compression: self.png_compression.unwrap_or_default(),
        }
    }

    /// What is refused of an input.
    pub(super) fn limits(&self) -> Limits {
        Limits { megapixels: self.max_megapixels, ..Limits::default() }
    }
}
