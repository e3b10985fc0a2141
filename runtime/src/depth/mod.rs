//! Depth of pictures: from one picture alone, or from a picture and the rough map of a sensor.
//!
//! | module | holds |
//! |---|---|
//! | `estimator` | [`Estimator`], the task of a [`Service`](crate::host::Service) |
//! | `interface` | which tensors of the contract are what |
//! | `fitting` | the size that a picture has in the network |
//! | `map` | [`DepthMap`], a sensor's measurements |
//! | `estimate`, `colour_map` | [`Estimate`], what comes out, and its files |
//!
//! Pictures and maps are converted as in the reference implementations, to reproduce their values: `infer.py` and
//! `rgbddepth/dpt.py` of <https://github.com/Aedelon/rgbd-depth> for networks that take a map, and
//! `depth_anything_v2/dpt.py` of <https://github.com/DepthAnything/Depth-Anything-V2> for the others.

mod colour_map;
mod estimate;
mod estimator;
mod fitting;
mod interface;
mod map;

pub use colour_map::ColourMap;
pub use estimate::{Colouring, DepthFormat, DepthKind, Estimate};
pub use estimator::{DepthInput, DepthOptions, DepthRequest, DepthStatistics, Estimator};
pub use interface::{is_depth, takes_map};
pub use map::{DepthMap, MapOptions};
