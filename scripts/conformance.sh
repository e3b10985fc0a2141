#!/usr/bin/env bash
# Checks the provider options of every profile with ONNX Runtime's own parsers, with stubs in place of NVIDIA's
# libraries (tests/conformance/). It needs the GPU build of ONNX Runtime: from `make setup GPU=1`, or its wheel alone
# (0.6 GB, with the plugin for RTX GPUs) in target/.
set -euo pipefail
cd "$(dirname "$0")/.."
library=.onnxruntime/lib
if [ ! -e "$library/libonnxruntime_providers_nv_tensorrt_rtx.so" ]; then
    python3 scripts/setup_onnxruntime.py --gpu --only-onnxruntime --destination target/conformance/onnxruntime
    library=target/conformance/onnxruntime/lib
fi
tests/conformance/build.sh "$PWD/target/conformance/stubs"
cargo build --release --locked --package end-to-end --example conformance
export LD_LIBRARY_PATH="$PWD/target/conformance/stubs" ORT_DYLIB_PATH="$PWD/$library/libonnxruntime.so"
cargo run --quiet --release --locked --package end-to-end --example conformance
