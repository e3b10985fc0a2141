#!/usr/bin/env bash
# Builds the container of a release with buildah, and runs the demo in it:
#   sudo scripts/try_container.sh target/dist
#   sudo scripts/try_container.sh target/dist /srv/debian
# With ROOT, a root file system such as one of debootstrap, the Containerfile's base image is made of that, for machines
# that reach no registry. Images and containers are in a folder that is removed at the end.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: scripts/try_container.sh RELEASE [ROOT]" >&2
    exit 2
fi
release=$(realpath "$1")
root=${2:+$(realpath "$2")}
# shellcheck source=scripts/main_job.sh
. "$(dirname "$0")/main_job.sh"

packages=("$release"/tileforge_*_"$(dpkg --print-architecture)".deb)
version=$(dpkg-deb --field "${packages[0]}" Version)
storage=$(mktemp --directory --tmpdir tileforge-container.XXXXXX)
trap 'rm -rf "$storage"' EXIT
mkdir "$storage/work"
chmod a+rwx "$storage" "$storage/work"
# No daemon, no user namespace and no overlay file system is needed.
buildah() {
    command buildah --storage-driver vfs --root "$storage/images" --runroot "$storage/run" "$@"
}

if [ -n "$root" ]; then
    base=$(sed -n 's/^FROM //p' "$release/Containerfile")
    from=$(buildah from scratch)
    tar --one-file-system -C "$root" -cf "$storage/root.tar" .
    buildah add --quiet "$from" "$storage/root.tar" /
    rm "$storage/root.tar"
    buildah commit --quiet "$from" "docker.io/library/$base"
    buildah rm "$from" >/dev/null
fi
buildah build --isolation chroot --pull=ifmissing --build-arg VERSION="$version" --tag tileforge "$release"
container=$(buildah from --pull-never localhost/tileforge)
run() {
    echo "\$ $*"
    buildah run --isolation chroot --volume "$storage/work:/work" "$container" -- "$@"
}
echo "user: $(run id --user --name | tail -n 1)"
main_job /usr/share/tileforge /work
buildah images --format '{{.Name}}:{{.Tag}} {{.Size}}'
