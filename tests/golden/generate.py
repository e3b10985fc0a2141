#!/usr/bin/env python3
"""Makes the golden data of this folder with spandrel, the reference implementation of these networks.

    python3 -m pip install -r tests/golden/requirements.txt
    python3 tests/golden/generate.py              writes every case
    python3 tests/golden/generate.py --check      makes every case in memory and compares it with the files

A case is a row of CASES and nothing else. Weights and images are uniform random numbers of NumPy's PCG64, which gives
the same bits on every machine. The reference runs in float64 and its result is rounded to float32. So the stored output
is exact up to about the last bit, and does not depend on a machine's order of summation.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy
import torch
from spandrel.__helpers.canonicalize import canonicalize_state_dict
from spandrel.architectures.ATD import ATD, ATDArch
from spandrel.architectures.Compact import Compact, CompactArch
from spandrel.architectures.CRAFT import CRAFT, CRAFTArch
from spandrel.architectures.DAT import DAT, DATArch
from spandrel.architectures.DCTLSA import DCTLSA, DCTLSAArch
from spandrel.architectures.DITN import DITN, DITNArch
from spandrel.architectures.DnCNN import DnCNN, DnCNNArch
from spandrel.architectures.DRCT import DRCT, DRCTArch
from spandrel.architectures.DRUNet import DRUNet, DRUNetArch
from spandrel.architectures.ESRGAN import ESRGAN, ESRGANArch
from spandrel.architectures.ESRGAN.__arch import RRDB as rrdb_module
from spandrel.architectures.FBCNN import FBCNN, FBCNNArch
from spandrel.architectures.FBCNN.__arch import FBCNN as fbcnn_module
from spandrel.architectures.FDAT import FDAT, FDATArch
from spandrel.architectures.FDAT.__arch import fdat as fdat_module
from spandrel.architectures.GRL import GRL, GRLArch
from spandrel.architectures.GRL.__arch import mixed_attn_block_efficient as grl_module
from spandrel.architectures.HAT import HAT, HATArch
from spandrel.architectures.KBNet import KBNet_l, KBNet_s, KBNetArch
from spandrel.architectures.KBNet.__arch import kbnet_l as kbnet_l_module
from spandrel.architectures.KBNet.__arch import kbnet_s as kbnet_s_module
from spandrel.architectures.MoESR import MoESR, MoESRArch
from spandrel.architectures.MoSR import MoSR, MoSRArch
from spandrel.architectures.NAFNet import NAFNet, NAFNetArch
from spandrel.architectures.OmniSR import OmniSR, OmniSRArch
from spandrel.architectures.PLKSR import PLKSR, PLKSRArch, RealPLKSR
from spandrel.architectures.RCAN import RCAN, RCANArch
from spandrel.architectures.RealCUGAN import RealCUGANArch, UpCunet2x, UpCunet2x_fast, UpCunet3x, UpCunet4x
from spandrel.architectures.RealCUGAN.__arch import upcunet_v3
from spandrel.architectures.RGT import RGT, RGTArch
from spandrel.architectures.RGT.__arch import rgt as rgt_module
from spandrel.architectures.SAFMN import SAFMN, SAFMNArch
from spandrel.architectures.SCUNet import SCUNet, SCUNetArch
from spandrel.architectures.SCUNet.__arch import SCUNet as scunet_module
from spandrel.architectures.SeemoRe import SeemoRe, SeemoReArch
from spandrel.architectures.SPAN import SPAN, SPANArch
from spandrel.architectures.Swin2SR import Swin2SR, Swin2SRArch
from spandrel.architectures.SwiftSRGAN import SwiftSRGAN, SwiftSRGANArch
from spandrel.architectures.SwinIR import SwinIR, SwinIRArch
from spandrel_extra_arches.architectures.SRFormer import SRFormer, SRFormerArch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, parser, write_cases  # noqa: E402: the module stands beside this folder
from spanf3 import SPANF3, SPANF3Arch  # noqa: E402: as above, in this folder

FOLDER = Path(__file__).resolve().parent
TEST_TOLERANCE = 2e-5  # of the output's range: what the tests allow an implementation
TOTAL_BYTES = 12_000_000


@dataclass(frozen=True)
class Case:
    """One checkpoint and the images that go through it."""

    name: str
    seed: int
    network: str  # our name of the architecture: a key of NETWORKS
    arguments: dict  # of the reference's constructor
    images: list[tuple[int, int, int]]  # (batch, height, width)
    keys: str = "as built"  # the naming scheme of the checkpoint: a key of KEYS
    wrapper: str = ""  # put before every key
    dtype: torch.dtype = torch.float32  # of the checkpoint; the golden output belongs to the rounded weights
    growth: int = 2  # RRDBNet's channels per dense convolution; the 32 of published models would make large files
    shards: int = 1
    features: int = 64  # before the upsampling; the reference has 64 always, which would make large files
    notes: dict = field(default_factory=dict)  # the checkpoint's metadata about what no tensor shows
    calibrated: bool = False  # whether weights are scaled until every layer gives values of order 1


def rrdb(scale: int = 4, **more) -> dict:
    """`scale` is that of the up-convolutions. With `shuffle_factor`, the network's scale is that many times smaller."""
    return {"in_nc": 3, "out_nc": 3, "num_filters": 8, "num_blocks": 1, "scale": scale} | more


def compact(upscale: int = 4, **more) -> dict:
    return {"num_in_ch": 3, "num_out_ch": 3, "num_feat": 8, "num_conv": 2, "upscale": upscale} | more


def span(upscale: int = 4, **more) -> dict:
    return {"num_in_ch": 3, "num_out_ch": 3, "feature_channels": 4, "upscale": upscale, "norm": True} | more


def plksr(upscaling_factor: int = 4, **more) -> dict:
    return {
        "dim": 8,
        "n_blocks": 1,
        "upscaling_factor": upscaling_factor,
        "kernel_size": 7,
        "split_ratio": 0.25,
        "use_ea": True,
    } | more


def swin(upscale: int = 2, **more) -> dict:
    """The arguments that the three window transformers share, as if trained on images of 8 × 8: four windows."""
    sizes = {"img_size": 8, "embed_dim": 8, "window_size": 4, "mlp_ratio": 2.0}
    return {"in_chans": 3, "upscale": upscale, "upsampler": "pixelshuffle"} | sizes | more


def swinir(upscale: int = 2, **more) -> dict:
    return swin(upscale, depths=[2, 1], num_heads=[2, 4]) | more


def drct(upscale: int = 2, **more) -> dict:
    return swin(upscale, embed_dim=12, num_heads=[3], depths=(6,), gc=4) | more


def hat(upscale: int = 2, **more) -> dict:
    return (
        swin(upscale, depths=[2], num_heads=[2], compress_ratio=2, squeeze_factor=1, overlap_ratio=0.5, num_feat=8)
        | more
    )


def dat(upscale: int = 2, **more) -> dict:
    """Rolled windows are in the third block of a first group, and in the first block of a second one."""
    sizes = {"img_size": 8, "embed_dim": 32, "split_size": [2, 4], "expansion_factor": 1.0}
    return {"in_chans": 3, "upscale": upscale, "depth": [3, 1], "num_heads": [2, 4]} | sizes | more


def srformer(upscale: int = 2, **more) -> dict:
    return swin(upscale, img_size=16, depths=[2, 1], num_heads=[2, 4]) | more


def atd(upscale: int = 2, **more) -> dict:
    sizes = {"embed_dim": 8, "window_size": 4, "num_tokens": 6, "reducted_dim": 4, "mlp_ratio": 2.0}
    return (
        {"in_chans": 3, "upscale": upscale, "upsampler": "pixelshuffle", "depths": [3], "num_heads": [2]} | sizes | more
    )


def rgt(upscale: int = 2, **more) -> dict:
    sizes = {"embed_dim": 32, "split_size": (2, 4), "mlp_ratio": 1.0}
    return {"in_chans": 3, "upscale": upscale, "depth": [3, 1], "num_heads": [2, 4]} | sizes | more


def omnisr(up_scale: int = 2, **more) -> dict:
    return {"num_feat": 8, "block_num": 1, "res_num": 1, "window_size": 4, "up_scale": up_scale} | more


def mosr(upscale: int = 2, **more) -> dict:
    return {"dim": 8, "n_block": 1, "upscale": upscale, "upsampler": "ps", "kernel_size": 7, "conv_ratio": 1.0} | more


def rcan(scale: int = 2, **more) -> dict:
    sizes = {"n_resgroups": 1, "n_resblocks": 1, "n_feats": 8, "reduction": 4}
    return sizes | {"scale": scale, "n_colors": 3, "norm": False} | more


def spanf3(upscale: int = 2, **more) -> dict:
    return {"num_in_ch": 3, "feature_channels": 4, "num_blocks": 1, "upscale": upscale} | more


def dncnn(**more) -> dict:
    return {"in_nc": 1, "out_nc": 1, "nc": 6, "nb": 8, "act_mode": "BR", "mode": "DnCNN"} | more


def drunet(**more) -> dict:
    return {"in_nc": 4, "out_nc": 3, "nc": [4, 4, 6, 8], "nb": 2} | more


def fbcnn(**more) -> dict:
    return {"in_nc": 3, "out_nc": 3, "nc": [4, 4, 6, 8], "nb": 2} | more


def nafnet(**more) -> dict:
    return {"img_channel": 3, "width": 4, "middle_blk_num": 1, "enc_blk_nums": [1], "dec_blk_nums": [2]} | more


def seemore(scale: int, **more) -> dict:
    return {"scale": scale, "num_layers": 1, "embedding_dim": 8, "global_kernel_size": 5} | more


def moesr(scale: int, **more) -> dict:
    sizes = {"dim": 8, "n_blocks": 1, "n_block": 1, "expansion_factor": 1.25, "expansion_msg": 1.5, "upsample_dim": 4}
    return sizes | {"scale": scale, "upsampler": "pixelshuffledirect"} | more


def ditn(upscale: int, **more) -> dict:
    return {"dim": 8, "ITL_blocks": 1, "SAL_blocks": 1, "upscale": upscale} | more


def fdat(upsampler_type: str, scale: int, **more) -> dict:
    sizes = {"embed_dim": 16, "num_groups": 1, "depth_per_group": 1, "num_heads": 2, "window_size": 4, "mid_dim": 8}
    ratios = {"ffn_expansion_ratio": 1.5, "aim_reduction_ratio": 4}
    return sizes | ratios | {"scale": scale, "upsampler_type": upsampler_type} | more


def craft(upscale: int, **more) -> dict:
    sizes = {"embed_dim": 32, "depths": [1], "num_heads": [2], "split_size_0": 2, "split_size_1": 4, "mlp_ratio": 1.0}
    return sizes | {"upscale": upscale} | more


def kbnet_s(**more) -> dict:
    return {"width": 8, "middle_blk_num": 1, "enc_blk_nums": [1], "dec_blk_nums": [1]} | more


def kbnet_l(**more) -> dict:
    sizes = {"dim": 6, "num_blocks": [1, 1, 1, 1], "num_refinement_blocks": 1, "heads": [1, 2, 2, 4]}
    return sizes | {"ffn_expansion_factor": 8 / 6} | more


def grl(upscale: int, **more) -> dict:
    """The sizes of windows and stripes show in buffers, except those of a network that only restores."""
    sizes = {"embed_dim": 8, "depths": [3], "num_heads_window": [2], "num_heads_stripe": [1], "mlp_ratio": 2.0}
    windows = {"window_size": 4, "stripe_size": [4, 8], "anchor_window_down_factor": 2, "stripe_shift": True}
    return sizes | windows | {"upscale": upscale, "upsampler": "pixelshuffle"} | more


class NarrowConv2d(torch.nn.Conv2d):
    def __init__(self, inputs: int, outputs: int, *positional, **named) -> None:
        super().__init__(narrow(inputs), narrow(outputs), *positional, **named)


class NarrowConvTranspose2d(torch.nn.ConvTranspose2d):
    def __init__(self, inputs: int, outputs: int, *positional, **named) -> None:
        super().__init__(narrow(inputs), narrow(outputs), *positional, **named)


def narrow(channels: int) -> int:
    """The features of Real-CUGAN in files of a sensible size; images and means keep their channels."""
    return channels if channels < 32 else channels // 16


class NarrowLinear(torch.nn.Linear):
    """The layers of FBCNN that work on the quality are 512 wide."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(min(inputs, 8), min(outputs, 8))


class NarrowLayers:
    """`torch.nn`, with narrow convolutions."""

    Conv2d, ConvTranspose2d, Linear = NarrowConv2d, NarrowConvTranspose2d, NarrowLinear

    def __getattr__(self, name: str) -> object:
        return getattr(torch.nn, name)


class Unpinned:
    """`torch`, where FDAT's upsampling asks for memory that only machines with a GPU have."""

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)

    @staticmethod
    def tensor(*positional, pin_memory: bool = False, **named) -> torch.Tensor:
        return torch.tensor(*positional, **named)


def in_one_type(self, scores: torch.Tensor, table: torch.Tensor, *rest, forward=grl_module.AffineTransform.forward):
    """GRL makes its table of distances in float32, whatever the network computes in."""
    return forward(self, scores, table.to(scores.dtype), *rest)


def cugan(**arguments) -> torch.nn.Module:
    if arguments.get("fast"):
        return UpCunet2x_fast(**arguments)
    return {2: UpCunet2x, 3: UpCunet3x, 4: UpCunet4x}[arguments["scale"]](**arguments)


FLOAT16, BFLOAT16 = torch.float16, torch.bfloat16

calibrated = functools.partial(Case, calibrated=True)

CASES = [
    # Every naming scheme, in every scale that it has.
    Case("rrdbnet-esrgan-x1", 1, "RRDBNet", rrdb(1), [(1, 16, 20)], "esrgan"),
    Case("rrdbnet-esrgan-x2", 2, "RRDBNet", rrdb(2), [(1, 12, 15)], "esrgan"),
    Case("rrdbnet-esrgan-x4", 3, "RRDBNet", rrdb(4, num_blocks=2), [(1, 7, 9)], "esrgan"),
    Case("rrdbnet-esrgan-x8", 4, "RRDBNet", rrdb(8), [(1, 6, 5)], "esrgan"),
    Case("rrdbnet-realesrgan-x1", 5, "RRDBNet", rrdb(1), [(1, 16, 20)], "realesrgan"),
    Case("rrdbnet-realesrgan-x2", 6, "RRDBNet", rrdb(2), [(1, 12, 15)], "realesrgan"),
    Case("rrdbnet-realesrgan-x4", 7, "RRDBNet", rrdb(4, num_blocks=2), [(1, 7, 9), (1, 8, 6)], "realesrgan"),
    Case("rrdbnet-realesrgan-x8", 8, "RRDBNet", rrdb(8), [(1, 6, 5)], "realesrgan"),
    Case("rrdbnet-bsrgan-x2", 9, "RRDBNet", rrdb(2), [(1, 12, 15)], "bsrgan"),
    Case("rrdbnet-bsrgan-x4", 10, "RRDBNet", rrdb(4, num_filters=12), [(1, 7, 9)], "bsrgan"),
    # Pixel-unshuffle at the input: a size that divides, and one that the reference pads by reflection and crops.
    Case(
        "rrdbnet-unshuffle-x2",
        11,
        "RRDBNet",
        rrdb(in_nc=12, shuffle_factor=2),
        [(1, 12, 16), (1, 11, 13)],
        "realesrgan",
    ),
    Case(
        "rrdbnet-unshuffle-x1",
        12,
        "RRDBNet",
        rrdb(in_nc=48, shuffle_factor=4),
        [(1, 16, 20), (1, 13, 18)],
        "realesrgan",
    ),
    Case("rrdbnet-unshuffle-esrgan-x2", 13, "RRDBNet", rrdb(in_nc=12, shuffle_factor=2), [(1, 10, 8)], "esrgan"),
    # Channels, batches, ESRGAN+ (one 1×1 convolution in each dense block), and the growth of published models.
    Case("rrdbnet-grey-x4", 14, "RRDBNet", rrdb(in_nc=1, out_nc=1), [(1, 16, 12)], "realesrgan"),
    Case(
        "rrdbnet-grey-unshuffle-x2",
        15,
        "RRDBNet",
        rrdb(in_nc=4, out_nc=1, shuffle_factor=2),
        [(1, 12, 16)],
        "realesrgan",
    ),
    Case("rrdbnet-batch-x2", 16, "RRDBNet", rrdb(2), [(2, 12, 9), (3, 5, 8)], "realesrgan"),
    Case("rrdbnet-plus-x4", 17, "RRDBNet", rrdb(4, plus=True), [(1, 7, 9)], "esrgan"),
    Case(
        "rrdbnet-growth32-x4",
        18,
        "RRDBNet",
        rrdb(4, num_filters=4),
        [(1, 8, 10)],
        "realesrgan",
        dtype=FLOAT16,
        growth=32,
    ),
    # Checkpoints with prefixes and in other types.
    Case("rrdbnet-params-ema-x2", 19, "RRDBNet", rrdb(2), [(1, 8, 10)], "realesrgan", "params_ema."),
    Case("rrdbnet-module-x2", 20, "RRDBNet", rrdb(2), [(1, 8, 10)], "esrgan", "module."),
    Case("rrdbnet-state-dict-module-x2", 21, "RRDBNet", rrdb(2), [(1, 8, 10)], "bsrgan", "state_dict.module."),
    Case("rrdbnet-fp16-x4", 22, "RRDBNet", rrdb(4), [(1, 7, 9)], "realesrgan", dtype=FLOAT16),
    Case("rrdbnet-bf16-x4", 23, "RRDBNet", rrdb(4), [(1, 7, 9)], "esrgan", dtype=BFLOAT16),
    Case("rrdbnet-sharded-x4", 7, "RRDBNet", rrdb(4, num_blocks=2), [(1, 7, 9)], "realesrgan", shards=2),
    Case("compact-x1", 24, "SRVGGNetCompact", compact(1), [(1, 16, 20)]),
    Case("compact-x2", 25, "SRVGGNetCompact", compact(2, num_feat=12, num_conv=3), [(1, 16, 20), (1, 7, 11)]),
    Case("compact-x3", 26, "SRVGGNetCompact", compact(3, num_feat=16, num_conv=1), [(1, 7, 9)]),
    Case("compact-x4", 27, "SRVGGNetCompact", compact(4, num_feat=12, num_conv=4), [(1, 7, 9)]),
    Case("compact-grey-x4", 28, "SRVGGNetCompact", compact(4, num_in_ch=1, num_out_ch=1), [(1, 11, 9)]),
    Case("compact-batch-x2", 29, "SRVGGNetCompact", compact(2), [(3, 9, 8)]),
    Case("compact-relu-x2", 30, "SRVGGNetCompact", compact(2, act_type="relu"), [(1, 12, 15)]),
    Case("compact-leakyrelu-x4", 31, "SRVGGNetCompact", compact(4, act_type="leakyrelu"), [(1, 7, 9)]),
    Case("compact-params-x4", 32, "SRVGGNetCompact", compact(4), [(1, 8, 10)], wrapper="params."),
    Case("compact-model-x2", 33, "SRVGGNetCompact", compact(2), [(1, 8, 10)], wrapper="model."),
    Case("compact-fp16-x4", 34, "SRVGGNetCompact", compact(4, num_feat=12), [(1, 7, 9)], dtype=FLOAT16),
    # The published form, and variants of training code: without normalisation, with other channels and scales.
    Case("span-x4", 35, "SPAN", span(4), [(1, 7, 9)], wrapper="params.", dtype=FLOAT16),
    Case("span-no-norm-x2", 36, "SPAN", span(2, norm=False, feature_channels=3), [(2, 9, 8)], wrapper="params_ema."),
    Case(
        "span-grey-x3",
        44,
        "SPAN",
        span(3, norm=False, num_in_ch=1, num_out_ch=1, feature_channels=3),
        [(1, 11, 9)],
        dtype=BFLOAT16,
    ),
    # Every mixer, every kind of large kernel, with and without attention.
    Case(
        "plksr-x4",
        42,
        "PLKSR",
        plksr(4, dim=6, split_ratio=0.5, n_blocks=2, ccm_type="DCCM"),
        [(1, 7, 9)],
        wrapper="params.",
    ),
    Case(
        "plksr-rectangular-x2",
        40,
        "PLKSR",
        plksr(2, ccm_type="CCM", lk_type="RectSparsePLK", kernel_size=9, use_ea=False),
        [(2, 9, 12)],
    ),
    Case(
        "plksr-sparse-x3",
        41,
        "PLKSR",
        plksr(3, ccm_type="ICCM", lk_type="SparsePLK", kernel_size=17),
        [(1, 12, 15)],
        dtype=FLOAT16,
    ),
    # Both normalisations, both kinds of upsampling with an even and an odd scale, and the scale that has one
    # convolution less.
    Case("realplksr-x4", 37, "RealPLKSR", plksr(4, n_blocks=2), [(1, 7, 9)], wrapper="params_ema.", dtype=FLOAT16),
    Case("realplksr-dysample-x2", 43, "RealPLKSR", plksr(2, layer_norm=True, dysample=True), [(2, 9, 12), (1, 7, 5)]),
    Case("realplksr-dysample-x3", 38, "RealPLKSR", plksr(3, dysample=True, use_ea=False), [(1, 8, 11)], dtype=FLOAT16),
    Case(
        "realplksr-dysample-x1",
        45,
        "RealPLKSR",
        plksr(1, layer_norm=True, dysample=True, use_ea=False),
        [(1, 11, 8)],
        dtype=BFLOAT16,
    ),
    # Every upsampler and both residuals; sizes that are multiples of the window, and sizes that the reference pads and
    # crops.
    Case("swinir-x2", 46, "SwinIR", swinir(2), [(1, 12, 8), (1, 11, 14)], wrapper="params.", dtype=FLOAT16),
    Case("swinir-direct-x4", 47, "SwinIR", swinir(4, upsampler="pixelshuffledirect"), [(2, 8, 12), (1, 7, 9)]),
    Case(
        "swinir-nearest-x4",
        48,
        "SwinIR",
        swinir(4, upsampler="nearest+conv", resi_connection="3conv"),
        [(1, 8, 8)],
        dtype=BFLOAT16,
    ),
    Case(
        "swinir-denoise-x1", 49, "SwinIR", swinir(1, upsampler="", depths=[2, 2]), [(1, 16, 12)], wrapper="params_ema."
    ),
    Case(
        "swinir-jpeg-x1",
        50,
        "SwinIR",
        swinir(1, upsampler="", in_chans=1, window_size=7, img_size=14),
        [(1, 21, 14), (1, 16, 18)],
    ),
    Case(
        "swinir-unshuffle-x1",
        51,
        "SwinIR",
        swinir(2, upsampler="nearest+conv", start_unshuffle=2),
        [(1, 16, 24)],
        "unshuffle",
        dtype=FLOAT16,
    ),
    # With and without rolled windows, biases, normalisation and last convolution. The reference does not pad.
    Case("drct-x2", 52, "DRCT", drct(2), [(1, 8, 12), (2, 4, 8)], wrapper="params_ema.", dtype=FLOAT16),
    Case(
        "drct-bare-x1",
        53,
        "DRCT",
        drct(1, img_size=4, qkv_bias=False, patch_norm=False, resi_connection="identity"),
        [(1, 12, 8)],
    ),
    Case(
        "drct-grey-x1",
        54,
        "DRCT",
        drct(1, in_chans=1, mlp_ratio=1.0, num_heads=[3, 2], depths=(6, 6)),
        [(2, 8, 8)],
        dtype=BFLOAT16,
    ),
    # Overlaps of half a window and of a whole window.
    Case("hat-x2", 55, "HAT", hat(2, img_size=64), [(1, 12, 8), (1, 9, 15)], wrapper="params_ema."),
    Case(
        "hat-bare-x3",
        56,
        "HAT",
        hat(3, img_size=64, qkv_bias=False, patch_norm=False, resi_connection="identity"),
        [(2, 8, 8)],
        dtype=BFLOAT16,
    ),
    Case(
        "hat-grey-x4",
        58,
        "HAT",
        hat(4, img_size=64, in_chans=1, depths=[1, 2], num_heads=[2, 4], overlap_ratio=1),
        [(1, 8, 12)],
        dtype=FLOAT16,
    ),
    # Both upsamplers, with rolled windows in both groups; windows whose first side is the longer one, and square ones;
    # sizes that the reference extends by zeros after the layer of queries, keys and values.
    Case("dat-x2", 60, "DAT", dat(2), [(1, 8, 12), (1, 7, 9)], wrapper="params.", dtype=FLOAT16, features=4),
    Case(
        "dat-direct-x3",
        461,
        "DAT",
        dat(3, split_size=[4, 2], qkv_bias=False, upsampler="pixelshuffledirect", resi_connection="3conv"),
        [(2, 8, 6)],
        dtype=FLOAT16,
    ),
    Case(
        "dat-grey-x1",
        162,
        "DAT",
        dat(1, in_chans=1, embed_dim=64, split_size=[4, 4], depth=[1], num_heads=[2], img_size=64),
        [(1, 9, 8)],
        wrapper="params_ema.",
        dtype=FLOAT16,
        features=4,
    ),
    # Sizes that no window divides, and whose last rows and columns the summary does not read.
    Case("rgt-x2", 63, "RGT", rgt(2), [(1, 32, 20), (1, 17, 33)], wrapper="params.", dtype=FLOAT16, features=4),
    Case(
        "rgt-3conv-x3",
        64,
        "RGT",
        rgt(3, split_size=(4, 4), qkv_bias=False, resi_connection="3conv", depth=[2, 1], c_ratio=0.25),
        [(1, 18, 32)],
        dtype=FLOAT16,
        features=4,
    ),
    Case(
        "rgt-grey-x1",
        65,
        "RGT",
        rgt(1, in_chans=1, embed_dim=64, depth=[2], num_heads=[2]),
        [(2, 16, 32)],
        wrapper="params_ema.",
        dtype=FLOAT16,
        features=4,
    ),
    # One group of all pixels, and two of which the second is filled from its end; every upsampler and both residuals;
    # a size that the reference pads by repeating the edge.
    Case("atd-x2", 166, "ATD", atd(2), [(1, 12, 8), (1, 15, 18)], wrapper="params_ema.", features=4),
    Case(
        "atd-bare-direct-x3",
        67,
        "ATD",
        atd(
            3,
            qkv_bias=False,
            patch_norm=False,
            norm=False,
            depths=[2, 1],
            num_heads=[2, 4],
            upsampler="pixelshuffledirect",
            resi_connection="3conv",
        ),
        [(2, 8, 12)],
        dtype=FLOAT16,
    ),
    Case(
        "atd-light-x2",
        168,
        "ATD",
        atd(
            2,
            embed_dim=48,
            category_size=128,
            mlp_ratio=0.5,
            convffn_kernel_size=3,
            upsampler="pixelshuffledirect",
            depths=[2],
            resi_connection="3conv",
        ),
        [(2, 16, 9)],
        wrapper="params.",
        dtype=FLOAT16,
    ),
    Case("atd-nearest-x4", 69, "ATD", atd(4, upsampler="nearest+conv"), [(1, 8, 8)], dtype=BFLOAT16, features=4),
    Case("atd-grey-x1", 70, "ATD", atd(1, in_chans=1, upsampler=""), [(1, 20, 16)], dtype=FLOAT16),
    # Windows whose half is even and odd, with and without rolls and biases, every upsampler and both residuals.
    Case(
        "srformer-x2",
        71,
        "SRFormer",
        srformer(2),
        [(1, 12, 8), (1, 11, 14)],
        wrapper="params.",
        dtype=FLOAT16,
        features=4,
    ),
    Case(
        "srformer-direct-x3",
        172,
        "SRFormer",
        srformer(3, window_size=6, img_size=24, upsampler="pixelshuffledirect", resi_connection="3conv"),
        [(2, 12, 18)],
        dtype=BFLOAT16,
    ),
    Case(
        "srformer-bare-x1",
        73,
        "SRFormer",
        srformer(1, img_size=4, qkv_bias=False, patch_norm=False, in_chans=1, upsampler=""),
        [(1, 16, 12)],
    ),
    Case(
        "srformer-nearest-x4",
        74,
        "SRFormer",
        srformer(4, upsampler="nearest+conv"),
        [(1, 8, 8)],
        wrapper="params_ema.",
        dtype=FLOAT16,
        features=4,
    ),
    # Every upsampler that we know. We refuse `pixelshuffle_aux` and `pixelshuffle_hf`.
    Case("swin2sr-x2", 175, "Swin2SR", swinir(2), [(1, 12, 8), (1, 11, 14)], dtype=FLOAT16, features=4),
    Case(
        "swin2sr-bare-direct-x3",
        76,
        "Swin2SR",
        swinir(3, img_size=4, qkv_bias=False, patch_norm=False, upsampler="pixelshuffledirect"),
        [(2, 8, 12)],
        dtype=FLOAT16,
    ),
    Case(
        "swin2sr-nearest-x4",
        77,
        "Swin2SR",
        swinir(4, upsampler="nearest+conv", resi_connection="3conv"),
        [(1, 8, 8)],
        dtype=BFLOAT16,
        features=4,
    ),
    Case(
        "swin2sr-jpeg-x1",
        178,
        "Swin2SR",
        swinir(1, upsampler="", in_chans=1, window_size=7, img_size=14, depths=[2], num_heads=[2]),
        [(1, 21, 14), (1, 16, 18)],
        dtype=FLOAT16,
    ),
    # With and without biases and position biases, in blocks and grids, with sizes that the reference fills with zeros.
    calibrated("omnisr-x2", 101, "OmniSR", omnisr(2, window_size=8), [(1, 16, 24)], dtype=FLOAT16),
    calibrated("omnisr-unbiased-x3", 1102, "OmniSR", omnisr(3, bias=False), [(1, 17, 14)], dtype=FLOAT16),
    calibrated(
        "omnisr-no-positions-x1", 103, "OmniSR", omnisr(1, pe=False, window_size=8), [(2, 20, 16)], dtype=FLOAT16
    ),
    calibrated(
        "omnisr-grey-x4", 104, "OmniSR", omnisr(4, num_in_ch=1, num_out_ch=1, block_num=2), [(1, 16, 16)], dtype=FLOAT16
    ),
    # Every form, with and without the mark of another range, and sizes that the reference fills up.
    calibrated("cugan-x2", 105, "RealCUGAN", {"scale": 2, "fast": False}, [(1, 21, 23)], dtype=FLOAT16),
    calibrated("cugan-pro-x2", 2106, "RealCUGAN", {"scale": 2, "pro": True}, [(1, 22, 20)], dtype=FLOAT16),
    calibrated("cugan-x3", 107, "RealCUGAN", {"scale": 3}, [(1, 20, 24)], dtype=FLOAT16),
    calibrated(
        "cugan-pro-x3",
        7108,
        "RealCUGAN",
        {"scale": 3, "pro": True, "in_channels": 1, "out_channels": 1},
        [(1, 22, 21)],
        dtype=FLOAT16,
    ),
    calibrated("cugan-x4", 109, "RealCUGAN", {"scale": 4}, [(1, 20, 20)], dtype=FLOAT16),
    calibrated(
        "cugan-pro-x4",
        110,
        "RealCUGAN",
        {"scale": 4, "pro": True, "in_channels": 1, "out_channels": 1},
        [(1, 21, 20)],
        dtype=FLOAT16,
    ),
    calibrated(
        "cugan-fast-x2",
        111,
        "RealCUGAN",
        {"scale": 2, "fast": True, "in_channels": 1, "out_channels": 1},
        [(1, 40, 44)],
        dtype=FLOAT16,
    ),
    # Every upsampler, and kernels for a part of the channels and for all.
    calibrated("mosr-x4", 112, "MoSR", mosr(4), [(1, 7, 9)], dtype=FLOAT16),
    calibrated("mosr-all-channels-x1", 113, "MoSR", mosr(1, conv_ratio=1.5, kernel_size=5), [(2, 9, 8)]),
    calibrated("mosr-gps-x2", 114, "MoSR", mosr(2, upsampler="gps", in_ch=1, out_ch=1), [(1, 11, 9)]),
    calibrated("mosr-dys-x3", 115, "MoSR", mosr(3, upsampler="dys"), [(1, 8, 7)], dtype=FLOAT16),
    # With and without the mean, with every kind of enlargement, and with images that are unshuffled first.
    calibrated("rcan-x4", 1116, "RCAN", rcan(4, norm=True, n_resgroups=2), [(1, 7, 9)], dtype=FLOAT16),
    calibrated(
        "rcan-x3",
        117,
        "RCAN",
        rcan(3, kernel_size=5, n_feats=4, reduction=2, n_resblocks=2),
        [(2, 8, 7)],
        dtype=FLOAT16,
    ),
    calibrated(
        "rcan-unshuffle-x2", 1118, "RCAN", rcan(2, unshuffle_mod=True), [(1, 12, 10), (1, 11, 9)], dtype=FLOAT16
    ),
    calibrated("rcan-unshuffle-x1", 119, "RCAN", rcan(1, unshuffle_mod=True, norm=True), [(1, 18, 15)], dtype=FLOAT16),
    calibrated("rcan-grey-x2", 120, "RCAN", rcan(2, n_colors=1), [(1, 9, 12)]),
    # With and without an unshuffle of the image.
    calibrated("spanf3-x4", 121, "SPANF3", spanf3(4, num_blocks=2, feature_channels=3), [(1, 7, 9)], dtype=FLOAT16),
    calibrated(
        "spanf3-unshuffle-x2", 122, "SPANF3", spanf3(2, num_in_ch=1, unshuffle_mod=True), [(1, 12, 14), (1, 11, 9)]
    ),
    calibrated("spanf3-unshuffle-x1", 123, "SPANF3", spanf3(1, num_in_ch=1, unshuffle_mod=True), [(1, 16, 14)]),
    calibrated("spanf3-grey-x3", 124, "SPANF3", spanf3(3, num_in_ch=1), [(2, 9, 8)]),
    # With and without normalisation, and told a noise level.
    calibrated("dncnn-x1", 201, "DnCNN", dncnn(act_mode="R"), [(1, 16, 20)], wrapper="params."),
    calibrated("dncnn-normalised-x1", 202, "DnCNN", dncnn(in_nc=3, out_nc=3, nb=4), [(2, 9, 12)]),
    calibrated(
        "dncnn-level-x1",
        203,
        "DnCNN",
        dncnn(in_nc=4, out_nc=3, act_mode="R", mode="FDnCNN"),
        [(1, 12, 15)],
        notes={"noise_level": "25"},
    ),
    # Every kind of layer that halves or doubles an image.
    calibrated("drunet-x1", 204, "DRUNet", drunet(), [(1, 16, 24)], dtype=FLOAT16),
    calibrated(
        "drunet-avgpool-x1",
        205,
        "DRUNet",
        drunet(in_nc=2, out_nc=1, downsample_mode="avgpool", upsample_mode="upconv"),
        [(2, 16, 8)],
        dtype=FLOAT16,
    ),
    calibrated(
        "drunet-pixelshuffle-x1", 206, "DRUNet", drunet(upsample_mode="pixelshuffle"), [(1, 8, 16)], dtype=FLOAT16
    ),
    # The same, with an estimated quality, and sizes that the reference fills up.
    calibrated("fbcnn-x1", 207, "FBCNN", fbcnn(), [(1, 16, 24), (1, 11, 13)], dtype=FLOAT16),
    calibrated(
        "fbcnn-avgpool-x1",
        1208,
        "FBCNN",
        fbcnn(in_nc=1, out_nc=1, downsample_mode="avgpool", upsample_mode="upconv"),
        [(2, 16, 8)],
        dtype=FLOAT16,
    ),
    calibrated(
        "fbcnn-pixelshuffle-x1",
        209,
        "FBCNN",
        fbcnn(upsample_mode="pixelshuffle"),
        [(1, 16, 16)],
        notes={"quality": "40"},
        dtype=FLOAT16,
    ),
    # Windows and rolled windows on levels of one window, of several, and of a picture that the reference fills up.
    calibrated(
        "scunet-x1",
        211,
        "SCUNet",
        {"in_nc": 3, "dim": 4, "config": [1, 1, 1, 1, 2, 1, 1]},
        [(1, 40, 35)],
        dtype=FLOAT16,
    ),
    # Several levels, and sizes that the reference fills with zeros.
    calibrated(
        "nafnet-x1", 212, "NAFNet", nafnet(enc_blk_nums=[1, 2], dec_blk_nums=[1, 1]), [(1, 16, 20)], dtype=FLOAT16
    ),
    calibrated("nafnet-grey-x1", 213, "NAFNet", nafnet(img_channel=1, middle_blk_num=2), [(2, 9, 13)]),
    calibrated("safmn-x4", 214, "SAFMN", {"dim": 8, "n_blocks": 1, "upscaling_factor": 4}, [(1, 8, 16)], dtype=FLOAT16),
    calibrated(
        "safmn-x1", 215, "SAFMN", {"dim": 8, "n_blocks": 2, "upscaling_factor": 1}, [(2, 24, 16)], dtype=FLOAT16
    ),
    calibrated(
        "swift-srgan-x4",
        216,
        "SwiftSRGAN",
        {"in_channels": 3, "num_channels": 8, "num_blocks": 2, "upscale_factor": 4},
        [(1, 9, 12)],
        dtype=FLOAT16,
    ),
    calibrated(
        "swift-srgan-grey-x1",
        217,
        "SwiftSRGAN",
        {"in_channels": 1, "num_channels": 6, "num_blocks": 1, "upscale_factor": 1},
        [(2, 14, 11)],
    ),
    # Experts of every growth. The reference takes one image at a time.
    calibrated("seemore-x4", 218, "SeemoRe", seemore(4, num_experts=3), [(1, 16, 19)], dtype=FLOAT16),
    calibrated("seemore-double-x1", 219, "SeemoRe", seemore(1, num_experts=3, lr_space="exp"), [(1, 20, 17)]),
    # Every way to enlarge, and sizes that the reference fills up.
    calibrated("moesr-x2", 220, "MoESR", moesr(2), [(1, 8, 10), (1, 7, 9)], dtype=FLOAT16),
    calibrated("moesr-pixelshuffle-x4", 221, "MoESR", moesr(4, upsampler="pixelshuffle"), [(1, 8, 6)], dtype=FLOAT16),
    calibrated("moesr-nearest-x4", 222, "MoESR", moesr(4, upsampler="nearest+conv"), [(1, 6, 8)], dtype=FLOAT16),
    calibrated("moesr-dysample-x3", 223, "MoESR", moesr(3, upsampler="dysample"), [(2, 6, 8)], dtype=FLOAT16),
    calibrated("moesr-nearest-x3", 224, "MoESR", moesr(3, upsampler="nearest+conv"), [(1, 6, 8)], dtype=FLOAT16),
    # With and without biases, in sizes of whole patches and others.
    calibrated("ditn-x4", 301, "DITN", ditn(4), [(1, 16, 8), (1, 13, 18)], dtype=FLOAT16),
    calibrated(
        "ditn-biased-x1",
        302,
        "DITN",
        ditn(1, bias=True, UFONE_blocks=2, ffn_expansion_factor=1.5),
        [(2, 8, 16)],
        dtype=FLOAT16,
    ),
    # Every way to enlarge, with windows that are full and others that the reference extends with zeros.
    calibrated("fdat-x2", 311, "FDAT", fdat("pixelshuffle", 2), [(1, 8, 12), (1, 7, 9)], dtype=FLOAT16),
    calibrated("fdat-x3", 312, "FDAT", fdat("pixelshuffle", 3, num_groups=2), [(2, 6, 8)], dtype=FLOAT16),
    calibrated("fdat-grey-x1", 313, "FDAT", fdat("conv", 1, num_in_ch=1, num_out_ch=1), [(1, 9, 8)], dtype=FLOAT16),
    calibrated("fdat-direct-x4", 314, "FDAT", fdat("pixelshuffledirect", 4), [(1, 5, 7)], dtype=FLOAT16),
    calibrated(
        "fdat-unshuffle-x2",
        1315,
        "FDAT",
        fdat("pixelshuffledirect", 2, unshuffle_mod=True),
        [(1, 16, 12), (1, 13, 15)],
        dtype=FLOAT16,
    ),
    calibrated(
        "fdat-unshuffle-x1", 316, "FDAT", fdat("nearest+conv", 1, unshuffle_mod=True), [(1, 17, 24)], dtype=FLOAT16
    ),
    calibrated("fdat-nearest-x2", 3317, "FDAT", fdat("nearest+conv", 2), [(1, 8, 6)], dtype=FLOAT16),
    calibrated("fdat-nearest-x3", 318, "FDAT", fdat("nearest+conv", 3), [(1, 6, 8)], dtype=FLOAT16),
    calibrated("fdat-nearest-x4", 319, "FDAT", fdat("nearest+conv", 4), [(1, 8, 5)], dtype=FLOAT16),
    calibrated("fdat-dysample-x2", 320, "FDAT", fdat("dysample", 2, mid_dim=16), [(2, 8, 6)], dtype=FLOAT16),
    calibrated("fdat-dysample-x3", 321, "FDAT", fdat("dysample", 3), [(1, 7, 8)], dtype=FLOAT16),
    calibrated("fdat-transposed-x2", 322, "FDAT", fdat("transpose+conv", 2), [(1, 8, 6)], dtype=FLOAT16),
    calibrated("fdat-transposed-x3", 1323, "FDAT", fdat("transpose+conv", 3), [(1, 6, 8)], dtype=FLOAT16),
    calibrated("fdat-transposed-x4", 324, "FDAT", fdat("transpose+conv", 4), [(1, 8, 5)], dtype=FLOAT16),
    calibrated("fdat-lda-x2", 1325, "FDAT", fdat("lda", 2, mid_dim=64), [(1, 8, 6)], dtype=FLOAT16),
    calibrated("fdat-lda-x3", 9326, "FDAT", fdat("lda", 3, embed_dim=32, mid_dim=32), [(1, 5, 8)], dtype=FLOAT16),
    calibrated("fdat-gated-x2", 327, "FDAT", fdat("pa_up", 2, mid_dim=16), [(1, 8, 6)], dtype=FLOAT16),
    calibrated("fdat-gated-x3", 328, "FDAT", fdat("pa_up", 3), [(1, 6, 8)], dtype=FLOAT16),
    calibrated("fdat-gated-x4", 329, "FDAT", fdat("pa_up", 4, mid_dim=16), [(1, 8, 5)], dtype=FLOAT16),
    # Windows that are full, and others that each layer of the reference extends and cuts again.
    calibrated("dctlsa-x2", 331, "DCTLSA", {"nf": 10, "upscale": 2}, [(1, 32, 16), (1, 19, 30)], dtype=FLOAT16),
    calibrated(
        "dctlsa-grey-x1", 332, "DCTLSA", {"nf": 15, "upscale": 1, "in_nc": 1, "out_nc": 1}, [(2, 16, 20)], dtype=FLOAT16
    ),
    # With and without biases and a last convolution; sizes that the reference extends, which it always does.
    calibrated("craft-x2", 341, "CRAFT", craft(2, embed_dim=64), [(1, 16, 20)], dtype=FLOAT16),
    calibrated(
        "craft-grey-x3",
        342,
        "CRAFT",
        craft(
            3,
            in_chans=1,
            depths=[1, 1],
            num_heads=[4, 2],
            split_size_0=4,
            qkv_bias=False,
            resi_connection="identity",
        ),
        [(2, 8, 13)],
        dtype=FLOAT16,
    ),
    # Every way to make anchors, to enlarge and to end a group, with rolls of windows and of stripes, and sizes that the
    # reference fills up.
    calibrated("grl-x2", 1361, "GRL", grl(2), [(1, 16, 8), (1, 13, 18)], "grl tables", dtype=FLOAT16, features=4),
    calibrated(
        "grl-local-x4",
        362,
        "GRL",
        grl(4, embed_dim=36, local_connection=True, depths=[1], upsampler="nearest+conv"),
        [(1, 8, 16)],
        "grl tables",
        dtype=FLOAT16,
        features=4,
    ),
    calibrated(
        "grl-separable-x3",
        363,
        "GRL",
        grl(
            3,
            qkv_proj_type="separable_conv",
            qkv_bias=False,
            anchor_proj_type="separable_conv",
            anchor_one_stage=False,
            anchor_window_down_factor=4,
            stripe_size=[8, 8],
            conv_type="linear",
            upsampler="pixelshuffledirect",
        ),
        [(2, 8, 16)],
        "grl tables",
        dtype=FLOAT16,
    ),
    calibrated(
        "grl-convolved-x2",
        3364,
        "GRL",
        grl(2, anchor_proj_type="conv2d", conv_type="1conv1x1", depths=[4], upsampler="pixelshuffledirect"),
        [(1, 16, 16)],
        "grl tables",
        dtype=FLOAT16,
    ),
    calibrated(
        "grl-merged-x2",
        365,
        "GRL",
        grl(
            2,
            anchor_proj_type="patchmerging",
            conv_type="3conv",
            depths=[1, 1],
            num_heads_window=[1, 2],
            num_heads_stripe=[2, 1],
            upsampler="pixelshuffledirect",
        ),
        [(1, 8, 16)],
        "grl tables",
        dtype=FLOAT16,
    ),
    calibrated(
        "grl-grey-x1",
        366,
        "GRL",
        grl(
            1,
            in_channels=1,
            out_channels=1,
            window_size=8,
            stripe_size=[8, 8],
            anchor_window_down_factor=4,
            upsampler="",
        ),
        [(1, 16, 24), (1, 15, 9)],
        wrapper="model.",
        dtype=FLOAT16,
    ),
    calibrated(
        "grl-generator-x1",
        367,
        "GRL",
        grl(
            1,
            depths=[1],
            window_size=8,
            stripe_size=[8, 8],
            anchor_window_down_factor=4,
            anchor_proj_type="separable_conv",
            upsampler="",
        ),
        [(1, 8, 16)],
        "grl generator",
        dtype=FLOAT16,
    ),
    # Both sizes of plain convolutions, several levels, and sizes that the reference fills with zeros.
    calibrated("kbnet-s-x1", 351, "KBNet-S", kbnet_s(), [(1, 8, 12), (1, 9, 7)], dtype=FLOAT16),
    calibrated(
        "kbnet-s-lightweight-x1",
        352,
        "KBNet-S",
        kbnet_s(img_channel=1, lightweight=True, enc_blk_nums=[1, 2], dec_blk_nums=[1, 1], ffn_scale=1.5),
        [(2, 8, 12)],
        dtype=FLOAT16,
    ),
    # With and without biases.
    calibrated("kbnet-l-x1", 1353, "KBNet-L", kbnet_l(), [(1, 16, 24)], dtype=FLOAT16),
    calibrated(
        "kbnet-l-biased-x1",
        354,
        "KBNet-L",
        kbnet_l(inp_channels=1, out_channels=1, bias=True, num_blocks=[1, 2, 1, 1]),
        [(2, 16, 16)],
        dtype=FLOAT16,
    ),
]

# The reference's network and its loader, for each of our names.
NETWORKS = {
    "RRDBNet": (ESRGAN, ESRGANArch),
    "SRVGGNetCompact": (Compact, CompactArch),
    "SPAN": (SPAN, SPANArch),
    "PLKSR": (PLKSR, PLKSRArch),
    "RealPLKSR": (RealPLKSR, PLKSRArch),
    "SwinIR": (SwinIR, SwinIRArch),
    "DRCT": (DRCT, DRCTArch),
    "HAT": (HAT, HATArch),
    "DAT": (DAT, DATArch),
    "RGT": (RGT, RGTArch),
    "ATD": (ATD, ATDArch),
    "SRFormer": (SRFormer, SRFormerArch),
    "Swin2SR": (Swin2SR, Swin2SRArch),
    "OmniSR": (OmniSR, OmniSRArch),
    "RealCUGAN": (cugan, RealCUGANArch),
    "MoSR": (MoSR, MoSRArch),
    "RCAN": (RCAN, RCANArch),
    "SPANF3": (SPANF3, SPANF3Arch),
    "DnCNN": (DnCNN, DnCNNArch),
    "DRUNet": (DRUNet, DRUNetArch),
    "FBCNN": (FBCNN, FBCNNArch),
    "SCUNet": (SCUNet, SCUNetArch),
    "NAFNet": (NAFNet, NAFNetArch),
    "SAFMN": (SAFMN, SAFMNArch),
    "SwiftSRGAN": (SwiftSRGAN, SwiftSRGANArch),
    "SeemoRe": (SeemoRe, SeemoReArch),
    "MoESR": (MoESR, MoESRArch),
    "DITN": (DITN, DITNArch),
    "FDAT": (FDAT, FDATArch),
    "DCTLSA": (DCTLSA, DCTLSAArch),
    "CRAFT": (CRAFT, CRAFTArch),
    "GRL": (GRL, GRLArch),
    "KBNet-S": (KBNet_s, KBNetArch),
    "KBNet-L": (KBNet_l, KBNetArch),
}

# Buffers that these networks compute from their sizes and store beside their weights.
BUFFERS = (
    "no_norm",
    "init_pos",
    "attn_mask",
    "relative_position_index",
    "relative_position_index_SA",
    "relative_position_index_OCA",
    "aligned_relative_position_index",
    "relative_coords_table",
    "attn_mask_0",
    "attn_mask_1",
    "rpe_biases",
    "biases_h",
    "biases_v",
    "relative_position_index_h",
    "relative_position_index_v",
    "num_batches_tracked",
    "pro",
    "MetaUpsample",
)

# The arguments that name the image's channels.
CHANNELS = (
    "out_nc", "in_nc", "num_in_ch", "inp_channels", "in_chans", "in_channels",
    "n_colors", "in_ch", "img_channel",
)


# Naming schemes of RRDBNet. The reference builds its network with ESRGAN's names. These rules turn them into others.
# (pattern, replacement): the first pattern that matches the whole key applies; `up` counts the up-convolutions.
RENAMES = {
    "realesrgan": [
        (r"model\.0\.(\w+)", r"conv_first.\1"),
        (r"model\.1\.sub\.(\d+)\.RDB(\d)\.conv(\d)\.0\.(\w+)", r"body.\1.rdb\2.conv\3.\4"),
        (r"model\.1\.sub\.\d+\.(\w+)", r"conv_body.\1"),
        (r"model\.up(\d)\.(\w+)", r"conv_up\1.\2"),
        (r"model\.high\.(\w+)", r"conv_hr.\1"),
        (r"model\.last\.(\w+)", r"conv_last.\1"),
    ],
    "bsrgan": [
        (r"model\.0\.(\w+)", r"conv_first.\1"),
        (r"model\.1\.sub\.(\d+)\.RDB(\d)\.conv(\d)\.0\.(\w+)", r"RRDB_trunk.\1.RDB\2.conv\3.\4"),
        (r"model\.1\.sub\.\d+\.(\w+)", r"trunk_conv.\1"),
        (r"model\.up(\d)\.(\w+)", r"upconv\1.\2"),
        (r"model\.high\.(\w+)", r"HRconv.\1"),
        (r"model\.last\.(\w+)", r"conv_last.\1"),
    ],
}


def rename(scheme: str, state: dict, arguments: dict) -> dict:
    """ESRGAN numbers the layers after the trunk by position: [upsample, convolution, activation] × log2(scale), then
    convolution, activation, convolution. So `model.3`, `model.6`, … are up-convolutions, and the numbers of the last
    two depend on the scale."""
    ups = round(math.log2(arguments["scale"]))
    places = {3 * up: f"up{up}" for up in range(1, ups + 1)} | {3 * ups + 2: "high", 3 * ups + 4: "last"}

    def renamed(key: str) -> str:
        key = re.sub(
            r"^model\.(\d+)\.(\w+)$", lambda match: f"model.{places.get(int(match[1]), match[1])}.{match[2]}", key
        )
        for pattern, replacement in RENAMES[scheme]:
            if re.fullmatch(pattern, key):
                return re.sub(pattern, replacement, key)
        raise AssertionError(f"no rule of {scheme} for {key}")

    return {renamed(key): tensor for key, tensor in state.items()}


def with_grl_tables(state: dict, arguments: dict) -> dict:
    """Upstream stores buffers for its training size, which the reference's network does not."""
    network = GRL(**arguments)
    names = ("table_w", "table_sh", "table_sv", "index_sh_a2w")
    return state | {name: getattr(network, name) for name in names}


KEYS: dict[str, Callable[[dict, dict], dict]] = {
    "as built": lambda state, _: state,
    "esrgan": lambda state, _: state,
    "realesrgan": functools.partial(rename, "realesrgan"),
    "bsrgan": functools.partial(rename, "bsrgan"),
    "grl tables": with_grl_tables,
    # A checkpoint of training against a discriminator.
    "grl generator": lambda state, _: {f"model_g.{key}": tensor for key, tensor in state.items()}
    | {"model_d.conv.weight": torch.ones(2, 3, 3, 3)},
    "unshuffle": lambda state, _: {
        re.sub(r"^conv_first\.", "conv_first.1.", key): tensor for key, tensor in state.items()
    },
}


@contextlib.contextmanager
def small_networks(growth: int) -> Iterator[None]:
    """The reference's RRDBNet always passes growth 32 to its blocks, although the blocks take any. Some widths of
    Real-CUGAN and FBCNN are numbers in their code, and so are the width of SCUNet's attention heads and the number of
    KBNet's kernels."""
    blocks = rrdb_module.B
    original = blocks.RRDB
    blocks.RRDB = lambda *positional, gc, **named: original(*positional, gc=growth, **named)
    upcunet_v3.nn = NarrowLayers()
    fbcnn_module.torch = SimpleNamespace(nn=NarrowLayers())
    fdat_module.torch = Unpinned()
    transform = grl_module.AffineTransform.forward
    grl_module.AffineTransform.forward = in_one_type
    mixtures = kbnet_s_module.KBBlock_s, kbnet_l_module.MFF
    kbnet_s_module.KBBlock_s = functools.partial(mixtures[0], nset=10)
    kbnet_l_module.MFF = functools.partial(mixtures[1], nset=6)
    block = scunet_module.ConvTransBlock
    scunet_module.ConvTransBlock = lambda convolved, attended, head, *rest: block(convolved, attended, 2, *rest)
    try:
        yield
    finally:
        blocks.RRDB = original
        upcunet_v3.nn, fbcnn_module.torch, scunet_module.ConvTransBlock = torch.nn, torch, block
        fdat_module.torch = torch
        kbnet_s_module.KBBlock_s, kbnet_l_module.MFF = mixtures
        grl_module.AffineTransform.forward = transform


class Told(torch.nn.Module):
    """A network with what it is told besides the image, as the reference's descriptors call it."""

    def __init__(self, case: Case, network: torch.nn.Module) -> None:
        super().__init__()
        self.network, self.level = network, float(case.notes.get("noise_level", 15)) / 255
        quality = case.notes.get("quality")
        self.lost = None if quality is None else 1 - float(quality) / 100
        self.wants_level = case.network == "DRUNet" or case.arguments.get("mode") == "FDnCNN"
        self.estimates = case.network == "FBCNN"

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        if self.wants_level:
            return self.network(torch.cat([image, torch.full_like(image[:, :1], self.level)], 1))
        if self.estimates:
            lost = None if self.lost is None else image.new_full((1, 1), self.lost)
            return self.network(image, lost)[0]
        return self.network(image)


@contextlib.contextmanager
def features_before_upsampling(network: type, features: int) -> Iterator[None]:
    """The constructors of these networks make 64 features before the upsampling, and have no argument for it."""
    original = network.__init__
    if features == 64:
        yield
        return
    inner = original.__wrapped__  # the one that stores the hyperparameters calls it
    code = inner.__code__
    if code.co_consts.count(64) != 1:
        raise AssertionError(f"the reference's {network.__name__} makes its features in another way")
    inner.__code__ = code.replace(co_consts=tuple(features if value == 64 else value for value in code.co_consts))
    try:
        yield
    finally:
        inner.__code__ = code


@contextlib.contextmanager
def training_size(side: int) -> Iterator[None]:
    """The reference's RGT always stores masks of images of 64 × 64, although its blocks take any size."""
    original = rgt_module.Block
    rgt_module.Block = functools.partial(original, reso=side)
    try:
        yield
    finally:
        rgt_module.Block = original


@contextlib.contextmanager
def stable_sort() -> Iterator[None]:
    """ATD sorts pixels by category with `torch.sort(stable=False)`: the order within a category depends on the
    processor and on PyTorch's version, and decides which pixels stand in a group. The stable order is one of the
    permitted ones, and the only one that can be compared."""
    original = torch.sort
    torch.sort = lambda *positional, stable=False, **named: original(*positional, stable=True, **named)
    try:
        yield
    finally:
        torch.sort = original


def load_with_reference(case: Case, checkpoint: dict) -> tuple[torch.nn.Module, int]:
    """The network as the reference itself reads it from the checkpoint's names and shapes, and its scale."""
    if case.arguments.get("act_type", "prelu") != "prelu":
        # The reference's loader assumes PReLU, because no tensor shows the activation. Its network has all of them.
        network = Compact(**case.arguments)
        network.load_state_dict({key: tensor.float() for key, tensor in checkpoint.items()})
        return network, case.arguments["upscale"]
    architecture = NETWORKS[case.network][1]()
    # A safetensors file is flat: a dictionary in a dictionary becomes a prefix. `module.` has always been a prefix.
    outer = [name for name in case.wrapper.split(".") if name not in ("module", "")]
    prefix = "".join(f"{name}." for name in outer)
    state = {
        key.removeprefix(prefix): tensor.float() if tensor.is_floating_point() else tensor
        for key, tensor in checkpoint.items()
    }
    for name in reversed(outer):
        state = {name: state}
    state = canonicalize_state_dict(state)
    if not architecture.detect(state):
        raise AssertionError(f"{case.name}: the reference does not recognise its own checkpoint")
    descriptor = architecture.load(state)
    found = descriptor.model.hyperparameters
    wrong = {name: found[name] for name, value in case.arguments.items() if found[name] != value}
    if wrong:
        raise AssertionError(f"{case.name}: the reference reads {wrong} from the checkpoint, not {case.arguments}")
    return Told(case, descriptor.model), descriptor.scale


# ---- weights and images ----------------------------------------------------------------------------------------


def gain_of(case: Case, key: str) -> float:
    """By about how much a convolution makes values larger."""
    if case.network == "SPAN" and key.startswith(("conv_", "block_")):
        # Three convolutions in a row, beside another one. Before the first, the image is scaled to 0…255.
        enlarged = key.startswith("conv_1.") and case.arguments["norm"] and (".sk." in key or ".conv.0." in key)
        return 1.15 / 100 if enlarged else 1.15
    if ".conv_block.cab.2." in key:  # a hundredth of its output is added
        return 60.0
    if ".cab.3.attention.1." in key:  # this layer reads the means of that output
        return 0.1
    if case.network in ("SwinIR", "DRCT", "HAT") and key.startswith(("upsample.", "conv_up", "conv_hr")):
        return 1.2
    if case.network in ("DAT", "RGT", "ATD", "SRFormer", "Swin2SR") and key.startswith(
        ("upsample.", "conv_up", "conv_hr")
    ):
        return 1.2
    if case.arguments.get("window_size") == 7:  # the image has values of 0…255, in and out
        return {"conv_first.weight": 2.0 / 255, "conv_last.weight": 0.4 * 255}.get(key, 2.0)
    return 2.0


def fill(case: Case, state: dict, random: numpy.random.Generator) -> dict:
    """Random weights that keep the values of every layer near 1 and of both signs, so that any mistake shows in the
    output."""
    filled = {}
    jpeg = case.arguments.get("window_size") == 7
    last = [key for key, tensor in state.items() if tensor.ndim == 4 and not key.startswith("to_img.")][-1]
    for key, tensor in state.items():
        values = random.uniform(-1.0, 1.0, tuple(tensor.shape))
        if key.split(".")[-1] in BUFFERS:
            filled[key] = tensor.to(case.dtype) if tensor.is_floating_point() else tensor
            continue
        if key.endswith("running_var"):
            values = 1.0 + 0.5 * values
        elif key.endswith("temperature"):  # scores are its products with cosines
            values = numpy.copysign(3.0 + 3.0 * abs(values), values)
        elif key.endswith("logit_scale"):
            values = 1.0 + 0.5 * values
        elif tensor.ndim == 2:  # a linear layer, or a table of position biases
            values *= 2.0 if key.endswith("table") else 2.0 * math.sqrt(3.0 / tensor.shape[1])
            if ".cpb_mlp.2." in key:  # 16 times the sigmoid of its output is added to scores
                values *= 0.2
        elif tensor.ndim == 4:
            # Filters that sum to zero. Otherwise values would drift to one sign, since images and activations have a
            # mean.
            if tensor[0].numel() > 4:  # a smaller filter would lose most of its information
                values -= values.mean(axis=(1, 2, 3), keepdims=True)
            # Dense blocks end in `x5 · 0.2 + x`: with a larger x5 the block is not a mere copy of x. The values grow
            # with every block, and the last convolution brings them back.
            gain = 4.0 if ".conv5." in key else 0.4 if key == last and not jpeg else gain_of(case, key)
            values *= gain * math.sqrt(3.0 / tensor[0].numel())
        elif key.endswith("weight"):  # PReLU's slopes and scales of normalisations, some negative and some above 1
            values = 0.3 + 0.8 * values
        else:  # biases, none of them near zero
            values = numpy.copysign(0.2 + 0.2 * abs(values), values)
            if ".conv_block.cab.2." in key:  # a hundredth, as above
                values *= 10.0
        filled[key] = torch.from_numpy(values.astype(numpy.float32)).to(case.dtype)
    return filled


def fill_calibrated(case: Case, network: torch.nn.Module, random: numpy.random.Generator) -> dict:
    """Random weights, each scaled so that its layer gives values of deviation 1 for an image of the first size. Those
    of networks of position biases stay as they are."""
    state = {}
    for key, tensor in network.state_dict().items():
        if key.split(".")[-1] in BUFFERS or key.startswith(("sub_mean.", "add_mean.")):
            state[key] = tensor
            continue
        values = random.uniform(-1.0, 1.0, tuple(tensor.shape))
        if tensor.ndim == 4 and key.endswith("weight"):  # as in `fill`
            if tensor[0].numel() > 4:
                values -= values.mean(axis=(1, 2, 3), keepdims=True)
        elif key.endswith("running_var"):
            values = 0.8 + 0.4 * values
        elif key.endswith("logit_scale"):
            values = 1.5 + 0.5 * values
        elif tensor.ndim == 1 and not key.endswith("bias"):
            values = 0.3 + 0.8 * values
        elif not key.endswith("weight"):
            values = numpy.copysign(0.2 + 0.4 * abs(values), values)
        state[key] = torch.from_numpy(values)
    network.load_state_dict(state)
    network.double().eval()
    known = set()
    # The means leave a network in its own range.
    targets = {network.tail[1]: 100.0} if case.arguments.get("norm") and case.network == "RCAN" else {}

    def scale(layer: torch.nn.Module, inputs: tuple, output: torch.Tensor) -> torch.Tensor | None:
        if layer in known:
            return None
        known.add(layer)
        bias, layer.bias = layer.bias, None
        plain = layer(*inputs)
        layer.weight *= targets.get(layer, 1.0) / plain.square().mean().sqrt()
        layer.bias = bias
        return layer(*inputs)

    layers = (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)
    kept = (getattr(network, "sub_mean", None), getattr(network, "add_mean", None))
    hooks = [
        module.register_forward_hook(scale)
        for name, module in network.named_modules()
        if isinstance(module, layers) and module not in kept and not is_position_network(f"{name}.")
    ]
    Told(case, network)(draw_image((case.images[0][0], channels_of(case), *case.images[0][1:]), random).double())
    for hook in hooks:
        hook.remove()
    return {
        key: tensor.float().to(case.dtype) if tensor.is_floating_point() else tensor
        for key, tensor in network.state_dict().items()
    }


def channels_of(case: Case) -> int:
    return next((case.arguments[name] for name in CHANNELS if name in case.arguments), 3)


def draw_image(shape: tuple[int, ...], random: numpy.random.Generator) -> torch.Tensor:
    """Half a ramp and half noise in 0…1, so that edges, corners and neighbours all differ."""
    height, width = shape[-2:]
    ramp = (numpy.arange(height)[:, None] / height + numpy.arange(width)[None, :] / width) / 2
    return torch.from_numpy((0.5 * ramp + 0.5 * random.uniform(size=shape)).astype(numpy.float32))


# Biases that are the same for all scores of a softmax, which cancels them: ATD's of a token for all pixels, and RGT's of
# a query for all keys.
CANCELLED = ("norm3.bias", ".attn.k.bias")


def is_position_network(name: str) -> bool:
    """Whether a name is in a network of DAT, RGT or CRAFT that makes position biases of distances. It has a sixteenth of
    the width: one or two neurons here, between normalisations that leave of each little more than its sign. So its
    parameters are checked together."""
    return ".pos." in name


def assert_alive(case: Case, network: torch.nn.Module, image: torch.Tensor, upscaled: torch.Tensor) -> None:
    """Checks that every tensor and every activation of the checkpoint changes the output, far beyond the tests'
    tolerance."""
    extent = float(upscaled.max() - upscaled.min())
    if not (torch.isfinite(upscaled).all() and 0.5 <= extent <= 16.0):
        raise AssertionError(f"{case.name}: the output's range is {extent:.3g}, not of order 1")

    without = ("NAFNet", "DITN", "KBNet-S", "KBNet-L")  # they have no activation of these
    negative = [0.5] if case.network in without else []
    activations = tuple(
        getattr(torch.nn, name) for name in ("LeakyReLU", "PReLU", "ReLU", "SiLU", "GELU", "Mish", "Sigmoid")
    )
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs: negative.append(float((inputs[0] < 0).double().mean())))
        for name, module in network.named_modules()
        if isinstance(module, activations)
        and not is_position_network(name)
        and not (".qf_pred." in name and isinstance(module, torch.nn.Sigmoid))
    ]
    network(image.clone())
    for hook in hooks:
        hook.remove()
    if not negative or min(negative) < 0.03 or max(negative) > 0.97:
        raise AssertionError(
            f"{case.name}: an activation sees one sign only (negative shares {min(negative):.2f}…{max(negative):.2f})"
        )

    for name, parameter in network.named_parameters():
        kept = parameter.detach().clone()
        parameter.zero_()
        change = float((network(image.clone()) - upscaled).abs().max()) / extent
        parameter.copy_(kept)
        if is_position_network(name):
            continue
        if case.network == "SeemoRe" and ".experts." in name:  # one expert is chosen, by the image
            continue
        if name.endswith(CANCELLED):
            if change > 1e-12:
                raise AssertionError(f"{case.name}: {name} has an effect")
            continue
        # SPAN computes these from the others on each call. SwiftSRGAN has activations that it does not use. A quality
        # that is given is not estimated.
        # FDAT's blocks have layers for two kinds of weights, and use one.
        unused = (".eval_conv.", ".block2.act.", ".convblock.act.") + (".qf_pred.",) * ("quality" in case.notes)
        unused += tuple(f".blocks.{block}.inter.{'cg' if block % 2 else 'sg'}." for block in range(8))
        if any(part in f".{name}" for part in unused):
            if change != 0.0:
                raise AssertionError(f"{case.name}: {name} is used as it is stored")
        elif change < 20 * TEST_TOLERANCE:
            raise AssertionError(f"{case.name}: without {name} the output changes by {change:.1e} of its range only")

    positions = [parameter for name, parameter in network.named_parameters() if is_position_network(name)]
    if positions and case.arguments["embed_dim"] >= 64:  # a single neuron gives all positions the same bias
        kept = [parameter.detach().clone() for parameter in positions]
        for parameter in positions:
            parameter.zero_()
        change = float((network(image) - upscaled).abs().max()) / extent
        for parameter, values in zip(positions, kept):
            parameter.copy_(values)
        if change < 20 * TEST_TOLERANCE:
            raise AssertionError(f"{case.name}: without position biases the output changes by {change:.1e} only")

    if case.network in ("SRVGGNetCompact", "PLKSR", "RealPLKSR") and not case.arguments.get("dysample"):
        scale = upscaled.shape[-1] // image.shape[-1]
        base = torch.nn.functional.interpolate(image, scale_factor=scale, mode="nearest")
        if (upscaled - base).std() < base.std():
            raise AssertionError(f"{case.name}: the skip path dominates the output")


# ---- a case's files --------------------------------------------------------------------------------------------


def make(case: Case) -> tuple[dict[str, File], float]:
    """The files of a case by name, and the error of float32 arithmetic, as a share of the golden output's range."""
    random = numpy.random.Generator(numpy.random.PCG64(case.seed))
    features = features_before_upsampling(NETWORKS[case.network][0], case.features)
    with small_networks(case.growth), features, training_size(8), stable_sort(), torch.no_grad():
        built = NETWORKS[case.network][0](**case.arguments)
        filled = fill_calibrated(case, built, random) if case.calibrated else fill(case, built.state_dict(), random)
        state = KEYS[case.keys](filled, case.arguments)
        checkpoint = {case.wrapper + key: tensor.contiguous() for key, tensor in state.items()}
        network, scale = load_with_reference(case, checkpoint)

        files = checkpoint_files(case, checkpoint)
        channels = channels_of(case)
        worst = 0.0
        for index, (batch, height, width) in enumerate(case.images):
            image = draw_image((batch, channels, height, width), random)
            upscaled = network.double().eval()(image.double())
            if upscaled.shape != (batch, channels, height * scale, width * scale):
                raise AssertionError(f"{case.name}: the output is {tuple(upscaled.shape)}")
            assert_alive(case, network, image.double(), upscaled)
            single = network.float()(image.clone())
            worst = max(worst, float((single - upscaled).abs().max() / (upscaled.max() - upscaled.min())))
            name = f"golden.{index}.safetensors" if index else "golden.safetensors"
            package = "spandrel_extra_arches" if case.network == "SRFormer" else "spandrel"
            files[name] = (
                {"image": image, "upscaled": upscaled.float().contiguous()},
                {
                    "architecture": case.network,
                    "scale": str(scale),
                    "reference": f"{package} {version(package)}, float64",
                    "generator": ", ".join(
                        f"{library} {version(library)}" for library in ("torch", "numpy", "safetensors")
                    ),
                },
            )
    return files, worst


def checkpoint_files(case: Case, checkpoint: dict) -> dict[str, File]:
    metadata = {"format": "pt"} | case.notes
    if case.network == "SRVGGNetCompact":
        metadata["activation"] = case.arguments.get("act_type", "prelu")
    if case.arguments.get("lk_type") == "SparsePLK":
        metadata["sparse_dilations"] = "1,2,3,4"  # upstream's default, which the reference assumes
    if case.shards == 1:
        return {"checkpoint.safetensors": (checkpoint, metadata)}
    keys = list(checkpoint)
    bounds = [len(keys) * shard // case.shards for shard in range(case.shards + 1)]
    files: dict[str, File] = {}
    places = {}
    for shard, (start, end) in enumerate(zip(bounds, bounds[1:]), 1):
        name = f"model-{shard:05}-of-{case.shards:05}.safetensors"
        files[name] = {key: checkpoint[key] for key in keys[start:end]}, metadata
        places |= dict.fromkeys(keys[start:end], name)
    total = sum(tensor.nbytes for tensor in checkpoint.values())
    files["model.safetensors.index.json"] = {"metadata": {"total_size": total}, "weight_map": places}, {}
    return files


def main() -> int:
    arguments = parser("Make or check the golden data of the upscalers.").parse_args()

    torch.use_deterministic_algorithms(True)
    return write_cases(FOLDER, CASES, make, TOTAL_BYTES, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
