#!/usr/bin/env python3
"""Compares INT8 engines of the demo's model with its FP32 engine on photos: one for each method of choosing ranges.

    python3 -m venv target/precision-venv
    target/precision-venv/bin/pip install numpy pillow scikit-image
    make build && target/precision-venv/bin/python scripts/bench_calibration.py

The engines are calibrated on the built-in pictures, which have nothing of the photos. The photos are those that
scikit-image's package holds, at most 512 pixels wide and high. Values are PSNR in dB.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy
import skimage.data
from commands import ROOT, binaries, run
from PIL import Image

MODEL = ROOT / "models/compact-x4.safetensors"
PHOTOS = ("astronaut", "chelsea", "coffee", "rocket", "hubble_deep_field", "immunohistochemistry", "retina")
LARGEST = 512


def photos(folder: Path) -> None:
    for name in PHOTOS:
        photo = Image.fromarray(getattr(skimage.data, name)())
        photo.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
        photo.save(folder / f"{name}.png")


def enlarged(work: Path, name: str, *options: str) -> dict[str, numpy.ndarray]:
    engine, output = work / name, work / f"{name}-pictures"
    run(binaries() / "engine-builder", "build", MODEL, "--profile", "cpu", *options, "-o", engine)
    run(binaries() / "runtime", "infer", "--engine", engine, "--input", work / "photos", "--output", output)
    return {path.stem: numpy.asarray(Image.open(path)).astype(float) for path in sorted(output.glob("*.png"))}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "photos").mkdir()
        photos(work / "photos")
        exact = enlarged(work, "fp32", "--precision", "fp32")
        print("| range | worst | mean |", *(f" {name} |" for name in exact), sep="")
        print("|---" * (3 + len(exact)), "|", sep="")
        for method in ("minmax", "percentile", "entropy", "mse"):
            found = enlarged(work, method, "--precision", "int8", "--range", method)
            errors = [float(numpy.mean((found[name] - exact[name]) ** 2)) for name in exact]
            values = [10 * math.log10(255**2 / error) for error in errors]
            row = [min(values), sum(values) / len(values), *values]
            print(f"| `{method}` |", *(f" {value:.1f} |" for value in row), sep="", flush=True)


if __name__ == "__main__":
    main()
