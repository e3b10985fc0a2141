//! The sizes of a source's graphs: the caller's, the model's or the profile's.

use super::{Source, SourceKind};
use crate::profile::{Batches, Profile, Shapes as ProfileShapes};
use crate::{Error, ModelSizes, Result, Tile};
use tileforge_contract::{Axis, Extent, Meaning, Sizes, Task};

/// Tokens of a text if neither the network nor the model file sets a number. CLIP's tokenizers pad to this length.
const TOKENS: usize = 77;

impl Source {
    /// The number of tokens that a graph is fixed to.
    fn tokens_of_graph(&self) -> Option<usize> {
        let SourceKind::Graph(model) = &self.kind else { return None };
        self.contract.inputs.iter().find_map(|input| {
            let axis = input.axes.iter().position(|axis| matches!(axis, Axis::Tokens(_)))?;
            let port = model.inputs.iter().find(|port| port.name == input.name)?;
            port.ty.dims.get(axis)?.fixed()
        })
    }

    /// The sizes of the graphs, the smallest first.
    pub(super) fn all_sizes(&self, profile: &Profile) -> Result<Vec<Sizes>> {
        let inputs = &self.contract.inputs;
        let own = self.sizes.as_ref().and_then(|sizes| sizes.tokens);
        let most = inputs.iter().find_map(|input| input.most_tokens()).or(own).unwrap_or(TOKENS);
        let tokens = self.tokens_of_graph().unwrap_or(most);
        let (height, width) =
            (inputs.iter().find_map(|input| input.height()), inputs.iter().find_map(|input| input.width()));
        if !self.asked.is_empty() {
            return self.asked_sizes(profile, tokens);
        }
        if self.sizes.is_none() && inputs.iter().any(|input| input.frames().is_some()) {
            return Err(Error::NoSizes { path: self.path.clone() });
        }
        let frames = match (&self.sizes, inputs.iter().find_map(|input| input.frames())) {
            (Some(sizes), Some(extent)) => extent.size(sizes.frames).ok_or_else(|| {
                let reason = format!("its model file: expected {extent} frames, found {}", sizes.frames);
                Error::input(&self.path, reason)
            })?,
            _ => 1,
        };
        let shapes = match (self.shapes(profile), height.zip(width)) {
            (Some(shapes), _) => shapes,
            // Only the number of tokens varies.
            (None, None) => ProfileShapes::new(vec![Tile { height: 1, width: 1 }], Batches::default()),
            (None, Some(_)) => return Err(self.no_shapes(&profile.name)),
        };
        let size_for = |extent: Option<Extent>, length: usize| extent.map_or(1, |extent| extent.size_for(length));
        let mut sizes = Vec::new();
        for tile in &shapes.tiles {
            let (height, width) = (size_for(height, tile.height), size_for(width, tile.width));
            let of = |batch| Sizes { batch, height, width, frames, tokens };
            // A network of one size has its own tile, not the profile's.
            let tile = self.tile_of(height, width).filter(|_| self.has_one_size()).unwrap_or(*tile);
            sizes.extend(self.batches_of(Some(&shapes), tile).into_iter().map(of));
        }
        Ok(self.with_lengths(sizes))
    }

    /// Whether the network takes only one picture size.
    fn has_one_size(&self) -> bool {
        self.contract.inputs.iter().any(|input| input.height().and_then(Extent::only).is_some())
    }

    /// The model's own shapes, else those of the profile.
    fn shapes(&self, profile: &Profile) -> Option<ProfileShapes> {
        self.sizes.as_ref().map(ModelSizes::shapes).or_else(|| profile.shapes_for(self.task()).cloned())
    }

    /// The batches of a tile, the smallest first: the requested ones, else the shapes' batches.
    pub(super) fn batches_of(&self, shapes: Option<&ProfileShapes>, tile: Tile) -> Vec<usize> {
        if !self.batches.is_empty() {
            return self.batches.clone();
        }
        let mut batches: Vec<usize> = shapes.map_or_else(|| vec![1], |shapes| shapes.batches_of(tile).collect());
        // Tiles that remain after full batches run one by one.
        if matches!(self.task(), Task::Upscale | Task::VaeEncoder | Task::VaeDecoder) && !batches.contains(&1) {
            batches.insert(0, 1);
        }
        batches
    }

    /// These sizes for each requested number of tokens, in ascending order and without duplicates.
    fn with_lengths(&self, sizes: Vec<Sizes>) -> Vec<Sizes> {
        let mut all = if self.lengths.is_empty() {
            sizes
        } else {
            let of = |sizes: Sizes| self.lengths.iter().map(move |&tokens| Sizes { tokens, ..sizes });
            sizes.into_iter().flat_map(of).collect()
        };
        all.sort_by_key(|sizes| (sizes.height * sizes.width, sizes.height, sizes.tokens, sizes.batch));
        all.dedup();
        all
    }

    /// The sizes that the caller requested in pixels, the smallest first.
    fn asked_sizes(&self, profile: &Profile, tokens: usize) -> Result<Vec<Sizes>> {
        let tensors = || self.contract.inputs.iter().chain(&self.contract.outputs);
        // A network without pixels works on latent pictures.
        let pixels = tensors().find(|tensor| matches!(tensor.meaning, Meaning::Pixels { .. } | Meaning::Depth { .. }));
        let factor = if pixels.is_some() { 1 } else { self.latent_pixels };
        let measured = pixels.or_else(|| tensors().find(|tensor| tensor.height().is_some()));
        let extents = measured.and_then(|tensor| Some((tensor, tensor.height()?, tensor.width()?)));
        let Some((measured, height, width)) = extents else {
            return Err(Error::input(&self.path, "sizes in pixels are for pictures, and this network has none"));
        };
        let exact = |extent: Extent, found: usize, what: &str| {
            let units = found.checked_div(factor).filter(|_| found.is_multiple_of(factor));
            units.and_then(|units| extent.size(units)).ok_or_else(|| {
                let next = extent.length(extent.size_for(found.div_ceil(factor))).map_or(0, |units| units * factor);
                let name = &measured.name;
                Error::input(
                    &self.path,
                    format!("`{name}`: no {what} of {found} is possible; the next one that is has {next}"),
                )
            })
        };
        let frames = match (measured.frames(), self.frames) {
            (None, None) => 1,
            (None, Some(_)) => {
                return Err(Error::input(&self.path, "frames are for videos, and this network has none"));
            }
            (Some(extent), None) => extent.minimum,
            // The first chunk of a video has another number of frames than the later chunks.
            (Some(extent), Some(frames)) if self.is_part && self.contract.carried().next().is_some() => {
                extent.size_for(frames + 1).saturating_sub(1).max(extent.minimum)
            }
            (Some(extent), Some(frames)) => {
                // A network without pixels works on latent frames.
                let known = if pixels.is_some() { extent } else { self.latent_frames };
                known
                    .size(frames)
                    .and_then(|size| if pixels.is_some() { Some(size) } else { extent.size(size) })
                    .ok_or_else(|| {
                        let name = &measured.name;
                        Error::input(&self.path, format!("frames of `{name}`: expected {known}, found {frames}"))
                    })?
            }
        };
        let shapes = self.shapes(profile);
        let mut sizes = Vec::new();
        for size in &self.asked {
            let height = exact(height, size.height as usize, "height")?;
            let width = exact(width, size.width as usize, "width")?;
            let tile = self.tile_of(height, width).ok_or_else(|| {
                Error::input(&self.path, format!("no input of {size} is possible; choose a larger size"))
            })?;
            let batches = self.batches_of(shapes.as_ref(), tile);
            sizes.extend(batches.into_iter().map(|batch| Sizes { batch, height, width, frames, tokens }));
        }
        Ok(self.with_lengths(sizes))
    }

    /// A size in the pixels of the input, in the form of a profile's shapes.
    fn tile_of(&self, height: usize, width: usize) -> Option<Tile> {
        let mut inputs = self.contract.inputs.iter();
        let (rows, columns) = inputs.find_map(|input| Some((input.height()?, input.width()?)))?;
        Some(Tile { height: rows.length(height)?, width: columns.length(width)? })
    }

    /// The error for a profile without sizes for the graph's task.
    fn no_shapes(&self, profile: &str) -> Error {
        let task = self.task();
        let remedy = match self.kind {
            SourceKind::Graph(_) | SourceKind::Folded { .. } => "add them, or export its graph with fixed shapes",
            SourceKind::Checkpoint { .. } => "add them, or give a profile that has them",
        };
        Error::input(
            &self.path,
            format!("the profile {profile} has no shapes for task {task} (`tasks: {task}`); {remedy}"),
        )
    }
}
