#!/usr/bin/env bash
# Compiles for Windows the unit tests of the crates that need no ONNX Runtime, and runs them under Wine in the root file
# system of scripts/build_windows.sh:
#   sudo scripts/try_windows_units.sh /srv/unstable target/windows
# The second folder is that of the cross-built programs, which gets the tests as well.
# Each command is printed with its exit code and seconds. The script ends with 1 if a test fails.
set -uo pipefail

if [ $# -ne 2 ]; then
    echo "usage: scripts/try_windows_units.sh ROOT PROGRAMS" >&2
    exit 2
fi
crates=(contract files graph engine registry image)
packages=()
for crate in "${crates[@]}"; do packages+=(--package "tileforge-$crate"); done
mkdir -p "$2"
built=$2/tests.txt
"$(dirname "$0")/build_windows.sh" "$1" "$2" test --no-run --lib "${packages[@]}" 2>&1 | tee "$built" || exit

# The programs of this machine are not asked for anything.
LINUX=$2 WORK=$2
# shellcheck source=scripts/under_wine.sh
. "$(dirname "$0")/under_wine.sh" "$1"
for crate in "${crates[@]}"; do
    program=$(sed -n "s|.*(\(.*/tileforge_$crate-[0-9a-f]*\.exe\))|\1|p" "$built")
    # Some of them read golden data beside the crate.
    inside=/source/crates/$crate
    expect 0 under_wine wine "$program"
    grep '^test result' "$trial/output.txt"
done
exit "$failed"
