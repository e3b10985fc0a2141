//! Normalised names of tensors.

use std::collections::BTreeSet;

/// Dictionaries that training frameworks wrap around a network's tensors. Where a checkpoint holds several copies of a
/// network, the first wrapper in this list is used: averaged weights come before the last ones.
pub(super) const WRAPPERS: [&str; 10] = [
    "params_ema.",
    "params-ema.",
    "params.",
    "model_state_dict.",
    "state_dict.",
    GENERATOR,
    "model.",
    "net.",
    "module.",
    "netG.",
];

/// The network of a training against a discriminator, with the other networks of the training beside it (GRL).
const GENERATOR: &str = "model_g.";

/// How names are normalised: a prefix is stripped, and names without it are left out.
#[derive(Debug, PartialEq)]
pub(super) struct Normalisation {
    prefix: String,
}

impl Normalisation {
    pub(super) fn new(names: &BTreeSet<&str>) -> Self {
        let mut prefix = String::new();
        loop {
            let rest: BTreeSet<&str> = names.iter().filter_map(|name| name.strip_prefix(prefix.as_str())).collect();
            match WRAPPERS.iter().find(|wrapper| wraps(wrapper, &rest)) {
                Some(wrapper) => prefix.push_str(wrapper),
                None => return Normalisation { prefix },
            }
        }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The normalised name, or `None` for a tensor that belongs to another copy of the network.
    pub(super) fn apply<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(self.prefix.as_str())
    }
}

/// Whether every name is in this wrapper, or in one with a lower priority.
fn wraps(wrapper: &str, names: &BTreeSet<&str>) -> bool {
    let inside = names.iter().filter_map(|name| name.strip_prefix(wrapper));
    // The first ESRGAN's layers have the names `model.0`, `model.1`, …, where `model.` is a part of the network.
    let mut inside = inside.peekable();
    if inside.peek().is_none() || inside.any(|name| name.starts_with(|first: char| first.is_ascii_digit())) {
        return false;
    }
    if wrapper == GENERATOR {
        return true;
    }
    let averages = ["params_ema.", "params-ema."];
    names.iter().all(|name| name.starts_with(wrapper) || (averages.contains(&wrapper) && name.starts_with("params.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(names: &[&str]) -> String {
        Normalisation::new(&names.iter().copied().collect()).prefix
    }

    #[test]
    fn wrappers_are_stripped_in_any_nesting() {
        assert_eq!(prefix(&["conv.weight", "conv.bias"]), "");
        assert_eq!(prefix(&["params_ema.conv.weight", "params_ema.conv.bias"]), "params_ema.");
        assert_eq!(prefix(&["state_dict.module.conv.weight"]), "state_dict.module.");
        assert_eq!(prefix(&["net.conv.weight", "head.weight"]), "");
    }

    #[test]
    fn averaged_weights_win_over_the_last_ones() {
        assert_eq!(prefix(&["params.conv.weight", "params_ema.conv.weight"]), "params_ema.");
        let both = ["params.conv.weight", "params_ema.conv.weight"].into_iter().collect();
        assert_eq!(Normalisation::new(&both).apply("params.conv.weight"), None);
        assert_eq!(prefix(&["params_ema.conv.weight", "head.weight"]), "");
        assert_eq!(prefix(&["module.conv.weight", "params.conv.weight"]), "");
    }

    #[test]
    fn a_generator_stands_beside_other_networks() {
        assert_eq!(prefix(&["model_g.conv.weight", "model_d.conv.weight"]), "model_g.");
        assert_eq!(prefix(&["model_d.conv.weight", "conv.weight"]), "");
    }

    #[test]
    fn the_first_esrgan_keeps_its_model() {
        assert_eq!(prefix(&["model.0.weight", "model.1.sub.0.RDB1.conv1.0.weight"]), "");
        assert_eq!(prefix(&["params.model.0.weight", "params.model.3.weight"]), "params.");
    }
}
