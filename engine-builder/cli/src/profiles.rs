//! `engine-builder profiles`: the machines that engines can be built for.

use super::failure::{CommandResult, result, result_json};
use super::models::list;
use tileforge_engine_builder::Result;
use tileforge_engine_builder::profile::{self, Profile};
use tileforge_terminal::report;

/// List the profiles, or print the one for this machine.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  engine-builder profiles\n  engine-builder profiles --json | jq \
        '.[].device'\n  engine-builder profiles --here")]
pub(super) struct Arguments {
    /// The profiles to list [default: all]
    #[arg(value_name = "PROFILE", conflicts_with = "here")]
    names: Vec<String>,
    /// Print the name of this machine's profile: the profile of its first GPU, or cpu
    #[arg(long, conflicts_with = "json")]
    here: bool,
    /// Print all keys of all profiles as JSON, inherited keys included
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> CommandResult {
    if arguments.here {
        let here = profile::here()?;
        report(&format!("{}: {}", here.name, here.reason));
        return result(&here.name);
    }
    let names = if arguments.names.is_empty() { profile::names() } else { arguments.names.clone() };
    let profiles = names.iter().map(|name| Profile::read(name)).collect::<Result<Vec<Profile>>>()?;
    if profiles.is_empty() {
        report(&format!("no profiles were found in {}", list(&profile::places())));
    }
    if arguments.json {
        return result_json(&profiles);
    }
    let mut lines = String::new();
    for profile in &profiles {
        let device = match &profile.device {
            Some(device) => {
                let parts =
                    [&device.compute_capability.to_string(), &device.memory.to_string(), &device.bandwidth.to_string()];
                format!("{:>5} {:>7} {:>11}  {}", parts[0], parts[1], parts[2], device.gpu)
            }
            None if profile.plans_for.is_empty() => format!("{:25}  any processor", ""),
            None => {
                let capabilities: Vec<String> = profile.plans_for.iter().map(ToString::to_string).collect();
                format!("{:25}  any GPU of compute capability {}", "", capabilities.join(", "))
            }
        };
        lines.push_str(&format!(
            "{:<12} {:<12} {:<5}{device}\n",
            profile.name,
            profile.provider.name(),
            profile.precision.name()
        ));
    }
    result(lines.trim_end())
}
