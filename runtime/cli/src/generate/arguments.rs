//! The arguments of `runtime generate`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;

use tileforge_image::{Limits, Size};
use tileforge_runtime::diffusion::{Fit, GeneratorOptions, RandomNumbers, Settings};
use tileforge_terminal::{Placing, number, whole};

use super::super::chosen::{Named, Signed, placement};

const EXAMPLES: &str = "\
Examples:
  runtime generate --engine engines/sd15 --prompt \"a red fox in the snow\" --seed 42 --output fox.png
  runtime generate --engine engines/sdxl --prompt \"a red fox\" --negative-prompt blurry --count 4 --output fox.png
  runtime generate --engine engines/sd15 --prompt \"oil on canvas\" --image fox.png --strength 0.6 --output painted.png
  runtime generate --engine engines/sd15-inpainting --prompt \"a hat\" --image fox.png --mask head.png --output hat.png
  runtime generate --engine engines/sdxl --prompt \"a red fox\" --denoising-end 0.8 --output fox.safetensors
  runtime generate --engine engines/sdxl-refiner --prompt \"a red fox\" --image fox.safetensors --denoising-start 0.8 \\
    --output fox.png
  runtime generate --engine engines/sd15 --from-image fox.png --steps 30 --output again.png
  runtime generate --engine engines/sd15 --prompt \"a (red:1.3) fox, [snow]\" --scheduler \"DPM++ 2M Karras\" \\
    --output fox.png

The same engine, settings and seed give the same bytes. For the same seed, the picture is that of diffusers' pipelines
with torch.Generator(\"cpu\"). A PNG holds the settings that it was made with, for --from-image.

Brackets in texts are weights, as AUTOMATIC1111 reads them: (red) counts 1.1 times, (red:1.3) 1.3 times, [red] 1/1.1
times. Brackets of the text itself are \\( \\) \\[ \\].";

/// Make pictures from a text: with a diffusion pipeline's engine, from noise, from a picture, or in its masked part.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The pipeline engine's directory or name, or oci://HOST/NAME:TAG.
    #[arg(long = "engine", value_name = "ENGINE", help_heading = "Engine")]
    pub(super) directory: PathBuf,
    #[command(flatten)]
    pub(super) signed: Signed,
    /// What is to be seen.
    #[arg(long, help_heading = "Text", value_name = "TEXT", required_unless_present_any = ["from_image", "prompt_file"])]
    prompt: Option<String>,
    /// Read what is to be seen from a text file.
    #[arg(long, help_heading = "Text", value_name = "FILE", conflicts_with = "prompt")]
    pub(super) prompt_file: Option<PathBuf>,
    /// Where the picture goes; with --count N, numbers are added: out-1.png. A .safetensors file gets the latent,
    /// before it is decoded.
    #[arg(long, value_name = "OUT")]
    pub(super) output: PathBuf,
    /// Take the settings of a PNG that this command wrote; options that are given count more. All pictures of that run
    /// are made again.
    #[arg(long, help_heading = "How it is made", value_name = "PNG")]
    pub(super) from_image: Option<PathBuf>,
    /// What is not to be seen.
    #[arg(long, help_heading = "Text", value_name = "TEXT")]
    negative_prompt: Option<String>,
    /// Steps from noise to the picture [default: 50].
    #[arg(long, help_heading = "How it is made", value_name = "N", value_parser = whole::<u32>(1..=100_000))]
    steps: Option<u32>,
    /// How much the text counts. Up to 1, the negative prompt is not used, and a step takes half of the time [default:
    /// 7.5; for SDXL 5, for SDXL with a mask 7.5].
    #[arg(long, help_heading = "How it is made", value_name = "G", value_parser = number(0.0..=1000.0))]
    guidance: Option<f64>,
    /// How much the picture's contrast is kept from growing with the guidance, 0 to 1 [default: 0].
    #[arg(long, help_heading = "How it is made", value_name = "R", value_parser = number(0.0..=1.0))]
    guidance_rescale: Option<f64>,
    /// The seed of the random numbers [default: a random one, which is printed and recorded].
    #[arg(long, help_heading = "How it is made", value_name = "S", value_parser = whole::<u64>(..))]
    seed: Option<u64>,
    /// Whose random numbers: cpu (PyTorch's of the CPU) or philox (PyTorch's of CUDA devices) [default: cpu].
    #[arg(long, help_heading = "How it is made", value_name = "NAME", value_parser = str::parse::<RandomNumbers>)]
    rng: Option<RandomNumbers>,
    /// Width and height, one of the engine's [default: those of --image, or the nearest that the engine makes; without
    /// --image the engine's largest].
    #[arg(long, help_heading = "How it is made", value_name = "WxH", value_parser = str::parse::<Size>)]
    size: Option<Size>,
    /// How many pictures are made together, from one seed, as diffusers' num_images_per_prompt [default: 1].
    #[arg(long, help_heading = "How it is made", value_name = "N", value_parser = whole::<u16>(1..=1024))]
    count: Option<u16>,
    /// The scheduler's class in diffusers, such as EulerDiscreteScheduler, or a sampler as other programs name it, such
    /// as euler_a or "DPM++ 2M Karras" [default: the engine's].
    #[arg(long, help_heading = "How it is made", value_name = "NAME")]
    scheduler: Option<String>,
    /// Noise that DDIMScheduler and TCDScheduler add in each step, 0 to 1 [default: 0].
    #[arg(long, help_heading = "How it is made", value_name = "ETA", value_parser = number(0.0..=1.0))]
    eta: Option<f64>,
    /// Take texts that are too long in pieces of 75 tokens, each encoded by itself, instead of cutting them off. The
    /// engine needs a graph for so many tokens.
    #[arg(long, help_heading = "Text")]
    long_prompt: bool,
    /// Read brackets as a part of the texts, not as weights.
    #[arg(long, help_heading = "Text")]
    literal_prompt: bool,
    #[command(flatten)]
    pub(super) sources: Sources,
    #[command(flatten)]
    two_networks: TwoNetworks,
    /// Show the picture on its way in this file, anew after some steps.
    #[arg(long, help_heading = "Results", value_name = "FILE")]
    pub(super) preview: Option<PathBuf>,
    /// Steps from one preview to the next.
    #[arg(long, help_heading = "Results", value_name = "N", default_value_t = 5, requires = "preview",
        value_parser = whole::<u32>(1..))]
    pub(super) preview_every: u32,
    /// Close the sessions of each part when it is done: less memory, and the next picture waits for them again.
    #[arg(long, help_heading = "Where it runs")]
    low_memory: bool,
    /// Pixels by which tiles overlap where the picture is larger than the autoencoder's graphs [default: a quarter of
    /// the tile].
    #[arg(long, help_heading = "Where it runs", value_name = "N", value_parser = whole::<u32>(..))]
    overlap: Option<u32>,
    #[command(flatten)]
    placing: Placing,
    /// Print JSON: settings, seconds of each stage, and memory.
    #[arg(long, help_heading = "Results")]
    pub(super) json: bool,
}

impl Arguments {
    /// The engine as it was named.
    pub(crate) fn named(&mut self) -> Named<'_> {
        Named { paths: vec![&mut self.directory], signed: &self.signed }
    }
}

/// What pictures are made from.
#[derive(clap::Args)]
#[command(next_help_heading = "From a picture")]
pub(super) struct Sources {
    /// Start from a picture, resized if it has another size; or from a latent (.safetensors).
    #[arg(long, value_name = "IN")]
    pub(super) image: Option<PathBuf>,
    /// How a picture of another size is resized: crop (its middle) or stretch [default: stretch to --size, as diffusers;
    /// crop to a size that the engine has in place of the picture's].
    #[arg(long, value_name = "HOW", value_parser = str::parse::<Fit>, requires = "image")]
    fit: Option<Fit>,
    /// Make only the white part of this mask anew: a picture of the size of --image.
    #[arg(long, value_name = "IN", requires = "image")]
    pub(super) mask: Option<PathBuf>,
    /// How far the picture is changed, 0 to 1 [default: 0.8, for SDXL 0.3; with a mask 1, for SDXL 0.9999].
    #[arg(long, value_name = "S", requires = "image", value_parser = number(0.0..=1.0))]
    strength: Option<f64>,
    /// Put the picture's own pixels back outside of the mask.
    #[arg(long, requires = "mask")]
    keep_unmasked: bool,
    /// Start from this noise instead of the seed's: a .safetensors file with a latent of deviation 1.
    #[arg(long, value_name = "IN", conflicts_with = "image")]
    pub(super) latents: Option<PathBuf>,
    /// Refuse larger pictures.
    #[arg(long, value_name = "N", default_value_t = Limits::default().megapixels, value_parser = whole::<u32>(..))]
    pub(super) max_megapixels: u32,
}

/// For two networks that make one picture, such as SDXL's base and refiner.
#[derive(clap::Args)]
#[command(next_help_heading = "Base and refiner")]
struct TwoNetworks {
    /// Stop where another network goes on, as a share of all steps.
    #[arg(long, value_name = "SHARE", value_parser = number(0.0..=1.0))]
    denoising_end: Option<f64>,
    /// Go on where another network stopped, from its latent in --image.
    #[arg(long, value_name = "SHARE", value_parser = number(0.0..=1.0), requires = "image")]
    denoising_start: Option<f64>,
    /// The score that a refiner is asked for [default: 6].
    #[arg(long, value_name = "SCORE", value_parser = number(0.0..=10.0))]
    aesthetic_score: Option<f64>,
    /// The score that a refiner is to stay away from [default: 2.5].
    #[arg(long, value_name = "SCORE", value_parser = number(0.0..=10.0))]
    negative_aesthetic_score: Option<f64>,
}

impl Arguments {
    /// How the parts run.
    pub(super) fn options(&self) -> GeneratorOptions {
        GeneratorOptions { placement: placement(&self.placing), overlap: self.overlap, low_memory: self.low_memory }
    }

    /// The settings with the options of the command line.
    pub(super) fn over(&self, mut settings: Settings, prompt_of_file: Option<String>) -> Settings {
        fn set<T>(place: &mut T, given: Option<T>) {
            if let Some(given) = given {
                *place = given;
            }
        }
        let prompt = self.prompt.clone().or(prompt_of_file);
        // A new prompt is read by this command line's option, not by the old picture's.
        settings.literal_prompt = self.literal_prompt || (prompt.is_none() && settings.literal_prompt);
        set(&mut settings.prompt, prompt);
        set(&mut settings.negative_prompt, self.negative_prompt.clone().map(Some));
        set(&mut settings.steps, self.steps.map(|steps| steps as usize));
        set(&mut settings.guidance, self.guidance);
        set(&mut settings.guidance_rescale, self.guidance_rescale);
        set(&mut settings.strength, self.sources.strength);
        set(&mut settings.eta, self.eta);
        set(&mut settings.seed, self.seed.or_else(|| self.from_image.is_none().then(random_seed)));
        set(&mut settings.random_numbers, self.rng);
        set(&mut settings.size, self.size.map(Some));
        set(&mut settings.fit, self.sources.fit.map(Some));
        set(&mut settings.count, self.count.map(usize::from));
        set(&mut settings.scheduler, self.scheduler.clone().map(Some));
        set(&mut settings.end, self.two_networks.denoising_end);
        set(&mut settings.start, self.two_networks.denoising_start.map(Some));
        set(&mut settings.aesthetic_score, self.two_networks.aesthetic_score);
        set(&mut settings.negative_aesthetic_score, self.two_networks.negative_aesthetic_score);
        settings.long_prompt |= self.long_prompt;
        settings.keep_unmasked |= self.sources.keep_unmasked;
        settings
    }
}

/// A random seed, short enough to be typed again.
fn random_seed() -> u64 {
    // The keys of a new state come from the operating system's random numbers.
    RandomState::new().build_hasher().finish() >> 32
}

#[cfg(test)]
mod tests {
    use super::random_seed;

    #[test]
    fn seeds_differ_and_are_short() {
        let seeds: std::collections::BTreeSet<u64> = (0..100).map(|_| random_seed()).collect();
        assert!(seeds.len() > 95 && seeds.iter().all(|seed| *seed <= u64::from(u32::MAX)), "{seeds:?}");
    }
}
