#!/usr/bin/env python3
"""Makes the golden data of this folder with the reference implementations of depth and real-time networks.

    python3 -m pip install -r tests/golden-systems/requirements.txt
    git clone https://github.com/Aedelon/rgbd-depth REPOSITORIES/rgbd-depth          (commit in requirements.txt)
    git clone https://github.com/toddllm/mirage-hello REPOSITORIES/mirage-hello
    python3 tests/golden-systems/generate.py REPOSITORIES              writes every case
    python3 tests/golden-systems/generate.py REPOSITORIES --check      makes every case in memory, and compares it

The weights come from `cargo xtask synth ARCHITECTURE --preset PRESET --seed SEED`, which gives the same bits on every
machine. So only inputs and outputs are stored. The reference must take all weights by name, and runs in float64.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy
import safetensors.torch
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, extent, parser, write_cases  # noqa: E402: the module stands beside this folder

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
TOTAL_BYTES = 1_000_000
TEST_TOLERANCE = 2e-5  # of the output's range: what the tests allow an implementation

Run = Callable[[torch.nn.Module, dict], dict]


@dataclass(frozen=True)
class Case:
    """A synthesised checkpoint, the reference's network for it, and its inputs."""

    architecture: str
    preset: str
    seed: int
    build: Callable[[], torch.nn.Module]
    run: Run  # from the inputs by name to the outputs by name
    inputs: list[dict]  # name to shape

    @property
    def name(self) -> str:
        return f"{self.architecture}-{self.preset}"


def tiny_dinov2(**_) -> torch.nn.Module:
    from rgbddepth.dinov2 import DinoVisionTransformer
    from rgbddepth.dinov2_layers import MemEffAttention
    from rgbddepth.dinov2_layers import NestedTensorBlock as Block

    block = functools.partial(Block, attn_class=MemEffAttention)
    sizes = {"img_size": 56, "patch_size": 14, "embed_dim": 16, "depth": 4, "num_heads": 2, "mlp_ratio": 2.0}
    return DinoVisionTransformer(
        **sizes, block_fn=block, init_values=1.0, ffn_layer="mlp", block_chunks=0, interpolate_offset=0.1
    )


HEAD = {"features": 8, "out_channels": [4, 6, 8, 8]}


def rgbd_depth() -> torch.nn.Module:
    from rgbddepth import dpt

    dpt.DINOv2 = lambda model_name: tiny_dinov2()
    network = dpt.RGBDDepth("vits", **HEAD)
    network.intermediate_layer_idx = {"vits": [0, 1, 2, 3]}
    return network


class DepthAnythingV2(torch.nn.Module):
    """Depth Anything V2, put together from the same two parts as in its own repository."""

    def __init__(self) -> None:
        from rgbddepth.dpt import DPTHead

        super().__init__()
        self.pretrained = tiny_dinov2()
        self.depth_head = DPTHead(16, **HEAD)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features = self.pretrained.get_intermediate_layers(pixels, [0, 1, 2, 3], return_class_token=True)
        rows, columns = pixels.shape[-2] // 14, pixels.shape[-1] // 14
        return torch.relu(self.depth_head(features, rows, columns)).squeeze(1)


def depth_anything_of_transformers() -> torch.nn.Module:
    from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config

    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "mlp_ratio": 2,
        "image_size": 56,
        "patch_size": 14,
    }
    backbone = Dinov2Config(**sizes, out_indices=[1, 2, 3, 4], apply_layernorm=True, reshape_hidden_states=False)
    head = {
        "reassemble_hidden_size": 16,
        "neck_hidden_sizes": HEAD["out_channels"],
        "fusion_hidden_size": 8,
        "head_hidden_size": 32,
    }
    return DepthAnythingForDepthEstimation(DepthAnythingConfig(backbone_config=backbone, patch_size=14, **head))


def unet_pair() -> torch.nn.Module:
    from gpu_stress_test import GPUStressTestModel

    return GPUStressTestModel(channels=3, base_channels=16, num_timesteps=100)


def small_unet() -> torch.nn.Module:
    from day2_fixed import SimpleOptimizedUNet

    return SimpleOptimizedUNet(in_channels=4, out_channels=3, base_channels=16)


def with_timestep(frame: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
    return torch.cat([frame, torch.full_like(frame[:, :1], float(timestep) / 100)], 1)


def depth(height: int, width: int, rough: bool = False) -> dict:
    return {"pixel_values": (1, 3, height, width)} | ({"inverse_depth": (1, 1, height, width)} if rough else {})


# Four frames in a row. Each run gets the previous output.
FRAMES = [{"frame": (1, 3, 16, 32), "timestep": (1,), "previous_frame": (1, 3, 16, 32)} for _ in range(4)]

CASES = [
    # The size of the training, and two others: a larger one, and a smaller one that is not square.
    Case(
        "RGBDDepth",
        "tiny",
        1,
        rgbd_depth,
        lambda net, i: {"depth": net(torch.cat([i["pixel_values"], i["inverse_depth"]], 1))},
        [depth(56, 56, rough=True), depth(70, 98, rough=True), depth(42, 28, rough=True)],
    ),
    Case(
        "DepthAnything",
        "tiny",
        2,
        DepthAnythingV2,
        lambda net, i: {"predicted_depth": net(i["pixel_values"])},
        [depth(56, 56), depth(70, 98)],
    ),
    Case(
        "DepthAnything",
        "tiny-transformers",
        3,
        depth_anything_of_transformers,
        lambda net, i: {"predicted_depth": net(i["pixel_values"]).predicted_depth},
        [depth(56, 56), depth(42, 84)],
    ),
    Case(
        "GPUStressTestModel",
        "tiny",
        14,
        unet_pair,
        lambda net, i: {"output_frame": net(i["frame"], float(i["timestep"]), i["previous_frame"])},
        FRAMES,
    ),
    Case(
        "SimpleOptimizedUNet",
        "tiny",
        6,
        small_unet,
        lambda net, i: {"output_frame": net(with_timestep(i["frame"], i["timestep"]))},
        [{name: shape for name, shape in frame.items() if name != "previous_frame"} for frame in FRAMES],
    ),
]

# Tensors that no input shows: embeddings of masked patches, the fusion of a level without a predecessor, counters,
# biases that add the same to every score of a query, and the class token's share if only patches are used.
UNUSED = (
    r"mask_token|refinenet4\.resConfUnit1\.|fusion_stage\.layers\.0\.residual_layer1\."
    r"|num_batches_tracked|(key|k_proj)\.bias$"
)


# Published files have the names of transformers 4, which transformers 5 renames on loading.
RENAMED = [
    (r"attention\.attention\.(query|key|value)", lambda match: f"attention.{match[1][0]}_proj"),
    (r"attention\.output\.dense", "attention.o_proj"),
]


def load(case: Case, path: Path) -> torch.nn.Module:
    with contextlib.redirect_stdout(io.StringIO()):
        network = case.build()
    state = safetensors.torch.load_file(path)
    for pattern, name in RENAMED:
        state = {re.sub(pattern, name, key): tensor for key, tensor in state.items()}
    missing, unexpected = network.load_state_dict(state, strict=False)
    wrong = unexpected + [name for name in missing if not re.search(UNUSED, name)]
    if wrong:
        raise AssertionError(f"{case.name}: the reference has other tensors: {wrong}")
    return network.eval()


def assert_alive(case: Case, network: torch.nn.Module, pairs: list[tuple[dict, dict]]) -> None:
    for name, parameter in list(network.named_parameters()) + list(network.named_buffers()):
        if re.search(UNUSED, name) or parameter.dtype not in (torch.float32, torch.float64):
            continue
        kept = parameter.detach().clone()
        parameter.zero_()
        change = 0.0
        for inputs, outputs in pairs[-1:]:
            for output, values in case.run(network, inputs).items():
                change = max(change, float((values - outputs[output]).abs().max()) / extent(outputs[output]))
        parameter.copy_(kept)
        # A single bias has little effect in a network of a hundred layers, so all biases are changed together.
        if change < (2 * TEST_TOLERANCE if parameter.ndim > 1 else 1e-6):
            raise AssertionError(f"{case.name}: without {name} the output changes by {change:.1e} of its range only")


def make(case: Case) -> tuple[dict[str, File], float]:
    random = numpy.random.Generator(numpy.random.PCG64(case.seed))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "checkpoint.safetensors"
        synth = [
            "cargo",
            "xtask",
            "synth",
            case.architecture,
            "--preset",
            case.preset,
            "--seed",
            str(case.seed),
            "-o",
            str(path),
        ]
        subprocess.run(synth, cwd=ROOT, check=True, capture_output=True)
        network = load(case, path)
        files, pairs, worst, previous = {}, [], 0.0, None
        for number, shapes in enumerate(case.inputs):
            draw = {name: random.standard_normal(shape) for name, shape in shapes.items()}
            if "timestep" in draw:
                draw["timestep"] = numpy.array([90.0 - 20 * number])
            if "inverse_depth" in draw:  # a third of the pixels is missing
                draw["inverse_depth"] = numpy.where(draw["inverse_depth"] > 0.4, 0, abs(draw["inverse_depth"]) + 0.2)
            inputs = {name: torch.from_numpy(values.astype(numpy.float32)) for name, values in draw.items()}
            if "previous_frame" in inputs:
                inputs["previous_frame"] = torch.zeros_like(inputs["frame"]) if previous is None else previous
            exact = {name: value.double() for name, value in inputs.items()}
            outputs = case.run(network.double(), exact)
            for name, values in outputs.items():
                if not (torch.isfinite(values).all() and 1e-3 <= extent(values) <= 1e4):
                    raise AssertionError(f"{case.name}: the range of {name} is {extent(values):.3g}")
            for name, values in case.run(network.float(), inputs).items():
                worst = max(worst, float((values - outputs[name]).abs().max()) / extent(outputs[name]))
            pairs.append((exact, outputs))
            previous = outputs["output_frame"].float() if "previous_frame" in inputs else None
            tensors = {f"input.{name}": value for name, value in inputs.items()}
            tensors |= {f"output.{name}": value.float().contiguous() for name, value in outputs.items()}
            files[f"{number}.golden.safetensors"] = (
                tensors,
                {
                    "architecture": case.architecture,
                    "preset": case.preset,
                    "seed": str(case.seed),
                    "generator": ", ".join(
                        f"{package} {version(package)}" for package in ("torch", "transformers", "numpy")
                    ),
                },
            )
        assert_alive(case, network.double(), pairs)
    return files, worst


def main() -> int:
    arguments_of = parser("Make or check the golden data of depth and real-time networks.")
    arguments_of.add_argument("repositories", type=Path, help="the folder with the references' repositories")
    arguments = arguments_of.parse_args()
    for place in ("rgbd-depth", "mirage-hello/examples/basic", "mirage-hello/examples/advanced"):
        sys.path.insert(0, str(arguments.repositories / place))

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # more threads are slower on networks this small
    return write_cases(FOLDER, CASES, make, TOTAL_BYTES, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
