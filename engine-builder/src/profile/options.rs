//! The options of ONNX Runtime's GPU providers, from a profile.
//!
//! The providers check little: they accept an optimisation level of 99, and only warn about malformed shapes. So this
//! module has types for names and checks ranges (sources: NVIDIA's `IBuilderConfig`, ONNX Runtime's pages on both
//! providers). `make conformance` checks the names and the form of the values with ONNX Runtime's own parser.

use super::Memory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tileforge_tensorrt::BuildOptions;

/// Options by the provider's names.
pub type ProviderOptions = BTreeMap<&'static str, String>;

/// How TensorRT builds and runs engines. The precision is not an option: it is in the graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorRtOptions {
    /// Memory that one layer may use while it runs; `None`: all memory of the device.
    pub workspace: Option<Memory>,
    /// From 0 (fastest build) to 5 (fastest engine).
    pub builder_optimization_level: u32,
    /// Additional streams that one engine may use within a run; −1 leaves it to TensorRT.
    pub auxiliary_streams: i32,
    /// The smallest number of nodes for which TensorRT builds a separate engine.
    pub min_subgraph_size: u32,
    /// How often TensorRT tries to divide a graph between itself and CUDA.
    pub max_partition_iterations: u32,
    /// Whether timings are kept with the engine, so that the next build gives the same engine.
    pub timing_cache: bool,
    /// Whether the engine runs, more slowly, on every GPU from Ampere on.
    pub hardware_compatible: bool,
    /// Whether weights with 2:4 sparsity use sparse kernels.
    pub sparsity: bool,
    /// Whether subgraphs share one activation memory.
    pub context_memory_sharing: bool,
}

/// How ONNX Runtime's CUDA kernels run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CudaOptions {
    /// Whether FP32 products may be computed in TF32, with 10 bits of mantissa.
    pub tf32: bool,
    /// How cuDNN's algorithm for a convolution is chosen.
    pub convolution_search: ConvolutionSearch,
    /// Whether convolutions run in channels-last layout.
    pub nhwc: bool,
}

/// How cuDNN's algorithm for a convolution is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConvolutionSearch {
    /// All algorithms are run once.
    Exhaustive,
    /// cuDNN predicts the fastest algorithm.
    Heuristic,
    /// Always the same algorithm.
    Default,
}

/// [`TensorRtOptions`] in a file: missing keys come from a family.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TensorRtKeys {
    workspace: Option<Memory>,
    builder_optimization_level: Option<u32>,
    auxiliary_streams: Option<i32>,
    min_subgraph_size: Option<u32>,
    max_partition_iterations: Option<u32>,
    timing_cache: Option<bool>,
    hardware_compatible: Option<bool>,
    sparsity: Option<bool>,
    context_memory_sharing: Option<bool>,
}

/// [`CudaOptions`] in a file: missing keys come from a family.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CudaKeys {
    tf32: Option<bool>,
    convolution_search: Option<ConvolutionSearch>,
    nhwc: Option<bool>,
}

impl TensorRtKeys {
    pub(super) fn over(self, base: Self) -> Self {
        Self {
            workspace: self.workspace.or(base.workspace),
            builder_optimization_level: self.builder_optimization_level.or(base.builder_optimization_level),
            auxiliary_streams: self.auxiliary_streams.or(base.auxiliary_streams),
            min_subgraph_size: self.min_subgraph_size.or(base.min_subgraph_size),
            max_partition_iterations: self.max_partition_iterations.or(base.max_partition_iterations),
            timing_cache: self.timing_cache.or(base.timing_cache),
            hardware_compatible: self.hardware_compatible.or(base.hardware_compatible),
            sparsity: self.sparsity.or(base.sparsity),
            context_memory_sharing: self.context_memory_sharing.or(base.context_memory_sharing),
        }
    }

    /// ONNX Runtime's own defaults, except that timings are kept, and that TensorRT takes even single nodes: it runs
    /// everything that it supports.
    pub(super) fn complete(self) -> Result<TensorRtOptions, String> {
        let options = TensorRtOptions {
            workspace: self.workspace,
            builder_optimization_level: self.builder_optimization_level.unwrap_or(3),
            auxiliary_streams: self.auxiliary_streams.unwrap_or(-1),
            min_subgraph_size: self.min_subgraph_size.unwrap_or(1),
            max_partition_iterations: self.max_partition_iterations.unwrap_or(1000),
            timing_cache: self.timing_cache.unwrap_or(true),
            hardware_compatible: self.hardware_compatible.unwrap_or(false),
            sparsity: self.sparsity.unwrap_or(false),
            context_memory_sharing: self.context_memory_sharing.unwrap_or(false),
        };
        let within = |key: &str, value: i64, low: i64, high: i64| {
            let wrong = || format!("`tensorrt: {key}`: expected {low} to {high}, found {value}");
            if (low..=high).contains(&value) { Ok(()) } else { Err(wrong()) }
        };
        within("builder_optimization_level", options.builder_optimization_level.into(), 0, 5)?;
        within("auxiliary_streams", options.auxiliary_streams.into(), -1, 16)?;
        within("min_subgraph_size", options.min_subgraph_size.into(), 1, 10_000)?;
        within("max_partition_iterations", options.max_partition_iterations.into(), 1, 1_000_000)?;
        Ok(options)
    }
}

impl CudaKeys {
    pub(super) fn over(self, base: Self) -> Self {
        Self {
            tf32: self.tf32.or(base.tf32),
            convolution_search: self.convolution_search.or(base.convolution_search),
            nhwc: self.nhwc.or(base.nhwc),
        }
    }

    /// Exact arithmetic unless the profile states otherwise: no TF32.
    pub(super) fn complete(self) -> CudaOptions {
        CudaOptions {
            tf32: self.tf32.unwrap_or(false),
            convolution_search: self.convolution_search.unwrap_or(ConvolutionSearch::Exhaustive),
            nhwc: self.nhwc.unwrap_or(false),
        }
    }
}

/// A switch, in the form of ONNX Runtime's parser.
fn switch(on: bool) -> String {
    if on { "1" } else { "0" }.into()
}

impl TensorRtOptions {
    /// The names of `OrtTensorRTProviderOptionsV2`.
    pub fn provider_options(&self, cuda_graphs: bool) -> ProviderOptions {
        let mut options = BTreeMap::from([
            ("trt_builder_optimization_level", self.builder_optimization_level.to_string()),
            ("trt_auxiliary_streams", self.auxiliary_streams.to_string()),
            ("trt_min_subgraph_size", self.min_subgraph_size.to_string()),
            ("trt_max_partition_iterations", self.max_partition_iterations.to_string()),
            ("trt_timing_cache_enable", switch(self.timing_cache)),
            ("trt_engine_hw_compatible", switch(self.hardware_compatible)),
            ("trt_sparsity_enable", switch(self.sparsity)),
            ("trt_context_memory_sharing_enable", switch(self.context_memory_sharing)),
            ("trt_cuda_graph_enable", switch(cuda_graphs)),
        ]);
        if let Some(workspace) = &self.workspace {
            options.insert("trt_max_workspace_size", workspace.bytes.to_string());
        }
        options
    }

    /// How TensorRT for RTX builds a plan. It has no timing cache and no partitions.
    pub(super) fn plan_options(&self, tf32: bool) -> BuildOptions {
        BuildOptions {
            workspace: self.workspace.as_ref().map(|workspace| workspace.bytes),
            optimisation_level: u8::try_from(self.builder_optimization_level).ok(),
            tf32,
            ..BuildOptions::default()
        }
    }
}

/// The names of the TensorRT-RTX provider's header, `tensorrt_rtx_provider_options.h`.
pub(super) fn tensorrt_rtx_options(cuda_graphs: bool) -> ProviderOptions {
    BTreeMap::from([("enable_cuda_graph", switch(cuda_graphs))])
}

impl CudaOptions {
    /// The names of `OrtCUDAProviderOptionsV2`.
    pub fn provider_options(&self, cuda_graphs: bool) -> ProviderOptions {
        let search = match self.convolution_search {
            ConvolutionSearch::Exhaustive => "EXHAUSTIVE",
            ConvolutionSearch::Heuristic => "HEURISTIC",
            ConvolutionSearch::Default => "DEFAULT",
        };
        BTreeMap::from([
            ("use_tf32", switch(self.tf32)),
            ("cudnn_conv_algo_search", search.into()),
            ("prefer_nhwc", switch(self.nhwc)),
            ("enable_cuda_graph", switch(cuda_graphs)),
        ])
    }
}
