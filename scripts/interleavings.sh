#!/usr/bin/env bash
# Runs the host's threads in many orders, which a scheduler chooses: scripts/interleavings.sh [ORDERS]
#
# A test that fails prints the order, which `shuttle::replay` runs again. The locks that the scheduler runs are a feature
# of the runtime, so this builds the runtime once more.
set -euo pipefail
cd "$(dirname "$0")/.."
export ORT_DYLIB_PATH=${ORT_DYLIB_PATH:-$PWD/.onnxruntime/lib/libonnxruntime.so}
[ $# -eq 0 ] || export ORDERS=$1
# With the programs' profile, whose dependencies are built already.
cargo test --release --package tileforge-runtime --features interleavings --lib -- host::interleavings::
