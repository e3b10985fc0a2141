//! The inputs of detection: names, shapes, and hints.

use crate::{Checkpoint, MissingHyperparameter};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use tileforge_graph::DataType;

/// Why an architecture's hyperparameters cannot be determined from a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What was expected and what was found.
    pub(super) reason: String,
    /// The hyperparameter whose value would resolve this, if there is one.
    pub(super) missing: Option<MissingHyperparameter>,
}

impl Mismatch {
    /// The tensors contradict each other, a configuration, or what is supported: `reason` says what was expected and
    /// what was found.
    pub fn new(reason: impl Into<String>) -> Self {
        Mismatch { reason: reason.into(), missing: None }
    }

    /// Nothing determines the hyperparameter `name`, which can have `values`.
    pub fn missing(reason: impl Into<String>, name: &'static str, values: &'static [&'static str]) -> Self {
        Mismatch { reason: reason.into(), missing: Some(MissingHyperparameter { name, values }) }
    }

    /// Checks the filters of a network that halves its image from level to level: sizes must not overflow, and the
    /// filters of each level must divide into the groups of the normalisation.
    pub(super) fn unless_levels_fit(channels: &[usize], norm_num_groups: usize) -> Result<(), Self> {
        // No published network comes near 8 levels.
        if !(1..=8).contains(&channels.len()) {
            return Err(Mismatch::new(format!("expected 1 to 8 levels, found {}", channels.len())));
        }
        match channels.iter().find(|filters| norm_num_groups == 0 || *filters % norm_num_groups != 0) {
            Some(filters) => Err(Mismatch::new(format!(
                "{filters} filters do not divide into {norm_num_groups} groups (`norm_num_groups`)"
            ))),
            None => Ok(()),
        }
    }
}

/// The names and shapes of a checkpoint's tensors, and hints for the hyperparameters that they do not determine.
#[derive(Debug)]
pub struct Keys<'a> {
    checkpoint: &'a Checkpoint,
    /// What the user sets. It takes precedence over the checkpoint's metadata.
    hints: &'a BTreeMap<String, String>,
    used: RefCell<BTreeSet<String>>,
    config: OnceCell<Result<Map<String, Value>, Mismatch>>,
}

impl<'a> Keys<'a> {
    /// The keys of a checkpoint, with the user's hints.
    pub fn new(checkpoint: &'a Checkpoint, hints: &'a BTreeMap<String, String>) -> Self {
        Keys { checkpoint, hints, used: RefCell::default(), config: OnceCell::new() }
    }

    /// Whether there is such a tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.checkpoint.tensors().contains_key(name)
    }

    /// Whether the name of a tensor begins with `prefix`.
    pub fn any_with_prefix(&self, prefix: &str) -> bool {
        self.checkpoint.tensors().range(prefix.to_owned()..).next().is_some_and(|(name, _)| name.starts_with(prefix))
    }

    /// The sizes of a tensor with `N` dimensions. None of them is 0.
    ///
    /// # Errors
    /// There is no such tensor, it is empty, or it has another number of dimensions.
    pub fn dims<const N: usize>(&self, name: &str) -> Result<[usize; N], Mismatch> {
        let weight = self.checkpoint.tensors().get(name);
        let weight = weight.ok_or_else(|| Mismatch::new(format!("expected a tensor `{name}`, found none")))?;
        let dims = weight.dims();
        let sizes = dims.try_into().ok().filter(|_| !dims.contains(&0));
        sizes.ok_or_else(|| {
            Mismatch::new(format!("expected `{name}` to have {N} dimensions and to hold something, found {dims:?}"))
        })
    }

    /// The values of a small tensor of bytes, which some training programs store beside the weights.
    pub(super) fn values(&self, name: &str) -> Option<Vec<u8>> {
        const MOST: usize = 64;
        let tensor = self.checkpoint.tensors().get(name)?;
        let bytes = tensor.data_type() == DataType::U8 && tensor.elements() <= MOST;
        bytes.then(|| tensor.to_bytes().ok().map(|bytes| bytes.into_owned())).flatten()
    }

    /// The scale of a pixel shuffle of `channels` after the convolution with this weight `[channels · scale², …]`.
    ///
    /// # Errors
    /// There is no such weight, or no scale gives its number of filters.
    pub fn shuffle_scale(&self, weight: &str, channels: usize) -> Result<usize, Mismatch> {
        let [shuffled, ..] = self.dims::<4>(weight)?;
        let scale = (shuffled / channels.max(1)).isqrt();
        match shuffled == channels * scale * scale {
            true => Ok(scale),
            false => {
                Err(Mismatch::new(format!("expected `{weight}` to have {channels} · scale² filters, found {shuffled}")))
            }
        }
    }

    /// The factors of the pixel shuffles after the convolutions `PREFIX0`, `PREFIX2`, …
    ///
    /// # Errors
    /// A convolution's filters are not a square number of times its inputs.
    pub fn shuffle_factors(&self, prefix: &str) -> Result<Vec<usize>, Mismatch> {
        let names =
            (0..).step_by(2).map(|number| format!("{prefix}{number}.weight")).take_while(|name| self.contains(name));
        names.map(|name| self.shuffle_scale(&name, self.dims::<4>(&name)?[1])).collect()
    }

    /// The side of the windows and the number of heads of a table of relative position biases, which has a row for each
    /// distance of two pixels in a window.
    ///
    /// # Errors
    /// There is no such table, or the number of its rows is not the square of an odd number.
    pub fn bias_table(&self, name: &str) -> Result<(usize, usize), Mismatch> {
        let [rows, heads] = self.dims::<2>(name)?;
        let distances = rows.isqrt();
        match distances * distances == rows && distances % 2 == 1 {
            true => Ok((distances.div_ceil(2), heads)),
            false => Err(Mismatch::new(format!("expected `{name}` to have (2 · window − 1)² rows, found {rows}"))),
        }
    }

    /// Whether every second block has rolled windows, by the hint `rolled`, else by a buffer: a rolled block has a
    /// mask of the training size. Only for networks whose signature contains another buffer: then the checkpoint has
    /// all buffers.
    ///
    /// # Errors
    /// The hint is neither `true` nor `false`.
    pub fn mask_of_second_block(&self) -> Result<bool, Mismatch> {
        match self.hint("rolled") {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(Mismatch::new(format!("expected `rolled` to be true or false, found `{other}`"))),
            None => Ok(self.contains("layers.0.residual_group.blocks.1.attn_mask")),
        }
    }

    /// Height and width of the windows of rectangular attention (DAT, RGT), from the buffers `rpe_biases`, which has a
    /// row for each distance of two pixels in a window, and `relative_position_index` `[area, area]`.
    ///
    /// The sizes of both buffers determine two sides, but not which one is the height. The last row, `[height − 1,
    /// width − 1]`, shows it; if that row holds other values, the shorter side counts as the height.
    ///
    /// # Errors
    /// A buffer is missing, or no whole sides fit.
    pub fn rectangle(&self, attention: &str) -> Result<[usize; 2], Mismatch> {
        self.rectangle_of(&format!("{attention}.rpe_biases"), &format!("{attention}.relative_position_index"))
    }

    /// As [`Keys::rectangle`], from buffers of other names.
    ///
    /// # Errors
    /// As [`Keys::rectangle`].
    pub fn rectangle_of(&self, biases: &str, index: &str) -> Result<[usize; 2], Mismatch> {
        let ([distances, _], [area, _]) = (self.dims::<2>(biases)?, self.dims::<2>(index)?);
        // (2 · height − 1) · (2 · width − 1) = 4 · area − 2 · (height + width) + 1
        let sum = area.checked_mul(4).and_then(|four| (four + 1).checked_sub(distances)).map_or(0, |twice| twice / 2);
        let fits = |side: &usize| side * (sum - side) == area && (2 * side - 1) * (2 * (sum - side) - 1) == distances;
        // A longer side than this makes no windows.
        let shorter = (1..=(sum / 2).min(1 << 12)).find(fits).ok_or_else(|| {
            let rows = format!("(2 · height − 1) · (2 · width − 1) rows with height · width = {area}");
            Mismatch::new(format!("expected `{biases}` to have {rows}, found {distances}"))
        })?;
        let sides = [shorter, sum - shorter];
        let last = self.checkpoint.tensors().get(biases).and_then(|weight| weight.rows([distances as u32 - 1]).ok());
        let last = last.and_then(|row| row.cast(DataType::F32).ok()?.to_f32s().ok()).unwrap_or_default();
        let is_reversed = last.iter().map(|last| last + 1.0).eq(sides.iter().rev().map(|side| *side as f32));
        Ok(if is_reversed { [sides[1], sides[0]] } else { sides })
    }

    /// The number of members in a list of modules: one more than the largest `i` among the names `PREFIXi…`, or 0.
    ///
    /// An `i` as large as the number of tensors is a damaged name and does not count; the tensor is then left over.
    pub fn count(&self, prefix: &str) -> usize {
        let tensors = self.checkpoint.tensors();
        let names = tensors.keys().filter_map(|name| name.strip_prefix(prefix));
        let indices = names.filter_map(|rest| rest.split('.').next()?.parse::<usize>().ok());
        indices.filter(|index| *index < tensors.len()).max().map_or(0, |last| last + 1)
    }

    /// The value of a hyperparameter that the tensors do not determine: the user's, else the one in the checkpoint's
    /// metadata.
    pub fn hint(&self, name: &str) -> Option<&str> {
        self.used.borrow_mut().insert(name.to_owned());
        self.hints.get(name).or_else(|| self.checkpoint.metadata().get(name)).map(String::as_str)
    }

    /// A hyperparameter that the tensors do not determine: the user's value, else the one in the `config.json` beside
    /// the weights, else the one in the checkpoint's metadata. A null counts as no value.
    ///
    /// # Errors
    /// The value is not a `T`, or the configuration cannot be read.
    pub fn setting<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Mismatch> {
        self.setting_at(name, name)
    }

    /// As [`Keys::setting`], for a hyperparameter that has another name in the configuration: `path` joins the names
    /// there, from the outermost object to the innermost, with dots.
    ///
    /// # Errors
    /// As [`Keys::setting`].
    pub fn setting_at<T: DeserializeOwned>(&self, name: &str, path: &str) -> Result<Option<T>, Mismatch> {
        let Some((origin, value)) = self.declared(name, path)? else { return Ok(None) };
        let text = value.to_string();
        if !is_finite(&value) {
            return Err(Mismatch::new(format!("{origin} is {text}: expected numbers of less than 3.4e38")));
        }
        serde_json::from_value(value).map(Some).map_err(|e| Mismatch::new(format!("{origin} is {text}: {e}")))
    }

    /// The user's value of a hyperparameter.
    pub fn user_setting(&self, name: &str) -> Option<&str> {
        self.used.borrow_mut().insert(name.to_owned());
        self.hints.get(name).map(String::as_str)
    }

    /// Compares the value of a hyperparameter with the one that was detected from the tensors. Dots in its name lead
    /// into the configuration, as in [`Keys::setting_at`].
    ///
    /// # Errors
    /// There is another value.
    pub fn agree(&self, name: &str, tensors: impl Serialize) -> Result<(), Mismatch> {
        let tensors = serde_json::to_value(tensors).map_err(|e| Mismatch::new(e.to_string()))?;
        match self.declared(name, name)? {
            Some((origin, declared)) if !same(&declared, &tensors) => Err(Mismatch::new(format!(
                "{origin} is {declared}, the weights say {tensors}: they do not belong to each other"
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses every value of a hyperparameter except the supported one. No value counts as the supported one. Dots in
    /// its name lead into the configuration, as in [`Keys::setting_at`].
    ///
    /// # Errors
    /// There is another value.
    pub fn only(&self, name: &str, supported: impl Serialize) -> Result<(), Mismatch> {
        let supported = serde_json::to_value(supported).map_err(|e| Mismatch::new(e.to_string()))?;
        match self.declared(name, name)? {
            Some((origin, declared)) if !same(&declared, &supported) => {
                Err(Mismatch::new(format!("{origin} is {declared}, which is not supported; expected {supported}")))
            }
            _ => Ok(()),
        }
    }

    /// The value of a hyperparameter, and a text that names its origin. `path` leads to it in the configuration.
    fn declared(&self, name: &str, path: &str) -> Result<Option<(String, Value)>, Mismatch> {
        let parse = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| text.into());
        self.used.borrow_mut().insert(name.to_owned());
        if let Some(text) = self.hints.get(name) {
            return Ok(Some((format!("the setting `{name}`"), parse(text))));
        }
        let config =
            self.config.get_or_init(|| self.checkpoint.config().map(Option::unwrap_or_default).map_err(Mismatch::new));
        let (outermost, inside) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let mut found = config.as_ref().map_err(Clone::clone)?.get(outermost);
        for name in inside.into_iter().flat_map(|path| path.split('.')) {
            found = found.and_then(|object| object.get(name));
        }
        match found.filter(|value| !value.is_null()) {
            Some(value) => Ok(Some((format!("config.json says `{path}`"), value.clone()))),
            None => {
                let origin = || format!("the checkpoint's metadata says `{name}`");
                Ok(self.checkpoint.metadata().get(name).map(|text| (origin(), parse(text))))
            }
        }
    }

    /// The user's hints that detection did not use.
    pub(super) fn unused_hints(&self) -> Vec<&str> {
        let used = self.used.borrow();
        self.hints.keys().filter(|name| !used.contains(*name)).map(String::as_str).collect()
    }
}

/// Whether all numbers are finite in the type that graphs compute with.
fn is_finite(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| (number as f32).is_finite()),
        Value::Array(values) => values.iter().all(is_finite),
        Value::Object(values) => values.values().all(is_finite),
        _ => true,
    }
}

/// Whether two values are equal; 1 equals 1.0.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => a == b,
    }
}
