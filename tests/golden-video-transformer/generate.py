#!/usr/bin/env python3
"""Makes the golden data of this folder with SeedVR2's own diffusion transformers (README.md says how to get them).

    python3 -m pip install -r tests/golden-video-transformer/requirements.txt
    python3 tests/golden-video-transformer/generate.py REFERENCE            writes every case
    python3 tests/golden-video-transformer/generate.py REFERENCE --check    makes every case in memory, and compares it

A case is a row of CASES and nothing else: a small transformer with random weights, and the reference's outputs for
random latent videos, in float64.
"""

from __future__ import annotations

import importlib
import logging
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
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

# batch, latent frames, height, width, tokens of the text, timestep. From 22 × 20 patches on there are several windows
# in a frame, and from 5 frames on a window has several frames.
Input = tuple[int, int, int, int, int, float]


@dataclass(frozen=True)
class Case:
    """One transformer and its inputs."""

    name: str
    seed: int
    kind: str  # of the reference's folders: dit_3b or dit_7b
    width: int
    heads: int
    head: int
    layers: int
    separate: int  # layers with weights of their own for the text
    latent: int
    text: int
    inputs: list[Input]
    dtype: torch.dtype = torch.float32  # of the weights; the golden output belongs to the rounded weights


CASES = [
    # Heads as published. The last window of an axis is short, and so are the outer ones of shifted windows.
    Case(
        "seedvr2-3b",
        1,
        "dit_3b",
        16,
        2,
        128,
        4,
        2,
        3,
        20,
        [(1, 1, 6, 4, 7, 1000.0), (1, 2, 2, 10, 5, 1000.0), (1, 4, 6, 6, 3, 250.5), (1, 2, 44, 40, 7, 1000.0)],
        torch.float16,
    ),
    # Every layer has weights of its own for the text: the last one has none behind its attention.
    Case("separate", 2, "dit_3b", 16, 3, 24, 2, 2, 2, 10, [(2, 7, 6, 4, 4, 1000.0), (1, 1, 46, 42, 1, 500.0)]),
    Case(
        "seedvr2-7b",
        3,
        "dit_7b",
        16,
        2,
        128,
        2,
        2,
        3,
        20,
        [(1, 1, 6, 4, 7, 1000.0), (1, 2, 2, 10, 5, 1000.0), (2, 5, 6, 6, 3, 250.5), (1, 2, 44, 40, 7, 1000.0)],
        torch.bfloat16,
    ),
]


def load_reference(path: Path) -> dict:
    """The reference's modules by kind. Only the pinned commit is accepted."""
    use_checkout(path)
    # It warns of each attention that no special kernel computes.
    logging.disable(logging.WARNING)
    return {kind: importlib.import_module(f"src.models.{kind}.nadit") for kind in ("dit_3b", "dit_7b")}


def build(reference: dict, case: Case) -> torch.nn.Module:
    """The transformer of `configs_3b/main.yaml` or `configs_7b/main.yaml`, in the case's sizes."""
    kind = {
        "dit_3b": {
            "vid_out_norm": "fusedrms",
            "txt_in_norm": "fusedln",
            "mm_layers": case.separate,
            "mlp_type": "swiglu",
            "rope_type": "mmrope3d",
            "rope_dim": case.head,
        },
        "dit_7b": {"qk_rope": True, "shared_mlp": False, "shared_qkv": False, "mlp_type": "normal"},
    }[case.kind]
    methods = ["720pwin_by_size_bysize", "720pswin_by_size_bysize"]
    network = reference[case.kind].NaDiT(
        vid_in_channels=2 * case.latent + 1,
        vid_out_channels=case.latent,
        vid_dim=case.width,
        txt_in_dim=case.text,
        txt_dim=case.width,
        emb_dim=6 * case.width,
        heads=case.heads,
        head_dim=case.head,
        expand_ratio=4,
        norm="fusedrms",
        norm_eps=1e-5,
        ada="single",
        qk_bias=False,
        qk_norm="fusedrms",
        patch_size=[1, 2, 2],
        num_layers=case.layers,
        block_type=case.layers * ["mmdit_sr"],
        window=case.layers * [(4, 3, 3)],
        window_method=[methods[layer % 2] for layer in range(case.layers)],
        **kind,
    )
    return network.eval()


def fill(case: Case, state: dict, random: numpy.random.Generator) -> dict:
    """Random weights that keep the values of every layer near 1, so that any mistake shows in the output. The
    frequencies of the rotations stay what they are."""
    filled = {}
    for key, tensor in state.items():
        if key.endswith("rope.freqs"):
            filled[key] = tensor
            continue
        values = random.uniform(-1.0, 1.0, tuple(tensor.shape))
        if tensor.ndim >= 2:
            values *= 1.4 * math.sqrt(3.0 / tensor[0].numel())
        elif key.endswith(("weight", "scale")):
            values = 0.9 + 0.5 * values
        elif key.endswith("gate"):
            values = numpy.copysign(0.3 + 0.4 * abs(values), values)
        else:
            values = numpy.copysign(0.1 + 0.2 * abs(values), values)
        filled[key] = torch.from_numpy(values.astype(numpy.float32)).to(case.dtype)
    return filled


def run(network: torch.nn.Module, video: torch.Tensor, text: torch.Tensor, timestep: float) -> torch.Tensor:
    """Latent videos `[batch, channels, frames, height, width]` and texts `[batch, tokens, width]` → latent videos."""
    return torch.cat([run_one(network, *sample, timestep) for sample in zip(video, text, strict=True)])


def run_one(network: torch.nn.Module, video: torch.Tensor, text: torch.Tensor, timestep: float) -> torch.Tensor:
    """One video and its text: in a batch, the reference gives windows the texts of other videos."""
    channels, *sizes = video.shape
    for module in network.modules():
        # The frequencies of earlier sizes may have another type.
        if hasattr(module, "get_axial_freqs") and hasattr(module.get_axial_freqs, "cache_clear"):
            module.get_axial_freqs.cache_clear()
    made = network(
        vid=video.permute(1, 2, 3, 0).reshape(-1, channels),
        txt=text,
        vid_shape=torch.tensor([sizes]),
        txt_shape=torch.tensor([[len(text)]]),
        timestep=torch.tensor([timestep], dtype=video.dtype),
        disable_cache=False,
    ).vid_sample
    return made.reshape(1, *sizes, -1).permute(0, 4, 1, 2, 3)


def is_unused(case: Case, name: str) -> bool:
    """Whether a tensor only changes the text after the last attention, or is not used at all."""
    last = f"blocks.{case.layers - 1}."
    return name.startswith(last) and any(
        part in name
        for part in (".norm_q.txt.", ".proj_out.txt.", ".mlp.txt.", ".txt.attn_gate", ".txt.mlp_")
    )


def assert_alive(case: Case, network: torch.nn.Module, shown: list[tuple]) -> None:
    """Checks that every tensor changes some output, far beyond the tests' tolerance."""
    for name, parameter in network.named_parameters():
        if is_unused(case, name):
            continue
        kept = parameter.detach().clone()
        parameter.zero_()
        changes = [float((run(network, *given) - made).abs().max()) / extent(made) for given, made in shown[:2]]
        parameter.copy_(kept)
        if max(changes) < 20 * TEST_TOLERANCE:
            raise AssertionError(
                f"{case.name}: without {name} the output changes by {max(changes):.1e} of its range only"
            )


def make(reference: dict, case: Case) -> tuple[dict[str, File], float]:
    """The files of a case by name, and the error of float32 arithmetic, as a share of the golden output's range."""
    random = numpy.random.Generator(numpy.random.PCG64(case.seed))
    with torch.no_grad():
        network = build(reference, case)
        state = fill(case, network.state_dict(), random)
        network.load_state_dict({key: value.float() for key, value in state.items()}, strict=True)
        tensors = {key: value.contiguous() for key, value in state.items()}
        files: dict[str, File] = {"transformer.safetensors": (tensors, {})}
        shown, worst = [], 0.0
        for number, (batch, frames, height, width, tokens, timestep) in enumerate(case.inputs):
            sizes = (batch, 2 * case.latent + 1, frames, height, width)
            video = torch.from_numpy(random.standard_normal(sizes).astype(numpy.float32))
            text = torch.from_numpy(random.standard_normal((batch, tokens, case.text)).astype(numpy.float32))
            given = (video.double(), text.double(), timestep)
            made = run(network.double(), *given)
            if not (torch.isfinite(made).all() and 0.3 <= extent(made) <= 100.0):
                raise AssertionError(f"{case.name}: the range is {extent(made):.3g}, not of order 1")
            worst = max(worst, float((run(network.float(), video, text, timestep) - made).abs().max()) / extent(made))
            shown.append((given, made))
            files[f"transformer.{number}.golden.safetensors"] = (
                {
                    "input.sample": video,
                    "input.timestep": torch.tensor(timestep),
                    "input.encoder_hidden_states": text,
                    "output.out_sample": made.float().contiguous(),
                },
                {
                    "reference": f"naxci1/ComfyUI-SeedVR2.5 {REFERENCE}, float64",
                    "generator": ", ".join(
                        f"{package} {version(package)}"
                        for package in ("torch", "diffusers", "rotary-embedding-torch", "numpy", "safetensors")
                    ),
                },
            )
        assert_alive(case, network.double(), shown)
    return files, worst


def cases(path: Path) -> Iterator[tuple[str, dict[str, File], str]]:
    """Each case's name, its files, and a remark, with the reference's checkout at a path."""
    reference = load_reference(path)
    for case in CASES:
        files, single = make(reference, case)
        yield case.name, files, f"float32 arithmetic differs by {single:.1e} of the range"


if __name__ == "__main__":
    sys.exit(main(FOLDER, "Make or check the golden data of SeedVR2's diffusion transformers.", cases, TOTAL_BYTES))
