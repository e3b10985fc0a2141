#!/usr/bin/env python3
"""Measures what NVIDIA's builder needs for plans of networks in their published sizes, without a GPU.

    make build && make setup RTX=1
    scripts/bench_plans.py [--capability 8.9] [--bindings PYTHON] [MODEL ...]

Each model has random weights in its published size. It is exported with fixed shapes, converted to FP16 and rewritten
for the builder, which then builds one plan in a process of its own. The script prints a row of docs/benchmarks.md for
each: seconds and peak memory of the builder, the plan's size, layers before fusion, and the nodes that were rewritten
because the builder has no kernel for them. With --bindings, NVIDIA's Python bindings build the same graph afterwards
(scripts/bare_builder.py), and the last two columns are our seconds over theirs and our memory over theirs.

Large models need a lot of memory: SDXL's UNet 16 GB and 20 GB of disk, SeedVR2's transformer 18 GB and 21 GB.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from commands import ROOT, binaries, run, xtask


@dataclass(frozen=True)
class Model:
    """A preset of `cargo xtask synth`, the shapes of its inputs, and what is said of a chunk."""

    name: str
    architecture: str
    preset: str
    shapes: str
    more: tuple[str, ...] = ()


MODELS = [
    Model("realesr-general", "SRVGGNetCompact", "realesr-general-x4v3", "image:1x3x512x512"),
    Model("real-esrgan", "RRDBNet", "real-esrgan-x4plus", "image:1x3x256x256"),
    Model("span", "SPAN", "span-x4-ch48", "image:1x3x512x512"),
    Model("drct-l", "DRCT", "drct-l-x4", "image:1x3x64x64"),
    Model("hat-l", "HAT", "hat-l-x4", "image:1x3x64x64"),
    Model("sdxl-unet", "UNet2DConditionModel", "sdxl-base",
          "sample:2x4x128x128,encoder_hidden_states:2x77x2048,text_embeds:2x1280,time_ids:2x6"),
    Model("sdxl-decoder", "AutoencoderKLDecoder", "sdxl", "latent_sample:1x4x128x128"),
    Model("clip-l", "CLIPText", "clip-l", "input_ids:1x77"),
    Model("openclip-bigg", "CLIPText", "openclip-bigg", "input_ids:1x77"),
    Model(
        "seedvr2-encoder-first", "VideoAutoencoderKLEncoder", "seedvr2", "sample:1x3x5x256x256", ("--chunk", "first")
    ),
    Model("seedvr2-encoder-next", "VideoAutoencoderKLEncoder", "seedvr2", "sample:1x3x4x256x256", ("--chunk", "next")),
    Model("seedvr2-decoder-first", "VideoAutoencoderKLDecoder", "seedvr2", "latent_sample:1x16x2x32x32",
          ("--chunk", "first")),
    Model("seedvr2-decoder-next", "VideoAutoencoderKLDecoder", "seedvr2", "latent_sample:1x16x1x32x32",
          ("--chunk", "next")),
    Model("seedvr2-3b", "NaDiT", "3b", "sample:1x33x2x90x160,encoder_hidden_states:1x58x5120"),
    Model("real-time", "GPUStressTestModel", "base-192", "frame:1x3x544x960"),
    Model("rgbd-depth", "RGBDDepth", "vitl", "pixel_values:1x3x518x686"),
]  # fmt: skip


def measure(model: Model, capability: str, folder: Path, bindings: str | None) -> str:
    half = converted(model.architecture, model.preset, model.shapes, model.more, "fp16", folder)
    # In turns, because other programs share the machine; the best of each.
    ours, bare = [], []
    for _ in range(2 if bindings else 1):
        ours.append(built_by_us(half, capability, folder / "plan"))
        if bindings:
            said = run(bindings, ROOT / "scripts" / "bare_builder.py", ROOT / ".onnxruntime" / "lib",
                       folder / "plan" / "model.onnx", capability)  # fmt: skip
            bare.append(tuple(map(float, said.split())))
    best = min(ours)
    cells = [f"{model.architecture} `{model.preset}`", model.shapes.split(",")[0] + " ".join(("", *model.more[1:])),
             f"{best.seconds:.1f} s", f"{best.memory / 1e9:.2f} GB", f"{best.size / 1e6:.1f} MB", str(best.layers),
             str(best.rewritten)]  # fmt: skip
    if bare:
        bare_seconds, bare_memory, _ = min(bare)
        cells += [f"{best.seconds / bare_seconds:.2f}", f"{best.memory / bare_memory:.2f}"]
    return f"| {' | '.join(cells)} |"


@dataclass(frozen=True, order=True)
class Built:
    """What a plan cost: seconds, and bytes of memory at the peak; and what it is."""

    seconds: float
    memory: int
    size: int
    layers: int
    rewritten: int
    kernels: int
    # Megabytes, billions, megabytes.
    moved: float
    products: float
    activations: float


def converted(architecture: str, preset: str, shapes: str, more: tuple[str, ...], precision: str, folder: Path) -> Path:
    """A graph with random weights of a published size, in a precision, in an empty folder. In 8 bits: as exported."""
    checkpoint, graph, made = (folder / name for name in ("checkpoint.safetensors", "graph.onnx", "converted.onnx"))
    xtask("synth", architecture, "--preset", preset, "--data-type", "f16", "-o", checkpoint)
    run(binaries() / "exporter", "export", checkpoint, "--shapes", shapes, *more, "-o", graph)
    if precision in ("int8", "fp8"):
        return graph
    run(binaries() / "engine-builder", "convert", graph, "--precision", precision, "-o", made)
    return made


def built_by_us(graph: Path, capability: str, folder: Path, *kind: str) -> Built | None:
    """A plan of our example, in a process of its own.

    `kind`: int8 or fp8 for a graph that is in FP32; as-exported for a graph without the forms that make plans faster,
    None if these change nothing.

    Raises:
        RuntimeError: The builder refuses the graph.
    """
    program, library = binaries() / "examples" / "rtx_plan", ROOT / ".onnxruntime" / "lib"
    said = run(program, library, graph, capability, folder, *kind)
    if said.strip() == "unchanged":
        return None
    found = re.search(
        r"([\d.]+) s, (\d+) layers, plan of (\d+) bytes, VmHWM: (\d+) kB, rewritten: Prepared \{(.*)\}\n"
        r"(\d+) kernels, ([\d.]+) MB moved, ([\d.]+) G products, ([\d.]+) MB of activations",
        said,
    )
    if not found:
        raise RuntimeError(f"rtx_plan said something else: {said}")
    seconds, layers, size, memory, counts, kernels, *figures = found.groups()
    rewritten = sum(map(int, re.findall(r"\d+", counts)))
    cost = float(seconds), int(memory) * 1024, int(size), int(layers), rewritten
    return Built(*cost, int(kernels), *map(float, figures))


def main() -> int:
    known = {model.name: model for model in MODELS}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--capability", default="8.9", metavar="X.Y")
    parser.add_argument("--bindings", metavar="PYTHON",
                        help="a Python with tensorrt-rtx-cu13-bindings, to compare with")  # fmt: skip
    parser.add_argument("model", nargs="*", metavar="MODEL", help=f"default: all of {', '.join(known)}")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.model if name not in known]
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; known are {', '.join(known)}")
    run("cargo", "build", "--release", "--locked", "--package", "tileforge-engine-builder", "--features", "rtx",
        "--example", "rtx_plan")  # fmt: skip
    more = ["time over bare", "memory over bare"] if arguments.bindings else []
    columns = ["network", "first input", "builder", "peak memory", "plan", "layers", "rewritten", *more]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    failed = False
    for name in arguments.model or known:
        # Beside the programs, because /tmp may be in memory.
        with tempfile.TemporaryDirectory(prefix="bench-plans-", dir=binaries().parent) as folder:
            try:
                print(measure(known[name], arguments.capability, Path(folder), arguments.bindings), flush=True)
            except RuntimeError as error:
                failed = True
                print(f"{name}: {error}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
