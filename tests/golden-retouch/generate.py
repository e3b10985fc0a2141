#!/usr/bin/env python3
"""Makes the golden data of this folder with spandrel: networks for aligned faces, and networks that fill in what a mask
covers.

    python3 -m pip install -r tests/golden-retouch/requirements.txt
    python3 tests/golden-retouch/generate.py              writes every case
    python3 tests/golden-retouch/generate.py --check      makes every case in memory and compares it with the files

Weights and images are random numbers of NumPy's PCG64. The weights of each layer are scaled until its values have the
deviation 1. The reference runs in float64, and its result is rounded to float32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy
import torch
from spandrel.architectures.GFPGAN.__arch.gfpganv1_clean_arch import GFPGANv1Clean
from spandrel.architectures.LaMa.__arch.LaMa import FFCResNetGenerator, LaMa
from spandrel.architectures.RestoreFormer.__arch.restoreformer_arch import RestoreFormer

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
from golden_files import File, extent, parser, write_cases  # noqa: E402: the module stands beside this folder

TEST_TOLERANCE = 2e-5  # of the output's range: what the tests allow an implementation
TOTAL_BYTES = 3_000_000


class SmallLaMa(torch.nn.Module):
    """The reference's LaMa fixes the width and the number of blocks. This one does not."""

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        self.model = FFCResNetGenerator(4, 3, **sizes)

    forward = LaMa.forward


@dataclass
class Case:
    """One checkpoint and the images that go through it."""

    name: str
    seed: int
    network: Callable[..., torch.nn.Module]
    arguments: dict
    images: list[tuple[int, int, int]]  # (batch, height, width)
    keys: Callable[[str], str] = field(default=lambda key: key)
    dtype: torch.dtype = torch.float32


GFPGAN = {"num_style_feat": 8, "num_mlp": 1, "input_is_latent": True, "different_w": True, "fix_decoder": False}
RESTOREFORMER = {"ch": 32, "num_res_blocks": 1, "embed_dim": 4, "z_channels": 6, "n_embed": 12, "head_size": 8}

CASES = [
    Case("gfpgan", 401, GFPGANv1Clean, GFPGAN | {"out_size": 32, "narrow": 1 / 64, "sft_half": True}, [(2, 32, 32)]),
    # All channels are modulated, and one level has another width.
    Case(
        "gfpgan-all",
        402,
        GFPGANv1Clean,
        GFPGAN | {"out_size": 64, "narrow": 1 / 64, "channel_multiplier": 1, "sft_half": False},
        [(1, 64, 64)],
        dtype=torch.float16,
    ),
    # Widths change in both directions.
    Case(
        "restoreformer",
        413,
        RestoreFormer,
        RESTOREFORMER | {"ch_mult": (1, 2), "resolution": 32},
        [(2, 32, 32)],
        dtype=torch.float16,
    ),
    Case("lama", 404, SmallLaMa, {"ngf": 4, "n_blocks": 2}, [(2, 32, 48), (1, 24, 40)]),
    # The names of upstream's training, an odd number of columns of features, and a level less.
    Case(
        "lama-training",
        405,
        SmallLaMa,
        {"ngf": 8, "n_blocks": 1, "n_downsampling": 2},
        [(1, 24, 24), (1, 20, 28)],
        keys=lambda key: key.replace("model.model.", "generator.model."),
        dtype=torch.float16,
    ),
]


def fill(case: Case, network: torch.nn.Module, inputs: list[torch.Tensor], random: numpy.random.Generator) -> None:
    """Random weights that keep the values of every layer near 1."""
    for key, tensor in network.state_dict().items():
        if not tensor.is_floating_point():
            continue
        values = random.uniform(-1.0, 1.0, tuple(tensor.shape))
        if key.endswith("running_var"):
            values = 1.0 + 0.5 * values
        elif tensor.ndim >= 2:
            values *= (3.0 / tensor[0].numel()) ** 0.5 if tensor.ndim in (2, 4) else 1.0
            if "embedding" in key:
                values *= 2.0
        elif key.endswith("modulation.bias"):
            values = 1.0 + 0.5 * values
        elif key.endswith("weight"):
            values = numpy.copysign(0.5 + 0.5 * abs(values), values)
        else:
            values = numpy.copysign(0.2 + 0.2 * abs(values), values)
        tensor.copy_(torch.from_numpy(values))

    def scale(module: torch.nn.Module, _, output: torch.Tensor) -> torch.Tensor:
        deviation = output.std()
        module.weight /= deviation
        if module.bias is not None:
            module.bias /= deviation
        return output / deviation

    layers = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    hooks = [module.register_forward_hook(scale) for module in network.modules() if isinstance(module, layers)]
    network(*inputs)
    for hook in hooks:
        hook.remove()
    for tensor in network.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(tensor.to(case.dtype))


def draw(case: Case, shape: tuple[int, int, int], random: numpy.random.Generator) -> list[torch.Tensor]:
    """An image, of −1 … 1 for faces and of 0 … 1 otherwise; and a mask of discs and single pixels."""
    batch, height, width = shape
    ramp = (numpy.arange(height)[:, None] / height + numpy.arange(width)[None, :] / width) / 2
    image = 0.5 * ramp + 0.5 * random.uniform(size=(batch, 3, height, width))
    if case.network is not SmallLaMa:
        return [torch.from_numpy((2 * image - 1).astype(numpy.float32)).double()]
    rows, columns = numpy.mgrid[:height, :width]
    masks = []
    for _ in range(batch):
        y, x = random.uniform(size=2) * (height, width)
        disc = (rows - y) ** 2 + (columns - x) ** 2 < (min(height, width) / 3) ** 2
        masks.append(disc | (random.uniform(size=(height, width)) < 0.05))
    mask = torch.from_numpy(numpy.stack(masks)[:, None].astype(numpy.float32)).double()
    return [torch.from_numpy(image.astype(numpy.float32)).double(), mask]


def call(network: torch.nn.Module, inputs: list[torch.Tensor]) -> torch.Tensor:
    """The result alone. The noise of StyleGAN2 is the stored one: the reference draws it anew otherwise."""
    if isinstance(network, GFPGANv1Clean):
        return network(*inputs, return_rgb=False, randomize_noise=False)[0]
    made = network(*inputs)
    return made[0] if isinstance(made, tuple) else made


def assert_alive(case: Case, network: torch.nn.Module, inputs: list[torch.Tensor], made: torch.Tensor) -> None:
    """Checks that every tensor changes the output, far beyond the tests' tolerance."""
    if not (torch.isfinite(made).all() and 0.3 <= extent(made) <= 32.0):
        raise AssertionError(f"{case.name}: the output's range is {extent(made):.3g}, not of order 1")
    unused = ("style_mlp.", "toRGB.", "num_batches_tracked")
    for name, tensor in network.state_dict().items():
        if any(part in name for part in unused):
            continue
        if isinstance(network, RestoreFormer) and name.startswith("encoder.") and ".norm2." in name and "attn" in name:
            continue  # upstream has it and does not use it
        kept = tensor.clone()
        tensor.zero_()
        change = float((call(network, inputs) - made).abs().max()) / extent(made)
        tensor.copy_(kept)
        # A bias of all keys is the same for all scores of a query, and softmax cancels it. A normalisation of groups of
        # one channel cancels what was added to the channel.
        if isinstance(network, RestoreFormer) and (
            name.endswith(".k.bias")
            or (tensor.numel() == 32 and name.endswith((".conv1.bias", ".conv2.bias", ".nin_shortcut.bias")))
        ):
            continue
        if change < 20 * TEST_TOLERANCE:
            raise AssertionError(f"{case.name}: without {name} the output changes by {change:.1e} of its range only")


def assert_clear(case: Case, network: torch.nn.Module, inputs: list[torch.Tensor]) -> None:
    """Checks that no pixel is almost as near to a second entry of the codebook: rounding would decide there."""
    distances = network.encode(*inputs)[2][3].sort(dim=1).values
    gap, used = float((distances[:, 1] - distances[:, 0]).min()), network.encode(*inputs)[2][2].unique().numel()
    if gap < 1e-4 or used < 4:
        raise AssertionError(f"{case.name}: a gap of {gap:.1e} between entries of the codebook, {used} of them used")


def make(case: Case) -> tuple[dict[str, File], float]:
    """The files of a case by name, and the error of float32 arithmetic, as a share of the output's range."""
    random = numpy.random.Generator(numpy.random.PCG64(case.seed))
    torch.manual_seed(case.seed)
    with torch.no_grad():
        network = case.network(**case.arguments).double().eval()
        fill(case, network, draw(case, case.images[0], random), random)
        checkpoint = {
            case.keys(key): (tensor.to(case.dtype) if tensor.is_floating_point() else tensor).contiguous()
            for key, tensor in network.state_dict().items()
        }
        files: dict[str, File] = {"checkpoint.safetensors": (checkpoint, {"format": "pt"})}
        task = "inpaint" if case.network is SmallLaMa else "upscale"
        worst = 0.0
        for number, shape in enumerate(case.images, 1):
            inputs = draw(case, shape, random)
            made = call(network, inputs)
            assert_alive(case, network, inputs, made)
            if isinstance(network, RestoreFormer):
                assert_clear(case, network, inputs)
            single = call(network.float(), [tensor.float() for tensor in inputs])
            network.double()
            worst = max(worst, float((single - made).abs().max()) / extent(made))
            tensors = {f"input.{name}": tensor.float() for name, tensor in zip(["image", "mask"], inputs)}
            tensors[f"output.{'inpainted' if task == 'inpaint' else 'upscaled'}"] = made.float().contiguous()
            libraries = ", ".join(f"{library} {version(library)}" for library in ("torch", "numpy", "safetensors"))
            notes = {"reference": f"spandrel {version('spandrel')}, float64", "generator": libraries}
            files[f"{task}.{number}.golden.safetensors"] = (tensors, notes)
    return files, worst


def main() -> int:
    arguments = parser("Make or check the golden data of networks that retouch pictures.").parse_args()
    torch.use_deterministic_algorithms(True)
    return write_cases(FOLDER, CASES, make, TOTAL_BYTES, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
