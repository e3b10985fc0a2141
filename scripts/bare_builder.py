#!/usr/bin/env python3
"""Builds a plan with NVIDIA's Python bindings and nothing else: what bench_plans.py compares ours with.

    scripts/bare_builder.py LIBRARY_FOLDER MODEL.onnx 8.9

Prints seconds of parsing and building, and the peak memory of the process in bytes. Needs the Python package
tensorrt-rtx-cu13-bindings, of the same release as the libraries.
"""

from __future__ import annotations

import ctypes
import resource
import sys
import time
from pathlib import Path


def main() -> int:
    libraries, graph, capability = sys.argv[1:]
    for name in ("libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"):
        ctypes.CDLL(str(Path(libraries) / name), mode=ctypes.RTLD_GLOBAL)
    import tensorrt_rtx_bindings as trt

    logger = trt.Logger(trt.Logger.ERROR)
    started = time.perf_counter()
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(graph):
        raise SystemExit("\n".join(str(parser.get_error(index)) for index in range(parser.num_errors)))
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{capability.replace('.', '')}"), 0)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise SystemExit("the builder refused the graph")
    seconds = time.perf_counter() - started
    print(f"{seconds:.2f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024} {plan.nbytes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
