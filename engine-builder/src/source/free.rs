//! Graphs whose sizes are free. With a free height and width, the runtime can cut a picture into tiles that suit it;
//! with a free batch, it runs as many samples together as wait, in one session.

use super::graphs::{Free, FreeGraph};
use super::{Source, SourceKind};
use crate::profile::{Profile, Shapes as ProfileShapes};
use crate::{Result, Tile};
use std::collections::BTreeSet;
use tileforge_contract::{Axis, Provider, Sizes, Task};
use tileforge_exporter::{Error as ExportError, Shapes as FixedShapes};
use tileforge_graph::{Dim, Model};

impl Source {
    /// The graphs of any size, if the profile asks for them. There are none if the caller or the model file sets
    /// sizes, if the graph depends on the size, or if the receptive field is unbounded. Such a network computes
    /// something else in each size, so only measured sizes are used.
    pub(super) fn any_size(&self, profile: &Profile) -> Result<Vec<FreeGraph>> {
        let shapes = profile.shapes_for(self.task()).filter(|_| self.sizes.is_none() && self.asked.is_empty());
        let Some((shapes, largest)) = shapes.and_then(|shapes| Some((shapes, shapes.largest_tile?))) else {
            return Ok(Vec::new());
        };
        if self.contract.receptive_field.radius().is_none() {
            return Ok(Vec::new());
        }
        let Some(model) = self.dynamic()? else { return Ok(Vec::new()) };
        let batches: BTreeSet<usize> =
            shapes.tiles.iter().flat_map(|tile| self.batches_of(Some(shapes), *tile)).collect();
        let of = |batch| {
            let model = self.of_batch(&model, batch)?;
            Ok(FreeGraph { model, largest: self.largest(shapes, largest, batch)?, free: Free::Size })
        };
        batches.into_iter().map(of).collect()
    }

    /// The graphs of any batch, one for each size, up to the size's largest batch. They are for the networks of
    /// pipelines that run for several requests at once, and for ONNX Runtime's CPU kernels: these gain nothing from a
    /// batch that is known beforehand, and one session instead of one for each batch holds the weights once. Plans and
    /// OpenVINO's kernels are made for fixed shapes. There are none unless each of these sizes has several batches, and
    /// one of them is a single sample.
    pub(super) fn any_batch(&self, profile: &Profile, sizes: &[Sizes]) -> Result<Vec<FreeGraph>> {
        let SourceKind::Checkpoint { checkpoint, task, hints } = &self.kind else { return Ok(Vec::new()) };
        let takes_any = matches!(task, Task::Unet | Task::TextEncoder) && self.contract.has_separate_samples();
        // Sizes are sorted, their batches last.
        let of_one_size = |one: &Sizes, next: &Sizes| Sizes { batch: one.batch, ..*next } == *one;
        let groups: Vec<&[Sizes]> = sizes.chunk_by(of_one_size).collect();
        let are_several =
            groups.iter().all(|group| group.len() > 1 && group.first().is_some_and(|sizes| sizes.batch == 1));
        if profile.provider != Provider::Cpu || !takes_any || !are_several {
            return Ok(Vec::new());
        }
        let mut graphs = Vec::new();
        for largest in groups.into_iter().filter_map(|group| group.last()) {
            let shapes = FixedShapes::from(self.contract.input_shapes(largest)?).with_free_batch();
            let model = match tileforge_exporter::export_task(checkpoint, Some(*task), &shapes, hints) {
                Err(ExportError::NeedsFixedShape { .. }) => return Ok(Vec::new()),
                exported => exported?.model,
            };
            graphs.push(FreeGraph { model, largest: *largest, free: Free::Batch });
        }
        Ok(graphs)
    }

    /// The graph with free heights and widths; `None` if it depends on them.
    fn dynamic(&self) -> Result<Option<Model>> {
        let model = match &self.kind {
            SourceKind::Checkpoint { checkpoint, task, hints } => {
                match tileforge_exporter::export_task(checkpoint, Some(*task), &FixedShapes::default(), hints) {
                    Err(ExportError::NeedsFixedShape { .. }) => return Ok(None),
                    exported => exported?.model,
                }
            }
            SourceKind::Graph(model) => model.as_ref().clone(),
            SourceKind::Folded { .. } => return Ok(None),
        };
        let is_free =
            |axis: &Axis, dim: &Dim| !matches!(axis, Axis::Height(_) | Axis::Width(_)) || dim.fixed().is_none();
        let all_free = self.contract.inputs.iter().all(|input| {
            let port = model.inputs.iter().find(|port| port.name == input.name);
            port.is_some_and(|port| input.axes.iter().zip(&port.ty.dims).all(|(axis, dim)| is_free(axis, dim)))
        });
        Ok(all_free.then_some(model))
    }

    /// The graph for `batch` pictures in one run.
    fn of_batch(&self, model: &Model, batch: usize) -> Result<Model> {
        let mut model = model.clone();
        for input in &self.contract.inputs {
            let Some(port) = model.inputs.iter_mut().find(|port| port.name == input.name) else { continue };
            let batches = input.axes.iter().zip(&mut port.ty.dims).filter(|(axis, _)| **axis == Axis::Batch);
            batches.for_each(|(_, dim)| *dim = Dim::Fixed(batch));
        }
        model.infer_types().map_err(|error| error.in_file(&self.path))?;
        Ok(model)
    }

    /// The largest sizes: the profile's largest tile, or a smaller one if that takes too much memory.
    fn largest(&self, shapes: &ProfileShapes, largest: Tile, batch: usize) -> Result<Sizes> {
        let extents = self.contract.inputs.iter().find_map(|input| Some((input.height()?, input.width()?)));
        let sizes = |Tile { height, width }: Tile| {
            let (height, width) =
                extents.map_or((1, 1), |(rows, columns)| (rows.size_for(height), columns.size_for(width)));
            Sizes { batch, height, width, ..Sizes::default() }
        };
        let least = sizes(Tile { height: 1, width: 1 });
        let mut tile = largest;
        loop {
            let found = sizes(tile);
            let step = self.graph(&found)?.largest_step().map_or(0, |(_, bytes)| bytes);
            let Some(most) = shapes.largest_step.as_ref().map(|most| most.bytes).filter(|most| step > *most) else {
                return Ok(found);
            };
            if found == least {
                return Ok(found);
            }
            // Memory grows in proportion to the pixels, or faster if each pixel attends to others.
            let share = (most as f64 / step as f64).sqrt().min(0.99);
            let smaller = |side: usize| ((side as f64 * share) as usize).max(1);
            tile = Tile { height: smaller(tile.height), width: smaller(tile.width) };
        }
    }
}
