#!/usr/bin/env bash
# Installs the wheel for Windows in a Python for Windows under Wine, in the root file system of
# scripts/build_windows.sh, and runs it there:
#   python3 -m pip download --no-deps --only-binary=:all: --platform win_amd64 --python-version 3.11 --dest wheels \
#     panda3d numpy==1.26.4 pillow onnxruntime==1.31.1
#   sudo LINUX=target/release WHEELS=wheels scripts/try_windows_wheel.sh \
#     target/wheels/tileforge-0.1.0-cp311-abi3-win_amd64.whl engines/cpu/compact-x4 /srv/unstable
# Wine 10 lacks functions that NumPy 2 needs. ONNX Runtime is the release that this machine's programs have.
# LINUX: the folder of this machine's programs, for a picture to compare with. PYTHON: another Python of this machine,
# for its version; it has the standard library with its tests, and pip. WORK: an empty folder that is kept.
# Each command is printed with its exit code and seconds. The script ends with 1 if one of them is not as expected.
#
# There is no installer here. The library and the modules of Python for Windows are python.org's, as the wheel of
# Panda3D brings them. What is in Python itself comes from this machine, and two small parts are made here: python.exe,
# and python3.dll, which leads each name of the limited interface to the library.
set -uo pipefail

if [ $# -ne 3 ]; then
    echo "usage: LINUX=DIR WHEELS=DIR [PYTHON=FILE] [WORK=DIR] scripts/try_windows_wheel.sh WHEEL ENGINE ROOT" >&2
    exit 2
fi
: "${WHEELS:?expected the folder of wheels for Windows}"
# shellcheck source=scripts/under_wine.sh
. "$(dirname "$0")/under_wine.sh" "$3"
wheel=$(realpath "$1")
engine=$(realpath "$2")
wheels=$(realpath "$WHEELS")
python=${PYTHON:-python3}

# with_python COMMAND …: a program of Python for Windows.
with_python() {
    under_wine PYTHONDONTWRITEBYTECODE=1 PYTHONUTF8=1 wine "$@"
}

# show CODE COMMAND …: its output is printed.
show() {
    expect "$@"
    sed 's/^/             /' "$trial/output.txt"
}

set -e
version=$("$python" -c 'import sys; print("%d%d" % sys.version_info[:2])')
library=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
pip=$("$python" -c 'import pathlib, pip; print(pathlib.Path(pip.__file__).parents[1])')
mkdir -p "$trial/python/Lib/site-packages" "$trial/python/DLLs" "$trial/wheels" "$trial/files"
tar --create --directory "$library" --exclude=./site-packages --exclude=./test --exclude=./lib-dynload \
    --exclude='./config-*' --exclude=__pycache__ . | tar --extract --directory "$trial/python/Lib"
cp -r "$pip/pip" "$pip"/pip-*.dist-info "$trial/python/Lib/site-packages"
unzip -q -j -d "$trial/python" "$wheels"/panda3d-*-cp"$version"-*.whl "deploy_libs/python$version.dll" \
    'deploy_libs/lib*.dll' 'deploy_libs/sqlite3.dll'
unzip -q -j -d "$trial/python/DLLs" "$wheels"/panda3d-*-cp"$version"-*.whl 'deploy_libs/*.pyd'
"$python" - "$version" >"$trial/python3.def" <<'NAMES'
import sys
from test.test_stable_abi_ctypes import SYMBOL_NAMES

print("EXPORTS")
for name in SYMBOL_NAMES:
    print(f"{name} = python{sys.argv[1]}.{name}")
NAMES
compiler="x86_64-w64-mingw32-gcc -O1 -Wall -Wextra -Werror"
under_wine sh -ec "
    $compiler '-DPYTHON=L\"$version\"' /source/scripts/windows/python.c -o python/python.exe
    $compiler -shared -nostdlib -Wl,--entry,0 python3.def -o python/python3.dll"
for package in numpy pillow onnxruntime; do cp "$wheels/$package"-*-cp"$version"-*win_amd64.whl "$trial/wheels"; done
cp "$wheel" "$trial/wheels"
cp -r "$engine" "$trial/files/engine"
cp "$scripts/../tests/images/coffee.png" "$scripts/../models/compact-x4.safetensors" "$trial/files"
cp "$scripts/windows/try_wheel.py" "$trial"
set +e

echo "Wine $(under_wine wine --version)"
show 0 under_wine wine wineboot -i
show 0 with_python python/python.exe -m pip install --no-index --no-deps --find-links wheels \
    --no-warn-script-location --disable-pip-version-check tileforge numpy pillow onnxruntime
show 0 with_python python/python.exe -m pip show --files tileforge
for program in exporter engine-builder runtime tileforge-server; do
    show 0 with_python "python/Scripts/$program.exe" --version
done
show 2 with_python python/Scripts/runtime.exe nonsense
show 0 with_python python/Scripts/runtime.exe infer --engine 'files\engine' --input 'files\coffee.png' \
    --output large.png
show 0 env --chdir="$trial" "$linux/runtime" infer --engine files/engine --input files/coffee.png --output linux.png
show 0 cmp "$trial/large.png" "$trial/linux.png"
show 0 with_python python/python.exe try_wheel.py 'files\engine' 'files\coffee.png' large.png \
    'files\compact-x4.safetensors' files
exit "$failed"
