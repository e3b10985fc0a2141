//! The arguments of `runtime infer` for engines that give depth.

use std::path::PathBuf;

use tileforge_contract::ChannelOrder;
use tileforge_runtime::depth::{ColourMap, DepthFormat, MapOptions};
use tileforge_terminal::{number, whole};

/// For engines that give depth.
#[derive(clap::Args)]
#[command(next_help_heading = "Depth")]
pub(super) struct DepthArguments {
    /// The sensor's rough map for an engine that refines one: PNG or TIFF of 16 bits, TIFF, EXR or NPY of floats. For
    /// several pictures, a folder with a map of the same name for each.
    #[arg(long, value_name = "MAP")]
    pub(super) depth: Option<PathBuf>,
    /// The map's units of a metre [default: 1000 for whole numbers, 1 for floats].
    #[arg(long, value_name = "N", value_parser = number(1e-6..=1e9))]
    pub(super) depth_scale: Option<f64>,
    /// Metres beyond which the map counts as not measured [default: 25].
    #[arg(long, value_name = "METRES", value_parser = number(1e-3..=1e6))]
    pub(super) max_depth: Option<f64>,
    /// The least length of the picture's shorter side in the network [default: the graph that fits, nearest to 518].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..))]
    pub(super) input_size: Option<u32>,
    /// The order in which the network gets the channels: rgb or bgr [default: bgr with a map, as the reference's script
    /// has it; otherwise rgb].
    #[arg(long, value_name = "ORDER", value_parser = channel_order)]
    pub(super) channel_order: Option<ChannelOrder>,
    /// Write coloured PNGs: Spectral, RdYlBu or gray, or the same with _r for the reverse.
    #[arg(long, value_name = "NAME")]
    pub(super) colour_map: Option<ColourMap>,
    /// The values of the first and the last colour [default: 0.1:5 metres; for relative depth, its least and largest].
    #[arg(long, value_name = "FROM:TO", value_parser = range, requires = "colour_map")]
    pub(super) colour_range: Option<[f32; 2]>,
    /// What pictures become in a folder: png (16-bit millimetres), exr, tiff or npy (metres) [default: png].
    #[arg(long, value_name = "FORMAT")]
    pub(super) depth_format: Option<DepthFormat>,
}

fn range(text: &str) -> Result<[f32; 2], String> {
    let numbers = text.split_once(':').and_then(|(from, to)| Some([from.parse().ok()?, to.parse().ok()?]));
    let numbers = numbers.filter(|[from, to]: &[f32; 2]| from.is_finite() && to.is_finite() && from != to);
    numbers.ok_or_else(|| "expected two numbers, such as 0.1:5".into())
}

fn channel_order(text: &str) -> Result<ChannelOrder, String> {
    match text {
        "rgb" => Ok(ChannelOrder::Rgb),
        "bgr" => Ok(ChannelOrder::Bgr),
        _ => Err("expected rgb or bgr".into()),
    }
}

impl DepthArguments {
    /// The first option that was given, for engines of other tasks to refuse.
    pub(super) fn given(&self) -> Option<&'static str> {
        let Self { depth, depth_scale, max_depth, input_size, channel_order, colour_map, colour_range, depth_format } =
            self;
        [
            (depth.is_some(), "--depth"),
            (depth_scale.is_some(), "--depth-scale"),
            (max_depth.is_some(), "--max-depth"),
            (input_size.is_some(), "--input-size"),
            (channel_order.is_some(), "--channel-order"),
            (colour_map.is_some(), "--colour-map"),
            (colour_range.is_some(), "--colour-range"),
            (depth_format.is_some(), "--depth-format"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// How the map is read.
    pub(super) fn map_options(&self) -> MapOptions {
        let default = MapOptions::default();
        let narrow = |number: Option<f64>| number.map(|number| number as f32);
        MapOptions { scale: narrow(self.depth_scale), maximum: narrow(self.max_depth).unwrap_or(default.maximum) }
    }
}
