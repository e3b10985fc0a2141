#!/usr/bin/env python3
"""Makes the golden data of this folder with diffusers and transformers, the reference for these networks.

    python3 -m pip install -r tests/golden-diffusers/requirements.txt
    python3 tests/golden-diffusers/generate.py              writes every case
    python3 tests/golden-diffusers/generate.py --check      makes every case in memory and compares it with the files

A case is a row of CASES and nothing else: a small network with random weights, as a component's folder that diffusers
or transformers can load, and the reference's outputs for random inputs, in float64.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy
import torch
from diffusers import AutoencoderKL, LatentConsistencyModelPipeline, UNet2DConditionModel
from diffusers.loaders import lora_conversion_utils, single_file_utils
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, extent, parser, write  # noqa: E402: the module stands beside this folder

FOLDER = Path(__file__).resolve().parent
TEST_TOLERANCE = 2e-5  # of the output's range: what the tests allow an implementation
TOTAL_BYTES = 4_000_000

FLOAT16, BFLOAT16 = torch.float16, torch.bfloat16


@dataclass(frozen=True)
class Case:
    """One network and its inputs."""

    name: str
    seed: int
    network: type
    config: dict  # of the reference's constructor
    inputs: list[dict]  # for each golden file: its graph, and sizes
    dtype: torch.dtype = torch.float32  # of the weights; the golden output belongs to the rounded weights
    shards: int = 1
    names: list[tuple[str, str]] = field(default_factory=list)  # patterns and replacements of the tensors' names


def vae(**more) -> dict:
    base = {
        "down_block_types": ["DownEncoderBlock2D"] * 2,
        "up_block_types": ["UpDecoderBlock2D"] * 2,
        "block_out_channels": [8, 16],
    }
    return base | {"layers_per_block": 1, "norm_num_groups": 4, "latent_channels": 4, "sample_size": 32} | more


def encoded(batch: int, height: int, width: int) -> dict:
    return {"graph": "vae_encoder", "batch": batch, "size": (height, width)}


def decoded(batch: int, height: int, width: int) -> dict:
    return {"graph": "vae_decoder", "batch": batch, "size": (height, width)}


def text(**more) -> dict:
    base = {
        "vocab_size": 99,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    return (
        base
        | {
            "max_position_embeddings": 11,
            "projection_dim": 12,
            "bos_token_id": 97,
            "eos_token_id": 98,
            "pad_token_id": 0,
        }
        | more
    )


def read(batch: int, ends: list[int], tokens: int = 11) -> dict:
    """A batch of texts, each with its own length, padded."""
    return {"graph": "text_encoder", "batch": batch, "ends": ends, "tokens": tokens}


def unet(blocks: str, channels: list[int], **more) -> dict:
    """`blocks` has a letter for each level: X with cross-attention, D without."""
    down = ["CrossAttnDownBlock2D" if block == "X" else "DownBlock2D" for block in blocks]
    up = ["CrossAttnUpBlock2D" if block == "X" else "UpBlock2D" for block in reversed(blocks)]
    base = {"down_block_types": down, "up_block_types": up, "block_out_channels": channels, "layers_per_block": 1}
    return base | {"norm_num_groups": 4, "cross_attention_dim": 12, "attention_head_dim": 2, "sample_size": 16} | more


def denoised(batch: int, height: int, width: int, tokens: int, timestep: float) -> dict:
    return {"graph": "unet", "batch": batch, "size": (height, width), "tokens": tokens, "timestep": timestep}


# As SDXL except for the widths: text embeddings of 12, and 6 or 5 numbers about the picture, each in 8.
ADDED = {"addition_embed_type": "text_time", "addition_time_embed_dim": 8, "use_linear_projection": True}

CASES = [
    # Stable Diffusion 1 and 2, then older names, then as SD3 and Flux without quant convolutions, then without
    # attention.
    Case("vae", 1, AutoencoderKL, vae(), [encoded(1, 16, 24), encoded(2, 10, 6), decoded(1, 8, 12), decoded(2, 5, 3)]),
    Case(
        "vae-old-names",
        2,
        AutoencoderKL,
        vae(
            scaling_factor=0.13025,
            block_out_channels=[8, 8, 8],
            layers_per_block=2,
            down_block_types=["DownEncoderBlock2D"] * 3,
            up_block_types=["UpDecoderBlock2D"] * 3,
        ),
        [encoded(2, 12, 20), decoded(1, 3, 5)],
        FLOAT16,
        names=[("to_q", "query"), ("to_k", "key"), ("to_v", "value"), (r"to_out\.0", "proj_attn")],
    ),
    Case(
        "vae-no-quant",
        3,
        AutoencoderKL,
        vae(
            latent_channels=16,
            use_quant_conv=False,
            use_post_quant_conv=False,
            scaling_factor=0.3611,
            shift_factor=0.1159,
        ),
        [encoded(1, 8, 14), decoded(2, 4, 6)],
        BFLOAT16,
        shards=2,
    ),
    Case(
        "vae-no-attention", 4, AutoencoderKL, vae(mid_block_add_attention=False), [encoded(1, 10, 14), decoded(1, 4, 6)]
    ),
    # CLIP-L as in Stable Diffusion 1, with the names of transformers before 5 and its way to find the end of a text;
    # bigG with a projection; the encoder of Stable Diffusion 2.
    Case(
        "text-quick-gelu",
        5,
        CLIPTextModel,
        text(hidden_act="quick_gelu", eos_token_id=2),
        [read(1, [4]), read(2, [7, 10])],
        FLOAT16,
        names=[("^", "text_model.")],
    ),
    Case(
        "text-projection",
        6,
        CLIPTextModelWithProjection,
        text(hidden_act="gelu"),
        [read(2, [2, 9]), read(1, [3], 7)],
        BFLOAT16,
        shards=2,
    ),
    Case("text", 7, CLIPTextModel, text(hidden_act="gelu", num_attention_heads=4, pad_token_id=98), [read(2, [4, 8])]),
    # Stable Diffusion 1.5, 2.1, SDXL, its refiner, and an inpainting model.
    Case(
        "unet",
        8,
        UNet2DConditionModel,
        unet("XXD", [8, 16, 16]),
        [denoised(1, 8, 12, 5, 999.0), denoised(2, 4, 8, 7, 1.0)],
    ),
    Case(
        "unet-linear",
        9,
        UNet2DConditionModel,
        unet("XD", [8, 16], use_linear_projection=True, attention_head_dim=[1, 2], layers_per_block=2),
        [denoised(2, 6, 4, 5, 500.5)],
        FLOAT16,
    ),
    Case(
        "unet-xl",
        10,
        UNet2DConditionModel,
        unet(
            "DXX",
            [8, 16, 16],
            transformer_layers_per_block=[1, 2, 3],
            attention_head_dim=[1, 2, 4],
            projection_class_embeddings_input_dim=60,
            **ADDED,
        ),
        [denoised(1, 8, 4, 5, 981.0) | {"time_ids": 6}, denoised(2, 4, 12, 9, 21.0) | {"time_ids": 6}],
        BFLOAT16,
    ),
    Case(
        "unet-xl-refiner",
        13,
        UNet2DConditionModel,
        unet(
            "DXXD",
            [8, 8, 16, 16],
            transformer_layers_per_block=2,
            attention_head_dim=[1, 2, 2, 4],
            projection_class_embeddings_input_dim=52,
            **ADDED,
        ),
        [denoised(2, 8, 16, 5, 180.0) | {"time_ids": 5}],
        FLOAT16,
        shards=2,
    ),
    Case(
        "unet-inpainting",
        12,
        UNet2DConditionModel,
        unet("XD", [8, 16], in_channels=9, flip_sin_to_cos=False, freq_shift=1),
        [denoised(2, 4, 6, 5, 77.0)],
    ),
    # A latent consistency model, which takes the guidance scale.
    Case(
        "unet-guidance",
        13,
        UNet2DConditionModel,
        unet("XD", [8, 16], time_cond_proj_dim=10),
        [denoised(2, 4, 6, 5, 759.0) | {"guidance": [8.5, 3.0]}],
        FLOAT16,
    ),
]

TEXT_EMBEDS = 12

# Components whose weights are also in a single file, under the names of their authors' code: prefix and case.
SINGLE_FILES = {
    "single-file-xl": {
        "model.diffusion_model.": "unet-xl",
        "first_stage_model.": "vae",
        "conditioner.embedders.0.transformer.": "text-quick-gelu",
        "conditioner.embedders.1.model.": "text-projection",
    },
    "single-file": {
        "model.diffusion_model.": "unet",
        "first_stage_model.": "vae-old-names",
        "cond_stage_model.transformer.": "text-quick-gelu",
    },
}


def build(case: Case) -> torch.nn.Module:
    if case.network is AutoencoderKL or case.network is UNet2DConditionModel:
        return case.network(**case.config)
    return case.network(CLIPTextConfig(**case.config))


def config_file(case: Case) -> dict:
    """The configuration as the reference would write it: the class and its arguments."""
    if case.network in (AutoencoderKL, UNet2DConditionModel):
        return {"_class_name": case.network.__name__, "_diffusers_version": version("diffusers")} | case.config
    return {"architectures": [case.network.__name__], "model_type": "clip_text_model"} | case.config


def fill(case: Case, state: dict, random: numpy.random.Generator) -> dict:
    """Random weights that keep the values of every layer near 1, so that any mistake shows in the output."""
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
        inputs["time_ids"] = torch.from_numpy(
            random.integers(0, 1024, (batch, golden["time_ids"])).astype(numpy.float32)
        )
    if "guidance" in golden:
        inputs["guidance"] = torch.tensor(golden["guidance"])
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
    more = {"added_cond_kwargs": added}
    if "guidance" in inputs:
        # As the pipeline embeds it: in float32.
        width = network.config.time_cond_proj_dim
        embedding = LatentConsistencyModelPipeline.get_guidance_scale_embedding(None, inputs["guidance"] - 1, width)
        more["timestep_cond"] = embedding.to(dtype)
    return {"out_sample": network(cast["sample"], cast["timestep"], cast["encoder_hidden_states"], **more).sample}


def assert_alive(case: Case, network: torch.nn.Module, graphs: list[tuple[str, dict, dict]]) -> None:
    """Checks that every tensor changes some output, far beyond the tests' tolerance."""
    for name, parameter in network.named_parameters():
        # A bias of the keys adds the same to every score of a query, so softmax removes it.
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


def make(case: Case) -> tuple[dict[str, File], float, dict]:
    """The files of a case by name, the weights under the reference's names, and the error of float32 arithmetic, as a
    share of the golden output's range."""
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
            files[f"{graph}.{number}.golden.safetensors"] = (
                tensors,
                {
                    "reference": f"diffusers {version('diffusers')}, transformers {version('transformers')}, float64",
                    "generator": ", ".join(
                        f"{package} {version(package)}" for package in ("torch", "numpy", "safetensors")
                    ),
                },
            )
        assert_alive(case, network.double(), graphs)
    return files, worst, state


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


def original_names(prefix: str, case: Case, state: dict) -> dict:
    """The weights of a case with the names and shapes of its authors' code. Checks that diffusers' own conversion gives
    the original weights back."""
    if "transformer." in prefix:
        renamed = {"text_model." + key: tensor for key, tensor in state.items()}
    elif case.network is CLIPTextModelWithProjection:
        renamed = open_clip_names(state)
        converted = single_file_utils.convert_open_clip_checkpoint(
            build(case), {prefix + key: value for key, value in renamed.items()}, prefix
        )
        assert_equal(case, converted, state)
    elif case.network is AutoencoderKL:
        renamed = autoencoder_names(case, state)
        converted = single_file_utils.convert_ldm_vae_checkpoint(
            {prefix + key: value for key, value in renamed.items()}, case.config
        )
        assert_equal(case, converted, state)
    else:
        renamed = unet_names(case, state)
        config = {"class_embed_type": None, "addition_embed_type": None} | case.config
        converted = single_file_utils.convert_ldm_unet_checkpoint(
            {prefix + key: value for key, value in renamed.items()}, config
        )
        assert_equal(case, converted, state)
    return {prefix + key: tensor.contiguous() for key, tensor in renamed.items()}


def assert_equal(case: Case, converted: dict, state: dict) -> None:
    if set(converted) != set(state) or not all(torch.equal(converted[key], tensor) for key, tensor in state.items()):
        raise AssertionError(f"{case.name}: diffusers converts {sorted(set(converted) ^ set(state))[:6]} differently")


def replaced(key: str, rules: list[tuple[str, str]]) -> str:
    for pattern, replacement in rules:
        key = re.sub(pattern, replacement, key)
    return key


RESNET = [
    (r"\.norm1\.", ".in_layers.0."),
    (r"\.conv1\.", ".in_layers.2."),
    (r"time_emb_proj", "emb_layers.1"),
    (r"\.norm2\.", ".out_layers.0."),
    (r"\.conv2\.", ".out_layers.3."),
    ("conv_shortcut", "skip_connection"),
]


def unet_names(case: Case, state: dict) -> dict:
    levels, layers = len(case.config["block_out_channels"]), case.config["layers_per_block"]
    with_attention = ["CrossAttn" in block for block in case.config["up_block_types"]]

    def renamed(key: str) -> str:
        key = re.sub(
            r"^(\w+_blocks?\.\S*resnets\.\d+)(\..*)$", lambda match: match[1] + replaced(match[2], RESNET), key
        )
        if match := re.match(r"down_blocks\.(\d+)\.(resnets|attentions)\.(\d+)\.(.*)", key):
            block = 1 + int(match[1]) * (layers + 1) + int(match[3])
            return f"input_blocks.{block}.{int(match[2] == 'attentions')}.{match[4]}"
        if match := re.match(r"down_blocks\.(\d+)\.downsamplers\.0\.conv\.(.*)", key):
            return f"input_blocks.{(int(match[1]) + 1) * (layers + 1)}.0.op.{match[2]}"
        if match := re.match(r"up_blocks\.(\d+)\.(resnets|attentions)\.(\d+)\.(.*)", key):
            block = int(match[1]) * (layers + 1) + int(match[3])
            return f"output_blocks.{block}.{int(match[2] == 'attentions')}.{match[4]}"
        if match := re.match(r"up_blocks\.(\d+)\.upsamplers\.0\.(.*)", key):
            place = 2 if with_attention[int(match[1])] else 1
            return f"output_blocks.{(int(match[1]) + 1) * (layers + 1) - 1}.{place}.{match[2]}"
        return replaced(
            key,
            [
                (r"^time_embedding\.linear_1", "time_embed.0"),
                (r"^time_embedding\.linear_2", "time_embed.2"),
                (r"^add_embedding\.linear_1", "label_emb.0.0"),
                (r"^add_embedding\.linear_2", "label_emb.0.2"),
                (r"^conv_in", "input_blocks.0.0"),
                (r"^conv_norm_out", "out.0"),
                (r"^conv_out", "out.2"),
                (r"^mid_block\.resnets\.0", "middle_block.0"),
                (r"^mid_block\.attentions\.0", "middle_block.1"),
                (r"^mid_block\.resnets\.1", "middle_block.2"),
            ],
        )

    assert levels > 1
    return {renamed(key): tensor for key, tensor in state.items()}


def autoencoder_names(case: Case, state: dict) -> dict:
    last = len(case.config["block_out_channels"]) - 1

    def renamed(key: str) -> str:
        key = re.sub(r"up_blocks\.(\d+)", lambda match: f"up.{last - int(match[1])}", key)
        return replaced(
            key,
            [
                ("down_blocks", "down"),
                (r"(up|down)\.(\d+)\.resnets", r"\1.\2.block"),
                (r"(up|down)samplers\.0", r"\1sample"),
                (r"mid_block\.resnets\.0", "mid.block_1"),
                (r"mid_block\.resnets\.1", "mid.block_2"),
                (r"mid_block\.attentions\.0", "mid.attn_1"),
                ("group_norm", "norm"),
                ("to_q", "q"),
                ("to_k", "k"),
                ("to_v", "v"),
                (r"to_out\.0", "proj_out"),
                ("conv_norm_out", "norm_out"),
                ("conv_shortcut", "nin_shortcut"),
            ],
        )

    names = {renamed(key): tensor for key, tensor in state.items()}
    convolved = re.compile(r"attn_1\.(q|k|v|proj_out)\.weight")
    return {key: tensor[:, :, None, None] if convolved.search(key) else tensor for key, tensor in names.items()}


def open_clip_names(state: dict) -> dict:
    state = dict(state)
    for query in [key for key in state if ".q_proj." in key]:
        parts = [state.pop(query.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
        state[query.replace("q_proj.", "in_proj_")] = torch.cat(parts)
    rules = [
        (r"^text_model\.encoder\.layers\.(\d+)", r"transformer.resblocks.\1"),
        (r"layer_norm(\d)", r"ln_\1"),
        ("self_attn", "attn"),
        (r"mlp\.fc1", "mlp.c_fc"),
        (r"mlp\.fc2", "mlp.c_proj"),
        (r"^text_model\.embeddings\.token_embedding", "token_embedding"),
        (r"^text_model\.embeddings\.position_embedding\.weight", "positional_embedding"),
        (r"^text_model\.final_layer_norm", "ln_final"),
        (r"^text_projection\.weight", "text_projection"),
    ]
    renamed = {replaced(key, rules): tensor for key, tensor in state.items()}
    return renamed | {"text_projection": renamed["text_projection"].T, "logit_scale": torch.tensor(4.6)}


def single_file(parts: dict[str, str], states: dict[str, dict]) -> dict[str, File]:
    cases = {case.name: case for case in CASES}
    tensors = {"betas": torch.linspace(0.1, 0.2, 4), "model_ema.num_updates": torch.tensor(7)}
    for prefix, name in parts.items():
        tensors |= original_names(prefix, cases[name], states[name])
    return {"checkpoint.safetensors": (tensors, {"format": "pt"})}


# ---- LoRA ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lora:
    """A LoRA file for a case's network, and the merged network's outputs for the case's first input."""

    name: str
    seed: int
    case: str
    naming: str  # kohya, sgm (kohya's with the original names of blocks), or peft
    scale: float
    layers: str  # pattern of the adapted layers


ATTENTIONS = r"attn[12]\.(to_[qkv]|to_out\.0)|ff\.net\.(0\.proj|2)"
LORAS = [
    Lora(
        "lora-kohya",
        21,
        "unet",
        "kohya",
        0.8,
        ATTENTIONS + r"|proj_(in|out)|resnets\.\d+\.(conv[12]|conv_shortcut|time_emb_proj)",
    ),
    Lora("lora-kohya-xl", 22, "unet-xl", "sgm", 1.0, ATTENTIONS),
    Lora("lora-peft", 23, "unet-linear", "peft", -0.5, ATTENTIONS + "|proj_(in|out)"),
]


def draw_lora(lora: Lora, network: torch.nn.Module) -> dict:
    """Factors of rank 2 to 4 without alphas, or of rank 4 with an alpha of 2. Layers that differ in both cannot be
    golden, because diffusers 0.42.1 gives some layers the alpha of others."""
    random = numpy.random.Generator(numpy.random.PCG64(lora.seed))
    case = next(case for case in CASES if case.name == lora.case)
    tensors = {}
    for name, module in network.named_modules():
        if not re.search(f"({lora.layers})$", name):
            continue
        weight, rank = module.weight, int(random.integers(2, 5)) if lora.naming == "peft" else 4
        down = draw(random, rank, *weight.shape[1:]) * 0.5 / math.sqrt(weight[0].numel())
        up = draw(random, weight.shape[0], rank, *[1] * (weight.ndim - 2)) * 0.8
        if lora.naming == "peft":
            tensors |= {f"unet.{name}.lora_A.weight": down, f"unet.{name}.lora_B.weight": up}
            continue
        key = name
        if lora.naming == "sgm":
            key = next(iter(unet_names(case, {name + ".weight": weight}))).removesuffix(".weight")
        key = "lora_unet_" + key.replace(".", "_")
        tensors |= {
            f"{key}.lora_down.weight": down.half(),
            f"{key}.lora_up.weight": up.half(),
            f"{key}.alpha": torch.tensor(2.0),
        }
    return tensors


def make_lora(lora: Lora, states: dict) -> dict[str, File]:
    case = next(case for case in CASES if case.name == lora.case)
    random = numpy.random.Generator(numpy.random.PCG64(lora.seed + 100))
    with torch.no_grad():
        network = build(case).eval()
        network.load_state_dict({key: value.float() for key, value in states[lora.case].items()})
        tensors = draw_lora(lora, network)
        read, alphas = dict(tensors), None
        if lora.naming == "sgm":
            read = lora_conversion_utils._maybe_map_sgm_blocks_to_diffusers(read, network.config)
        if lora.naming != "peft":
            read, alphas = lora_conversion_utils._convert_non_diffusers_lora_to_diffusers(read)
        network.load_lora_adapter(
            {key: value.double() for key, value in read.items()}, prefix="unet", network_alphas=alphas
        )
        network.double().fuse_lora(lora_scale=lora.scale)
        merged = 0
        for name, parameter in network.named_parameters():
            if name.endswith(".base_layer.weight"):  # merged weights are stored in the checkpoint's type
                parameter.copy_(parameter.to(case.dtype))
                merged += 1
        if merged * (2 if lora.naming == "peft" else 3) != len(tensors):
            raise AssertionError(f"{lora.name}: diffusers has merged {merged} of {len(tensors)} tensors")
        golden = case.inputs[0]
        inputs = draw_inputs(case, golden, random)
        outputs = run("unet", network, inputs, torch.float64)
        network.unfuse_lora()
        network.disable_lora()
        plain = run("unet", network, inputs, torch.float64)["out_sample"]
        if float((plain - outputs["out_sample"]).abs().max()) < 0.1 * extent(plain):
            raise AssertionError(f"{lora.name}: the adaptation changes next to nothing")
    golden_tensors = {f"input.{name}": value.float() for name, value in inputs.items()}
    golden_tensors |= {f"output.{name}": value.float().contiguous() for name, value in outputs.items()}
    metadata = {
        "case": lora.case,
        "scale": str(lora.scale),
        "reference": f"diffusers {version('diffusers')}, peft {version('peft')}, float64",
    }
    return {"lora.safetensors": (tensors, {"format": "pt"}), "unet.0.golden.safetensors": (golden_tensors, metadata)}


def main() -> int:
    arguments = parser("Make or check the golden data of the networks of diffusion pipelines.").parse_args()

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # more threads are slower on networks this small
    states = {}

    def made() -> Iterator[tuple[str, dict[str, File], str]]:
        for case in CASES:
            files, single, states[case.name] = make(case)
            yield case.name, files, f"float32 arithmetic differs by {single:.1e} of the range"
        for name, parts in SINGLE_FILES.items():
            yield name, single_file(parts, states), f"the weights of {', '.join(parts.values())}"
        for lora in LORAS:
            yield lora.name, make_lora(lora, states), f"adapts {lora.case}"

    return write(FOLDER, made(), TOTAL_BYTES, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
