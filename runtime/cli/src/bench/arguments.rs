//! The arguments of `runtime bench`.

use std::path::PathBuf;

use tileforge_image::Size;
use tileforge_terminal::{number, whole};

use super::super::chosen::{Named, Running, Signed};
use super::measure::Repeats;
use super::steps;

const EXAMPLES: &str = "\
Examples:
  runtime bench --engine engines/compact-x4
  runtime bench --engine engines/compact-x4 --save base.json
  runtime bench --engine engines/compact-x4 --compare base.json --threshold 0.95
  runtime bench --engine engines/compact-x4 --profile
  runtime bench --engine engines/sd15 --steps 20,30,50 --count 1,4 --runs 3 --report steps/
  runtime bench --engine engines/model-fp16 engines/model-int8 --sweep --report sweep/

An upscaler gets a picture that is made in memory, and what becomes of it goes nowhere: no disk is measured. With
--steps, the engine of a diffusion pipeline makes whole pictures. Other engines run a whole graph, with inputs and
outputs that stay on the device. Compare on a quiet machine, and only figures of one machine.";

/// Measure an engine on this machine. Exits with code 4 where --compare finds it slower than the threshold.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The engine's directory or name, or oci://HOST/NAME:TAG; for --sweep also several, such as one for each precision.
    #[arg(long = "engine", value_name = "ENGINE", required = true, num_args = 1.., help_heading = "Engine")]
    pub(super) engines: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) signed: Signed,
    #[command(flatten)]
    pub(super) running: Running,
    /// The picture's size [default: 1024x1024]; for an engine whose graphs run whole, that of the graph to measure
    /// [default: the largest]; with --steps, one of the engine's [default: the largest].
    #[arg(long, help_heading = "Measuring", value_name = "WxH", value_parser = str::parse::<Size>)]
    pub(super) size: Option<Size>,
    /// The engine of a diffusion pipeline: pictures of so many steps, several numbers with commas.
    #[arg(long, help_heading = "Measuring", value_name = "N,N", value_delimiter = ',', conflicts_with_all = ["sweep", "profile"],
        value_parser = whole::<u16>(1..=1000))]
    pub(super) steps: Vec<u16>,
    /// With --steps: so many pictures together, several numbers with commas [default: 1].
    #[arg(long, help_heading = "Measuring", value_name = "N,N", value_delimiter = ',', requires = "steps", conflicts_with_all = ["sweep", "profile"],
        value_parser = whole::<u16>(1..=64))]
    count: Vec<u16>,
    /// Pictures, or runs of a graph, that are measured after the warm-up; with --steps, for each number of steps and of
    /// pictures.
    #[arg(long, help_heading = "Measuring", value_name = "N", default_value_t = 9, value_parser = whole::<u32>(1..))]
    pub(super) runs: u32,
    /// Pictures before that, of one step with --steps.
    #[arg(long, help_heading = "Measuring", value_name = "N", default_value_t = 2, value_parser = whole::<u32>(..))]
    pub(super) warm_up: u32,
    /// How often throughput is measured, with that many pictures in a row; the median counts. Not with --steps.
    #[arg(long, help_heading = "Measuring", value_name = "N", default_value_t = 3, conflicts_with = "steps",
        value_parser = whole::<u32>(1..))]
    pub(super) passes: u32,
    /// Write the figures to this file.
    #[arg(long, help_heading = "Results", value_name = "FILE")]
    pub(super) save: Option<PathBuf>,
    /// Compare with the figures in this file.
    #[arg(long, help_heading = "Results", value_name = "FILE")]
    pub(super) compare: Option<PathBuf>,
    /// Least speed relative to --compare: 0.9 allows a tenth less.
    #[arg(long, help_heading = "Results", value_name = "RATIO", default_value_t = 0.9, requires = "compare",
        conflicts_with_all = ["sweep", "profile"], value_parser = number(0.0..=100.0))]
    pub(super) threshold: f64,
    /// Show the time of each operator and of each layer in what runs for that size, by ONNX Runtime's own profile; on
    /// one stream.
    #[arg(long, help_heading = "Results", conflicts_with_all = ["sweep", "save", "compare"])]
    pub(super) profile: bool,
    /// Measure every tile, batch and number of streams (1, 2 and 4) of every engine; for other engines than upscalers
    /// every graph and number of streams.
    #[arg(long, help_heading = "Results", conflicts_with_all = ["save", "compare", "tile", "batch", "streams"])]
    pub(super) sweep: bool,
    /// Write the tables (Markdown, JSON) and the chart (SVG) of --sweep or --steps to this folder.
    #[arg(long, help_heading = "Results", value_name = "DIR", conflicts_with = "profile")]
    pub(super) report: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, help_heading = "Results")]
    pub(super) json: bool,
}

impl Arguments {
    /// The engines as they were named.
    pub(crate) fn named(&mut self) -> Named<'_> {
        Named { paths: self.engines.iter_mut().collect(), signed: &self.signed }
    }
}

/// The side of the picture that upscalers are measured with.
const SIDE: u32 = 1024;

impl Arguments {
    /// The size of the picture that upscalers are measured with.
    pub(super) fn picture(&self) -> Size {
        self.size.unwrap_or(Size { width: SIDE, height: SIDE })
    }

    /// What is measured with --steps.
    pub(super) fn pictures_in_steps(&self) -> steps::Wanted {
        let numbers = |given: &[u16]| given.iter().copied().map(usize::from).collect::<Vec<_>>();
        steps::Wanted {
            steps: numbers(&self.steps),
            counts: if self.count.is_empty() { vec![1] } else { numbers(&self.count) },
            size: self.size,
            warm_up: self.warm_up,
            runs: self.runs,
        }
    }

    pub(super) fn repeats(&self) -> Repeats {
        Repeats { warm_up: self.warm_up, runs: self.runs, passes: self.passes }
    }
}
