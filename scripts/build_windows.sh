#!/usr/bin/env bash
# Cross-compiles the programs and Python's module for Windows on x86-64 with the compilers of Debian unstable:
#   cargo fetch --locked
#   sudo scripts/build_windows.sh /srv/unstable target/windows
# What follows is another command of cargo: `check`, or `test --no-run --lib --package tileforge-files`.
# The root file system is made by debootstrap if it does not exist (3 GB). Nothing is downloaded while it compiles: this
# script fetches the crates of the standard library before, which Debian has only as source.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: scripts/build_windows.sh ROOT PROGRAMS [COMMAND ...]" >&2
    exit 2
fi
here=$(realpath "$(dirname "$0")")
root=$1
mkdir -p "$2"
programs=$(realpath "$2")
shift 2
target=x86_64-pc-windows-gnu
packages=(--package tileforge-exporter-cli --package tileforge-engine-builder-cli --package tileforge-runtime-cli
    --package tileforge-server-cli --package tileforge-python)
if [ $# -eq 0 ]; then
    command=(build "${packages[@]}")
else
    command=("$@")
fi

if [ ! -e "$root" ]; then
    compilers=rustc,cargo,rust-src,gcc,libc6-dev,gcc-mingw-w64-x86-64-win32,g++-mingw-w64-x86-64-win32,ca-certificates
    debootstrap --variant=minbase --include="$compilers,wine64,wine" unstable "$root"
fi
root=$(realpath "$root")

# The manifests of the standard library use features that only unstable cargos have, and this variable makes one of any.
library=$root/usr/lib/rustlib/src/rust/library
RUSTC_BOOTSTRAP=1 cargo fetch --locked --manifest-path "$library/sysroot/Cargo.toml"

# Programs of a release do not look into the source tree that they were compiled in, as `cargo xtask dist` says.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../Cargo.toml" | head -n 1)

# So does `-Z build-std`. The feature `rtx` is off: NVIDIA's bindings for Windows are for another compiler.
"$here/in_unstable.sh" "$root" "$programs" \
    RUSTC_BOOTSTRAP=1 TILEFORGE_RELEASE="$version" \
    CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc \
    CC_x86_64_pc_windows_gnu=x86_64-w64-mingw32-gcc CXX_x86_64_pc_windows_gnu=x86_64-w64-mingw32-g++ \
    AR_x86_64_pc_windows_gnu=x86_64-w64-mingw32-ar \
    /usr/bin/cargo "${command[@]}" --release --locked --offline --config .cargo/release.toml \
    --target "$target" -Z build-std=std,panic_abort
if [ $# -eq 0 ]; then
    for file in exporter.exe engine-builder.exe runtime.exe tileforge-server.exe tileforge_python.dll; do
        cp "$programs/build/$target/release/$file" "$programs/"
    done
fi
