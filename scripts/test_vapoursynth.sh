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

requirements=tests/clients/vapoursynth-requirements.txt
environment=target/vapoursynth-venv
if [ ! "$environment/installed" -nt "$requirements" ]; then
    rm -rf "$environment"
    "$python" -m venv "$environment"
    "$environment/bin/pip" install --quiet -r "$requirements"
    touch "$environment/installed"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
programs=$PWD/$environment/bin
wheel=$(python3 python/build_backend.py --binaries "$binaries" --module "$binaries/deps/libtileforge_python.so" --output "$work")
"$programs/pip" install --quiet --no-index --no-deps --force-reinstall "$wheel"
# What a clip is does not depend on the precision, and FP32 is built sooner.
"$programs/engine-builder" build models/compact-x4.yaml --profile cpu --precision fp32 -o "$work/engine"
# Where `vspipe` looks for the Python that it belongs to.
export XDG_CONFIG_HOME=$work/config
"$programs/vapoursynth" config >/dev/null
env -u PYTHONPATH -u ORT_DYLIB_PATH PYTHONDONTWRITEBYTECODE=1 TILEFORGE_TEST_ENGINE="$work/engine" \
    "$programs/python" -m pytest -q -p no:cacheprovider -c python/pyproject.toml --rootdir tests/clients \
    tests/clients/vapoursynth_clips.py
