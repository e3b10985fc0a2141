//! The classes, by the names of diffusers.

use super::config::Config;
use super::error::Result;
use super::scheduler::{Options, Solver};
use super::{ddim, dpm_solver, euler, heun, latent_consistency, lms, pndm, unipc};

type Constructor = fn(&Config, &Options) -> Result<Box<dyn Solver>>;

/// Every class, in the order of messages.
pub(super) const CLASSES: [(&str, Constructor); 10] = [
    ("EulerDiscreteScheduler", euler::euler),
    ("EulerAncestralDiscreteScheduler", euler::ancestral),
    ("DDIMScheduler", ddim::ddim),
    ("PNDMScheduler", pndm::pndm),
    ("LMSDiscreteScheduler", lms::lms),
    ("HeunDiscreteScheduler", heun::heun),
    ("DPMSolverMultistepScheduler", dpm_solver::multistep),
    ("UniPCMultistepScheduler", unipc::unipc),
    ("LCMScheduler", latent_consistency::lcm),
    ("TCDScheduler", latent_consistency::tcd),
];
