#!/usr/bin/env python3
"""Makes the golden data of this folder with SeedVR2's own video autoencoder (README.md says how to get it).

    python3 -m pip install -r tests/golden-video-vae/requirements.txt
    python3 tests/golden-video-vae/generate.py REFERENCE              writes every case
    python3 tests/golden-video-vae/generate.py REFERENCE --check      makes every case in memory, and compares it

A case is a row of CASES and nothing else: a small autoencoder with random weights, and the reference's outputs for
random videos and latent videos, in float64.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, extent  # noqa: E402: the modules stand beside this folder
from golden_seedvr2 import REFERENCE, main, use_checkout  # noqa: E402

FOLDER = Path(__file__).resolve().parent
TEST_TOLERANCE = 2e-5  # of the output's range: what the tests allow an implementation
TOTAL_BYTES = 2_000_000

OLD_NAMES = [("to_q", "query"), ("to_k", "key"), ("to_v", "value"), (r"to_out\.0", "proj_attn")]


@dataclass(frozen=True)
class Case:
    """One autoencoder and its inputs."""

    name: str
    seed: int
    filters: list[int]
    layers: int
    temporal: int  # levels that halve the frames
    groups: int
    latent: int
    inputs: list[tuple[str, int, int, int, int]]  # graph, batch, frames, height, width
    dtype: torch.dtype = torch.float32  # of the weights; the golden output belongs to the rounded weights
    names: list[tuple[str, str]] = field(default_factory=list)  # patterns and replacements of the tensors' names


def both(temporal: int, factor: int, sizes: list[tuple[int, int, int, int]]) -> list[tuple[str, int, int, int, int]]:
    """Latent videos of these sizes, `batch, frames, height, width`, and videos of the matching sizes."""
    videos = [("vae_encoder", b, ((f - 1) << temporal) + 1, h * factor, w * factor) for b, f, h, w in sizes]
    return videos + [("vae_decoder", *size) for size in sizes]


CASES = [
    # As published except for the widths: 1, 5, 9 and 17 frames.
    Case(
        "seedvr2",
        1,
        [4, 8, 8, 8],
        2,
        2,
        2,
        16,
        both(2, 8, [(1, 1, 2, 3), (1, 2, 3, 2), (2, 3, 2, 2), (1, 5, 2, 2)]),
        torch.float16,
    ),
    # One level halves the frames; the attention has its old names.
    Case("old-names", 2, [4, 8, 8], 1, 1, 2, 4, both(1, 4, [(1, 1, 3, 2), (1, 5, 2, 3)]), torch.bfloat16, OLD_NAMES),
    # As many levels halve the frames as the sides.
    Case("all-temporal", 3, [4, 4, 8], 1, 2, 2, 4, both(2, 4, [(1, 3, 2, 3)])),
]


def load_reference(path: Path):
    """The reference's module. Only the pinned commit is accepted."""
    use_checkout(path)
    return importlib.import_module("src.models.video_vae_v3.modules.attn_video_vae")


def build(reference, case: Case) -> torch.nn.Module:
    """The autoencoder of `s8_c16_t4_inflation_sd3.yaml`, in the case's sizes."""
    levels = len(case.filters)
    return reference.VideoAutoencoderKLWrapper(
        spatial_downsample_factor=2 ** (levels - 1),
        temporal_downsample_factor=2**case.temporal,
        freeze_encoder=False,
        act_fn="silu",
        block_out_channels=case.filters,
        down_block_types=["DownEncoderBlock3D"] * levels,
        up_block_types=["UpDecoderBlock3D"] * levels,
        in_channels=3,
        out_channels=3,
        latent_channels=case.latent,
        layers_per_block=case.layers,
        norm_num_groups=case.groups,
        slicing_sample_min_size=2**case.temporal,
        temporal_scale_num=case.temporal,
        inflation_mode="pad",
        use_quant_conv=False,
        use_post_quant_conv=False,
    ).eval()


def fill(case: Case, state: dict, random: numpy.random.Generator) -> dict:
    """Random weights that keep the values of every layer near 1, so that any mistake shows in the output."""
    filled = {}
    for key, tensor in state.items():
        values = random.uniform(-1.0, 1.0, tuple(tensor.shape))
        if tensor.ndim >= 2:
            values *= 1.4 * math.sqrt(3.0 / tensor[0].numel())
        elif key.endswith("weight"):
            values = 0.9 + 0.5 * values
        else:
            values = numpy.copysign(0.1 + 0.2 * abs(values), values)
        filled[key] = torch.from_numpy(values.astype(numpy.float32)).to(case.dtype)
    return filled


def run(graph: str, network: torch.nn.Module, value: torch.Tensor) -> torch.Tensor:
    if graph == "vae_encoder":
        return network.encode(value).posterior.parameters
    # The reference removes the axis of the frames if there is only one frame.
    made = network.decode(value).sample
    return made.unsqueeze(2) if made.ndim == 4 else made


def assert_alive(case: Case, network: torch.nn.Module, graphs: list[tuple[str, torch.Tensor, torch.Tensor]]) -> None:
    """Checks that every tensor changes some output, far beyond the tests' tolerance."""
    for name, parameter in network.named_parameters():
        # A bias of the keys adds the same to every score of a query, so softmax removes it.
        if name.endswith("to_k.bias"):
            continue
        kept = parameter.detach().clone()
        parameter.zero_()
        half = "vae_encoder" if name.startswith("encoder.") else "vae_decoder"
        # Short videos first: two of them use every tensor.
        seen = [known for known in graphs if known[0] == half][:2]
        changes = [float((run(graph, network, value) - made).abs().max()) / extent(made) for graph, value, made in seen]
        parameter.copy_(kept)
        if max(changes) < 20 * TEST_TOLERANCE:
            raise AssertionError(
                f"{case.name}: without {name} the output changes by {max(changes):.1e} of its range only"
            )


def make(reference, case: Case) -> tuple[dict[str, File], float]:
    """The files of a case by name, and the error of float32 arithmetic, as a share of the golden output's range."""
    random = numpy.random.Generator(numpy.random.PCG64(case.seed))
    with torch.no_grad():
        network = build(reference, case)
        state = fill(case, network.state_dict(), random)
        network.load_state_dict({key: value.float() for key, value in state.items()}, strict=True)
        files: dict[str, File] = {"ema_vae.safetensors": (renamed(case, state), {"norm_num_groups": str(case.groups)})}
        graphs, worst = [], 0.0
        for graph, batch, frames, height, width in case.inputs:
            channels = 3 if graph == "vae_encoder" else case.latent
            value = torch.from_numpy(
                random.standard_normal((batch, channels, frames, height, width)).astype(numpy.float32)
            )
            network.double().set_causal_slicing(split_size=None, memory_device="same")
            made = run(graph, network, value.double())
            if not (torch.isfinite(made).all() and 0.3 <= extent(made) <= 100.0):
                raise AssertionError(f"{case.name}: the range of {graph} is {extent(made):.3g}, not of order 1")
            # The reference's own chunks, as in its pipeline, give the same.
            network.set_causal_slicing(split_size=2**case.temporal, memory_device="same")
            apart = float((run(graph, network, value.double()) - made).abs().max())
            if apart > 1e-9:
                raise AssertionError(f"{case.name}: {graph} in chunks differs by {apart:.1e}")
            network.set_causal_slicing(split_size=None, memory_device="same")
            worst = max(worst, float((run(graph, network.float(), value) - made).abs().max()) / extent(made))
            number = sum(known == graph for known, _, _ in graphs)
            graphs.append((graph, value.double(), made))
            names = ("sample", "latent_parameters") if graph == "vae_encoder" else ("latent_sample", "sample")
            files[f"{graph}.{number}.golden.safetensors"] = (
                {f"input.{names[0]}": value, f"output.{names[1]}": made.float().contiguous()},
                {
                    "reference": f"naxci1/ComfyUI-SeedVR2.5 {REFERENCE}, float64",
                    "generator": ", ".join(
                        f"{package} {version(package)}" for package in ("torch", "diffusers", "numpy", "safetensors")
                    ),
                },
            )
        assert_alive(case, network.double(), graphs)
    return files, worst


def renamed(case: Case, state: dict) -> dict:
    tensors = {}
    for key, tensor in state.items():
        for pattern, replacement in case.names:
            key = re.sub(pattern, replacement, key)
        tensors[key] = tensor.contiguous()
    return tensors


def cases(path: Path) -> Iterator[tuple[str, dict[str, File], str]]:
    """Each case's name, its files, and a remark, with the reference's checkout at a path."""
    reference = load_reference(path)
    for case in CASES:
        files, single = make(reference, case)
        yield case.name, files, f"float32 arithmetic differs by {single:.1e} of the range"


if __name__ == "__main__":
    sys.exit(main(FOLDER, "Make or check the golden data of SeedVR2's video autoencoder.", cases, TOTAL_BYTES))
