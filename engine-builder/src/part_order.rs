//! What to build.

use crate::{PrecisionOptions, Profile, Source};

/// The order for an engine of one network, or for a part of an engine.
#[derive(Debug)]
pub struct PartOrder<'a> {
    /// The model.
    pub source: &'a Source,
    /// The profile, with the precision that suits the part.
    pub profile: Profile,
    /// How its activations are measured.
    pub options: PrecisionOptions,
}

impl PartOrder<'_> {
    /// The same order in the precision of `profile`. `None` if that is the order's own precision, or if an option has
    /// no effect in it.
    pub fn in_precision_of(&self, profile: &Profile) -> Option<Self> {
        let is_another = profile.precision != self.profile.precision;
        let suits = is_another && self.options.check(profile.precision).is_ok();
        suits.then(|| Self { source: self.source, profile: profile.clone(), options: self.options.clone() })
    }
}
