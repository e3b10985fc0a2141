#!/usr/bin/env python3
"""Compares pictures of exported pipelines in optimum, which loads them unchanged, with those of diffusers on PyTorch.

    python3 -m venv target/clients-venv
    target/clients-venv/bin/pip install -r tests/clients/requirements.txt
    cargo build --release --package tileforge-exporter-cli
    target/clients-venv/bin/python tests/clients/optimum_pipelines.py

Not part of CI, because it needs PyTorch. The pipelines are small and have random weights. Both sides get the same
prompts, seeds and pictures.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
from diffusers import AutoencoderKL, EulerDiscreteScheduler, StableDiffusionPipeline, StableDiffusionXLInpaintPipeline
from diffusers import StableDiffusionXLPipeline, UNet2DConditionModel
from optimum.onnxruntime import (
    ORTStableDiffusionPipeline,
    ORTStableDiffusionXLInpaintPipeline,
    ORTStableDiffusionXLPipeline,
)
from PIL import Image
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

EXPORTER = Path(__file__).resolve().parents[2] / "target" / "release" / "exporter"
FLOOR_DB = 50.0
SIZE = {"height": 64, "width": 96}


def tokenizer(folder):
    """A tokenizer for single bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = [chr(byte if byte in printable else 256 + number) for number, byte in enumerate(range(256))]
    tokens = [
        *dict.fromkeys(letters),
        *dict.fromkeys(letter + "</w>" for letter in letters),
        "<|startoftext|>",
        "<|endoftext|>",
    ]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77), len(tokens)


def text_encoder(network, words, **more):
    config = CLIPTextConfig(
        vocab_size=words,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        projection_dim=24,
        bos_token_id=words - 2,
        eos_token_id=words - 1,
        **more,
    )
    return network(config)


def networks(channels, xl, folder):
    torch.manual_seed(0)
    words_of, words = tokenizer(folder)
    vae = AutoencoderKL(
        down_block_types=["DownEncoderBlock2D"] * 3,
        up_block_types=["UpDecoderBlock2D"] * 3,
        block_out_channels=[16, 32, 32],
        norm_num_groups=8,
        scaling_factor=0.13025,
    )
    added = {
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 24 + 6 * 8,
        "use_linear_projection": True,
        "transformer_layers_per_block": [1, 2],
        "attention_head_dim": [2, 4],
    }
    unet = UNet2DConditionModel(
        in_channels=channels,
        block_out_channels=[16, 32],
        layers_per_block=1,
        norm_num_groups=8,
        sample_size=24,
        down_block_types=["DownBlock2D", "CrossAttnDownBlock2D"],
        up_block_types=["CrossAttnUpBlock2D", "UpBlock2D"],
        cross_attention_dim=64 if xl else 32,
        **(added if xl else {"attention_head_dim": 4}),
    )
    parts = {"vae": vae, "unet": unet, "scheduler": EulerDiscreteScheduler(), "tokenizer": words_of}
    parts["text_encoder"] = text_encoder(CLIPTextModel, words)
    if xl:
        parts |= {
            "tokenizer_2": words_of,
            "text_encoder_2": text_encoder(CLIPTextModelWithProjection, words, hidden_act="gelu"),
        }
    else:
        parts |= {"safety_checker": None, "feature_extractor": None}
    return parts


def compare(name, ours, theirs, channels, xl, more):
    """Exports one pipeline, runs both, and returns the PSNR."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        torch_pipeline = theirs(**networks(channels, xl, folder))
        torch_pipeline.save_pretrained(folder / "pipeline")
        subprocess.run(
            [EXPORTER, "export", folder / "pipeline", "-o", folder / "onnx"], check=True, stderr=subprocess.DEVNULL
        )
        onnx_pipeline = ours.from_pretrained(folder / "onnx")
        pictures = []
        for pipeline in (torch_pipeline, onnx_pipeline):
            pipeline.set_progress_bar_config(disable=True)
            generator = torch.Generator().manual_seed(1)
            made = pipeline(
                "a photo of an astronaut", num_inference_steps=4, generator=generator, output_type="np", **SIZE, **more
            )
            pictures.append(made.images[0].astype(numpy.float64))
    error = float(numpy.mean((pictures[0] - pictures[1]) ** 2))
    decibels = 10 * math.log10(1 / error) if error else math.inf
    spread = float(pictures[0].std())
    print(f"{name:16} {decibels:6.1f} dB   standard deviation of the picture {spread:.3f}")
    return decibels >= FLOOR_DB and spread > 0.01


def main():
    parser = argparse.ArgumentParser(description="Compare exported pipelines in optimum with diffusers on PyTorch.")
    parser.parse_args()
    random = numpy.random.default_rng(0)
    picture = Image.fromarray(random.integers(0, 256, (SIZE["height"], SIZE["width"], 3), dtype=numpy.uint8))
    mask = Image.fromarray(
        (numpy.arange(SIZE["width"])[None, :].repeat(SIZE["height"], 0) > 40).astype(numpy.uint8) * 255
    )
    inpainting = {"image": picture, "mask_image": mask, "strength": 1.0}
    passed = [
        compare("SD", ORTStableDiffusionPipeline, StableDiffusionPipeline, 4, False, {}),
        compare("SDXL", ORTStableDiffusionXLPipeline, StableDiffusionXLPipeline, 4, True, {}),
        compare(
            "SDXL inpainting",
            ORTStableDiffusionXLInpaintPipeline,
            StableDiffusionXLInpaintPipeline,
            9,
            True,
            inpainting,
        ),
    ]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
