#!/usr/bin/env bash
# Runs the demo with the archive of a release, in a root file system that has nothing of ours, such as one of
# debootstrap:
#   sudo scripts/try_release.sh target/dist/tileforge-0.1.0-x86_64-unknown-linux-gnu.tar.gz /srv/debian
# For another processor, a third argument names an emulator that needs no libraries:
#   sudo scripts/try_release.sh target/dist/tileforge-0.1.0-aarch64-unknown-linux-gnu.tar.gz /srv/arm64 \
#     /usr/bin/qemu-aarch64-static
# The root file system is as before afterwards.
set -euo pipefail

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    echo "usage: scripts/try_release.sh ARCHIVE ROOT [EMULATOR]" >&2
    exit 2
fi
archive=$(realpath "$1")
root=$(realpath "$2")
emulator=${3:-}

work=$(mktemp --directory --tmpdir="$root/tmp" tileforge.XXXXXX)
trap 'rm -rf "$work"' EXIT
tar -xzf "$archive" -C "$work" --strip-components=1
if [ -n "$emulator" ]; then cp "$emulator" "$work/emulator"; fi

inside=/tmp/$(basename "$work")
# Programs find their library by /proc/self/exe, so /proc is there for the time of a command.
run() {
    local program=$1
    shift
    echo "\$ $program $*"
    # shellcheck disable=SC2016 # the inner shell expands it
    unshare --mount bash -c '
        set -eu
        root=$1 inside=$2
        shift 2
        [ -e "$root/proc/self" ] || { mkdir -p "$root/proc" && mount --rbind /proc "$root/proc"; }
        exec env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$inside" CUDA_VISIBLE_DEVICES= chroot "$root" "$@"
    ' bash "$root" "$inside" ${emulator:+"$inside/emulator"} "$inside/bin/$program" "$@"
}

share=$inside/share/tileforge
run runtime doctor
run engine-builder build "$share/models/compact-x4.yaml" --profile cpu -o "$inside/engine"
run runtime verify --engine "$inside/engine"
run runtime infer --engine "$inside/engine" --input "$share/coffee.png" --output "$inside/coffee-x4.png"
run runtime evaluate --engine "$inside/engine" --input "$share/coffee.png" --minimum-gain 0.8
