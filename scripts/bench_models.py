#!/usr/bin/env python3
"""Measures what it takes to build engines of networks in their published sizes: models/*.yaml, and presets.

    make build && make setup RTX=1
    scripts/bench_models.py [--profile cpu] [--size 256x256] [MODEL[/GRAPH] ...] [ARCHITECTURE:PRESET ...]
    scripts/bench_models.py --profile rtx4090 sdxl-base/unet
    scripts/bench_models.py SRFormer:srformer-x4

Each model gets random weights in its published size, under its own description, so that the build checks architecture
and hyperparameters as with the real ones. compact-x4 has its own weights, which are in the repository. A preset of
`cargo xtask synth` is built from its checkpoint alone.

The script prints a table for docs/benchmarks.md: seconds and peak memory of `engine-builder build` with calibration and
gates, and the engine's size; of plans for RTX GPUs, the seconds of all and the largest peak of one. The peak of the
build is that of the largest of its processes. Random weights may miss a gate: the row then has what was measured until
then, and "missed". Large models need memory and disk: SDXL's UNet for an RTX GPU 20 GB of memory and 25 GB of disk, and for a
processor 30 GB of both.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from commands import ROOT, binaries, measured, run, xtask

# The preset of `cargo xtask synth` in the size of a model's graph.
PRESETS = {
    "realesr-general-x4v3": "realesr-general-x4v3",
    "realesrgan-x4plus": "real-esrgan-x4plus",
    "swinir-real-x4": "swinir-l-real-x4",
    "drct-l-x4": "drct-l-x4",
    "hat-l-x4": "hat-l-x4",
    "animesharp-v4-x2": "rcan-x2",
    "aniscale2-ditn-x2": "ditn-real-x2",
    "aniscale2-omnisr-x2": "omnisr-x2",
    "bsrgan-x4": "real-esrgan-x4plus",
    "gfpgan-v1.4": "gfpgan-v1.4",
    "nomoswebphoto-atd-x4": "atd-x4",
    "nomoswebphoto-realplksr-x4": "realplksr-x4",
    "purephoto-span-x4": "span-x4-ch48",
    "realesr-animevideov3": "realesr-animevideov3",
    "realesrgan-x2plus": "real-esrgan-x2plus",
    "realesrgan-x4plus-anime": "real-esrgan-x4plus-anime-6b",
    "realwebphoto-v2-rgt-s-x4": "rgt-s-x4",
    "remacri-x4": "real-esrgan-x4plus",
    "ultrasharp-v2-x4": "dat-2-x4",
    "depth-anything-v2-small": "vits",
    "rgbd-depth-vitl": "vitl",
    "lsd-unet": "base-192",
    "seedvr2-vae": "seedvr2",
    "seedvr2-3b/transformer": "3b",
    "seedvr2-7b/transformer": "7b",
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
OWN_WEIGHTS = "compact-x4"
# Architectures that amplify from layer to layer with the usual random weights, and rounding with it; a smaller gain
# keeps their values in the range of trained networks.
AMPLIFYING = ("ATD", "DCTLSA", "DITN", "OmniSR", "RCAN", "SPAN", "SPANF3")
# Exit code of a missed gate.
MISSED = 4


def described(name: str) -> dict:
    """A model as `engine-builder models` knows it."""
    return json.loads(run(binaries() / "engine-builder", "models", name, "--json"))[0]


def gain_of(architecture: str) -> str:
    """Of the random weights."""
    return "0.3" if architecture in AMPLIFYING else "1"


def synthesise(architecture: str, preset: str, weights: Path) -> None:
    """Writes a checkpoint with random weights in FP16."""
    gain = gain_of(architecture)
    xtask("synth", architecture, "--preset", preset, "--data-type", "f16", "--gain", gain, "-o", weights)


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


@dataclass(frozen=True)
class Source:
    """What an engine is built of: a name for the table, and what makes in a folder what `build` is called with."""

    name: str
    words: Callable[[Path], list[str | Path]]


def preset_of(model: str, graph: str) -> str | None:
    return PRESETS.get(f"{model}/{graph}") or PRESETS.get(model)


def words_of_model(model: dict, graph: str, folder: Path) -> list[str | Path]:
    preset = preset_of(model["name"], graph)
    path = synthesised(model, graph, preset, folder) if preset else ROOT / "models" / f"{model['name']}.yaml"
    return [path, *(["--component", graph] if graph else [])]


def words_of_preset(architecture: str, preset: str, folder: Path) -> list[str | Path]:
    weights = folder / f"{preset}.safetensors"
    synthesise(architecture, preset, weights)
    return [weights]


def sources(names: Sequence[str]) -> Iterator[Source]:
    """Each source that these names mean."""
    for name in names:
        architecture, _, preset = name.partition(":")
        if preset:
            yield Source(name, partial(words_of_preset, architecture, preset))
            continue
        name, _, only = name.partition("/")
        model = described(name)
        # The parts of one model may be those of another one, which has the presets.
        has_weights = [graph for graph in model["graphs"] if name == OWN_WEIGHTS or preset_of(name, graph)]
        for graph in [only] if only else has_weights:
            yield Source(f"{name}/{graph}" if graph else name, partial(words_of_model, model, graph))


def row(source: Source, options: list[str], folder: Path) -> str:
    line: list[str | Path] = ["build", *source.words(folder), *options, "-o", folder / "engine", "--json"]
    built = measured(binaries() / "engine-builder", *line, allowed=(0, MISSED))
    cells = [source.name, f"{built.seconds:.0f} s", f"{built.peak_bytes / 1e9:.1f} GB"]
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
    known = sorted({OWN_WEIGHTS, *(name.split("/")[0] for name in PRESETS)})
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="cpu", help="a name that `engine-builder profiles` lists (default cpu)")
    parser.add_argument("--size", help="pixels, WIDTHxHEIGHT, in the place of the models' sizes")
    parser.add_argument("model", nargs="*", metavar="MODEL[/GRAPH]|ARCHITECTURE:PRESET",
                        help=f"default: all of {', '.join(known)}")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.model if ":" not in name and name not in PRESETS and name not in known]:
        parser.error(f"no model {', '.join(unknown)}; known are {', '.join(known)}")
    options = ["--profile", arguments.profile, *(["--size", arguments.size] if arguments.size else [])]
    print("| engine | build | peak memory | worst gate | graphs | engine's size | plans |")
    print("|---|---|---|---|---|---|---|")
    failed = False
    for source in sources(arguments.model or known):
        # Beside the programs, because /tmp may be in memory.
        with tempfile.TemporaryDirectory(prefix="bench-models-", dir=binaries().parent) as folder:
            try:
                print(row(source, options, Path(folder)), flush=True)
            except RuntimeError as error:
                failed = True
                print(f"{source.name}: {error}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
