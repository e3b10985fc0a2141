//! The constructor of each class.

use super::class::Class;
use super::config::Config;
use super::error::Result;
use super::options::SchedulerOptions;
use super::solver::Solver;
use super::{ddim, dpm_solver, euler, heun, latent_consistency, lms, pndm, unipc};

/// The solver of a configuration's class.
pub(super) fn solver(config: &Config, options: &SchedulerOptions) -> Result<Box<dyn Solver>> {
    let make = match config.kind() {
        Class::EulerDiscrete => euler::euler,
        Class::EulerAncestralDiscrete => euler::ancestral,
        Class::Ddim => ddim::ddim,
        Class::Pndm => pndm::pndm,
        Class::LmsDiscrete => lms::lms,
        Class::HeunDiscrete => heun::heun,
        Class::DpmSolverMultistep => dpm_solver::multistep,
        Class::UniPcMultistep => unipc::unipc,
        Class::Lcm => latent_consistency::lcm,
        Class::Tcd => latent_consistency::tcd,
    };
    make(config, options)
}
