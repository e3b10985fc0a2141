//! The arguments of `runtime infer` for real-time networks.

use tileforge_runtime::realtime::{Late, Pace};
use tileforge_terminal::number;

/// For real-time networks.
#[derive(clap::Args)]
#[command(next_help_heading = "Real time")]
pub(super) struct RealtimeArguments {
    /// The timestep of each frame, within the range that `runtime inspect` shows [default: the least].
    #[arg(long, value_name = "T", conflicts_with = "timesteps", value_parser = timestep)]
    timestep: Option<f32>,
    /// Several runs for each frame, one for each of these timesteps; each run sees what the one before made.
    #[arg(long, value_name = "T,T", value_delimiter = ',', value_parser = timestep)]
    timesteps: Vec<f32>,
    /// Frames are due at this rate [default: as fast as they come and can be computed].
    #[arg(long, value_name = "N", value_parser = number(1e-3..=1e4))]
    target_fps: Option<f64>,
    /// What becomes of a frame when the next one is due: drop (the last result is shown again) or wait [default: drop].
    #[arg(long, value_name = "HOW", requires = "target_fps")]
    late: Option<Late>,
}

/// A timestep; the engine says which range its network takes.
fn timestep(text: &str) -> Result<f32, String> {
    number(-1e9..=1e9)(text).map(|step| step as f32)
}

impl RealtimeArguments {
    /// The first option that was given, for engines of other tasks to refuse.
    pub(super) fn given(&self) -> Option<&'static str> {
        let Self { timestep, timesteps, target_fps, late } = self;
        [
            (timestep.is_some(), "--timestep"),
            (!timesteps.is_empty(), "--timesteps"),
            (target_fps.is_some(), "--target-fps"),
            (late.is_some(), "--late"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// The timesteps of each frame; empty: the least.
    pub(super) fn timesteps(&self) -> Vec<f32> {
        self.timestep.map_or_else(|| self.timesteps.clone(), |step| vec![step])
    }

    /// When frames are due.
    pub(super) fn pace(&self) -> Option<Pace> {
        self.target_fps.map(|frames_per_second| Pace { frames_per_second, late: self.late.unwrap_or_default() })
    }
}
