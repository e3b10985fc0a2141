//! What can be found in a file from elsewhere without running it.

use super::picture::{Layout, Picture, receptive_field};
use super::{FileForm, open};
use crate::Result;
use std::collections::BTreeMap;
use std::path::Path;
use tileforge_graph::{Model, Reach};

/// Sizes at which the receptive field is looked at, in multiples of which most networks take pictures.
const SIZES: [[usize; 2]; 2] = [[192, 256], [256, 320]];

/// What a file from elsewhere says, and what follows from its operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The file's own form.
    pub file: FileForm,
    /// The picture that it works on, or why it works on none.
    pub picture: Result<Picture, String>,
    /// Output pixels for each input pixel; `None` if only running it tells.
    pub scale: Option<usize>,
    /// How far it sees, or why that cannot be stated.
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
            if node.outputs.first().is_some_and(|name| !graph.model.types.contains_key(name)) {
                *without_rule.entry(node.operator.clone()).or_default() += 1;
            }
        }
        let picture = Picture::of(&graph.model);
        let (mut scale, mut field) = (None, Err("it works on no pictures".to_owned()));
        if let Ok(picture) = &picture {
            let models = models(&graph.model, picture);
            // A formula with remainders says less than sizes do.
            let measured = models.iter().map(|model| Picture::of(model).ok()?.scale());
            let measured = measured.collect::<Option<Vec<_>>>().filter(|all| all.iter().all(|one| Some(one) == all.first()));
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
}

/// The graph for two sizes of the picture, or for its own.
fn models(model: &Model, picture: &Picture) -> Vec<Model> {
    if !picture.is_dynamic() {
        return vec![model.clone()];
    }
    let of = |sides: [usize; 2]| {
        let Some(port) = model.inputs.first() else { return None };
        let [rows, columns] = picture.input.layout.sides();
        let length = |(axis, dim): (usize, &tileforge_graph::Dim)| {
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
