#!/usr/bin/env python3
"""Compares `runtime infer` of two builds: a small picture, and a folder of a hundred.

    python3 -m venv target/golden-venv
    target/golden-venv/bin/pip install pillow
    target/golden-venv/bin/python scripts/bench_versions.py ENGINE BEFORE AFTER [--rounds 15]

BEFORE and AFTER are programs `runtime` of two commits, built with the same settings. Both must take the engine, so
build it with the older one. The programs take turns in random order. ORT_DYLIB_PATH names
ONNX Runtime.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from commands import ROOT
from PIL import Image
from turns import ratios, take_turns

PHOTO = ROOT / "tests/images/coffee.png"


def infer(program: Path, engine: Path, source: Path, folder: Path) -> Callable[[], None]:
    numbers = itertools.count()

    def run() -> None:
        # A new name each time: nothing has to be removed meanwhile.
        to = folder / f"{next(numbers)}-{source.name}"
        command = [program, "infer", "--engine", engine, "--input", source, "--output", to]
        subprocess.run(command, check=True, capture_output=True)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare `runtime infer` of two builds.")
    for name in ["engine", "before", "after"]:
        parser.add_argument(name, type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    photo = Image.open(PHOTO).convert("RGB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pictures").mkdir()
        photo.crop((0, 0, 64, 64)).save(folder / "small.png")
        for at in range(100):
            photo.crop((at, at, at + 64 + at % 30, at + 64 + at % 17)).save(folder / "pictures" / f"{at:03}.png")
        for what, source in [("a picture of 64²", "small.png"), ("a folder of 100 pictures", "pictures")]:
            ways = {}
            for way, program in [("before", arguments.before), ("after", arguments.after)]:
                (folder / way).mkdir(exist_ok=True)
                ways[way] = infer(program, arguments.engine, folder / source, folder / way)
            _, times = take_turns(ways, arguments.rounds)
            print(f"{what}: {ratios(times, 'after')['before']:.2f} of the time before", flush=True)


if __name__ == "__main__":
    main()
