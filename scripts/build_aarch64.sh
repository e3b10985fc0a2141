#!/usr/bin/env bash
# Cross-compiles the programs for aarch64 with the compilers of Debian unstable, for machines whose Rust has no standard
# library for it (otherwise `rustup target add aarch64-unknown-linux-gnu` and `make dist` do all of this):
#   cargo fetch --locked
#   sudo scripts/build_aarch64.sh /srv/unstable target/aarch64
#   cargo xtask dist --target aarch64-unknown-linux-gnu --programs target/aarch64
# The root file system is made by debootstrap if it does not exist (2 GB). Nothing is downloaded while it compiles.
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: scripts/build_aarch64.sh ROOT PROGRAMS" >&2
    exit 2
fi
here=$(realpath "$(dirname "$0")")
root=$1
mkdir -p "$2"
programs=$(realpath "$2")

if [ ! -e "$root" ]; then
    compilers=rustc,cargo,gcc,libc6-dev,gcc-aarch64-linux-gnu,libc6-dev-arm64-cross,ca-certificates
    debootstrap --variant=minbase --include="$compilers" unstable "$root"
fi
root=$(realpath "$root")
# Only the files of two libraries are wanted, not the packages that they depend on. Rust's has the release of the
# compiler, so it comes from the mirror as debootstrap found it, which does not ask how old that is. The C library is
# Debian 12's: programs need at least the one that they were linked with.
if [ ! -e "$root/usr/lib/rustlib/aarch64-unknown-linux-gnu" ]; then
    chroot "$root" sh -ec '
        sed "s/ unstable / bookworm /" /etc/apt/sources.list >/etc/apt/sources.list.d/bookworm.list
        dpkg --add-architecture arm64
        apt-get --option Acquire::Check-Valid-Until=false update
        mkdir /tmp/libraries
        cd /tmp/libraries
        apt-get download libstd-rust-dev:arm64 libc6-arm64-cross/bookworm libc6-dev-arm64-cross/bookworm
        for package in *.deb; do dpkg-deb --extract "$package" /; done
        rm -r /tmp/libraries'
fi

# Programs of a release do not look into the source tree that they were compiled in, as `cargo xtask dist` says.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../Cargo.toml" | head -n 1)

"$here/in_unstable.sh" "$root" "$programs" \
    TILEFORGE_RELEASE="$version" \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc AR_aarch64_unknown_linux_gnu=aarch64-linux-gnu-ar \
    /usr/bin/cargo build --release --locked --offline --config .cargo/release.toml --target aarch64-unknown-linux-gnu \
    --package tileforge-exporter-cli --package tileforge-engine-builder-cli --package tileforge-runtime-cli --bins
for program in exporter engine-builder runtime; do
    cp "$programs/build/aarch64-unknown-linux-gnu/release/$program" "$programs/"
done
