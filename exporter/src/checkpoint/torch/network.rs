//! The network in what a training program saved: tensors in a dictionary, which other dictionaries may hold.

use super::pickle::{Id, Pickle, Value, View};
use crate::checkpoint::keys::WRAPPERS;
use std::collections::BTreeMap;

/// Dictionaries inside each other. Training programs nest three or four.
const DEEPEST: usize = 16;
const LONGEST_NAME: usize = 1024;
const MOST_TENSORS: usize = 1_000_000;
const MOST_NOTES: usize = 100;
/// The name of a tensor that was saved by itself.
const ALONE: &str = "tensor";

/// The tensors of a network.
#[derive(Debug, Default)]
pub(super) struct Network<'p, 'a> {
    pub(super) tensors: BTreeMap<String, &'p View<'a>>,
    /// The dictionaries that hold the network, such as `params_ema.`.
    pub(super) wrapper: String,
    /// Entries beside the network that hold tensors, such as the state of an optimiser.
    pub(super) set_aside: Vec<String>,
    /// Texts and numbers among the network's tensors, by name. Some training programs mark their networks with these.
    pub(super) notes: BTreeMap<String, String>,
}

/// Finds the network in a pickle's value. A single tensor counts as a network of one tensor.
///
/// # Errors
/// There is no dictionary of tensors, or a tensor of the network is not an array of numbers.
pub(super) fn network<'p, 'a>(pickle: &'p Pickle<'a>) -> Result<Network<'p, 'a>, String> {
    if let Value::Tensor(view) = pickle.root() {
        let tensors = BTreeMap::from([(ALONE.to_owned(), view.as_ref())]);
        return Ok(Network { tensors, ..Network::default() });
    }
    let Value::Dictionary(mut entries) = pickle.root().clone() else {
        return Err(format!("expected a dictionary of tensors, found {}", pickle.root()));
    };
    let holding = Holding::new(pickle);
    let mut network = Network::default();
    for _ in 0..DEEPEST {
        let Some((key, inner)) = wrapped(pickle, &holding, &entries) else { break };
        let others = entries.iter().filter(|(other, value)| {
            let name = key_of(pickle, *other);
            // A copy of the network with a lower priority does not count as training state.
            let is_copy = name.as_deref().is_some_and(|name| WRAPPERS.iter().any(|wrapper| is_wrapper(wrapper, name)));
            name.as_ref() != Some(&key) && !is_copy && holding.tensors(*value)
        });
        network
            .set_aside
            .extend(others.filter_map(|(other, _)| Some(format!("{}{}", network.wrapper, key_of(pickle, *other)?))));
        network.wrapper = format!("{}{key}.", network.wrapper);
        entries = inner;
    }
    network.notes = notes(pickle, &entries);
    let mut visit = Visit { pickle, holding: &holding, tensors: BTreeMap::new(), visited: 0 };
    visit.entries("", &entries, 0)?;
    if visit.tensors.is_empty() {
        return Err("expected a dictionary of tensors, found none in it".into());
    }
    network.tensors = visit.tensors;
    Ok(network)
}

fn notes(pickle: &Pickle<'_>, entries: &[(Id, Id)]) -> BTreeMap<String, String> {
    let text = |id: Id| match pickle.value(id) {
        Value::Text(text) => std::str::from_utf8(text).ok().map(str::to_owned),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(value) => Some(value.to_string()),
        Value::None => Some(String::new()),
        _ => None,
    };
    let notes = entries.iter().filter_map(|(key, value)| Some((key_of(pickle, *key)?, text(*value)?)));
    notes.filter(|(name, text)| name.len().max(text.len()) <= LONGEST_NAME).take(MOST_NOTES).collect()
}

/// Whether `wrapper`, which ends in a dot, is the dictionary `name`.
fn is_wrapper(wrapper: &str, name: &str) -> bool {
    wrapper.strip_suffix('.') == Some(name)
}

/// The dictionary that holds the network, where it is one inside of another: the known wrapper with the highest
/// priority, or the only dictionary with tensors.
fn wrapped<'a>(pickle: &Pickle<'a>, holding: &Holding, entries: &[(Id, Id)]) -> Option<(String, Vec<(Id, Id)>)> {
    let mut inner = entries.iter().filter(|(_, value)| holding.tensors(*value)).filter_map(|(key, value)| match pickle
        .value(*value)
    {
        Value::Dictionary(inner) => Some((key_of(pickle, *key)?, inner)),
        _ => None,
    });
    let all: Vec<(String, &Vec<(Id, Id)>)> = inner.by_ref().collect();
    let known = WRAPPERS.iter().find_map(|wrapper| all.iter().find(|(name, _)| is_wrapper(wrapper, name)));
    let tensors = entries.iter().any(|(_, value)| matches!(pickle.value(*value), Value::Tensor(_)));
    let only = all.first().filter(|_| all.len() == 1 && !tensors);
    known.or(only).map(|(name, inner)| (name.clone(), (*inner).clone()))
}

/// A dictionary's key as a part of a name; `None` for one that is neither a text nor a number.
fn key_of(pickle: &Pickle<'_>, key: Id) -> Option<String> {
    match pickle.value(key) {
        Value::Text(text) => std::str::from_utf8(text).ok().map(str::to_owned),
        Value::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Which values are tensors or collections that hold one at any depth.
struct Holding(Vec<bool>);

impl Holding {
    fn new(pickle: &Pickle<'_>) -> Self {
        let mut holding = vec![false; pickle.values().len()];
        let mut holders: Vec<Vec<u32>> = Vec::new();
        holders.resize_with(pickle.values().len(), Vec::new);
        let mut reached = Vec::new();
        for (place, value) in pickle.values().iter().enumerate() {
            let holder = place as u32;
            match value {
                Value::Tensor(_) | Value::OtherTensor(_) => {
                    holding[place] = true;
                    reached.push(place);
                }
                Value::Tuple(items) | Value::List(items) => {
                    items.iter().for_each(|item| holders[item.place()].push(holder));
                }
                Value::Dictionary(entries) => {
                    entries.iter().for_each(|(_, value)| holders[value.place()].push(holder));
                }
                _ => {}
            }
        }
        while let Some(place) = reached.pop() {
            for holder in &holders[place] {
                let holder = *holder as usize;
                if !std::mem::replace(&mut holding[holder], true) {
                    reached.push(holder);
                }
            }
        }
        Holding(holding)
    }

    fn tensors(&self, id: Id) -> bool {
        self.0[id.place()]
    }
}

/// Collects tensors under names that join the keys with dots.
struct Visit<'p, 'a, 'h> {
    pickle: &'p Pickle<'a>,
    holding: &'h Holding,
    tensors: BTreeMap<String, &'p View<'a>>,
    visited: usize,
}

impl Visit<'_, '_, '_> {
    fn entries(&mut self, prefix: &str, entries: &[(Id, Id)], depth: usize) -> Result<(), String> {
        for (key, value) in entries.iter().filter(|(_, value)| self.holding.tensors(*value)) {
            let key = key_of(self.pickle, *key).ok_or_else(|| {
                format!("expected a name for the tensors in `{prefix}`, found {}", self.pickle.value(*key))
            })?;
            self.value(&format!("{prefix}{key}"), *value, depth)?;
        }
        Ok(())
    }

    fn value(&mut self, name: &str, value: Id, depth: usize) -> Result<(), String> {
        let shown = || name.chars().take(100).collect::<String>();
        if name.len() > LONGEST_NAME {
            return Err(format!("the name of a tensor has {} bytes: `{}…`", name.len(), shown()));
        }
        // Collections can hold the same collection many times, so the file's length does not limit the visits.
        self.visited += 1;
        if self.visited > MOST_TENSORS {
            return Err(format!("more than {MOST_TENSORS} tensors; a checkpoint has far fewer"));
        }
        if depth > DEEPEST {
            return Err(format!("collections are nested deeper than {DEEPEST} at `{}`", shown()));
        }
        match self.pickle.value(value) {
            Value::Tensor(view) => {
                if self.tensors.insert(name.to_owned(), view.as_ref()).is_some() {
                    return Err(format!("the tensor `{name}` is there twice"));
                }
                Ok(())
            }
            Value::OtherTensor(kind) => Err(format!("`{name}` is {kind}, which is not supported")),
            Value::Dictionary(entries) => self.entries(&format!("{name}."), entries, depth + 1),
            Value::Tuple(items) | Value::List(items) => items
                .iter()
                .enumerate()
                .filter(|(_, item)| self.holding.tensors(**item))
                .try_for_each(|(index, item)| self.value(&format!("{name}.{index}"), *item, depth + 1)),
            _ => Ok(()),
        }
    }
}
