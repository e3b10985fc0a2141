#!/usr/bin/env python3
"""Makes the golden data of this folder with diffusers and transformers, the reference implementations of these networks.

    python3 -m pip install -r tests/golden-diffusers/requirements.txt
    python3 tests/golden-diffusers/generate.py              writes every case
    python3 tests/golden-diffusers/generate.py --check      makes every case in memory and compares it with the files

A case is a row of CASES and nothing else: a small network with random weights, as the folder of a component that diffusers or
transformers could load, and what the reference makes of random inputs in float64.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy
import safetensors.torch
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

FOLDER = Path(__file__).resolve().parent
CHECK_TOLERANCE = 1e-6  # of the range of a tensor's values, or of 1 where that is smaller
TEST_TOLERANCE = 2e-5  # of the output's range: what the tests allow an implementation
TOTAL_BYTES = 4_000_000

FLOAT16, BFLOAT16 = torch.float16, torch.bfloat16


@dataclass(frozen=True)
class Case:
    """One network and what goes through it."""

    name: str
    seed: int
    network: type
    config: dict  # of the reference's constructor
    inputs: list[dict]  # for each golden file: its graph, and sizes
    dtype: torch.dtype = torch.float32  # of the weights; the golden output belongs to the rounded weights
    shards: int = 1
    names: list[tuple[str, str]] = field(default_factory=list)  # patterns and replacements of the tensors' names


def vae(**more) -> dict:
    base = {"down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2, "block_out_channels": [8, 16]}
    return base | {"layers_per_block": 1, "norm_num_groups": 4, "latent_channels": 4, "sample_size": 32} | more


def encoded(batch: int, height: int, width: int) -> dict:
    return {"graph": "vae_encoder", "batch": batch, "size": (height, width)}


def decoded(batch: int, height: int, width: int) -> dict:
    return {"graph": "vae_decoder", "batch": batch, "size": (height, width)}


def text(**more) -> dict:
    base = {"vocab_size": 99, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    return base | {"max_position_embeddings": 11, "projection_dim": 12, "bos_token_id": 97, "eos_token_id": 98, "pad_token_id": 0} | more


def read(batch: int, ends: list[int], tokens: int = 11) -> dict:
    """A batch of texts, of which each ends at its place; what stands behind is padding."""
    return {"graph": "text_encoder", "batch": batch, "ends": ends, "tokens": tokens}


def unet(blocks: str, channels: list[int], **more) -> dict:
    """`blocks` has a letter for each level: X with cross-attention, and D without."""
    down = ["CrossAttnDownBlock2D" if block == "X" else "DownBlock2D" for block in blocks]
    up = ["CrossAttnUpBlock2D" if block == "X" else "UpBlock2D" for block in reversed(blocks)]
    base = {"down_block_types": down, "up_block_types": up, "block_out_channels": channels, "layers_per_block": 1}
    return base | {"norm_num_groups": 4, "cross_attention_dim": 12, "attention_head_dim": 2, "sample_size": 16} | more


def denoised(batch: int, height: int, width: int, tokens: int, timestep: float) -> dict:
    return {"graph": "unet", "batch": batch, "size": (height, width), "tokens": tokens, "timestep": timestep}


# Of SDXL, but for its widths: text embeddings of 12, and 6 or 5 numbers about the picture, each in 8.
ADDED = {"addition_embed_type": "text_time", "addition_time_embed_dim": 8, "use_linear_projection": True}

CASES = [
    # Stable Diffusion 1 and 2, then older names, then SD3's and Flux's without quant convolutions, then without attention.
    Case("vae", 1, AutoencoderKL, vae(), [encoded(1, 16, 24), encoded(2, 10, 6), decoded(1, 8, 12), decoded(2, 5, 3)]),
    Case(
        "vae-old-names", 2, AutoencoderKL, vae(scaling_factor=0.13025, block_out_channels=[8, 8, 8], layers_per_block=2,
        down_block_types=["DownEncoderBlock2D"] * 3, up_block_types=["UpDecoderBlock2D"] * 3),
        [encoded(2, 12, 20), decoded(1, 3, 5)], FLOAT16,
        names=[("to_q", "query"), ("to_k", "key"), ("to_v", "value"), (r"to_out\.0", "proj_attn")],
    ),
    Case(
        "vae-no-quant", 3, AutoencoderKL,
        vae(latent_channels=16, use_quant_conv=False, use_post_quant_conv=False, scaling_factor=0.3611, shift_factor=0.1159),
        [encoded(1, 8, 14), decoded(2, 4, 6)], BFLOAT16, shards=2,
    ),
    Case("vae-no-attention", 4, AutoencoderKL, vae(mid_block_add_attention=False), [encoded(1, 10, 14), decoded(1, 4, 6)]),
    # CLIP-L as Stable Diffusion 1 has it, with the names of transformers before 5 and its way to find the end; bigG with a projection;
    # and the one of Stable Diffusion 2.
    Case(
        "text-quick-gelu", 5, CLIPTextModel, text(hidden_act="quick_gelu", eos_token_id=2), [read(1, [4]), read(2, [7, 10])], FLOAT16,
        names=[("^", "text_model.")],
    ),
    Case("text-projection", 6, CLIPTextModelWithProjection, text(hidden_act="gelu"), [read(2, [2, 9]), read(1, [3], 7)], BFLOAT16, shards=2),
    Case("text", 7, CLIPTextModel, text(hidden_act="gelu", num_attention_heads=4, pad_token_id=98), [read(2, [4, 8])]),
    # Stable Diffusion 1.5, 2.1, SDXL, its refiner, and an inpainting model.
    Case("unet", 8, UNet2DConditionModel, unet("XXD", [8, 16, 16]), [denoised(1, 8, 12, 5, 999.0), denoised(2, 4, 8, 7, 1.0)]),
    Case(
        "unet-linear", 9, UNet2DConditionModel, unet("XD", [8, 16], use_linear_projection=True, attention_head_dim=[1, 2], layers_per_block=2),
        [denoised(2, 6, 4, 5, 500.5)], FLOAT16,
    ),
    Case(
        "unet-xl", 10, UNet2DConditionModel,
        unet("DXX", [8, 16, 16], transformer_layers_per_block=[1, 2, 3], attention_head_dim=[1, 2, 4],
        projection_class_embeddings_input_dim=60, **ADDED),
        [denoised(1, 8, 4, 5, 981.0) | {"time_ids": 6}, denoised(2, 4, 12, 9, 21.0) | {"time_ids": 6}], BFLOAT16,
    ),
    Case(
        "unet-xl-refiner", 13, UNet2DConditionModel,
        unet("DXXD", [8, 8, 16, 16], transformer_layers_per_block=2, attention_head_dim=[1, 2, 2, 4],
        projection_class_embeddings_input_dim=52, **ADDED),
        [denoised(2, 8, 16, 5, 180.0) | {"time_ids": 5}], FLOAT16, shards=2,
    ),
    Case(
        "unet-inpainting", 12, UNet2DConditionModel, unet("XD", [8, 16], in_channels=9, flip_sin_to_cos=False, freq_shift=1),
        [denoised(2, 4, 6, 5, 77.0)],
    ),
]

TEXT_EMBEDS = 12


def build(case: Case) -> torch.nn.Module:
    if case.network is AutoencoderKL or case.network is UNet2DConditionModel:
        return case.network(**case.config)
    return case.network(CLIPTextConfig(**case.config))


def config_file(case: Case) -> dict:
    """The configuration, as the reference's own writer would have it: its class, and what was said of it."""
    if case.network in (AutoencoderKL, UNet2DConditionModel):
        return {"_class_name": case.network.__name__, "_diffusers_version": version("diffusers")} | case.config
    return {"architectures": [case.network.__name__], "model_type": "clip_text_model"} | case.config


def fill(case: Case, state: dict, random: numpy.random.Generator) -> dict:
    """Random weights that keep every layer's values near 1, so that a mistake anywhere shows in the output."""
    filled = {}
    for key, tensor in state.items():
        values = random.uniform(-1.0, 1.0, tuple(tensor.shape))
        if "embedding.weight" in key:
            values *= 1.0
        elif tensor.ndim >= 2:
            values *= 1.4 * math.sqrt(3.0 / tensor[0].numel())
        elif key.endswith("weight"):
            values = 0.9 + 0.5 * values
        else:
            values = numpy.copysign(0.1 + 0.2 * abs(values), values)
        filled[key] = torch.from_numpy(values.astype(numpy.float32)).to(case.dtype)
    return filled


def draw(random: numpy.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(random.standard_normal(shape).astype(numpy.float32))


def draw_inputs(case: Case, golden: dict, random: numpy.random.Generator) -> dict[str, torch.Tensor]:
    batch, config = golden["batch"], case.config
    if golden["graph"] == "vae_encoder":
        return {"sample": draw(random, batch, 3, *golden["size"])}
    if golden["graph"] == "vae_decoder":
        return {"latent_sample": draw(random, batch, config["latent_channels"], *golden["size"])}
    if golden["graph"] == "text_encoder":
        ids = torch.from_numpy(random.integers(1, 97, (batch, golden["tokens"])))
        for row, end in enumerate(golden["ends"]):
            ids[row, end] = 98
            ids[row, end + 1 :] = config["pad_token_id"]
        return {"input_ids": ids}
    inputs = {
        "sample": draw(random, batch, config.get("in_channels", 4), *golden["size"]),
        "timestep": torch.tensor(golden["timestep"]),
        "encoder_hidden_states": draw(random, batch, golden["tokens"], config["cross_attention_dim"]),
    }
    if "time_ids" in golden:
        inputs["text_embeds"] = draw(random, batch, TEXT_EMBEDS)
        inputs["time_ids"] = torch.from_numpy(random.integers(0, 1024, (batch, golden["time_ids"])).astype(numpy.float32))
    return inputs


def run(graph: str, network: torch.nn.Module, inputs: dict, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    cast = {name: value if name in ("input_ids", "time_ids") else value.to(dtype) for name, value in inputs.items()}
    if graph == "vae_encoder":
        return {"latent_parameters": network.encode(cast["sample"]).latent_dist.parameters}
    if graph == "vae_decoder":
        return {"sample": network.decode(cast["latent_sample"]).sample}
    if graph == "text_encoder":
        made = network(cast["input_ids"], output_hidden_states=True)
        outputs = {f"hidden_states.{layer}": states for layer, states in enumerate(made.hidden_states)}
        outputs["last_hidden_state"] = made.last_hidden_state
        name = "text_embeds" if isinstance(network, CLIPTextModelWithProjection) else "pooler_output"
        return outputs | {name: getattr(made, name)}
    added = {name: cast[name] for name in ("text_embeds", "time_ids") if name in cast}
    return {"out_sample": network(cast["sample"], cast["timestep"], cast["encoder_hidden_states"], added_cond_kwargs=added).sample}


def extent(values: torch.Tensor) -> float:
    return float(values.max() - values.min())


def assert_alive(case: Case, network: torch.nn.Module, graphs: list[tuple[str, dict, dict]]) -> None:
    """Every tensor must be visible in some output, far above the tests' tolerance."""
    for name, parameter in network.named_parameters():
        # A bias of the keys adds the same to every score of a query, and softmax takes it away again.
        if re.search(r"(to_k|k_proj)\.bias$", name):
            continue
        kept = parameter.detach().clone()
        parameter.zero_()
        change = 0.0
        for graph, inputs, outputs in graphs:
            for output, values in run(graph, network, inputs, torch.float64).items():
                change = max(change, float((values - outputs[output]).abs().max()) / extent(outputs[output]))
        parameter.copy_(kept)
        if change < 20 * TEST_TOLERANCE:
            raise AssertionError(f"{case.name}: without {name} the output changes by {change:.1e} of its range only")


File = tuple[dict, dict]  # tensors, metadata; or a JSON object and nothing


def make(case: Case) -> tuple[dict[str, File], float]:
    """The files of a case by name, and how far float32 arithmetic is from the golden output, as a share of its range."""
    random = numpy.random.Generator(numpy.random.PCG64(case.seed))
    torch.manual_seed(0)
    with torch.no_grad():
        network = build(case).eval()
        state = fill(case, network.state_dict(), random)
        files = weight_files(case, state) | {"config.json": (config_file(case), {})}
        network.load_state_dict({key: value.float() for key, value in state.items()})
        graphs, worst = [], 0.0
        for golden in case.inputs:
            graph = golden["graph"]
            inputs = draw_inputs(case, golden, random)
            outputs = run(graph, network.double(), inputs, torch.float64)
            for name, values in outputs.items():
                if not (torch.isfinite(values).all() and 0.3 <= extent(values) <= 100.0):
                    raise AssertionError(f"{case.name}: the range of {name} is {extent(values):.3g}, not of order 1")
            for name, values in run(graph, network.float(), inputs, torch.float32).items():
                worst = max(worst, float((values - outputs[name]).abs().max()) / extent(outputs[name]))
            number = sum(known == graph for known, _, _ in graphs)
            graphs.append((graph, inputs, outputs))
            tensors = {f"input.{name}": value.float() for name, value in inputs.items()}
            tensors |= {f"output.{name}": value.float().contiguous() for name, value in outputs.items()}
            files[f"{graph}.{number}.golden.safetensors"] = tensors, {
                "reference": f"diffusers {version('diffusers')}, transformers {version('transformers')}, float64",
                "generator": ", ".join(f"{package} {version(package)}" for package in ("torch", "numpy", "safetensors")),
            }
        assert_alive(case, network.double(), graphs)
    return files, worst


def weight_files(case: Case, state: dict) -> dict[str, File]:
    stem = "diffusion_pytorch_model" if case.network in (AutoencoderKL, UNet2DConditionModel) else "model"
    renamed = {}
    for key, tensor in state.items():
        for pattern, replacement in case.names:
            key = re.sub(pattern, replacement, key)
        renamed[key] = tensor.contiguous()
    if case.shards == 1:
        return {f"{stem}.safetensors": (renamed, {"format": "pt"})}
    keys = list(renamed)
    bounds = [len(keys) * shard // case.shards for shard in range(case.shards + 1)]
    files: dict[str, File] = {}
    places = {}
    for shard, (start, end) in enumerate(zip(bounds, bounds[1:]), 1):
        name = f"{stem}-{shard:05}-of-{case.shards:05}.safetensors"
        files[name] = {key: renamed[key] for key in keys[start:end]}, {"format": "pt"}
        places |= dict.fromkeys(keys[start:end], name)
    total = sum(tensor.nbytes for tensor in renamed.values())
    files[f"{stem}.safetensors.index.json"] = {"metadata": {"total_size": total}, "weight_map": places}, {}
    return files


def encode(name: str, file: File) -> bytes:
    contents, metadata = file
    if name.endswith(".json"):
        return (json.dumps(contents, indent=2, sort_keys=True) + "\n").encode()
    encoded = safetensors.torch.save(contents, metadata)
    # The library writes the metadata in an order that changes from run to run: write the header again, sorted.
    length = int.from_bytes(encoded[:8], "little")
    header = json.dumps(json.loads(encoded[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + encoded[8 + length :]


def differences(path: Path, file: File) -> list[str]:
    """What a file of this folder has different from the one just made."""
    contents, _ = file
    if not path.is_file():
        return ["is missing"]
    if path.suffix == ".json":
        return [] if json.loads(path.read_text()) == contents else ["has other contents"]
    found = []
    with safetensors.safe_open(path, "pt") as stored:
        if other := set(stored.keys()) ^ set(contents):
            return [f"has other tensors: {sorted(other)}"]
        for key, made in contents.items():
            tensor = stored.get_tensor(key)
            if tensor.dtype != made.dtype or tensor.shape != made.shape:
                found.append(f"{key} is {tensor.dtype} {list(tensor.shape)}, not {made.dtype} {list(made.shape)}")
                continue
            made = made.double()
            error = float((tensor.double() - made).abs().max())
            if not error <= CHECK_TOLERANCE * max(1.0, extent(made)):
                found.append(f"{key} differs by {error:.2e}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Make or check the golden data of the networks of diffusion pipelines.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file differs by more than 1e-6")
    arguments = parser.parse_args()

    torch.use_deterministic_algorithms(True)
    wrong, total, expected = [], 0, set()
    for case in CASES:
        files, single = make(case)
        folder = FOLDER / case.name
        encoded_files = {name: encode(name, file) for name, file in files.items()}
        expected |= {folder / name for name in files}
        size = sum(map(len, encoded_files.values()))
        total += size
        if arguments.check:
            wrong += [f"{case.name}/{name} {text}" for name, file in files.items() for text in differences(folder / name, file)]
        else:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name, data in encoded_files.items():
                (folder / name).write_bytes(data)
        print(f"{case.name:20} {size:>8,} bytes   float32 arithmetic differs by {single:.1e} of the range")
    present = {path for path in FOLDER.glob("*/*") if path.parent.name != "__pycache__"}
    wrong += [f"{path.relative_to(FOLDER)} belongs to no case" for path in sorted(present - expected)]
    if total > TOTAL_BYTES:
        wrong.append(f"all files together take {total:,} bytes, more than {TOTAL_BYTES:,}")
    print(f"{len(CASES)} cases, {total:,} bytes; torch {version('torch')}, diffusers {version('diffusers')}")
    for text in wrong:
        print(f"error: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
