"""SPANF3 as training runs it, for the golden data: spandrel 0.4.2 does not have this network.

The reference is https://github.com/the-database/traiNNer-redux, `traiNNer/archs/spanf3_arch.py`. There, an evaluation
runs each chain of convolutions as one; here the chain itself is run. On the same weights in float64, both gave the same
values up to 1e-14 of their range.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

FACTOR = 4  # of the pixel shuffle, in networks that unshuffle their image


class Chain(nn.Module):
    """Three convolutions, and one beside them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.sk = nn.Conv2d(inputs, outputs, 1)
        self.conv = nn.Sequential(
            nn.Conv2d(inputs, 2 * inputs, 1), nn.Conv2d(2 * inputs, 2 * outputs, 3), nn.Conv2d(2 * outputs, outputs, 1)
        )
        self.eval_conv = nn.Conv2d(inputs, outputs, 3, padding=1)  # stored, and never read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(nn.functional.pad(x, [1, 1, 1, 1])) + self.sk(x)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c1_r, self.c2_r, self.c3_r = (Chain(width, width) for _ in range(3))
        self.act = nn.ReLU()
        self.att_conv = nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = self.act(self.c1_r(x))
        y = self.c3_r(self.act(self.c2_r(inner)))
        return (x + y) * torch.tanh(self.att_conv(y)), inner


class SPANF3(nn.Module):
    def __init__(
        self, *, num_in_ch: int, feature_channels: int, num_blocks: int, upscale: int, unshuffle_mod: bool = False
    ) -> None:
        super().__init__()
        self.hyperparameters = {
            "num_in_ch": num_in_ch,
            "feature_channels": feature_channels,
            "num_blocks": num_blocks,
            "upscale": upscale,
            "unshuffle_mod": unshuffle_mod,
        }
        self.upscale = upscale
        self.unshuffle = FACTOR // upscale if unshuffle_mod else 1
        first = Chain(num_in_ch * self.unshuffle**2, feature_channels)
        self.conv_1 = nn.Sequential(nn.PixelUnshuffle(self.unshuffle), first) if unshuffle_mod else first
        self.blocks = num_blocks
        for number in range(1, num_blocks + 1):
            setattr(self, f"block_{number}", Block(feature_channels))
        self.conv_cat = nn.Conv2d(4 * feature_channels, feature_channels, 1)
        factor = upscale * self.unshuffle
        self.to_pixel = Chain(feature_channels, num_in_ch * factor**2)
        self.upsampler = nn.PixelShuffle(factor)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        height, width = image.shape[2:]
        padded = nn.functional.pad(image, [0, -width % self.unshuffle, 0, -height % self.unshuffle], "reflect")
        shallow = self.conv_1(padded)
        x = shallow
        for number in range(1, self.blocks + 1):
            x, inner = getattr(self, f"block_{number}")(x)
            first = x if number == 1 else first
        x = self.to_pixel(self.conv_cat(torch.cat([shallow, x, first, inner], 1)))
        return self.upsampler(x)[:, :, : height * self.upscale, : width * self.upscale]


class SPANF3Arch:
    """Reads hyperparameters from names and shapes, as spandrel's classes of this name do."""

    def detect(self, state: dict) -> bool:
        return "block_1.att_conv.weight" in state and "to_pixel.sk.weight" in state

    def load(self, state: dict) -> SimpleNamespace:
        unshuffle_mod = "conv_1.1.sk.weight" in state
        filters, inputs = state["conv_1.1.sk.weight" if unshuffle_mod else "conv_1.sk.weight"].shape[:2]
        shuffled = state["to_pixel.sk.weight"].shape[0]
        channels = shuffled // FACTOR**2 if unshuffle_mod else inputs
        factor = round((shuffled / channels) ** 0.5)
        blocks = sum(key.endswith("att_conv.weight") for key in state)
        network = SPANF3(
            num_in_ch=channels,
            feature_channels=filters,
            num_blocks=blocks,
            upscale=factor // round((inputs / channels) ** 0.5),
            unshuffle_mod=unshuffle_mod,
        )
        network.load_state_dict(state)
        return SimpleNamespace(model=network, scale=network.upscale)
