#!/usr/bin/env python3
"""Makes the golden data of this folder with diffusers, the reference for pipelines.

    python3 -m pip install -r tests/golden-pipelines/requirements.txt
    python3 tests/golden-pipelines/generate.py              writes everything
    python3 tests/golden-pipelines/generate.py --check      makes everything in memory and compares it with the files

A pipeline is a row of PIPELINES: small networks with random weights, a tokenizer of tests/golden-tokenizer, and a
scheduler. A picture is a row of RUNS: what diffusers makes, and the options with which `runtime generate` has to make
the same.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
import warnings
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import diffusers
import numpy
import PIL.Image
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, write  # noqa: E402: the module stands beside this folder

FOLDER = Path(__file__).resolve().parent
TOKENIZERS = FOLDER.parent / "golden-tokenizer"
TOTAL_BYTES = 2_000_000
VOCABULARY, START, END = 756, 754, 755
SIDE = 64


def text(**more) -> dict:
    base = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3}
    base |= {"num_attention_heads": 2, "max_position_embeddings": 77, "projection_dim": 12}
    return base | {"bos_token_id": START, "eos_token_id": END, "pad_token_id": END} | more


def unet(blocks: str, context: int, **more) -> dict:
    """`blocks` has a letter for each level: X with cross-attention, D without."""
    down = ["CrossAttnDownBlock2D" if block == "X" else "DownBlock2D" for block in blocks]
    up = ["CrossAttnUpBlock2D" if block == "X" else "UpBlock2D" for block in reversed(blocks)]
    base = {"down_block_types": down, "up_block_types": up, "block_out_channels": [8, 16], "layers_per_block": 1}
    base |= {"norm_num_groups": 4, "attention_head_dim": 2, "sample_size": SIDE // 8}
    return base | {"cross_attention_dim": context} | more


def added(numbers: int) -> dict:
    """SDXL's conditions: the vector of the text, and numbers about the picture in 8 each."""
    width = 12 + 8 * numbers
    base = {"addition_embed_type": "text_time", "addition_time_embed_dim": 8, "use_linear_projection": True}
    return base | {"projection_class_embeddings_input_dim": width}


VAE = {
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "block_out_channels": [4, 4, 8, 8],
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "latent_channels": 4,
    "sample_size": SIDE,
}

# Name: class, configuration, seed.
NETWORKS = {
    "text": (CLIPTextModel, text(hidden_act="quick_gelu"), 1),
    "text-projection": (CLIPTextModelWithProjection, text(hidden_act="gelu", pad_token_id=0), 2),
    "vae": (AutoencoderKL, VAE, 3),
    "vae-xl": (AutoencoderKL, VAE | {"scaling_factor": 0.13025, "force_upcast": False}, 3),
    "unet": (UNet2DConditionModel, unet("XD", 16), 5),
    "unet-lcm": (UNet2DConditionModel, unet("XD", 16, time_cond_proj_dim=6), 9),
    "unet-inpainting": (UNet2DConditionModel, unet("XD", 16, in_channels=9), 6),
    "unet-xl": (UNet2DConditionModel, unet("DX", 32, transformer_layers_per_block=[1, 2], **added(6)), 7),
    "unet-refiner": (UNet2DConditionModel, unet("DX", 16, transformer_layers_per_block=[1, 2], **added(5)), 8),
}

LATENT = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
SD = LATENT | {"_class_name": "PNDMScheduler", "skip_prk_steps": True, "set_alpha_to_one": False, "clip_sample": False}
XL = LATENT | {"_class_name": "EulerDiscreteScheduler", "timestep_spacing": "leading"}
TURBO = LATENT | {"_class_name": "EulerAncestralDiscreteScheduler", "timestep_spacing": "trailing"}
ZERO_SNR = {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "prediction_type": "v_prediction"}
LCM = LATENT | {"_class_name": "LCMScheduler", "original_inference_steps": 50, "timestep_scaling": 10.0}
VELOCITY = LATENT | {"_class_name": "DDIMScheduler", "clip_sample": False, "set_alpha_to_one": False} | ZERO_SNR

ONE = {"text_encoder": "text"}
BOTH = {"text_encoder": "text", "text_encoder_2": "text-projection"}
# The tokenizers of each text encoder.
CASES_OF_TOKENIZERS = {"text_encoder": "padded-with-end", "text_encoder_2": "padded-with-token"}
STABLE, STABLE_XL, CONSISTENT = "StableDiffusion", "StableDiffusionXL", "LatentConsistencyModel"

PIPELINES = {
    "sd": {"class": STABLE, "parts": ONE | {"unet": "unet", "vae": "vae"}, "scheduler": SD},
    # Velocity and zero terminal SNR, as in Stable Diffusion 2.1.
    "sd-velocity": {"class": STABLE, "parts": ONE | {"unet": "unet", "vae": "vae"}, "scheduler": VELOCITY},
    "sd-inpainting": {"class": STABLE, "parts": ONE | {"unet": "unet-inpainting", "vae": "vae"}, "scheduler": SD},
    # It takes the guidance scale as an input.
    "lcm": {"class": CONSISTENT, "parts": ONE | {"unet": "unet-lcm", "vae": "vae"}, "scheduler": LCM},
    # Its pictures are larger than what its autoencoder takes at once.
    "sd-large": {"class": STABLE, "parts": ONE | {"unet": "unet", "vae": "vae"}, "scheduler": SD, "latent": 16},
    # As `sd`, for texts of two pieces.
    "sd-long": {"class": STABLE, "parts": ONE | {"unet": "unet", "vae": "vae"}, "scheduler": SD, "tokens": 154},
    "xl": {"class": STABLE_XL, "parts": BOTH | {"unet": "unet-xl", "vae": "vae-xl"}, "scheduler": XL},
    "xl-turbo": {"class": STABLE_XL, "parts": BOTH | {"unet": "unet-xl", "vae": "vae-xl"}, "scheduler": TURBO},
    "refiner": {
        "class": STABLE_XL,
        "parts": {"text_encoder_2": "text-projection", "unet": "unet-refiner", "vae": "vae-xl"},
        "scheduler": XL,
        "force_zeros_for_empty_prompt": False,
        "requires_aesthetics_score": True,
    },
}

PROMPT = "a photo of a red fox in the snow, caf\u00e9 \U0001f98a!"
NEGATIVE = "blurry, film grain"
LONG = "a painting of the old harbour at night, ships and lanterns in the rain, oil on canvas, " * 7


@dataclass(frozen=True)
class Run:
    """One call of a pipeline."""

    name: str
    pipeline: str
    scheduler: str | None = None
    steps: int = 4
    seed: int = 42
    prompt: str = PROMPT
    negative: str | None = NEGATIVE
    guidance: float = 4.0
    image: str | None = None
    mask: str | None = None
    more: dict = field(default_factory=dict)  # strength, eta, count, rescale, end, start, latents, long


SCHEDULERS = [
    "EulerDiscreteScheduler",
    "EulerAncestralDiscreteScheduler",
    "DDIMScheduler",
    "PNDMScheduler",
    "LMSDiscreteScheduler",
    "HeunDiscreteScheduler",
    "DPMSolverMultistepScheduler",
    "UniPCMultistepScheduler",
    "LCMScheduler",
    "TCDScheduler",
]


def runs() -> list[Run]:
    made = []
    picture, mask = {"image": "picture.png"}, {"image": "picture.png", "mask": "mask.png"}
    for scheduler in SCHEDULERS:
        short = scheduler.removesuffix("Scheduler")
        more = {"eta": 0.5} if scheduler in ("DDIMScheduler", "TCDScheduler") else {}
        for kind, pipeline, inputs, options in [
            ("text", "sd", {}, {}),
            ("image", "sd", picture, {"strength": 0.75}),
            ("mask-4", "sd", mask, {"strength": 0.75}),
            ("mask-9", "sd-inpainting", mask, {"strength": 1.0}),
            ("text-xl", "xl", {}, {}),
            ("image-refiner", "refiner", picture, {"strength": 0.5}),
        ]:
            # With Runge-Kutta steps, which the refiner's configuration leaves to PNDM, no run starts in the middle.
            if (kind, scheduler) != ("image-refiner", "PNDMScheduler"):
                made.append(Run(f"{kind}-{short}", pipeline, scheduler, more=options | more, **inputs))
    ancestral = "EulerAncestralDiscreteScheduler"
    return made + [
        Run("own-scheduler", "sd", steps=6, seed=2**32 + 7),
        Run("velocity", "sd-velocity", more={"rescale": 0.7, "eta": 0.3}),
        Run("no-guidance", "sd", guidance=1.0),
        Run("no-negative", "sd", negative=None),
        Run("three-pictures", "sd", ancestral, more={"count": 3}),
        Run("given-noise", "sd", more={"latents": "noise.safetensors"}),
        Run("long-prompt", "sd-long", prompt=LONG, more={"long": True}),
        Run("cut-off-prompt", "sd", prompt=LONG),
        Run("lcm", "lcm", guidance=8.5, negative=None),
        Run("lcm-weak", "lcm", steps=2, seed=7, guidance=3.0, negative=None, more={"count": 2}),
        # All steps are made, on the part of the way that the strength leaves.
        Run("lcm-image", "lcm", steps=3, guidance=5.0, negative=None, image="picture.png", more={"strength": 0.6}),
        Run("image-all", "sd", image="picture.png", more={"strength": 1.0}),
        Run("image-resized", "sd", image="large.png", more={"strength": 0.5, "size": True}),
        Run("image-two-pictures", "sd", image="picture.png", more={"strength": 0.5, "count": 2}),
        Run("mask-4-all", "sd", ancestral, image="picture.png", mask="mask.png", more={"strength": 1.0}),
        Run("mask-9-part", "sd-inpainting", ancestral, image="picture.png", mask="mask.png", more={"strength": 0.5}),
        Run("xl-no-negative", "xl", negative=None),
        Run("xl-empty-negative", "xl", negative="", more={"rescale": 0.5}),
        Run("xl-image", "xl", image="picture.png", more={"strength": 0.5}),
        Run("xl-mask", "xl", image="picture.png", mask="mask.png", more={"strength": 0.9999}),
        Run("xl-turbo", "xl-turbo", steps=1, guidance=0.0, negative=None),
        Run("refiner-no-negative", "refiner", negative=None, image="picture.png", more={"strength": 0.5}),
        # The base stops, and the refiner goes on from its latent.
        Run("base", "xl", steps=10, more={"end": 0.8, "latent": True}),
        Run("refined", "refiner", steps=10, image="base.safetensors", more={"start": 0.8}),
    ]


def fill(state: dict, seed: int) -> dict:
    """Random weights of float16 that keep the values of every layer near 1, so that any mistake shows."""
    random = numpy.random.Generator(numpy.random.PCG64(seed))
    filled = {}
    for key, tensor in state.items():
        values = random.uniform(-1.0, 1.0, tuple(tensor.shape))
        if "embedding.weight" in key:
            pass
        elif tensor.ndim >= 2:
            values *= 1.4 * math.sqrt(3.0 / tensor[0].numel())
        elif key.endswith("weight"):
            values = 0.9 + 0.5 * values
        else:
            values = numpy.copysign(0.1 + 0.2 * abs(values), values)
        if "conv_norm_out.weight" in key:
            values *= 0.5  # so that pictures keep some contrast, and are not black and white
        filled[key] = torch.from_numpy(values.astype(numpy.float32)).half()
    return filled


def network(name: str) -> tuple[torch.nn.Module, dict[str, File]]:
    kind, config, seed = NETWORKS[name]
    own = kind in (AutoencoderKL, UNet2DConditionModel)
    torch.manual_seed(0)
    made = (kind(**config) if own else kind(CLIPTextConfig(**config))).eval()
    state = fill(made.state_dict(), seed)
    made.load_state_dict({key: value.float() for key, value in state.items()})
    architecture = {"architectures": [kind.__name__], "model_type": "clip_text_model"}
    about = {"_class_name": kind.__name__} if own else architecture
    stem = "diffusion_pytorch_model" if own else "model"
    tensors = {key: value.contiguous() for key, value in state.items()}
    return made, {"config.json": (about | config, {}), f"{stem}.safetensors": (tensors, {"format": "pt"})}


def png(picture: numpy.ndarray) -> bytes:
    target = io.BytesIO()
    PIL.Image.fromarray(picture).save(target, "PNG", optimize=True)
    return target.getvalue()


def inputs() -> dict[str, File]:
    """A picture of waves, the same larger, a mask with grey edges, and noise."""
    def waves(width: int, height: int) -> numpy.ndarray:
        y, x = numpy.mgrid[0:1 : height * 1j, 0:1 : width * 1j]
        levels = [numpy.sin(9 * x + 3 * y), numpy.cos(7 * y - 4 * x * y), numpy.sin(20 * (x - 0.5) ** 2 + 11 * y)]
        return numpy.stack([(127.5 + 120 * level).round() for level in levels], -1).astype(numpy.uint8)

    y, x = numpy.mgrid[0:SIDE, 0:SIDE]
    distance = numpy.hypot(x - 36, y - 28) - 18
    mask = (127.5 - 30 * distance).clip(0, 255).astype(numpy.uint8)
    noise = torch.randn(1, 4, SIDE // 8, SIDE // 8, generator=torch.Generator("cpu").manual_seed(5))
    return {
        "picture.png": (png(waves(SIDE, SIDE)), {}),
        "large.png": (png(waves(81, 70)), {}),
        "mask.png": (png(mask), {}),
        "noise.safetensors": ({"latent": noise}, {}),
    }


class Reference:
    """diffusers' pipelines over the networks."""

    def __init__(self):
        self.networks = {name: network(name) for name in NETWORKS}
        self.inputs = inputs()
        self.latents: dict[str, torch.Tensor] = {}

    def part(self, run: Run, name: str):
        known = PIPELINES[run.pipeline]["parts"].get(name)
        return self.networks[known][0] if known else None

    def scheduler(self, run: Run):
        config = PIPELINES[run.pipeline]["scheduler"]
        own = getattr(diffusers, config["_class_name"]).from_config(config)
        return getattr(diffusers, run.scheduler).from_config(own.config) if run.scheduler else own

    def pipeline(self, run: Run):
        row = PIPELINES[run.pipeline]
        kind = "Inpaint" if run.mask else "Img2Img" if run.image else ""
        tokenizers = {
            part: CLIPTokenizer.from_pretrained(TOKENIZERS / case) for part, case in CASES_OF_TOKENIZERS.items()
        }
        parts = {name: self.part(run, name) for name in ("vae", "text_encoder", "unet")}
        tokenizer = tokenizers["text_encoder"] if parts["text_encoder"] else None
        parts |= {"tokenizer": tokenizer, "scheduler": self.scheduler(run)}
        if row["class"] == STABLE_XL:
            parts |= {"text_encoder_2": self.part(run, "text_encoder_2"), "tokenizer_2": tokenizers["text_encoder_2"]}
            parts["force_zeros_for_empty_prompt"] = row.get("force_zeros_for_empty_prompt", True)
            if kind:
                parts["requires_aesthetics_score"] = row.get("requires_aesthetics_score", False)
            parts["add_watermarker"] = False
        else:
            parts |= {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
        made = getattr(diffusers, f"{row['class']}{kind}Pipeline")(**parts)
        made.set_progress_bar_config(disable=True)
        return made

    def picture(self, name: str) -> PIL.Image.Image:
        return PIL.Image.open(io.BytesIO(self.inputs[name][0]))

    def embeddings(self, run: Run, pipeline) -> dict:
        """A long text in pieces of 75 tokens, each encoded by itself; the shorter one gets empty pieces."""
        def pieces(text: str) -> list[list[int]]:
            ids = pipeline.tokenizer(text, add_special_tokens=False).input_ids
            return [ids[start : start + 75] for start in range(0, len(ids), 75)] or [[]]

        texts = [pieces(run.prompt), pieces(run.negative or "")]
        count = max(map(len, texts))
        made = []
        for rows in texts:
            rows = rows + [[]] * (count - len(rows))
            framed = [[START, *row, END] + [END] * (75 - len(row)) for row in rows]
            with torch.no_grad():
                states = [pipeline.text_encoder(torch.tensor([row]))[0] for row in framed]
            made.append(torch.cat(states, 1))
        return {"prompt_embeds": made[0], "negative_prompt_embeds": made[1]}

    def make(self, run: Run) -> tuple[list[PIL.Image.Image] | torch.Tensor, list[str]]:
        """The pictures, or the latent; and the options of `runtime generate`."""
        pipeline, more = self.pipeline(run), run.more
        call = {"num_inference_steps": run.steps, "guidance_scale": run.guidance}
        call["generator"] = torch.Generator("cpu").manual_seed(run.seed)
        options = ["--prompt", run.prompt, "--steps", str(run.steps), "--seed", str(run.seed)]
        options += ["--guidance", str(run.guidance)]
        if more.get("long"):
            call |= self.embeddings(run, pipeline)
            options += ["--long-prompt"]
        else:
            call["prompt"] = run.prompt
            if PIPELINES[run.pipeline]["class"] != CONSISTENT:  # which takes none
                call["negative_prompt"] = run.negative
        if run.negative is not None:
            options += ["--negative-prompt", run.negative]
        if run.scheduler:
            options += ["--scheduler", run.scheduler]
        if run.image and run.image in self.latents:
            call["image"] = self.latents[run.image]
            options += ["--image", f"{{made}}/{run.image}"]
        elif run.image:
            image = self.picture(run.image)
            if more.get("size"):
                image = image.resize((SIDE, SIDE), PIL.Image.LANCZOS)
                options += ["--size", f"{SIDE}x{SIDE}"]
            call["image"] = image
            options += ["--image", f"{{inputs}}/{run.image}"]
        if run.mask:
            call |= {"mask_image": self.picture(run.mask), "height": SIDE, "width": SIDE}
            options += ["--mask", f"{{inputs}}/{run.mask}"]
        if "latents" in more:
            call["latents"] = self.inputs[more["latents"]][0]["latent"]
            options += ["--latents", f"{{inputs}}/{more['latents']}"]
        for key, name, option in [
            ("strength", "strength", "--strength"),
            ("eta", "eta", "--eta"),
            ("count", "num_images_per_prompt", "--count"),
            ("rescale", "guidance_rescale", "--guidance-rescale"),
            ("end", "denoising_end", "--denoising-end"),
            ("start", "denoising_start", "--denoising-start"),
        ]:
            if key in more:
                call[name] = more[key]
                options += [option, str(more[key])]
        if more.get("latent"):
            call["output_type"] = "latent"
        with torch.no_grad():
            made = pipeline(**call).images
        if more.get("latent"):
            self.latents[f"{run.name}.safetensors"] = made
        return made, options


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    diffusers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    reference = Reference()

    def cases():
        for name, (_, files) in reference.networks.items():
            yield name, files, "a network"
        yield "inputs", reference.inputs, "pictures and noise"
        pictures, rows = {}, []
        for run in runs():
            made, options = reference.make(run)
            row = {"name": run.name, "pipeline": run.pipeline, "options": options}
            if torch.is_tensor(made):
                row["latent"] = f"{run.name}.safetensors"
                pictures[row["latent"]] = ({"latent": made.contiguous()}, {})
            else:
                numbers = [""] if len(made) == 1 else [f"-{number}" for number in range(1, len(made) + 1)]
                names = [f"{run.name}{number}.png" for number in numbers]
                for name, picture in zip(names, made):
                    levels = numpy.asarray(picture)
                    extremes = float(((levels == 0) | (levels == 255)).mean())
                    if levels.std() < 20 or extremes > 0.5:
                        raise SystemExit(f"{name}: deviation {levels.std():.1f}, {extremes:.0%} black or white")
                    pictures[name] = (png(levels), {})
                row["pictures"] = names
            rows.append(row)
        table = {"pipelines": PIPELINES, "tokenizers": CASES_OF_TOKENIZERS, "runs": rows}
        about = {"generator": f"diffusers {version('diffusers')}, torch {version('torch')}"}
        yield "pictures", pictures | {"runs.json": (table | about, {})}, f"{len(rows)} runs"

    return write(FOLDER, cases(), TOTAL_BYTES, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
