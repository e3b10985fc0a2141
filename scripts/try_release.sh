#!/usr/bin/env bash
# Runs the demo with the archive of a release, in a root file system that has nothing of ours, such as one of
# debootstrap:
#   sudo scripts/try_release.sh target/dist/tileforge-0.1.0-x86_64-unknown-linux-gnu.tar.gz /srv/debian
# For another processor, EMULATOR names an emulator that needs no libraries. PICTURE gets the picture that came out:
#   sudo EMULATOR=/usr/bin/qemu-aarch64-static PICTURE=arm64.png \
#     scripts/try_release.sh target/dist/tileforge-0.1.0-aarch64-unknown-linux-gnu.tar.gz /srv/arm64
#   scripts/picture_psnr.py demo/coffee-x4.png arm64.png
# The script leaves the root file system unchanged.
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: [EMULATOR=FILE] [PICTURE=FILE] scripts/try_release.sh ARCHIVE ROOT" >&2
    exit 2
fi
archive=$(realpath "$1")
root=$(realpath "$2")
emulator=${EMULATOR:-}
# shellcheck source=scripts/main_job.sh
. "$(dirname "$0")/main_job.sh"

work=$(mktemp --directory --tmpdir="$root/tmp" tileforge.XXXXXX)
# In some sandboxes debootstrap makes /proc a link to /proc, which leads to itself in the root file system.
link=
if [ -L "$root/proc" ]; then
    link=$(readlink "$root/proc")
    rm "$root/proc"
    mkdir "$root/proc"
fi
restore() {
    rm -rf "$work"
    if [ -n "$link" ]; then
        rmdir "$root/proc"
        ln -s "$link" "$root/proc"
    fi
}
trap restore EXIT
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

main_job "$inside/share/tileforge" "$inside"
if [ -n "${PICTURE:-}" ]; then cp "$work/coffee-x4.png" "$PICTURE"; fi
