#!/usr/bin/env python3
"""Compares pictures from a text with other programs on the CPU, in one run: Stable Diffusion 1.5 with random weights.

    make build && python3 scripts/bench_diffusion.py FOLDER [--peers PYTHON] [--size 512] [--steps 4] [--tiny] [WAY ...]

This Python has torch, diffusers and transformers. Packages of optimum and of stable-diffusion.cpp may be in another
environment, whose Python `--peers` names:

    python3 -m venv target/peers
    target/peers/bin/pip install torch "diffusers<0.37" optimum-onnx onnxruntime==1.31.1 stable-diffusion-cpp-python

| way | is |
|---|---|
| `ours` | `runtime generate` with an FP32 engine |
| `ours-int8` | the same with an engine in `--precision int8`, if its gates allow one |
| `eager`, `compiled` | diffusers, without and with `torch.compile` of the UNet and the decoder |
| `optimum` | optimum's pipeline for ONNX Runtime; its export is timed apart |
| `cpp` | stable-diffusion.cpp, through its Python package |

Every way is a process of its own, from its start until its PNG is written; a way whose package is missing is left out,
and the table says so. The pictures of all ways but the last, which draws other noise, have to be alike.

FOLDER gets the pipeline (2.1 GB), our engine (4.3 GB) and optimum's graphs (4.3 GB). Weights that are measured are
removed before the next ones are made, so that 12 GB suffice; `--remove` removes the rest. `--tiny` takes small
networks, to see whether everything works. `--sdxl` makes one step of SDXL at 1024×1024 instead, by our way with
`--low-memory` alone: it needs 24 GB of disk and shows the peak memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from commands import binaries

GIGABYTE = 1e9
PROMPT = "a photograph of a red fox in the snow"
NEGATIVE = "blurry"
GUIDANCE = 7.5
SEED = 0
# What a process prints when its first step is done.
FIRST_STEP = "first step"
# Of the pictures in FP32, against diffusers.
PSNR_DB = 50.0


@dataclass(frozen=True)
class Setting:
    """What is made, and where."""

    folder: Path
    size: int
    steps: int
    tiny: bool
    is_xl: bool

    @property
    def pipeline(self) -> Path:
        return self.folder / "pipeline"

    @property
    def exported(self) -> Path:
        return self.folder / "optimum"

    def engine(self, way: str) -> Path:
        return self.folder / way

    def output(self, way: str) -> Path:
        return self.folder / f"{way}.png"


@dataclass
class Measured:
    """A process: its seconds, those until its first step was done, and its peak memory in bytes."""

    seconds: float
    first: float
    memory: int


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """A tokenizer with merges of any two letters, because nothing is downloaded."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = [chr(byte) for byte in kept] + [chr(256 + place) for place in range(256 - len(kept))]
    tokens = letters + [letter + "</w>" for letter in letters]
    merges = []
    for one in letters:
        for other in letters:
            if len(tokens) < vocabulary - 2:
                merges.append(f"{one} {other}")
                tokens.append(one + other)
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({token: place for place, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    special = {"bos_token": tokens[-2], "eos_token": tokens[-1], "unk_token": tokens[-1], "pad_token": tokens[-1]}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_pipeline(setting: Setting) -> None:
    """The published configuration with random weights of a fixed seed, in 16 bits."""
    import safetensors.torch
    import torch
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    root, tiny = setting.pipeline, setting.tiny
    torch.manual_seed(SEED)
    vocabulary = 1000 if tiny else 49408
    index: dict[str, object] = {
        "_class_name": "StableDiffusionXLPipeline" if setting.is_xl else "StableDiffusionPipeline",
        "_diffusers_version": "0.36.0",
    }

    def keep(name: str, network, library: str) -> None:
        network.half().save_pretrained(root / name)
        index[name] = [library, type(network).__name__]
        if library == "transformers":
            # The names of published files, which new versions of transformers shorten.
            path = root / name / "model.safetensors"
            weights = safetensors.torch.load_file(path)
            known = ("text_model.", "text_projection.")
            named = {key if key.startswith(known) else "text_model." + key: value for key, value in weights.items()}
            safetensors.torch.save_file(named, path, {"format": "pt"})

    def text(width: int, layers: int, heads: int, activation: str, projection: int) -> CLIPTextConfig:
        if tiny:
            width, layers, heads, projection = 32, 2, 2, 32
        return CLIPTextConfig(
            vocab_size=vocabulary, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
            num_attention_heads=heads, max_position_embeddings=77, hidden_act=activation, projection_dim=projection,
            bos_token_id=vocabulary - 2, eos_token_id=vocabulary - 1, pad_token_id=vocabulary - 1,
        )  # fmt: skip

    first = text(768, 12, 12, "quick_gelu", 768)
    keep("text_encoder", CLIPTextModel(first), "transformers")
    context = first.hidden_size
    write_tokenizer(root / "tokenizer", vocabulary)
    index["tokenizer"] = ["transformers", "CLIPTokenizer"]
    blocks: dict[str, object] = {
        "block_out_channels": (320, 640, 1280, 1280),
        "down_block_types": ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
        "up_block_types": ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
        "attention_head_dim": 8,
    }
    if setting.is_xl:
        second = text(1280, 32, 20, "gelu", 1280)
        keep("text_encoder_2", CLIPTextModelWithProjection(second), "transformers")
        context += second.hidden_size
        shutil.copytree(root / "tokenizer", root / "tokenizer_2")
        index["tokenizer_2"] = ["transformers", "CLIPTokenizer"]
        blocks = {
            "block_out_channels": (320, 640, 1280),
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            "transformer_layers_per_block": (1, 2, 10),
            "attention_head_dim": (5, 10, 20),
            "use_linear_projection": True,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 6 * 256 + second.projection_dim,
        }
    if tiny:
        blocks["block_out_channels"] = tuple(32 * (level + 1) for level in range(len(blocks["block_out_channels"])))
        blocks["attention_head_dim"] = 2
    blocks |= {"sample_size": setting.size // 8, "cross_attention_dim": context}
    keep("unet", UNet2DConditionModel(**blocks), "diffusers")
    levels = 4
    autoencoder = AutoencoderKL(
        block_out_channels=(32,) * levels if tiny else (128, 256, 512, 512), layers_per_block=2, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * levels, up_block_types=("UpDecoderBlock2D",) * levels,
        sample_size=setting.size, scaling_factor=0.13025 if setting.is_xl else 0.18215,
    )  # fmt: skip
    keep("vae", autoencoder, "diffusers")
    scheduler = {
        "_class_name": "DDIMScheduler", "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
        "num_train_timesteps": 1000, "clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1,
    }  # fmt: skip
    (root / "scheduler").mkdir()
    (root / "scheduler/scheduler_config.json").write_text(json.dumps(scheduler))
    index |= {"scheduler": ["diffusers", "DDIMScheduler"]}
    if setting.is_xl:
        index["force_zeros_for_empty_prompt"] = True
    else:
        index |= {"safety_checker": [None, None], "feature_extractor": [None, None], "requires_safety_checker": False}
    (root / "model_index.json").write_text(json.dumps(index))


def by_diffusers(setting: Setting, way: str) -> None:
    """A picture by diffusers or by optimum, in this process."""
    import torch

    if way == "optimum":
        from optimum.onnxruntime import ORTStableDiffusionPipeline

        pipeline = ORTStableDiffusionPipeline.from_pretrained(str(setting.exported))
    else:
        from diffusers import StableDiffusionPipeline

        pipeline = StableDiffusionPipeline.from_pretrained(setting.pipeline, torch_dtype=torch.float32)
        if way == "compiled":
            pipeline.unet = torch.compile(pipeline.unet)
            pipeline.vae.decode = torch.compile(pipeline.vae.decode)
    pipeline.set_progress_bar_config(disable=True)

    def done(_pipeline, step: int, _timestep, values: dict) -> dict:
        if step == 0:
            print(FIRST_STEP, file=sys.stderr, flush=True)
        return values

    pictures = pipeline(
        PROMPT, negative_prompt=NEGATIVE, num_inference_steps=setting.steps, guidance_scale=GUIDANCE,
        height=setting.size, width=setting.size, generator=torch.Generator("cpu").manual_seed(SEED),
        callback_on_step_end=done,
    ).images  # fmt: skip
    pictures[0].save(setting.output(way))


def export_for_optimum(setting: Setting) -> None:
    from optimum.onnxruntime import ORTStableDiffusionPipeline

    pipeline = ORTStableDiffusionPipeline.from_pretrained(str(setting.pipeline), export=True)
    pipeline.save_pretrained(str(setting.exported))


def by_cpp(setting: Setting) -> None:
    from stable_diffusion_cpp import StableDiffusion

    def done(step: int, *_) -> None:
        if step == 1:
            print(FIRST_STEP, file=sys.stderr, flush=True)

    # Its default is half of the processors.
    threads = len(os.sched_getaffinity(0))
    model = StableDiffusion(model_path=str(setting.pipeline), wtype="f32", n_threads=threads, verbose=False)
    pictures = model.generate_image(
        PROMPT, negative_prompt=NEGATIVE, width=setting.size, height=setting.size, cfg_scale=GUIDANCE, seed=SEED,
        sample_steps=setting.steps, sample_method="ddim_trailing", progress_callback=done,
    )  # fmt: skip
    pictures[0].save(setting.output("cpp"))


def measure(command: list[object], signs: tuple[str, ...]) -> Measured:
    """Runs a process. Its first step is done when a line of its standard error has one of the signs."""
    environment = os.environ | {"RUST_LOG": "tileforge_runtime=debug", "PYTHONWARNINGS": "ignore"}
    began = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    first, told = math.nan, []
    assert process.stderr
    for line in process.stderr:
        told.append(line)
        if math.isnan(first) and any(sign in line for sign in signs):
            first = time.perf_counter() - began
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError("".join(told[-20:]).strip())
    return Measured(time.perf_counter() - began, first, usage.ru_maxrss * 1024)


def this_script(setting: Setting, python: str, *arguments: object) -> list[object]:
    size = ["--size", setting.size, "--steps", setting.steps]
    return [python, __file__, setting.folder, *size, *(["--tiny"] if setting.tiny else []), *arguments]


def build(setting: Setting, way: str, precision: str) -> Measured:
    size = f"{setting.size}x{setting.size}"
    return measure([binaries() / "engine-builder", "build", setting.pipeline, "--profile", "cpu", "--precision",
                    precision, "--size", size, "-o", setting.engine(way)], ())  # fmt: skip


def generate(setting: Setting, way: str, *more: object) -> Measured:
    return measure([binaries() / "runtime", "generate", "--engine", setting.engine(way), "--prompt", PROMPT,
                    "--negative-prompt", NEGATIVE, "--steps", setting.steps, "--guidance", GUIDANCE, "--seed", SEED,
                    "--output", setting.output(way), *more], ("made step 1 of",))  # fmt: skip


def run_way(setting: Setting, way: str, peers: str) -> Measured:
    if way.startswith("ours"):
        built = build(setting, way, "int8" if way.endswith("int8") else "fp32")
        print(f"{way}: built in {built.seconds:.0f} s with {built.memory / GIGABYTE:.2f} GB of memory", flush=True)
        measured = generate(setting, way)
        shutil.rmtree(setting.engine(way))
        return measured
    if way in ("eager", "compiled"):
        return measure(this_script(setting, sys.executable, "--way", way), (FIRST_STEP,))
    if way == "optimum":
        exported = measure(this_script(setting, peers, "--way", "export"), ())
        print(f"{way}: exported in {exported.seconds:.0f} s with {exported.memory / GIGABYTE:.2f} GB", flush=True)
        measured = measure(this_script(setting, peers, "--way", way), (FIRST_STEP,))
        shutil.rmtree(setting.exported)
        return measured
    return measure(this_script(setting, peers, "--way", way), (FIRST_STEP,))


def psnr_db(one: Path, other: Path) -> float:
    import numpy
    from PIL import Image

    samples = (numpy.asarray(Image.open(path).convert("RGB"), numpy.float64) for path in (one, other))
    error = float(((next(samples) - next(samples)) ** 2).mean())
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def report(setting: Setting, all_measured: dict[str, Measured], missing: dict[str, str]) -> None:
    ours = all_measured.get("ours")
    print("\n| way | whole s | start to first step s | rest s | peak memory GB | of our time | dB to eager |")
    print("|---|---|---|---|---|---|---|")
    for way, measured in all_measured.items():
        rest = measured.seconds - measured.first
        ratio = f"{measured.seconds / ours.seconds:.2f}" if ours else "–"
        same = way != "eager" and "eager" in all_measured
        likeness = psnr_db(setting.output(way), setting.output("eager")) if same else math.nan
        print(f"| {way} | {measured.seconds:.1f} | {measured.first:.1f} | {rest:.1f} | "
              f"{measured.memory / GIGABYTE:.2f} | {ratio} | {likeness:.1f} |")  # fmt: skip
        if way in ("ours", "compiled", "optimum") and same and likeness < PSNR_DB:
            raise SystemExit(f"{way}: expected the picture of diffusers, found one of {likeness:.1f} dB")
    for way, reason in missing.items():
        print(f"not measured: {way}: {reason}")


def main() -> int:
    ways = ["ours", "ours-int8", "eager", "compiled", "optimum", "cpp"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(ways)}; all by default")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--size", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--sdxl", action="store_true")
    parser.add_argument("--remove", action="store_true")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if unknown := set(arguments.ways) - set(ways):
        parser.error(f"expected ways of {', '.join(ways)}, found {', '.join(unknown)}")
    size = arguments.size or (64 if arguments.tiny else 1024 if arguments.sdxl else 512)
    steps = arguments.steps or (1 if arguments.sdxl else 4)
    setting = Setting(arguments.folder.resolve(), size, steps, arguments.tiny, arguments.sdxl)
    if arguments.way == "write":
        write_pipeline(setting)
        return 0
    if arguments.way == "export":
        export_for_optimum(setting)
        return 0
    if arguments.way:
        by_cpp(setting) if arguments.way == "cpp" else by_diffusers(setting, arguments.way)
        return 0
    setting.folder.mkdir(parents=True, exist_ok=True)
    if not (setting.pipeline / "model_index.json").is_file():
        shutil.rmtree(setting.pipeline, ignore_errors=True)
        more = ["--sdxl"] if setting.is_xl else []
        made = measure(this_script(setting, sys.executable, *more, "--way", "write"), ())
        print(f"random weights made in {made.seconds:.0f} s", flush=True)
    if setting.is_xl:
        # In 16 bits on disk; ONNX Runtime computes in 32 bits.
        built = build(setting, "xl", "fp16")
        print(f"built in {built.seconds:.0f} s with {built.memory / GIGABYTE:.2f} GB of memory", flush=True)
        measured = generate(setting, "xl", "--low-memory")
        print(f"SDXL, {size}×{size}, {steps} steps: {measured.seconds:.1f} s, peak memory "
              f"{measured.memory / GIGABYTE:.2f} GB")  # fmt: skip
    else:
        all_measured, missing = {}, {}
        for way in arguments.ways or ways:
            try:
                all_measured[way] = run_way(setting, way, arguments.peers)
                print(f"{way}: {all_measured[way]}", flush=True)
            except RuntimeError as error:
                missing[way] = str(error).splitlines()[-1] if str(error) else "it ended without a reason"
        report(setting, all_measured, missing)
    if arguments.remove:
        shutil.rmtree(setting.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
