//! RGB-D depth refinement: completes and sharpens a rough depth image from a sensor with the help of the colour image.
//!
//! Upstream and reference: <https://github.com/Aedelon/rgbd-depth>, `rgbddepth/{dpt,dinov2,flexible_attention}.py`.

use super::depth::{
    Preprocess, contract, depth_shape, detect_backbone, detect_head, published_backbone, published_head,
};
use super::{Architecture, Keys, Mismatch};
use crate::nn::{Dinov2, Dpt, Naming, Scope, Sequences, attention_of_rows, linear, query_key_value};
use crate::{Contract, Result, Shapes};
use serde::Serialize;
use tileforge_contract::{DepthUnit, Meaning};
use tileforge_graph::{DataType, Dim, TensorType, Value};

/// Hyperparameters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RgbdDepth {
    /// The hyperparameters of both transformers.
    backbone: Dinov2,
    head: Dpt,
    preprocess: Preprocess,
}

/// Heads of the attention between a patch's colour and its depth: upstream's constant, which no tensor determines.
const HEADS: usize = 4;
/// The prefixes of the network's parts in the checkpoint.
const IMAGE: &str = "pretrained";
const DEPTH: &str = "depth_pretrained";
const HEAD: &str = "depth_head_rgbd";

impl Architecture for RgbdDepth {
    const NAME: &'static str = "RGBDDepth";
    const TASK: crate::Task = crate::Task::Depth;
    const SIGNATURES: &'static [&'static [&'static str]] = &[&[
        "pretrained.pos_embed",
        "depth_pretrained.pos_embed",
        "crossAtts.0.in_proj_weight",
        "depth_head_rgbd.projects.0.weight",
    ]];

    fn detect(keys: &Keys<'_>) -> Result<Self, Mismatch> {
        Ok(RgbdDepth {
            backbone: detect_backbone(keys, IMAGE, Naming::Original)?,
            head: detect_head(keys, HEAD, Naming::Original)?,
            preprocess: Preprocess::detect(keys)?,
        })
    }

    fn contract(&self) -> Contract {
        let rough = Meaning::Depth { unit: DepthUnit::InverseMetres, missing: Some(0.0) };
        contract(self.preprocess, vec![("inverse_depth", rough)], "depth", DepthUnit::InverseMetres)
    }

    fn build(&self, w: &Scope<'_>, shapes: &Shapes) -> Result<()> {
        let dims = depth_shape(shapes, "pixel_values", 3)?;
        let [batch, _, height, width] = dims;
        let rough = match shapes.is_given("inverse_depth") {
            true => depth_shape(shapes, "inverse_depth", 1)?,
            false => [batch, 1, height, width],
        };
        if rough != [batch, 1, height, width] {
            let expected = [batch, 1, height, width].map(Dim::Fixed);
            let reason = "it has the sizes of `pixel_values`".to_owned();
            return Err(shapes.wrong("inverse_depth", &expected, Some(reason)));
        }
        let pixels = w.trace().input("pixel_values", TensorType::new(DataType::F32, dims));
        let rough = w.trace().input("inverse_depth", TensorType::new(DataType::F32, rough));
        let (colours, patches) = self.backbone.features(&w.at(IMAGE), &self.preprocess.apply(&pixels));
        let (depths, _) = self.backbone.features(&w.at(DEPTH), &rough.concat(&[&rough, &rough], 1));
        let features: [Value; 4] = std::array::from_fn(|i| {
            let crossed = cross_attention(&w.at(format!("crossAtts.{i}")), &colours[i], &depths[i]);
            colours[i].concat(&[&crossed], 2)
        });
        let depth = self.head.apply(&w.at(HEAD), &features, patches, [height, width]);
        w.trace().output("depth", &depth.reshape(&[0, height as i64, width as i64]));
        Ok(())
    }

    fn ignores(&self, name: &str) -> bool {
        let inside = |prefix: &str| name.strip_prefix(prefix).and_then(|name| name.strip_prefix('.'));
        [IMAGE, DEPTH].into_iter().filter_map(inside).any(Dinov2::ignores)
            || inside(HEAD).is_some_and(|name| self.head.ignores(name))
    }

    fn presets() -> Vec<(&'static str, Self)> {
        let naming = Naming::Original;
        let published = |variant: &str| {
            let (features, widths) = published_head(variant);
            RgbdDepth {
                backbone: published_backbone(variant, naming),
                head: Dpt { naming, widths, features, head: 32 },
                preprocess: Preprocess::Outside,
            }
        };
        let tiny = RgbdDepth {
            backbone: Dinov2 { naming, dim: 16, blocks: 4, heads: 2, hidden: 32, grid: 4, taps: [0, 1, 2, 3] },
            head: Dpt { naming, widths: [4, 6, 8, 8], features: 8, head: 32 },
            preprocess: Preprocess::Outside,
        };
        vec![("tiny", tiny), ("vits", published("vits")), ("vitb", published("vitb")), ("vitl", published("vitl"))]
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        super::depth::notes(&self.backbone)
    }

    fn example_shapes(&self) -> Shapes {
        Shapes::of("pixel_values", &[1, 3, 42, 56])
    }
}

/// Attention between the colour and the depth of each patch, as a sequence of two tokens; the two results are added.
/// `[batch, patches, dim]` → the same.
fn cross_attention(w: &Scope<'_>, colour: &Value, depth: &Value) -> Value {
    let dim = crate::nn::width(colour);
    let alone = |x: &Value| x.reshape(&[-1, 1, dim as i64]);
    let pairs = Sequences::new(&alone(colour).concat(&[&alone(depth)], 1));
    let [q, k, v] = query_key_value(w, &pairs.rows(), ["in_proj_weight", "in_proj_bias"], true);
    let attended = attention_of_rows([&q, &k, &v], &pairs, &pairs, HEADS, false);
    let both = pairs.restore(&linear(&w.at("out_proj"), &attended, dim));
    (both.slice(1, 0, 1) + both.slice(1, 1, 2)).reshape_like(colour)
}
