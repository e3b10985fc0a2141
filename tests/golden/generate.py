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

import argparse
import contextlib
import functools
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy
import torch
from spandrel.__helpers.canonicalize import canonicalize_state_dict
from spandrel.architectures.ATD import ATD, ATDArch
from spandrel.architectures.Compact import Compact, CompactArch
from spandrel.architectures.DAT import DAT, DATArch
from spandrel.architectures.DRCT import DRCT, DRCTArch
from spandrel.architectures.ESRGAN import ESRGAN, ESRGANArch
from spandrel.architectures.ESRGAN.__arch import RRDB as rrdb_module
from spandrel.architectures.HAT import HAT, HATArch
from spandrel.architectures.PLKSR import PLKSR, PLKSRArch, RealPLKSR
from spandrel.architectures.RGT import RGT, RGTArch
from spandrel.architectures.RGT.__arch import rgt as rgt_module
from spandrel.architectures.SPAN import SPAN, SPANArch
from spandrel.architectures.Swin2SR import Swin2SR, Swin2SRArch
from spandrel.architectures.SwinIR import SwinIR, SwinIRArch
from spandrel_extra_arches.architectures.SRFormer import SRFormer, SRFormerArch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, write  # noqa: E402: the module stands beside this folder

FOLDER = Path(__file__).resolve().parent
TEST_TOLERANCE = 2e-5  # of the output's range: what the tests allow an implementation
TOTAL_BYTES = 8_000_000


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


FLOAT16, BFLOAT16 = torch.float16, torch.bfloat16

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
    "num_batches_tracked",
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


KEYS: dict[str, Callable[[dict, dict], dict]] = {
    "as built": lambda state, _: state,
    "esrgan": lambda state, _: state,
    "realesrgan": functools.partial(rename, "realesrgan"),
    "bsrgan": functools.partial(rename, "bsrgan"),
    "unshuffle": lambda state, _: {
        re.sub(r"^conv_first\.", "conv_first.1.", key): tensor for key, tensor in state.items()
    },
}


@contextlib.contextmanager
def dense_growth(channels: int) -> Iterator[None]:
    """The reference's RRDBNet always passes growth 32 to its blocks, although the blocks take any."""
    blocks = rrdb_module.B
    original = blocks.RRDB
    blocks.RRDB = lambda *positional, gc, **named: original(*positional, gc=channels, **named)
    try:
        yield
    finally:
        blocks.RRDB = original


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
    state = {
        key.removeprefix("".join(f"{name}." for name in outer)): tensor.float() for key, tensor in checkpoint.items()
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
    return descriptor.model, descriptor.scale


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


def draw_image(shape: tuple[int, ...], random: numpy.random.Generator) -> torch.Tensor:
    """Half a ramp and half noise in 0…1, so that edges, corners and neighbours all differ."""
    height, width = shape[-2:]
    ramp = (numpy.arange(height)[:, None] / height + numpy.arange(width)[None, :] / width) / 2
    return torch.from_numpy((0.5 * ramp + 0.5 * random.uniform(size=shape)).astype(numpy.float32))


# Biases that are the same for all scores of a softmax, which cancels them: ATD's of a token for all pixels, and RGT's of
# a query for all keys.
CANCELLED = ("norm3.bias", ".attn.k.bias")


def is_position_network(name: str) -> bool:
    """Whether a name is in a network of DAT or RGT that makes position biases of distances. It has a sixteenth of the
    width: one or two neurons here, between normalisations that leave of each little more than its sign. So its
    parameters are checked together."""
    return ".pos." in name


def assert_alive(case: Case, network: torch.nn.Module, image: torch.Tensor, upscaled: torch.Tensor) -> None:
    """Checks that every tensor and every activation of the checkpoint changes the output, far beyond the tests'
    tolerance."""
    extent = float(upscaled.max() - upscaled.min())
    if not (torch.isfinite(upscaled).all() and 0.5 <= extent <= 16.0):
        raise AssertionError(f"{case.name}: the output's range is {extent:.3g}, not of order 1")

    negative = []
    activations = tuple(
        getattr(torch.nn, name) for name in ("LeakyReLU", "PReLU", "ReLU", "SiLU", "GELU", "Mish", "Sigmoid")
    )
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs: negative.append(float((inputs[0] < 0).double().mean())))
        for name, module in network.named_modules()
        if isinstance(module, activations) and not is_position_network(name)
    ]
    network(image)
    for hook in hooks:
        hook.remove()
    if not negative or min(negative) < 0.03 or max(negative) > 0.97:
        raise AssertionError(
            f"{case.name}: an activation sees one sign only (negative shares {min(negative):.2f}…{max(negative):.2f})"
        )

    for name, parameter in network.named_parameters():
        kept = parameter.detach().clone()
        parameter.zero_()
        change = float((network(image) - upscaled).abs().max()) / extent
        parameter.copy_(kept)
        if is_position_network(name):
            continue
        if name.endswith(CANCELLED):
            if change > 1e-12:
                raise AssertionError(f"{case.name}: {name} has an effect")
            continue
        if ".eval_conv." in name:  # SPAN computes these from the others on each call; stored ones have no effect
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
    with dense_growth(case.growth), features, training_size(8), stable_sort(), torch.no_grad():
        built = NETWORKS[case.network][0](**case.arguments)
        state = KEYS[case.keys](fill(case, built.state_dict(), random), case.arguments)
        checkpoint = {case.wrapper + key: tensor.contiguous() for key, tensor in state.items()}
        network, scale = load_with_reference(case, checkpoint)

        files = checkpoint_files(case, checkpoint)
        unshuffled = case.arguments.get("in_nc", 3) // case.arguments.get("shuffle_factor", 1) ** 2
        channels = case.arguments.get("num_in_ch", case.arguments.get("in_chans", unshuffled))
        worst = 0.0
        for index, (batch, height, width) in enumerate(case.images):
            image = draw_image((batch, channels, height, width), random)
            upscaled = network.double().eval()(image.double())
            if upscaled.shape != (batch, channels, height * scale, width * scale):
                raise AssertionError(f"{case.name}: the output is {tuple(upscaled.shape)}")
            assert_alive(case, network, image.double(), upscaled)
            single = network.float()(image)
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
    metadata = {"format": "pt"}
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
    parser = argparse.ArgumentParser(description="Make or check the golden data of the upscalers.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a file differs by more than 1e-6"
    )
    arguments = parser.parse_args()

    torch.use_deterministic_algorithms(True)

    def made() -> Iterator[tuple[str, dict[str, File], str]]:
        for case in CASES:
            files, single = make(case)
            yield case.name, files, f"float32 arithmetic differs by {single:.1e} of the range"

    return write(FOLDER, made(), TOTAL_BYTES, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
