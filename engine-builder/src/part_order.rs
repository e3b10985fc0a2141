//! What is to be built.

use crate::{PrecisionOptions, Profile, Source};

/// An engine of one network that is to be built, or a part of an engine.
#[derive(Debug)]
pub struct PartOrder<'a> {
    /// What it is made of.
    pub source: &'a Source,
    /// The profile, with the precision that suits the part.
    pub profile: Profile,
    /// How its activations are measured.
    pub options: PrecisionOptions,
}

impl PartOrder<'_> {
    /// The same in the precision of `profile`. `None` if that is the order's own, or if an option has no effect in it.
    pub fn in_precision_of(&self, profile: &Profile) -> Option<Self> {
        let is_another = profile.precision != self.profile.precision;
        let suits = is_another && self.options.check(profile.precision).is_ok();
        suits.then(|| Self { source: self.source, profile: profile.clone(), options: self.options.clone() })
    }
}
