#!/usr/bin/env bash
# Runs the programs of a release for Windows under Wine, in the root file system of scripts/build_windows.sh, and
# compares them with the programs of this machine:
#   sudo LINUX=target/release WHEELS=wheels CLIENTS=target/server-venv/bin/python scripts/try_windows.sh \
#     target/dist/tileforge-0.1.0-x86_64-pc-windows-gnu.zip /srv/unstable
# LINUX: the folder of this machine's programs. WHEELS: a folder with the wheels for Windows of `runtime setup` without
# --gpu; without it, `runtime setup` is left out. CLIENTS: the Python with clients of the server that `make test` makes;
# without it, gRPC and workers are left out. Workers need nats-server and redis-server, too. FILMS: a folder with
# ffmpeg.exe and ffprobe.exe, 5.1 or newer; without it, films are left out. Registries need docker-registry. WORK: an
# empty folder that is kept; without it, nothing is. `xtask` must be in LINUX, too.
# Each command is printed with its exit code and seconds. The script ends with 1 if one of them is not as expected.
set -uo pipefail

if [ $# -ne 2 ]; then
    echo "usage: LINUX=DIR [WHEELS=DIR] [CLIENTS=PYTHON] [FILMS=DIR] [WORK=DIR] scripts/try_windows.sh ARCHIVE ROOT" >&2
    exit 2
fi
# shellcheck source=scripts/under_wine.sh
. "$(dirname "$0")/under_wine.sh" "$2"
archive=$(realpath "$1")
# shellcheck source=scripts/main_job.sh
. "$scripts/main_job.sh"

# Its parent has spaces and umlauts, too.
name="Bild größer ✨"
folder="$trial/Über uns/$name"
inside="/programs/Über uns/$name"
mkdir -p "$folder"
unzip -q "$archive" -d "$folder" || exit 1
mv "$folder"/tileforge-*/* "$folder"

windows() {
    local program=$1
    shift
    under_wine wine "bin/$program.exe" "$@"
}

here() {
    (cd "$folder" && PATH="$linux:$PATH" "$@")
}

run() {
    expect 0 windows "$@"
}

same_files() {
    diff -r "$folder/$1" "$folder/$2"
}

# The same bytes, or nearly the same pixels.
same_picture() {
    cmp "$folder/$1" "$folder/$2" || python3 "$scripts/picture_psnr.py" "$folder/$1" "$folder/$2" 60
}

share='share\tileforge'
echo "Wine $(under_wine wine --version)"
expect 0 under_wine wine wineboot -i

echo "The demo's main job"
main_job share/tileforge .
expect 0 here runtime infer --engine engine --input share/tileforge/coffee.png --output linux-x4.png
check "the picture is that of this machine's programs with the same engine" \
    same_picture coffee-x4.png linux-x4.png

echo "End to end"
mkdir "$folder/Fotos für Oma"
cp "$folder/share/tileforge/coffee.png" "$folder/Fotos für Oma/Kaffee ☕.png"
cp "$folder/share/tileforge/coffee.png" "$folder/Fotos für Oma/zweites Bild.png"
python3 - "$folder/tensor.npy" <<'PYTHON'
import struct
import sys

header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 32, 32), }"
header += b" " * (-(len(header) + 11) % 64) + b"\n"
values = struct.pack("<3072f", *(i % 97 / 96 for i in range(3072)))
with open(sys.argv[1], "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values)
PYTHON
run exporter export "$share\\models\\compact-x4.safetensors" -o "Graph für uns.onnx"
run exporter inspect "$share\\models\\compact-x4.safetensors"
run engine-builder build "$share\\models\\compact-x4.yaml" --profile cpu --precision fp32 -o "engines\\Größe 4"
run runtime inspect --engine "engines\\Größe 4"
run runtime infer --engine engine --input "Fotos für Oma" --output "Große Fotos"
run runtime verify --engine engine
run engine-builder keygen -o Schlüssel
run engine-builder sign engine --key Schlüssel.key
run runtime verify --engine engine --require-signature Schlüssel.pub
run engine-builder pack engine -o "Paket für uns.tar"
run runtime unpack "Paket für uns.tar" -o ausgepackt --require-signature Schlüssel.pub
run runtime doctor --engine ausgepackt
run runtime run --engine engine --input tensor.npy --output windows.npy
expect 1 windows runtime verify --engine "engines\\Größe 4" --require-signature Schlüssel.pub
expect 1 windows runtime infer --engine engine --input NUL --output nul.png

echo "The same files on both systems"
expect 0 here runtime verify --engine engine --require-signature Schlüssel.pub
expect 0 here runtime unpack "Paket für uns.tar" -o hier-ausgepackt --require-signature Schlüssel.pub
check "an archive is unpacked alike" same_files ausgepackt hier-ausgepackt
expect 0 here engine-builder pack engine -o hier.tar
check "an engine is packed alike" cmp "$folder/Paket für uns.tar" "$folder/hier.tar"
expect 0 here runtime run --engine engine --input tensor.npy --output linux.npy
check "runtime run gives the same bytes" cmp "$folder/windows.npy" "$folder/linux.npy"
mkdir "$folder/hier"
expect 0 here exporter export share/tileforge/models/compact-x4.safetensors -o "hier/Graph für uns.onnx"
check "a graph is exported alike" cmp "$folder/Graph für uns.onnx" "$folder/hier/Graph für uns.onnx"
expect 0 here engine-builder keygen -o hiesig
expect 0 here engine-builder build share/tileforge/models/compact-x4.yaml --profile cpu -o hier-gebaut
# The self-test is not compared: its values differ in their last bits.
for file in "$folder"/hier-gebaut/*.onnx "$folder"/hier-gebaut/*.weights; do
    check "built alike: ${file##*/}" cmp "$file" "$folder/engine/${file##*/}"
done
expect 0 here engine-builder sign hier-gebaut --key hiesig.key
run runtime verify --engine hier-gebaut --require-signature hiesig.pub
expect 0 here engine-builder pack hier-gebaut -o hier-gebaut.tar
run runtime unpack hier-gebaut.tar -o von-hier --require-signature hiesig.pub
run runtime infer --engine von-hier --input "$share\\coffee.png" --output von-hier.png

echo "Without the Visual C++ runtime"
disabled="msvcp140,msvcp140_1,vcruntime140,vcruntime140_1="
for command in doctor "infer --engine engine --input $share\\coffee.png --output none.png"; do
    # shellcheck disable=SC2086 # the words of a command
    expect 1 under_wine env WINEDLLOVERRIDES="$disabled" wine bin/runtime.exe $command
    check "its libraries are named, and what to install" \
        grep -q 'Visual C++.*msvcp140.dll.*vcruntime140.dll.*winget install' <(tr '\n' ' ' <"$trial/output.txt")
done

echo "Interrupted, and exchanged"
# Windows calls a handler of the console's events in a thread of its own, and so does Wine where they come from the
# console. A signal of Linux would become an exception in a thread that runs.
under_wine x86_64-w64-mingw32-gcc -O1 -Wall -Werror /source/scripts/windows/console_events.c \
    -o /programs/console_events.exe || exit 1
# with_events PROGRAM ARGUMENT …: a program in a console of its own. `send EVENT` sends it Ctrl-C (`c`) or Ctrl-Break
# (`b`).
with_events() {
    local program=$1
    shift
    rm -f "$trial/event"
    under_wine wine /programs/console_events.exe /programs/event "bin\\$program.exe" "$@"
}
send() {
    echo "$1" >"$trial/event.new"
    mv "$trial/event.new" "$trial/event"
}
with_events engine-builder build "$share\\models\\compact-x4.yaml" --profile cpu -o abgebrochen \
    >"$trial/interrupted.txt" 2>&1 </dev/null &
shell=$!
for _ in $(seq 600); do
    unfinished=$(find "$folder" -maxdepth 1 -name '.tileforge-*.partial')
    if [ -n "$unfinished" ]; then break; fi
    sleep 0.1
done
check "the build has an unfinished folder" [ -n "$unfinished" ]
# In the middle of its work.
sleep 1
send c
wait "$shell"
code=$?
check "Ctrl-C ends a build with 130: $code" [ "$code" -eq 130 ]
check "Ctrl-C leaves no engine and no unfinished folder" \
    [ -z "$(find "$folder" -maxdepth 1 \( -name '*abgebrochen*' -o -name '.tileforge-*' \))" ]
# Two programs put an engine of the same name, while a third one uses it.
cp -r "$folder/engine" "$folder/geteilt"
processes=()
windows runtime infer --engine geteilt --input "Fotos für Oma" --output "Während des Tauschs" >"$trial/0.txt" 2>&1 &
processes+=($!)
for archive in "Paket für uns.tar" hier-gebaut.tar; do
    windows runtime unpack "$archive" -o geteilt >"$trial/${#processes[@]}.txt" 2>&1 &
    processes+=($!)
done
for number in "${!processes[@]}"; do
    wait "${processes[number]}"
    check "one of three at once: $(tail -n 1 "$trial/$number.txt")" [ $? -eq 0 ]
done
run runtime verify --engine geteilt

# shellcheck source=scripts/windows/try_server.sh
. "$scripts/windows/try_server.sh"

# shellcheck source=scripts/windows/try_tasks.sh
. "$scripts/windows/try_tasks.sh"

if [ -n "${WHEELS:-}" ]; then
    echo "runtime setup"
    # Wine's server takes a library as loaded after a program with it was ended by Ctrl-Break, so that nothing can remove
    # it.
    stop_wine
    mkdir "$folder/Räder"
    cp "$WHEELS"/onnxruntime-[0-9]*-win_amd64.whl "$WHEELS"/openvino-*-win_amd64.whl "$folder/Räder"
    run runtime setup --from Räder --destination "eigene Bibliotheken"
    run runtime doctor --ort-lib "eigene Bibliotheken"
    find "$folder/eigene Bibliotheken" -type f -printf '%10s %P\n' | sort -k 2
    run runtime setup --from Räder
    cat "$trial/output.txt"
    run runtime setup --from Räder
    run runtime doctor
    cat "$trial/output.txt"
    run runtime infer --engine engine --input "$share\\coffee.png" --output after-setup.png
    check "the picture is as before" cmp "$folder/after-setup.png" "$folder/coffee-x4.png"
    # Wine does not ask Linux for the tiles of AMX, which processors with it offer: oneDNN then ends the process.
    run_without_amx() {
        expect 0 under_wine env ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI wine "bin/$1.exe" "${@:2}"
    }
    run_without_amx engine-builder build "$share\\models\\compact-x4.yaml" --profile openvino -o openvino
    run_without_amx runtime infer --engine openvino --input "$share\\coffee.png" --output openvino.png
    expect 0 here env ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI runtime infer --engine openvino \
        --input share/tileforge/coffee.png --output linux-openvino.png
    check "the picture is that of this machine's OpenVINO" same_picture openvino.png linux-openvino.png
fi
left=$(find "$trial" -path "$trial/wine" -prune -o -name '.tileforge-*.partial' -print)
check "nothing unfinished is left by any of them: ${left:-nothing}" [ -z "$left" ]
exit "$failed"
