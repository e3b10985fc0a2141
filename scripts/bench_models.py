#!/usr/bin/env python3
"""Measures what it takes to build the engines of models/*.yaml in their published sizes.

    make build && make setup RTX=1
    scripts/bench_models.py [--profile cpu] [--size 256x256] [MODEL[/GRAPH] ...]
    scripts/bench_models.py --profile rtx4090 sdxl-base/unet

Each model gets random weights in its published size, under its own description, so that the build checks architecture
and hyperparameters as with the real ones. compact-x4 has its own weights, which are in the repository. The script
prints a table for docs/benchmarks.md: seconds and peak memory of `engine-builder build` with calibration and gates, and
the engine's size; of plans for RTX GPUs, the seconds of all and the largest peak of one. The peak of the build is that
of the largest of its processes. Random weights may miss a gate: the row then has what was measured until then, and
"missed". Large models need memory and disk: SDXL's UNet for an RTX GPU 20 GB of memory and 25 GB of disk, and for a
processor 30 GB of both.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from commands import ROOT, binaries, measured, run, xtask

# The preset of `cargo xtask synth` in the size of a model's graph.
PRESETS = {
    "realesr-general-x4v3": "realesr-general-x4v3",
    "realesrgan-x4plus": "real-esrgan-x4plus",
    "swinir-real-x4": "swinir-l-real-x4",
    "drct-l-x4": "drct-l-x4",
    "hat-l-x4": "hat-l-x4",
    "depth-anything-v2-small": "vits",
    "rgbd-depth-vitl": "vitl",
    "lsd-unet": "base-192",
    "seedvr2-vae": "seedvr2",
    "seedvr2-3b": "3b",
    "seedvr2-7b": "7b",
    "sdxl-vae": "sdxl",
    "sdxl-inpainting": "sdxl-inpainting",
    "sdxl-base/text_encoder": "clip-l",
    "sdxl-base/text_encoder_2": "openclip-bigg",
    "sdxl-base/unet": "sdxl-base",
    "sdxl-base/vae_encoder": "sdxl",
    "sdxl-base/vae_decoder": "sdxl",
    "sd15/text_encoder": "clip-l",
    "sd15/unet": "sd15",
    "sd15/vae_encoder": "sd15",
    "sd15/vae_decoder": "sd15",
}
# Exit code of a missed gate.
MISSED = 4


def described(name: str) -> dict:
    """A model as `engine-builder models` knows it."""
    return json.loads(run(binaries() / "engine-builder", "models", name, "--json"))[0]


def synthesise(architecture: str, preset: str, weights: Path) -> None:
    """Writes a checkpoint with random weights in FP16."""
    xtask("synth", architecture, "--preset", preset, "--data-type", "f16", "-o", weights)


def synthesised(model: dict, graph: str, preset: str, folder: Path) -> Path:
    """A model file in `folder` with this graph alone, and random weights for it."""
    name, facts = model["name"], dict(model["graphs"][graph])
    weights = folder / f"{name}.safetensors"
    synthesise(facts["architecture"], preset, weights)
    facts["checkpoint"] = weights.name
    kept = {key: model[key] for key in ("name", "description", "licence", "provenance")}
    # JSON is YAML.
    path = folder / f"{name}.yaml"
    graphs = {"graphs": {graph: facts}} if graph else facts
    path.write_text(json.dumps(kept | {"files": {weights.name: {}}} | graphs))
    return path


def row(model: dict, graph: str, options: list[str], folder: Path) -> str:
    name = f"{model['name']}/{graph}" if graph else model["name"]
    preset = PRESETS.get(name) or PRESETS.get(model["name"])
    path = synthesised(model, graph, preset, folder) if preset else ROOT / "models" / f"{name}.yaml"
    component = ["--component", graph] if graph else []
    line: list[str | Path] = ["build", path, *component, *options, "-o", folder / "engine", "--json"]
    built = measured(binaries() / "engine-builder", *line, allowed=(0, MISSED))
    cells = [name, f"{built.seconds:.0f} s", f"{built.peak_bytes / 1e9:.1f} GB"]
    if built.code == MISSED:
        return f"| {' | '.join([*cells, 'missed', '–', '–', '–'])} |"
    report = json.loads(built.output)
    plans = report.get("plans", [])
    peaks = [plan["peak_bytes"] for plan in plans if plan["peak_bytes"]]
    worst = min(gate["value"] for gate in report["gates"] if gate["name"].startswith("psnr"))
    size = sum(file["bytes"] for file in report["files"].values())
    of_plans = f"{sum(plan['seconds'] for plan in plans):.0f} s, {max(peaks) / 1e9:.1f} GB" if peaks else "–"
    cells[0] += f", {report['precision']}"
    cells += [f"{worst:.0f} dB", str(len(report["graphs"])), f"{size / 1e6:.0f} MB", of_plans]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    known = sorted({"compact-x4", *(name.split("/")[0] for name in PRESETS)})
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="cpu", help="a name that `engine-builder profiles` lists (default cpu)")
    parser.add_argument("--size", help="pixels, WIDTHxHEIGHT, in the place of the models' sizes")
    parser.add_argument("model", nargs="*", metavar="MODEL[/GRAPH]", help=f"default: all of {', '.join(known)}")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.model if name not in PRESETS and name not in known]:
        parser.error(f"no model {', '.join(unknown)}; known are {', '.join(known)}")
    options = ["--profile", arguments.profile, *(["--size", arguments.size] if arguments.size else [])]
    print("| engine | build | peak memory | worst gate | graphs | engine's size | plans |")
    print("|---|---|---|---|---|---|---|")
    failed = False
    for name in arguments.model or known:
        name, _, only = name.partition("/")
        model = described(name)
        for graph in [only] if only else model["graphs"]:
            # Beside the programs, because /tmp may be in memory.
            with tempfile.TemporaryDirectory(prefix="bench-models-", dir=binaries().parent) as folder:
                try:
                    print(row(model, graph, options, Path(folder)), flush=True)
                except RuntimeError as error:
                    failed = True
                    print(f"{name} {graph}: {error}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
