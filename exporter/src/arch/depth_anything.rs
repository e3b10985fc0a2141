//! Depth Anything V2: the relative depth of each pixel of one image, from the features of DINOv2 and a dense prediction
//! head.
//!
//! Paper: <https://arxiv.org/abs/2406.09414>. Upstream: <https://github.com/DepthAnything/Depth-Anything-V2>.
//! Reference: transformers, `models/depth_anything/modeling_depth_anything.py`.

use super::depth::{
    Preprocess, contract, depth_shape, detect_backbone, detect_head, published_backbone, published_head,
};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{Dinov2, Dpt, Naming, PATCH, Scope};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::DepthUnit;
use tileforge_graph::{DataType, TensorType};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DepthAnything {
    backbone: Dinov2,
    head: Dpt,
    preprocess: Preprocess,
}

impl DepthAnything {
    /// Prefixes of the backbone and of the head.
    fn prefixes(naming: Naming) -> [&'static str; 2] {
        match naming {
            Naming::Original => ["pretrained", "depth_head"],
            Naming::Transformers => ["backbone", ""],
        }
    }

    /// Compares the rest of transformers' configuration with the tensors, and with what is supported.
    fn agree_on_head(&self, keys: &Keys<'_>) -> Result<(), Mismatch> {
        keys.only("model_type", "depth_anything")?;
        // A metric network ends in a sigmoid, and has the same tensors.
        keys.only("depth_estimation_type", "relative")?;
        keys.only("head_in_index", -1)?;
        keys.only("reassemble_factors", [4.0, 2.0, 1.0, 0.5])?;
        keys.agree("patch_size", PATCH)?;
        keys.agree("reassemble_hidden_size", self.backbone.dim)?;
        keys.agree("neck_hidden_sizes", self.head.widths)?;
        keys.agree("fusion_hidden_size", self.head.features)?;
        keys.agree("head_hidden_size", self.head.head)
    }

    fn published(variant: &str, naming: Naming) -> Self {
        let (features, widths) = published_head(variant);
        DepthAnything {
            backbone: published_backbone(variant, naming),
            head: Dpt { naming, widths, features, head: 32 },
            preprocess: Preprocess::Outside,
        }
    }
}

impl Architecture for DepthAnything {
    const NAME: &'static str = "DepthAnything";
    const TASK: crate::Task = crate::Task::Depth;
    const SIGNATURES: &'static [&'static [&'static str]] = &[
        &[
            "pretrained.pos_embed",
            "pretrained.blocks.0.ls1.gamma",
            "depth_head.projects.0.weight",
            "depth_head.scratch.layer1_rn.weight",
        ],
        &[
            "backbone.embeddings.position_embeddings",
            "backbone.encoder.layer.0.layer_scale1.lambda1",
            "neck.reassemble_stage.layers.0.projection.weight",
            "head.conv1.weight",
        ],
    ];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        let original = keys.contains("pretrained.pos_embed");
        let naming = if original { Naming::Original } else { Naming::Transformers };
        let [backbone, head] = Self::prefixes(naming);
        let found = DepthAnything {
            backbone: detect_backbone(keys, backbone, naming)?,
            head: detect_head(keys, head, naming)?,
            preprocess: Preprocess::detect(keys)?,
        };
        if naming == Naming::Transformers {
            found.agree_on_head(keys)?;
        }
        Ok(found)
    }

    fn contract(&self) -> Contract {
        contract(self.preprocess, Vec::new(), "predicted_depth", DepthUnit::RelativeInverse)
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let dims = depth_shape(shapes, "pixel_values", 3)?;
        let [_, _, height, width] = dims;
        let pixels = w.trace().input("pixel_values", TensorType::new(DataType::F32, dims));
        let [backbone, head] = Self::prefixes(self.backbone.naming);
        let (features, patches) = self.backbone.features(&w.at(backbone), &self.preprocess.apply(&pixels));
        let head = if head.is_empty() { w.clone() } else { w.at(head) };
        let depth = self.head.apply(&head, &features, patches, [height, width]);
        w.trace().output("predicted_depth", &depth.reshape(&[0, height as i64, width as i64]));
        Ok(())
    }

    fn ignores(&self, name: &str) -> bool {
        let [backbone, head] = Self::prefixes(self.backbone.naming);
        let inside =
            |prefix: &str| if prefix.is_empty() { Some(name) } else { name.strip_prefix(prefix)?.strip_prefix('.') };
        inside(backbone).is_some_and(Dinov2::ignores) || inside(head).is_some_and(|name| self.head.ignores(name))
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let tiny = |naming| DepthAnything {
            backbone: Dinov2 { naming, dim: 16, blocks: 4, heads: 2, hidden: 32, grid: 4, taps: [0, 1, 2, 3] },
            head: Dpt { naming, widths: [4, 6, 8, 8], features: 8, head: 32 },
            preprocess: Preprocess::Outside,
        };
        vec![
            ("tiny", tiny(Naming::Original)),
            ("tiny-transformers", tiny(Naming::Transformers)),
            ("vits", Self::published("vits", Naming::Original)),
            ("vitb", Self::published("vitb", Naming::Original)),
            ("vitl", Self::published("vitl", Naming::Original)),
            ("vits-transformers", Self::published("vits", Naming::Transformers)),
        ]
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        super::depth::notes(&self.backbone)
    }

    fn example_shapes(&self) -> Shapes {
        // Neither the size of the training nor a square.
        Shapes::of("pixel_values", &[1, 3, 42, 56])
    }
}
