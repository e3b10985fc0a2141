#!/usr/bin/env python3
"""Writes docs/gpu-requirements.md: what networks take of each card, read from plans that this machine builds.

    make build RTX=1
    python3 -m venv target/golden-venv
    target/golden-venv/bin/pip install torch diffusers transformers
    target/golden-venv/bin/python scripts/gpu_requirements.py

Each network has random weights of a published size. `engine-builder plan` builds its plans; what it prints is kept in
target/gpu-requirements/, so that a stopped run goes on. It takes some hours on two cores. PyTorch is for the weights
of pipelines alone; those of SDXL take 7 GB of the disk, and its plan 17 GB of memory.
"""

from __future__ import annotations

import json
import shutil
import sys
import time

from bench_diffusion import Setting, write_pipeline
from commands import ROOT, binaries, run, xtask

WORK = ROOT / "target" / "gpu-requirements"
DOCUMENT = ROOT / "docs" / "gpu-requirements.md"

# Profiles that plans are built for, one after the other by what they can do.
CARDS = ["rtx3080", "rtx3090", "a10g", "l4", "rtx4090", "l40s", "rtx5070ti", "rtx5090"]

# Of transformers, a plan of the profiles' largest sizes takes the builder an hour.
TRANSFORMER_SIZES = ["256x256"]

# Name in the tables, architecture, preset, sizes in place of the profiles'.
NETWORKS = [
    ("compact ×4, 16 layers (`realesr-animevideov3`)", "SRVGGNetCompact", "realesr-animevideov3"),
    ("compact ×4, 32 layers (`realesr-general-x4v3`)", "SRVGGNetCompact", "realesr-general-x4v3"),
    ("SPANF3 ×2", "SPANF3", "spanf3-x2"),
    ("SPAN ×4", "SPAN", "span-x4-ch48"),
    ("RealCUGAN ×2", "RealCUGAN", "cugan-x2"),
    ("RealPLKSR ×4", "PLKSR", "realplksr-x4"),
    ("RRDBNet ×4 (`real-esrgan-x4plus`)", "RRDBNet", "real-esrgan-x4plus"),
    ("NAFNet, width 64", "NAFNet", "nafnet-sidd-width64"),
    ("Depth Anything V2 small", "DepthAnything", "vits"),
    ("SwinIR-M ×4", "SwinIR", "swinir-m-x4", TRANSFORMER_SIZES),
    ("HAT ×4", "HAT", "hat-x4", TRANSFORMER_SIZES),
]

# Name in the tables, whether it is SDXL, size of the picture, cards.
PIPELINES = [
    ("Stable Diffusion 1.5", False, 512, ["rtx3080", "rtx4090", "rtx5090"]),
    ("SDXL", True, 1024, ["rtx4090"]),
]

# Cards are sold with so many GB.
CARD_SIZES = [8, 10, 12, 16, 24, 32, 48]
# What `engine-builder plan` leaves for the driver and a desktop.
RESERVED = 1 << 30


def entries(architecture: str, preset: str, sizes: list[str] | None = None) -> list[dict]:
    """What each card gets of a network, from the kept file or from the builder."""
    kept = WORK / f"{architecture}-{preset}.json"
    if not kept.exists():
        checkpoint, fleet = WORK / f"{architecture}-{preset}.safetensors", WORK / "fleet.yaml"
        xtask("synth", architecture, "--preset", preset, "--data-type", "f16", "-o", checkpoint)
        fleet.write_text(f"cards: [{', '.join(CARDS)}]\nmodels: [{checkpoint}]\n")
        if sizes:
            with fleet.open("a") as file:
                file.write(f"sizes: [{', '.join(sizes)}]\n")
        started = time.monotonic()
        text = run(binaries() / "engine-builder", "plan", fleet, "--json")
        print(f"{architecture} {preset}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        kept.write_text(text)
        checkpoint.unlink()
    return json.loads(kept.read_text())["engines"]


def pipeline(is_xl: bool, size: int, cards: list[str]) -> dict:
    """What each card gets of a pipeline's parts, and what they take together."""
    name = "sdxl" if is_xl else "sd15"
    kept, setting = WORK / f"{name}.json", Setting(WORK / name, size, steps=1, tiny=False, is_xl=is_xl)
    if not kept.exists():
        if not (setting.pipeline / "model_index.json").exists():
            shutil.rmtree(setting.folder, ignore_errors=True)
            setting.pipeline.mkdir(parents=True)
            write_pipeline(setting)
        fleet = WORK / "fleet.yaml"
        fleet.write_text(f"cards: [{', '.join(cards)}]\nmodels: [{setting.pipeline}]\nsizes: [{size}x{size}]\n")
        started = time.monotonic()
        text = run(binaries() / "engine-builder", "plan", fleet, "--json")
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        kept.write_text(text)
        shutil.rmtree(setting.folder)
    return json.loads(kept.read_text())


def chosen(entry: dict) -> dict | None:
    return next((each for each in entry["candidates"] if each["precision"] == entry.get("chosen")), None)


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"


def times(candidate: dict | None) -> str:
    """With all in the cache that fits there, and with nothing in it."""
    if not candidate or "figures" not in candidate:
        return "–"
    least, uncached = candidate["figures"]["least_microseconds"], candidate["uncached_microseconds"]
    digits = 2 if uncached < 10_000 else 1
    return f"{least / 1e3:.{digits}f} – {uncached / 1e3:.{digits}f}"


def shape(candidate: dict) -> str:
    """`model-2x4x64x64.onnx` as 2×4×64×64."""
    return candidate["graph"].removeprefix("model-").split(".")[0].split("-")[0].replace("x", "×")


def smallest_card(memory: int) -> str:
    size = next((size for size in CARD_SIZES if memory + RESERVED <= size * 1e9), None)
    return f"{size} GB" if size else "–"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def memory_rows(name: str, found: dict[str, dict]) -> list[list[str]]:
    """A row for each size that some card gets."""
    rows = {}
    for entry in found.values():
        if entry["candidates"]:
            first = entry["candidates"][0]
            rows.setdefault(shape(first), first)
    return [
        [
            name,
            f"{graph} {each['precision']}",
            gigabytes(each["memory_bytes"]),
            f"{each['plan_bytes'] / 1e6:.1f} MB",
            smallest_card(each["memory_bytes"]),
        ]
        for graph, each in rows.items()
    ]


def pipeline_rows(name: str, size: int, found: dict) -> list[list[str]]:
    rows = []
    for all_parts in found["pipelines"]:
        parts = {entry["part"]: chosen(entry) for entry in found["engines"] if entry["card"] == all_parts["card"]}
        each = ", ".join(f"{part} {one['precision']} {gigabytes(one['memory_bytes'])}" for part, one in parts.items())
        together = [all_parts["memory_bytes"], all_parts["low_memory_bytes"]]
        cells = [f"{gigabytes(memory)} ({smallest_card(memory)})" for memory in together]
        rows.append([f"{name}, {size}²", f"`{all_parts['card']}`", each, gigabytes(all_parts["plan_bytes"]), *cells])
    return rows


def bits_row(name: str, card: str, entry: dict) -> list[str] | None:
    by_precision = {each["precision"]: each for each in entry["candidates"]}
    if len(by_precision) < 2:
        return None
    cells = [times(by_precision.get(precision)) for precision in ("fp16", "int8", "fp8")]
    moved = [
        f"{by_precision[precision]['figures']['moved_bytes'] / by_precision['fp16']['figures']['moved_bytes']:.2f}"
        for precision in ("int8", "fp8")
        if precision in by_precision
    ]
    return [name, f"`{card}`", *cells, " · ".join(moved), entry["chosen"]]


def main() -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    memory, least, bits = [], [], []
    for name, architecture, preset, *sizes in NETWORKS:
        found = {entry["card"]: entry for entry in entries(architecture, preset, *sizes)}
        memory += memory_rows(name, found)
        firsts = [found[card]["candidates"][:1] for card in CARDS]
        cells = [f"{shape(first[0])}: {times(first[0])}" if first else "no memory" for first in firsts]
        least.append([name, *cells])
        for card in ("rtx3090", "rtx4090", "rtx5090"):
            if row := bits_row(name, card, found[card]):
                bits.append(row)
    pipelines = []
    for name, is_xl, size, cards in PIPELINES:
        pipelines += pipeline_rows(name, size, pipeline(is_xl, size, cards))
    release = run(binaries() / "engine-builder", "--version").strip()
    DOCUMENT.write_text(
        TEXT.format(
            memory=table(["network", "graph", "session", "plan", "smallest card"], memory),
            pipelines=table(
                ["pipeline", "card", "sessions", "plans", "all at once", "with `--low-memory`"], pipelines
            ),
            least=table(["network", *(f"`{card}`" for card in CARDS)], least),
            bits=table(["network", "card", "fp16, ms", "int8, ms", "fp8, ms", "bytes moved of fp16", "chosen"], bits),
            date=time.strftime("%Y-%m-%d"),
            release=release,
        )
    )


TEXT = """# What a card must hold

For each network: the memory of one session, the plan's file, and the least time of a run. All of it is read from plans
that were **built** on {date} with TensorRT for RTX 1.7.1.116 ({release}); none has **run** on a GPU.
Weights are random, of published sizes: they change none of these figures.

For your own cards and models, list both in a file:

```sh
printf 'cards: [rtx3080, rtx4090, l4]\\nmodels: [compact-x4]\\n' > fleet.yaml
engine-builder plan fleet.yaml          # one line for each card and model: size, precision, memory, disk, least time
engine-builder plan fleet.yaml --json   # all candidates
```

## Memory

A session holds weights, activations, inputs and outputs. `engine-builder plan` leaves 1 GiB of a card for the driver,
the kernels of the library, and a desktop. The graph has the largest size of the profiles that some card holds, and for
transformers (SwinIR, HAT) 256²; smaller tiles take less. Several streams hold their activations each.

{memory}

A pipeline holds the sessions of all its parts, so that the next picture finds them open. `runtime generate
--low-memory` closes those of a part when it is done: then a card needs what the largest part takes, with both text
encoders of SDXL counted as one. The network has two samples in a run, for guidance. The parts have the precision that
`engine-builder plan` chooses. In parentheses: the smallest card.

{pipelines}

## Least time of a run

In milliseconds, in 16 bits, for the largest size that the card holds. The first figure is the [least
time](plans.md#the-least-time-of-a-run) with all in the card's cache that fits there, the second with nothing in it.
A measured run takes longer than the first.

{least}

## 16 or 8 bits

8 bits are chosen where both figures are smaller than those of 16 bits. The gates decide on your pictures whether the
quality holds.

{bits}

This file is written by `scripts/gpu_requirements.py`.
"""

if __name__ == "__main__":
    main()
