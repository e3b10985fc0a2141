#!/usr/bin/env python3
"""Builds the engine of SeedVR2 in its published size, with random weights, and restores a short film with it.

    make build
    scripts/bench_restoration.py [--profile cpu] [--size 192x128] [seedvr2-3b]

It prints a table for docs/benchmarks.md: seconds, peak of memory (mapped files included) and bytes of
`engine-builder build` with all gates, and of `runtime infer` with 5 frames. For a processor, the 3B network needs 22 GB
of memory and 25 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import tempfile
from pathlib import Path

from bench_models import PRESETS, described, synthesise
from commands import Measured, binaries, measured

FRAMES = 5
# Of the text's states in models/seedvr2-*.yaml.
TOKENS = 58


def write_model(name: str, folder: Path) -> Path:
    """A model file with the model's own description, and random weights for it."""
    model = described(name)
    presets = {"NaDiT": PRESETS[f"{name}/transformer"]}
    for facts in model["graphs"].values():
        architecture = facts["architecture"]
        facts["checkpoint"] = f"{architecture}.safetensors"
        if not (weights := folder / facts["checkpoint"]).exists():
            synthesise(architecture, presets.get(architecture, "seedvr2"), weights)
    width = model["graphs"]["transformer"]["hyperparameters"]["text_width"]
    write_states(folder / "text.safetensors", [TOKENS, width])
    names = [*{facts["checkpoint"] for facts in model["graphs"].values()}, "text.safetensors"]
    kept = {key: model[key] for key in ("name", "description", "licence", "provenance", "graphs")}
    # JSON is YAML.
    text = json.dumps(kept | {"files": {name: {} for name in names}, "restoration": {"text": "text.safetensors"}})
    (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


def write_states(path: Path, shape: list[int]) -> None:
    """Random states of a text, as safetensors."""
    count = shape[0] * shape[1]
    numbers = random.Random(1)
    values = struct.pack(f"<{count}f", *(numbers.gauss(0, 0.5) for _ in range(count)))
    header = json.dumps({"states": {"dtype": "F32", "shape": shape, "data_offsets": [0, len(values)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + values)


def write_film(path: Path, width: int, height: int) -> None:
    """Frames of a diagonal gradient that moves, as Y4M."""
    with path.open("wb") as film:
        film.write(f"YUV4MPEG2 W{width} H{height} F5:1 C420jpeg\n".encode())
        for frame in range(FRAMES):
            luma = bytes((3 * x + 2 * y + 16 * frame) % 256 for y in range(height) for x in range(width))
            chroma = bytes((5 * x + frame) % 256 for _ in range(height // 2) for x in range(width // 2))
            film.write(b"FRAME\n" + luma + 2 * chroma)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="cpu", help="a name that `engine-builder profiles` lists (default cpu)")
    parser.add_argument("--size", default="192x128", help="pixels of the restored frames, WIDTHxHEIGHT")
    parser.add_argument("model", nargs="?", default="seedvr2-3b", choices=("seedvr2-3b", "seedvr2-7b"))
    arguments = parser.parse_args()
    width, height = (int(side) for side in arguments.size.split("x"))
    # Beside the programs, because /tmp may be in memory.
    with tempfile.TemporaryDirectory(prefix="bench-restoration-", dir=binaries().parent) as name:
        folder = Path(name)
        model, engine = write_model(arguments.model, folder), folder / "engine"
        asked = ["--profile", arguments.profile, "--size", arguments.size, "--frames", str(FRAMES)]
        print("| command | time | peak memory | bytes |")
        print("|---|---|---|---|")
        done = measured(binaries() / "engine-builder", "build", model, *asked, "-o", engine)
        # Parts share files by hard links.
        sizes = {file.stat().st_ino: file.stat().st_size for file in engine.rglob("*") if file.is_file()}
        print(row("engine-builder build", done, sum(sizes.values())), flush=True)
        # The engine has weights of its own.
        for weights in folder.glob("*.safetensors"):
            weights.unlink()
        film, restored = folder / "film.y4m", folder / "restored.y4m"
        write_film(film, width // 2, height // 2)
        files: list[str | Path] = ["--engine", engine, "--input", film, "--output", restored]
        done = measured(binaries() / "runtime", "infer", *files, "--size", str(min(width, height)))
        print(row("runtime infer, 5 frames", done, restored.stat().st_size))


def row(name: str, done: Measured, size: int) -> str:
    return f"| {name} | {done.seconds:.0f} s | {done.peak_bytes / 1e9:.1f} GB | {size / 1e6:.1f} MB |"


if __name__ == "__main__":
    main()
