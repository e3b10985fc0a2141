//! The classes of schedulers.

use super::error::{Error, Result};

/// A class of diffusers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    EulerDiscrete,
    EulerAncestralDiscrete,
    Ddim,
    Pndm,
    LmsDiscrete,
    HeunDiscrete,
    DpmSolverMultistep,
    UniPcMultistep,
    Lcm,
    Tcd,
}

impl Class {
    /// Every class, in the order of messages.
    pub(super) const ALL: [Self; 10] = [
        Self::EulerDiscrete,
        Self::EulerAncestralDiscrete,
        Self::Ddim,
        Self::Pndm,
        Self::LmsDiscrete,
        Self::HeunDiscrete,
        Self::DpmSolverMultistep,
        Self::UniPcMultistep,
        Self::Lcm,
        Self::Tcd,
    ];

    /// Its name in diffusers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::EulerDiscrete => "EulerDiscreteScheduler",
            Self::EulerAncestralDiscrete => "EulerAncestralDiscreteScheduler",
            Self::Ddim => "DDIMScheduler",
            Self::Pndm => "PNDMScheduler",
            Self::LmsDiscrete => "LMSDiscreteScheduler",
            Self::HeunDiscrete => "HeunDiscreteScheduler",
            Self::DpmSolverMultistep => "DPMSolverMultistepScheduler",
            Self::UniPcMultistep => "UniPCMultistepScheduler",
            Self::Lcm => "LCMScheduler",
            Self::Tcd => "TCDScheduler",
        }
    }

    /// The class of this name.
    pub(super) fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|class| class.name() == name);
        found.ok_or_else(|| Error::Class { found: name.into(), known: Self::ALL.map(Self::name).into() })
    }
}
