# shellcheck shell=bash disable=SC2034 # variables for the scripts
# What the scripts share that try programs for Windows under Wine. They source it: . under_wine.sh ROOT
# ROOT is the root file system of scripts/build_windows.sh. The environment variable LINUX is the folder of this
# machine's programs, and WORK an empty folder that is kept; without it, nothing is.
scripts=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
root=$(realpath "$1")
: "${LINUX:?expected the folder of the programs of this machine}"
linux=$(realpath "$LINUX")
if [ -n "${WORK:-}" ]; then
    mkdir -p "$WORK"
    trial=$(realpath "$WORK")
else
    trial=$(mktemp --directory)
fi
finish() {
    stop_wine
    if [ -z "${WORK:-}" ]; then rm -rf "$trial"; fi
}
trap finish EXIT
failed=0
# The folder of the trial as Linux sees it in the root file system, in which commands begin.
inside=/programs

# under_wine [NAME=VALUE …] COMMAND …: in the root file system.
under_wine() {
    "$scripts/in_unstable.sh" "$root" "$trial" WINEPREFIX=/programs/wine WINEDEBUG=-all HOME=/programs LC_ALL=C.UTF-8 \
        env --unset=ORT_DYLIB_PATH --chdir="$inside" "$@"
}

# Ends all programs under Wine, with its server. The next command starts another one.
stop_wine() {
    under_wine /usr/lib/x86_64-linux-gnu/wine/wineserver --kill --wait
}

# expect CODE COMMAND …: prints it with its exit code and seconds. Its output goes to output.txt, whose end is printed
# if the exit code is another one.
expect() {
    local expected=$1 code seconds=$SECONDS
    shift
    "$@" >"$trial/output.txt" 2>&1 </dev/null
    code=$?
    printf '%3d  %4d s  %s\n' "$code" $((SECONDS - seconds)) "$*"
    if [ "$code" -ne "$expected" ]; then
        echo "error: expected exit code $expected; the end of its output:"
        tail -n 15 "$trial/output.txt"
        failed=1
    fi
}

# check TEXT COMMAND …
check() {
    local text=$1
    shift
    if "$@"; then
        echo "ok           $text"
    else
        echo "error: $text"
        failed=1
    fi
}
