#!/usr/bin/env bash
# Runs every fuzz target with these options of libFuzzer: scripts/fuzz.sh -max_total_time=20
#
# cargo-fuzz needs a nightly compiler for its sanitizers. The stable compiler has them too, with RUSTC_BOOTSTRAP.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/target/tools
if [ ! -x "$tools/bin/cargo-fuzz" ]; then
    cargo install --quiet --locked --debug --version 0.13.1 --root "$tools" cargo-fuzz
fi
export PATH="$tools/bin:$PATH" RUSTC_BOOTSTRAP=1
# Parts for the compiler: many, because short runs take less time than compiling.
export UNITS=16
cargo fuzz build --codegen-units "$UNITS"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export logs
one() {
    local target=$1 code=0
    shift
    mkdir -p "fuzz/corpus/$target"
    # The seeds are small valid files.
    if [ -d "fuzz/seeds/$target" ]; then cp -n "fuzz/seeds/$target/"* "fuzz/corpus/$target/"; fi
    cargo fuzz run --codegen-units "$UNITS" "$target" -- -rss_limit_mb=2048 -print_final_stats=1 "$@" \
        >"$logs/$target" 2>&1 || code=$?
    echo "fuzzed $target: $*"
    cat "$logs/$target"
    # `xargs` gives up at 255.
    return $((code == 0 ? 0 : 1))
}
export -f one
# A fuzzer has one thread: one for each processor. What each of them says comes when it has ended.
cargo fuzz list | xargs -P "$(nproc)" -I{} bash -c 'one "$@"' one {} "$@"
