#!/usr/bin/env bash
# Runs tests/clients/vapoursynth_clips.py with the wheel of the binaries in a folder: scripts/test_vapoursynth.sh target/release
#
# VapourSynth's packages need Python 3.12. Where there is none, says so and ends well.
set -euo pipefail
binaries=$(realpath "$1")
cd "$(dirname "$0")/.."

python=
for name in python3 python3.14 python3.13 python3.12 $(pyenv whence --path python3.12 2>/dev/null || true); do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then python=$name; break; fi
done
if [ -z "$python" ]; then
    echo "not run: clips of VapourSynth, because Python 3.12 or newer is not here" >&2
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet -r tests/clients/vapoursynth-requirements.txt
wheel=$(python3 python/build_backend.py --binaries "$binaries" --module "$binaries/deps/libtileforge_python.so" --output "$work")
"$work/venv/bin/pip" install --quiet --no-index --no-deps "$wheel"
"$work/venv/bin/engine-builder" build models/compact-x4.yaml --profile cpu -o "$work/engine"
# Where `vspipe` looks for the Python that it belongs to.
export XDG_CONFIG_HOME=$work/config
"$work/venv/bin/vapoursynth" config >/dev/null
env -u PYTHONPATH -u ORT_DYLIB_PATH PYTHONDONTWRITEBYTECODE=1 TILEFORGE_TEST_ENGINE="$work/engine" \
    "$work/venv/bin/python" -m pytest -q -p no:cacheprovider -c python/pyproject.toml --rootdir tests/clients \
    tests/clients/vapoursynth_clips.py
