#!/usr/bin/env bash
# Runs a command in a root of Debian unstable, with this repository and Cargo's packages there to read, and a folder for
# what it makes: scripts/in_unstable.sh ROOT PROGRAMS NAME=VALUE ... COMMAND ...
# The repository is /source, the folder is /programs. build_aarch64.sh and build_windows.sh compile with it.
set -euo pipefail

source=$(realpath "$(dirname "$0")/..")
root=$(realpath "$1")
programs=$(realpath "$2")
shift 2
mkdir -p "$root/source" "$root/cargo" "$root/programs"
# shellcheck disable=SC2016 # the inner shell expands it
unshare --mount bash -c '
    set -eu
    root=$1
    mount --bind --options ro "$2" "$root/source"
    mount --bind --options ro "$3" "$root/cargo"
    mount --bind "$4" "$root/programs"
    mountpoint --quiet "$root/proc" || mount -t proc proc "$root/proc"
    # Wine reads there which processors there are.
    mountpoint --quiet "$root/sys" || mount -t sysfs --options ro sys "$root/sys"
    shift 4
    chroot "$root" env --chdir=/source CARGO_HOME=/cargo CARGO_TARGET_DIR=/programs/build "$@"
' bash "$root" "$source" "${CARGO_HOME:-$HOME/.cargo}" "$programs" "$@"
