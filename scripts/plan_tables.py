#!/usr/bin/env python3
"""Writes docs/plan-tables.md: what the plan of each architecture for RTX GPUs runs, and what building it takes.

    make build RTX=1
    cargo build --release --package tileforge-engine-builder --features rtx --example rtx_plan
    scripts/plan_tables.py [--capability 8.9 ...] [--precision fp16 ...] [--only ARCHITECTURE ...] [--minutes N]

Each network has random weights of a published size. It is exported with one fixed shape, converted, and built in a
process of its own. Figures are kept in target/plan-tables/, so that a stopped run goes on. The document gets all that
are there, and keeps its rows of other networks and precisions. A network that fails is named in the document with the
reason. With --minutes, no build starts later than that.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench_plans import built_by_us, converted
from commands import ROOT, binaries

WORK = ROOT / "target" / "plan-tables"
DOCUMENT = ROOT / "docs" / "plan-tables.md"
CAPABILITIES = ("8.6", "8.9", "12.0")
# FP16 without the forms that make plans faster.
AS_EXPORTED = "fp16, as exported"
PRECISIONS = (AS_EXPORTED, "fp16", "bf16", "int8", "fp8")
# Where these are not all. The forms are the same for all GPUs.
BUILT_FOR = {AS_EXPORTED: ("8.9",), "fp8": ("8.9", "12.0")}


@dataclass(frozen=True)
class Network:
    """A preset of `xtask synth`, the shapes of its inputs, and the pixels that a run makes."""

    architecture: str
    preset: str
    shapes: str
    pixels: int


def upscaler(architecture: str, preset: str, side: int, scale: int, channels: int = 3) -> Network:
    return Network(architecture, preset, f"image:1x{channels}x{side}x{side}", (side * scale) ** 2)


NETWORKS = [
    *(
        upscaler(*row)
        for row in [
            ("SRVGGNetCompact", "realesr-general-x4v3", 256, 4),
            ("RRDBNet", "real-esrgan-x4plus", 256, 4),
            ("SPAN", "span-x4-ch48", 256, 4),
            ("SPANF3", "spanf3-x4", 256, 4),
            ("RealCUGAN", "cugan-x2", 256, 2),
            ("PLKSR", "realplksr-x4", 256, 4),
            ("MoSR", "mosr-x4", 256, 4),
            ("RCAN", "rcan-x4", 256, 4),
            ("SAFMN", "safmn-l-real-x4", 256, 4),
            ("MoESR", "moesr-x4", 256, 4),
            ("SeemoRe", "seemore-t-x4", 256, 4),
            ("SwiftSRGAN", "swift-srgan-x4", 256, 4),
            ("DITN", "ditn-real-x4", 64, 4),
            ("OmniSR", "omnisr-x4", 64, 4),
            ("SwinIR", "swinir-m-x4", 64, 4),
            ("Swin2SR", "swin2sr-x4", 64, 4),
            ("SRFormer", "srformer-x4", 64, 4),
            ("HAT", "hat-x4", 64, 4),
            ("DRCT", "drct-x4", 64, 4),
            ("DAT", "dat-x4", 64, 4),
            ("RGT", "rgt-x4", 64, 4),
            ("ATD", "atd-x4", 64, 4),
            ("CRAFT", "craft-x4", 64, 4),
            ("GRL", "grl-small-x4", 64, 4),
            ("FDAT", "fdat-medium-x4", 64, 4),
            ("DCTLSA", "dctlsa-x4", 64, 4),
            ("NAFNet", "nafnet-sidd-width64", 256, 1),
            ("SCUNet", "scunet-color", 64, 1),
            ("DnCNN", "dncnn-color-blind", 256, 1),
            ("DRUNet", "drunet-color", 256, 1),
            ("FBCNN", "fbcnn-color", 256, 1),
            ("KBNet-S", "kbnet-s-sidd", 256, 1),
            ("KBNet-L", "kbnet-l", 256, 1),
            ("GFPGAN", "gfpgan-v1.4", 512, 1),
            ("RestoreFormer", "restoreformer", 512, 1),
        ]
    ),
    Network("LaMa", "big-lama", "image:1x3x512x512,mask:1x1x512x512", 512**2),
    Network("DepthAnything", "vits", "pixel_values:1x3x518x518", 518**2),
    Network("AutoencoderKLDecoder", "sd15", "latent_sample:1x4x64x64", 512**2),
    Network("AutoencoderKLDecoder", "sdxl", "latent_sample:1x4x128x128", 1024**2),
    Network("UNet2DConditionModel", "sd15", "sample:2x4x64x64,encoder_hidden_states:2x77x768", 512**2),
    Network("UNet2DConditionModel", "sdxl-base",
            "sample:2x4x128x128,encoder_hidden_states:2x77x2048,text_embeds:2x1280,time_ids:2x6", 1024**2),  # fmt: skip
]

def kept(network: Network, precision: str, capability: str) -> Path:
    name = "exported" if precision == AS_EXPORTED else precision
    return WORK / f"{network.architecture}-{network.preset}-{name}-{capability}.json"


def build(network: Network, precision: str, capabilities: list[str]) -> None:
    """Builds the plans of a network for each of these GPUs, and keeps their figures or why there are none."""
    # Beside the programs, because /tmp may be in memory.
    with tempfile.TemporaryDirectory(prefix="plan-tables-", dir=binaries().parent) as name:
        folder = Path(name)
        kind = {AS_EXPORTED: ["as-exported"], "int8": ["int8"], "fp8": ["fp8"]}.get(precision, [])
        of = "fp16" if precision == AS_EXPORTED else precision
        graph = converted(network.architecture, network.preset, network.shapes, (), of, folder)
        for capability in capabilities:
            # What the builder refuses belongs to the document.
            try:
                built = built_by_us(graph, capability, folder / "plan", *kind)
                figures = asdict(built) if built else {"unchanged": True}
            except RuntimeError as error:
                figures = {"failed": str(error).strip().splitlines()[-1]}
            kept(network, precision, capability).write_text(json.dumps(figures))
            print(f"{network.architecture} {network.preset} {precision} {capability}: {figures}", file=sys.stderr)


def cell(values: list[float], shown: Callable[[float], str]) -> str:
    """What all GPUs have, or each of them, in the order of CAPABILITIES."""
    texts = [shown(value) for value in values]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


Row = tuple[list[str], float, float]


def written() -> dict[tuple[str, str], Row]:
    """The rows of the document: by the network's first cell and by precision."""
    found: dict[tuple[str, str], Row] = {}
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "network":
            name, shape, precisions, *others, took = cells
            seconds, memory = took.removesuffix(" GB").split(" s, ") if took else ("0", "0")
            each = [AS_EXPORTED] if precisions.lower() == AS_EXPORTED else precisions.lower().split(", ")
            for precision in each:
                found[name, precision] = [name, shape, *others], float(seconds), float(memory)
    return found


def rows(network: Network, before: dict[tuple[str, str], Row]) -> list[str]:
    """The figures of a network: one row for precisions with the same plans, but for what their builds took."""
    merged: dict[tuple[str, ...], list[tuple[str, float, float]]] = {}
    for precision in PRECISIONS:
        if found := row(network, precision) or before.get((title(network), precision)):
            cells, seconds, memory = found
            shown = precision.replace("fp", "FP") if precision == AS_EXPORTED else precision.upper()
            merged.setdefault(tuple(cells), []).append((shown, seconds, memory))
    lines = []
    for cells, builds in merged.items():
        precisions, seconds, memory = zip(*builds, strict=True)
        took = f"{max(seconds):.0f} s, {max(memory):.1f} GB"
        lines.append(f"| {' | '.join([*cells[:2], ', '.join(precisions), *cells[2:], took])} |")
    return lines


def title(network: Network) -> str:
    return f"{network.architecture} `{network.preset}`"


def row(network: Network, precision: str) -> Row | None:
    """The cells of a network but for its precision; seconds and gigabytes of its builds."""
    paths = {one: kept(network, precision, one) for one in CAPABILITIES}
    figures = {one: json.loads(path.read_text()) for one, path in paths.items() if path.exists()}
    if not figures:
        return None
    shape = network.shapes.split(",")[0].partition(":")[2].replace("x", "×")
    cells = [title(network), shape]
    if any("unchanged" in each for each in figures.values()):
        return None
    failed = [f"{one}: {each['failed']}" for one, each in figures.items() if "failed" in each]
    if failed:
        return [*cells, f"not built for {'; '.join(failed)}", *[""] * 5], 0, 0
    of = {name: [each[name] for each in figures.values()] for name in next(iter(figures.values()))}
    cells += [
        ", ".join(figures),
        cell(of["kernels"], lambda kernels: f"{kernels:,.0f}"),
        cell(of["moved"], lambda moved: f"{moved / 1e3:.2f} GB"),
        cell(of["moved"], lambda moved: f"{moved * 1e3 / network.pixels:.2f} kB"),
        cell(of["products"], lambda products: f"{products:,.1f} G"),
        cell(of["activations"], lambda activations: f"{activations:,.0f} MB"),
    ]
    return cells, max(of["seconds"]), max(of["memory"]) / 1e9


def document() -> str:
    columns = ["network", "first input", "precision", "compute", "kernels", "bytes moved", "for each pixel made",
               "products", "activations", "build"]  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    before = written()
    lines += (line for network in NETWORKS for line in rows(network, before))
    day = time.strftime("%Y-%m-%d")
    return f"""# Plans of every architecture

Plans for RTX GPUs that were **built** by {day} with TensorRT for RTX 1.7.1.116, without a GPU; none has **run**.
Weights are random, of published sizes. Whether a network keeps its quality in this precision was not measured.
[plans.md](plans.md) says what the columns mean: bytes that kernels read and write, products that they add up, and
memory of activations. Where GPUs differ, a cell has one figure for each, in the order of the column "compute". "Build"
is the longest time and the most memory of the builder, on two cores that other work shared. A run of an autoencoder
makes one picture, and one of a UNet a step of one, with two samples for guidance. In BF16, convolutions of concatenated
features are not written as sums, which would be rounded to 8 bits: dense blocks move more bytes there. INT8 and FP8
are those of an engine's default layers, without calibration; GPUs of 8.6 have no FP8. "FP16, as exported" is without
the [forms for fewer bytes](plans.md#forms-for-fewer-bytes); a network without such a row is the same with them.

    scripts/plan_tables.py

{chr(10).join(lines)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capability", nargs="+", choices=CAPABILITIES, default=list(CAPABILITIES))
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--only", nargs="+", metavar="ARCHITECTURE")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    arguments = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * arguments.minutes
    for precision in arguments.precision:
        for network in NETWORKS:
            if arguments.only and network.architecture not in arguments.only:
                continue
            able = [one for one in arguments.capability if one in BUILT_FOR.get(precision, CAPABILITIES)]
            left = [one for one in able if not kept(network, precision, one).exists()]
            if left and time.monotonic() < until:
                build(network, precision, left)
                DOCUMENT.write_text(document())
    DOCUMENT.write_text(document())


if __name__ == "__main__":
    main()
