//! What can be found out about a foreign file without running it.

use super::picture::{Layout, Picture, receptive_field};
use super::{FileForm, open};
use crate::Result;
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_contract::Task;
use tileforge_files::bounded_to;
use tileforge_graph::infer::has_rule;
use tileforge_graph::{Dim, Model, Reach, TensorType};

/// Sizes at which the receptive field is determined; they are multiples of the sizes that most networks need.
const SIZES: [[usize; 2]; 2] = [[192, 256], [256, 320]];

/// What a foreign file states, and what follows from its operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The file's own form.
    pub file: FileForm,
    /// The picture that it works on, or why it works on none.
    pub picture: Result<Picture, String>,
    /// Output pixels for each input pixel; `None` if only a run can tell.
    pub scale: Option<usize>,
    /// Its receptive field, or why that cannot be stated.
    pub receptive_field: Result<Reach, String>,
    /// Numbers of nodes for each operator without a rule of shape inference.
    pub without_rule: BTreeMap<String, usize>,
}

impl Survey {
    /// Looks at a file.
    ///
    /// # Errors
    /// As [`open`].
    pub fn of(path: &Path) -> Result<Self> {
        let graph = open(path)?;
        let mut without_rule = BTreeMap::new();
        for node in &graph.model.nodes {
            if !has_rule(node) {
                *without_rule.entry(node.operator.clone()).or_default() += 1;
            }
        }
        let picture = picture_of(&graph.model);
        let (mut scale, mut field) = (None, Err("it works on no pictures".to_owned()));
        if let Ok(picture) = &picture {
            let models = models(&graph.model, picture);
            // The scale follows from fixed sizes even where a formula has remainders.
            let measured = models.iter().map(|model| Picture::of(model).ok()?.scale());
            let measured =
                measured.collect::<Option<Vec<_>>>().filter(|all| all.iter().all(|one| Some(one) == all.first()));
            scale = picture.scale().or_else(|| measured?.first().copied());
            field = match scale {
                Some(scale) => receptive_field(&models, picture, scale),
                None => Err("its scale is not known".to_owned()),
            };
        }
        Ok(Self { file: graph.file, picture, scale, receptive_field: field, without_rule })
    }

    /// The order of the axes of its input.
    pub fn layout(&self) -> Option<Layout> {
        self.picture.as_ref().ok().map(|picture| picture.input.layout)
    }

    /// What was found, for people: names of facts, and the facts.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let FileForm { opset, producer: (name, version), inputs, outputs, half, quantised } = &self.file;
        let ports = |ports: &[(String, TensorType)]| {
            let ports = ports.iter().map(|(name, ty)| format!("{name} {ty}"));
            bounded_to(ports.collect::<Vec<_>>().join(", "), LONGEST_LINE)
        };
        let precision = match (half, quantised) {
            (true, _) => "FP16 or BF16, which is lifted to FP32 when an engine is built",
            (false, true) => "FP32, with quantised values, which stay",
            (false, false) => "FP32",
        };
        let picture = match &self.picture {
            Ok(picture) => format!("{} channels, {}{}", picture.channels, picture.input.layout, sizes(picture)),
            Err(reason) => format!("none: {reason}"),
        };
        let field = match &self.receptive_field {
            Ok(Reach { radius: 1, period: 1 }) => "1 pixel in each direction".into(),
            Ok(Reach { radius, period: 1 }) => format!("{radius} pixels in each direction"),
            Ok(Reach { radius, period }) => format!("{radius} pixels in each direction, in multiples of {period}"),
            Err(reason) => format!("not stated: {reason}"),
        };
        let mut facts = vec![
            ("made by", bounded_to(format!("{name} {version}"), LONGEST_LINE).trim().to_owned()),
            ("opset", opset.to_string()),
            ("inputs", ports(inputs)),
            ("outputs", ports(outputs)),
            ("precision", precision.to_owned()),
            ("picture", picture),
        ];
        if self.picture.is_ok() {
            let scale = self.scale.map_or_else(|| "found when an engine is built".into(), |scale| format!("×{scale}"));
            facts.extend([("scale", scale), ("receptive field", field)]);
        }
        if !self.without_rule.is_empty() {
            let operators = self.without_rule.iter().map(|(name, count)| format!("{name} ({count})"));
            let operators = bounded_to(operators.collect::<Vec<_>>().join(", "), LONGEST_LINE);
            facts.push(("passed through", format!("operators without shape inference here: {operators}")));
        }
        facts
    }

    /// What no file states although it must be right: the range of the pixels, the order of their channels, the task.
    pub fn missing(&self) -> String {
        match &self.picture {
            Ok(picture) if picture.channels == 3 => {
                "the task, the range of its pixels (0 to 1 is usual) and the order of its channels (RGB is usual)"
                    .into()
            }
            Ok(_) => "the task and the range of its pixels (0 to 1 is usual)".into(),
            Err(_) => "what its tensors mean".into(),
        }
    }

    /// The task that the user should state, if the usual one fits.
    pub fn task(&self) -> Task {
        if self.picture.is_ok() { Task::Upscale } else { Task::Tensors }
    }
}

/// The largest length of a line in bytes: names in graphs can have any length.
const LONGEST_LINE: usize = 2000;

fn sizes(picture: &Picture) -> String {
    let [_, rows, columns] = &picture.input.dims;
    match (rows.fixed(), columns.fixed()) {
        (Some(rows), Some(columns)) => format!(", {columns}×{rows} alone"),
        _ => ", free sizes".into(),
    }
}

/// The picture of a graph. An output whose type shape inference does not tell may be one in the input's form.
fn picture_of(model: &Model) -> Result<Picture, String> {
    let mut assumed = model.clone();
    if let ([input], [output]) = (model.inputs.as_slice(), assumed.outputs.as_mut_slice())
        && !model.types.contains_key(&output.name)
    {
        let free = |(axis, dim): (usize, &Dim)| match (axis, dim) {
            (1 | 3, Dim::Fixed(_)) => dim.clone(),
            _ => Dim::symbol(format!("{}.{axis}", output.name)),
        };
        output.ty.dims = input.ty.dims.iter().enumerate().map(free).collect();
    }
    Picture::of(&assumed)
}

/// The graph for two sizes of the picture, or for its own.
fn models(model: &Model, picture: &Picture) -> Vec<Model> {
    if !picture.is_dynamic() {
        return vec![model.clone()];
    }
    let of = |sides: [usize; 2]| {
        let port = model.inputs.first()?;
        let [rows, columns] = picture.input.layout.sides();
        let length = |(axis, dim): (usize, &Dim)| {
            dim.fixed().unwrap_or(match axis {
                axis if axis == rows => sides[0],
                axis if axis == columns => sides[1],
                _ => 1,
            })
        };
        let dims = port.ty.dims.iter().enumerate().map(length).collect();
        model.specialised(&BTreeMap::from([(port.name.clone(), dims)])).ok()
    };
    SIZES.into_iter().filter_map(of).collect()
}
