#!/bin/sh
# Says whether the libraries break what users of an older version rely on: cargo-semver-checks compares the public items
# of all published crates with those of a tag or commit. Without an argument, that is the last tag. Before the first
# release there is none, and it is the commit before this one.
set -eu
cd "$(dirname "$0")/.."

version=0.51.0
tools=target/tools

name=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
if [ -z "$name" ]; then
    name=HEAD^
    echo "there is no tag v* yet: comparing with the commit before this one" >&2
fi
if ! baseline=$(git rev-parse --verify --quiet "$name^{commit}"); then
    echo "error: $name: expected a tag or a commit of this repository" >&2
    exit 1
fi

is_pinned() {
    [ "$("$1" semver-checks --version 2>/dev/null)" = "cargo-semver-checks $version" ]
}

checks=$tools/bin/cargo-semver-checks
if ! is_pinned "$checks"; then
    echo "installing cargo-semver-checks $version into $tools (once, some minutes)" >&2
    if ! cargo install --quiet --locked --root "$tools" --force --version "=$version" cargo-semver-checks; then
        echo "error: cargo-semver-checks $version could not be installed; cargo's message is above" >&2
        exit 1
    fi
fi

echo "the libraries since $(git log -1 --format='%h (%s)' "$baseline"):" >&2
"$checks" semver-checks --workspace --exclude end-to-end --exclude xtask --baseline-rev "$baseline"
