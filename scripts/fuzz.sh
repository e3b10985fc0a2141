#!/usr/bin/env bash
# Runs every fuzz target for this many seconds: scripts/fuzz.sh 20
#
# cargo-fuzz needs a nightly compiler for its sanitizers. The stable compiler has them too, with RUSTC_BOOTSTRAP.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
tools=$PWD/target/tools
if [ ! -x "$tools/bin/cargo-fuzz" ]; then
    cargo install --quiet --locked --version 0.13.1 --root "$tools" cargo-fuzz
fi
export PATH="$tools/bin:$PATH" RUSTC_BOOTSTRAP=1
for target in $(cargo fuzz list); do
    echo "fuzzing $target for $seconds seconds"
    mkdir -p "fuzz/corpus/$target"
    # The seeds are small valid files.
    if [ -d "fuzz/seeds/$target" ]; then cp -n "fuzz/seeds/$target/"* "fuzz/corpus/$target/"; fi
    cargo fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb=2048 -print_final_stats=1
done
