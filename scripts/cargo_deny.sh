#!/bin/sh
# Checks licences, bans and sources of all dependencies, and known advisories against them (deny.toml).
#
# Advisories come from a database that is fetched with git. If it cannot be reached, the other checks still run, and the
# last line says that advisories were not checked. If it can be reached, any problem with it is a failure. With
# ADVISORIES=required, both cases are failures: for machines that have the network.
set -eu
cd "$(dirname "$0")/.."

version=0.20.2
tools=target/tools

is_pinned() {
    [ "$("$1" --version 2>/dev/null)" = "cargo-deny $version" ]
}

deny=$tools/bin/cargo-deny
if ! is_pinned "$deny"; then
    if is_pinned cargo-deny; then
        deny=cargo-deny
    else
        # Without optimisation and debug information: that is quick to build, and it reads some files.
        echo "installing cargo-deny $version into $tools (once, a minute or two)" >&2
        if ! CARGO_PROFILE_DEV_DEBUG=false \
            cargo install --quiet --locked --debug --root "$tools" --force --version "=$version" cargo-deny; then
            echo "error: cargo-deny $version could not be installed, so dependencies are unchecked; cargo's message is above" >&2
            exit 1
        fi
    fi
fi

# --locked: the checked packages are those that are built.
"$deny" --locked check licenses bans sources

database=$(sed -n 's/^db-urls = \["\([^"]*\)"\]$/\1/p' deny.toml)
if [ -z "$database" ]; then
    echo 'error: deny.toml: expected one line `db-urls = ["…"]`, found none' >&2
    exit 1
fi

# Asks only for the name of the newest commit, without a password prompt, and with a time limit.
limit=
if command -v timeout >/dev/null; then limit="timeout 60"; fi
if reason=$(GIT_TERMINAL_PROMPT=0 $limit git ls-remote --quiet "$database" HEAD 2>&1); then
    "$deny" --locked check advisories
elif [ "${ADVISORIES:-}" = required ]; then
    echo "error: advisories were not checked: $database cannot be reached: ${reason:-no answer within a minute}" >&2
    exit 1
else
    echo "warning: advisories were NOT checked: $database cannot be reached: ${reason:-no answer within a minute}" >&2
fi
