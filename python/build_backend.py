"""Packs the wheel of the Python package: a build backend (PEP 517), and a program for `make wheel`.

    python3 python/build_backend.py --binaries target/release --output target/wheels

maturin is not used. It builds one package with the features that this package alone asks for, so that Cargo compiles
most dependencies a second time, and it takes no programs that were built already. What a wheel is, is short:
https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

import argparse
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
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# The oldest Python whose limited interface the module uses: Cargo.toml, feature abi3-py311 of pyo3.
PYTHON = "cp311"
LIBRARY = "libtileforge_python.so"
MODULE = "tileforge/_native.abi3.so"
# The earliest date that a zip file holds: the same files give the same bytes.
DATE = (1980, 1, 1, 0, 0, 0)


def project() -> dict:
    """What pyproject.toml says, with the version."""
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


def pack(binaries: Path, module: Path, output: Path) -> Path:
    """Writes the wheel of a folder of built programs and the module's library, and returns its path."""
    table = project()
    distribution = f"{table['name']}-{table['version']}"
    information = f"{distribution}.dist-info"
    built = {MODULE: module}
    built |= {f"tileforge/bin/{name}": binaries / name for name in table["scripts"]}
    missing = [str(path) for path in built.values() if not path.is_file()]
    if missing:
        sys.exit(f"expected what `make build` builds; there is no {', '.join(missing)}")
    tag = f"{PYTHON}-abi3-{platform_tag(list(built.values()))}"
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
            # Line numbers for debuggers would be most of the wheel.
            subprocess.run(["strip", "--strip-debug", "-o", stripped, path], check=True)
            add(name, stripped.read_bytes(), 0o755)
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
    return pack(folder, folder / LIBRARY, Path(wheel_directory)).name


def main() -> None:
    """`make wheel`"""
    parser = argparse.ArgumentParser(description="Pack the wheel of the Python package.")
    parser.add_argument("--binaries", type=Path, required=True, help="the folder of the built programs")
    parser.add_argument("--module", type=Path, help=f"the module's library; {LIBRARY} in that folder by default")
    parser.add_argument("--output", type=Path, required=True, help="the folder for the wheel")
    arguments = parser.parse_args()
    module = arguments.module or arguments.binaries / LIBRARY
    print(pack(arguments.binaries, module, arguments.output))


if __name__ == "__main__":
    main()
