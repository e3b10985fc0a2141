"""Packs the wheel of the Python package: a build backend (PEP 517), and a program for `make wheel`.

    python3 python/build_backend.py --binaries target/release --output target/wheels
    python3 python/build_backend.py --windows --binaries target/windows --output target/wheels

maturin is not used. It builds one package with the features that only this package needs, so Cargo compiles most
dependencies a second time, and it cannot pack programs that were built already. The format of a wheel is simple:
https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

import argparse
import array
import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# The oldest Python whose limited interface the module uses: Cargo.toml, feature abi3-py311 of pyo3.
PYTHON = "cp311"
# The earliest date that a zip file holds: the same files give the same bytes. Below, in seconds since 1970.
DATE = (1980, 1, 1, 0, 0, 0)
SECONDS = 315_532_800
# Libraries that come with a compiler and not with Windows.
OF_A_COMPILER = ("libgcc", "libstdc++", "libwinpthread", "libssp", "libgomp")


@dataclass(frozen=True)
class System:
    """What a wheel is for."""

    # The module's library, as Cargo calls it.
    library: str
    # Its place in the wheel: Python for Windows loads no `.abi3.pyd`.
    module: str
    # The suffix of programs' names.
    program: str


LINUX = System("libtileforge_python.so", "tileforge/_native.abi3.so", "")
WINDOWS = System("tileforge_python.dll", "tileforge/_native.pyd", ".exe")


def project() -> dict:
    """The project table of pyproject.toml, with the version."""
    table = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    return {**table, "version": workspace["package"]["version"]}


def metadata(table: dict) -> str:
    """The file METADATA."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {table['name']}",
        f"Version: {table['version']}",
        f"Summary: {table['description']}",
        f"Keywords: {','.join(table['keywords'])}",
        f"License-Expression: {table['license']}",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
        f"Requires-Python: {table['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    lines += [f"Classifier: {classifier}" for classifier in table["classifiers"]]
    lines += [f"Requires-Dist: {dependency}" for dependency in table["dependencies"]]
    for extra, dependencies in table["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {dependency}; extra == "{extra}"' for dependency in dependencies]
    return "\n".join(lines) + "\n\n" + (HERE / table["readme"]).read_text()


def platform_tag(files: list[Path]) -> str:
    """The oldest glibc that has every symbol which the files need, as a tag of wheels (PEP 600)."""
    newest = 17
    for file in files:
        command = ["readelf", "--version-info", "--wide", str(file)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        newest = max([newest, *(int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", text))])
    return f"manylinux_2_{newest}_{platform.machine()}"


def windows_tag(files: list[Path]) -> str:
    """The tag of wheels for Windows on x86-64. The files must start there: none may need a library of its compiler."""
    for file in files:
        command = ["objdump", "--private-headers", str(file)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if "file format pei-x86-64" not in text:
            sys.exit(f"expected a program or library for Windows on x86-64, found another: {file}")
        for library in re.findall(r"DLL Name: (\S+)", text):
            if library.lower().startswith(OF_A_COMPILER):
                sys.exit(f"{file}: it needs {library}, which is of its compiler and not of Windows")
    return "win_amd64"


def with_date(program: bytes) -> bytes:
    """A program or library for Windows with the date of the wheel, and the checksum that follows from it.

    `strip` writes the time of the day. The places are those of the format's headers:
    https://learn.microsoft.com/en-us/windows/win32/debug/pe-format
    """
    headers = int.from_bytes(program[60:64], "little")
    changed = bytearray(program)

    def put(place: int, value: int) -> None:
        changed[headers + place : headers + place + 4] = value.to_bytes(4, "little")

    put(8, SECONDS)
    put(88, 0)
    words = array.array("H", bytes(changed) + bytes(len(changed) % 2))
    if sys.byteorder == "big":
        words.byteswap()
    checksum = sum(words)
    while checksum > 0xFFFF:
        checksum = (checksum & 0xFFFF) + (checksum >> 16)
    put(88, checksum + len(changed))
    return bytes(changed)


def pack(binaries: Path, module: Path, output: Path, system: System = LINUX) -> Path:
    """Writes the wheel of a folder of built programs and the module's library, and returns its path."""
    table = project()
    distribution = f"{table['name']}-{table['version']}"
    information = f"{distribution}.dist-info"
    programs = [f"{name}{system.program}" for name in table["scripts"]]
    built = {system.module: module}
    built |= {f"tileforge/bin/{program}": binaries / program for program in programs}
    missing = [str(path) for path in built.values() if not path.is_file()]
    if missing:
        by = "scripts/build_windows.sh" if system == WINDOWS else "make build"
        sys.exit(f"expected what `{by}` builds; there is no {', '.join(missing)}")
    platforms = windows_tag if system == WINDOWS else platform_tag
    tag = f"{PYTHON}-abi3-{platforms(list(built.values()))}"
    wheel = output / f"{distribution}-{tag}.whl"
    output.mkdir(parents=True, exist_ok=True)
    unfinished = wheel.with_suffix(".unfinished")
    with tempfile.TemporaryDirectory() as temporary, zipfile.ZipFile(unfinished, "w") as archive:
        record = []

        def add(name: str, content: bytes, mode: int = 0o644) -> None:
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 3)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")

        sources = (HERE / "tileforge").rglob("*")
        for path in sorted(path for path in sources if path.suffix in (".py", ".pyi") or path.name == "py.typed"):
            add(path.relative_to(HERE).as_posix(), path.read_bytes())
        for name, path in built.items():
            stripped = Path(temporary) / path.name
            # Line numbers for debuggers would be most of the wheel. On Windows, the table of symbols goes, too: MinGW's
            # linker writes it in another order each time.
            how = "--strip-all" if system == WINDOWS else "--strip-debug"
            subprocess.run(["strip", how, "-o", stripped, path], check=True)
            content = stripped.read_bytes()
            add(name, with_date(content) if system == WINDOWS else content, 0o755)
        for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
            add(f"{information}/licenses/{licence}", (ROOT / licence).read_bytes())
        scripts = [f"{name} = {entry}" for name, entry in table["scripts"].items()]
        add(f"{information}/entry_points.txt", "\n".join(["[console_scripts]", *scripts, ""]).encode())
        add(f"{information}/METADATA", metadata(table).encode())
        kind = f"Wheel-Version: 1.0\nGenerator: tileforge\nRoot-Is-Purelib: false\nTag: {tag}\n"
        add(f"{information}/WHEEL", kind.encode())
        record.append(f"{information}/RECORD,,\n")
        archive.writestr(zipfile.ZipInfo(f"{information}/RECORD", DATE), "\n".join(record))
    os.replace(unfinished, wheel)
    return wheel


def build_wheel(
    wheel_directory: str, config_settings: dict | None = None, metadata_directory: str | None = None
) -> str:
    """Builds the programs and the module from the source tree around this file, and packs them."""
    binaries = subprocess.run(
        ["make", "--no-print-directory", "wheel-binaries"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    folder = ROOT / binaries.stdout.splitlines()[-1]
    return pack(folder, folder / LINUX.library, Path(wheel_directory)).name


def main() -> None:
    """`make wheel`, and the wheel for Windows (docs/windows.md)."""
    parser = argparse.ArgumentParser(description="Pack the wheel of the Python package.")
    parser.add_argument("--binaries", type=Path, required=True, help="the folder of the built programs")
    parser.add_argument("--module", type=Path, help="the module's library; by default in that folder")
    parser.add_argument("--output", type=Path, required=True, help="the folder for the wheel")
    parser.add_argument("--windows", action="store_true", help="they are those of scripts/build_windows.sh")
    arguments = parser.parse_args()
    system = WINDOWS if arguments.windows else LINUX
    module = arguments.module or arguments.binaries / system.library
    print(pack(arguments.binaries, module, arguments.output, system))


if __name__ == "__main__":
    main()
