#!/usr/bin/env python3
"""Compares our PNGs with Pillow's: bytes of the file, and seconds of encoding.

    scripts/bench_png.py PICTURE [PICTURE ...]

Needs Pillow in the Python that runs it. Each picture is encoded by Pillow with its defaults and by our writer with each
compression, on one thread and on all, in turns. The script prints a table for docs/benchmarks.md: the file's bytes over
Pillow's, and the median of the time over Pillow's within a round. Reading the picture is not timed.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import tempfile
import time
from pathlib import Path

from commands import binaries, run
from PIL import Image


def by_pillow(picture: Image.Image) -> tuple[float, int]:
    """Seconds and bytes."""
    made = io.BytesIO()
    begin = time.perf_counter()
    picture.save(made, "PNG")
    return time.perf_counter() - begin, len(made.getvalue())


def by_us(path: Path, output: Path, *choice: str) -> tuple[float, int]:
    seconds, size = run(binaries() / "examples" / "png", path, output, *choice).split()
    return float(seconds), int(size)


def row(path: Path, rounds: int, folder: Path) -> str:
    picture = Image.open(path)
    picture.load()
    threads = {"1 thread": ("1",), "all": ()}
    ratios: dict[tuple[str, str], list[float]] = {}
    sizes: dict[str, float] = {}
    pillow = []
    for _ in range(rounds):
        seconds, size = by_pillow(picture)
        pillow.append(seconds)
        for choice in ("fast", "default", "best"):
            for name, count in threads.items():
                ours, bytes_of_ours = by_us(path, folder / "made.png", choice, *count)
                ratios.setdefault((choice, name), []).append(ours / seconds)
                sizes[choice] = bytes_of_ours / size
    name = f"{path.name}, {picture.width}×{picture.height}"
    cells = [name, f"{statistics.median(pillow):.2f} s, {size / 1e6:.2f} MB"]
    for choice in ("fast", "default", "best"):
        times = " / ".join(f"{statistics.median(ratios[choice, name]):.2f}" for name in threads)
        cells.append(f"{sizes[choice]:.3f}; {times}")
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="rounds (default 5)")
    parser.add_argument("picture", nargs="+", type=Path)
    arguments = parser.parse_args()
    run("cargo", "build", "--release", "--locked", "--package", "tileforge-image", "--example", "png")
    print("| picture | Pillow | `fast`: bytes; time on one thread / on all | `default` | `best` |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="bench-png-") as folder:
        for path in arguments.picture:
            print(row(path, arguments.runs, Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
