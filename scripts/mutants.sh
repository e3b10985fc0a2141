#!/usr/bin/env bash
# Changes the code of a part in one place after the other, and runs its tests against each change:
#     scripts/mutants.sh [contract|engine|tiles|precision|session|host|diffusion|registry|exporter]…
# SHARD=0/20 tries one change in twenty of each part.
#
# A change that no test notices is listed as "missed" in target/mutants/PART/mutants.out/missed.txt. A second run tries
# only these again. CONTRIBUTING.md says what to do with them. The first four parts take an hour or two and the others a
# day, so this is not a part of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/target/tools
if [ ! -x "$tools/bin/cargo-mutants" ]; then
    cargo install --quiet --locked --version 27.1.0 --root "$tools" cargo-mutants
fi
export PATH="$tools/bin:$PATH"
export ORT_DYLIB_PATH=${ORT_DYLIB_PATH:-$PWD/.onnxruntime/lib/libonnxruntime.so}
sample=()
[ -z "${SHARD:-}" ] || sample=(--shard "$SHARD" --sharding round-robin)
missed=0
[ $# -gt 0 ] || set -- contract engine tiles precision
for part in "$@"; do
    case $part in
    contract) where=(--package tileforge-contract -C=--tests) tests=() ;;
    engine) where=(--package tileforge-engine -C=--tests) tests=() ;;
    tiles) where=(--package tileforge-image --file 'crates/image/src/tile/**' -C=--lib) tests=(tile::) ;;
    precision)
        where=(--package tileforge-engine-builder --file 'engine-builder/src/precision/**' -C=--lib)
        tests=(precision::)
        ;;
    session) where=(--package tileforge-session -C=--tests) tests=() ;;
    host) where=(--package tileforge-runtime --file 'runtime/src/host/**' -C=--lib -C=--test=host -C=--test=admission) tests=() ;;
    diffusion) where=(--package tileforge-runtime --file 'runtime/src/diffusion/**' -C=--lib) tests=(diffusion::) ;;
    registry) where=(--package tileforge-registry -C=--tests) tests=() ;;
    exporter) where=(--package tileforge-exporter -C=--tests) tests=() ;;
    *) echo "$part: unknown; expected one that the head of this file names" >&2; exit 2 ;;
    esac
    mkdir -p "target/mutants/$part"
    # Exit code 2: some changes were missed. 3: a test ran too long, which also counts as noticed.
    # The debug output of values is not tested.
    cargo mutants "${where[@]}" "${sample[@]}" --exclude-re 'impl (fmt::)?Debug for' --profile mutants --timeout 40 --iterate --output "target/mutants/$part" \
        -- "${tests[@]}" || [ $? -le 3 ]
    missed=$((missed + $(wc -l <"target/mutants/$part/mutants.out/missed.txt")))
done
echo "missed: $missed"
[ "$missed" -eq 0 ]
