#!/usr/bin/env python3
"""Makes the golden data of this folder with SeedVR2's own restoration pipeline (README.md says how to get it).

    python3 -m pip install -r tests/golden-restoration/requirements.txt
    python3 tests/golden-restoration/generate.py REFERENCE            writes every case
    python3 tests/golden-restoration/generate.py REFERENCE --check    makes every case in memory, and compares it

A case is a row of CASES: frames, options, and the restored frames of small networks with random weights, in float64.
The folder `models` holds the networks, and `pieces` the outputs of single functions of the pipeline.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import json
import math
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import numpy
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File  # noqa: E402: the modules stand beside this folder
from golden_seedvr2 import REFERENCE, main  # noqa: E402

FOLDER = Path(__file__).resolve().parent
TOTAL_BYTES = 3_000_000

LATENT = 4  # channels of a latent video
TEXT = (7, 20)  # tokens and width of the text states
SCALING_FACTOR = 0.9152  # the reference's own, which the networks here must fit
COLOURS = ("lab", "wavelet", "adain", "hsv", "wavelet_adaptive")


def sibling(folder: str):
    """The generator of another folder, for its small networks."""
    spec = importlib.util.spec_from_file_location(folder.replace("-", "_"), FOLDER.parent / folder / "generate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


video_vae = sibling("golden-video-vae")
video_transformer = sibling("golden-video-transformer")

VAE = video_vae.Case("vae", 1, [4, 8, 8, 8], 1, 2, 2, LATENT, [], torch.float16)
PICTURE_SCALE = 0.36  # of the decoder's last layer: nearly all decoded values then lie in -1..1
TRANSFORMERS = {
    "3b": video_transformer.Case(
        "transformer-3b", 2, "dit_3b", 16, 2, 24, 2, 1, LATENT, TEXT[1], [], torch.float16
    ),
    "7b": video_transformer.Case(
        "transformer-7b", 3, "dit_7b", 16, 2, 128, 2, 2, LATENT, TEXT[1], [], torch.bfloat16
    ),
}


@dataclass(frozen=True)
class Case:
    """Frames and options of one restoration."""

    name: str
    seed: int  # of the frames and of the noise
    frames: int
    height: int
    width: int
    resolution: int  # the restored frames' shorter side
    batch: int
    colour: str
    overlap: int = 0
    uniform: bool = False
    transformer: str = "3b"


CASES = [
    Case("picture", 21, 1, 37, 50, 48, 5, "lab"),
    Case("down", 2, 5, 45, 61, 32, 5, "wavelet"),
    # The width is the shorter side. Both sides of the restored frames are padded, and rounded down to even numbers.
    Case("up", 3, 9, 27, 21, 31, 9, "adain"),
    Case("uncorrected", 4, 13, 32, 48, 32, 13, "none", transformer="7b"),
    Case("overlap-1", 20, 9, 21, 25, 30, 5, "lab", overlap=1),
    # The last batch has 3 frames.
    Case("overlap-2", 2, 12, 40, 34, 32, 5, "lab", overlap=2, uniform=True),
    # The third batch would only have frames of the second.
    Case("overlap-4", 7, 14, 20, 29, 28, 9, "wavelet", overlap=4, uniform=True),
    Case("short-batch", 1, 7, 23, 31, 32, 5, "lab"),
    Case("hsv", 1, 1, 41, 33, 48, 1, "hsv"),
    Case("wavelet-adaptive", 7, 1, 33, 41, 48, 1, "wavelet_adaptive"),
]


@dataclass(frozen=True)
class Reference:
    """The reference's modules."""

    vae: object
    transformers: dict
    phases: object
    utils: object
    infer: object
    config: object
    color_fix: object
    resize: object
    performance: object
    seed: object


def load_reference(path: Path) -> Reference:
    """The reference's modules. Only the pinned commit is accepted."""
    # It prints which special kernels are missing, and libraries warn of its old calls.
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        vae = video_vae.load_reference(path)
        transformers = video_transformer.load_reference(path)
        names = {
            "phases": "core.generation_phases",
            "utils": "core.generation_utils",
            "infer": "core.infer",
            "config": "common.config",
            "color_fix": "utils.color_fix",
            "resize": "data.image.transforms.na_resize",
            "performance": "optimization.performance",
            "seed": "common.seed",
        }
        modules = {name: importlib.import_module(f"src.{module}") for name, module in names.items()}
    return Reference(vae, transformers, **modules)


class Quiet:
    """Takes the place of the reference's log."""

    def log(self, *_, **__) -> None: ...
    def start_timer(self, *_, **__) -> None: ...
    def end_timer(self, *_, **__) -> None: ...
    def log_memory_state(self, *_, **__) -> None: ...


def generator() -> str:
    packages = ("torch", "torchvision", "diffusers", "rotary-embedding-torch", "numpy", "safetensors")
    return ", ".join(f"{package} {version(package)}" for package in packages)


def described(**values: object) -> dict[str, str]:
    """Metadata of a golden file."""
    return {
        "reference": f"naxci1/ComfyUI-SeedVR2.5 {REFERENCE}, float64",
        "generator": generator(),
        **{key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()},
    }


def pictures(random: numpy.random.Generator, frames: int, height: int, width: int) -> numpy.ndarray:
    """Colourful moving waves and a little noise, in 0..1: `[frames, height, width, 3]`."""
    t, y, x = numpy.meshgrid(numpy.arange(frames), numpy.arange(height), numpy.arange(width), indexing="ij")
    made = numpy.empty((frames, height, width, 3))
    for channel in range(3):
        waves = random.uniform(-1.0, 1.0, (4, 4)) * [0.35, 0.45, 0.45, math.pi]
        made[..., channel] = 0.5 + sum(0.2 * numpy.sin(a * t + b * y + c * x + d) for a, b, c, d in waves)
    return (made + 0.04 * random.standard_normal(made.shape)).clip(0.0, 1.0)


# Networks


@dataclass(frozen=True)
class Models:
    """The small networks, and the folder with the text states as the reference reads them."""

    vae: torch.nn.Module
    transformers: dict[str, torch.nn.Module]
    texts: Path


def saved(path: Path, tensor: torch.Tensor) -> bytes:
    torch.save(tensor, path)
    return path.read_bytes()


def make_models(reference: Reference, texts: Path) -> tuple[Models, dict[str, File]]:
    """The networks, and the files of the folder `models`."""
    random = numpy.random.Generator(numpy.random.PCG64(VAE.seed))
    vae = video_vae.build(reference.vae, VAE)
    state = video_vae.fill(VAE, vae.state_dict(), random)
    for part in ("weight", "bias"):
        state[f"decoder.conv_out.{part}"] *= PICTURE_SCALE
    vae.load_state_dict({key: value.float() for key, value in state.items()}, strict=True)
    files: dict[str, File] = {"vae.safetensors": (state, {"norm_num_groups": str(VAE.groups)})}
    transformers = {}
    for name, case in TRANSFORMERS.items():
        random = numpy.random.Generator(numpy.random.PCG64(case.seed))
        network = video_transformer.build(reference.transformers, case)
        state = video_transformer.fill(case, network.state_dict(), random)
        network.load_state_dict({key: value.float() for key, value in state.items()}, strict=True)
        files[f"transformer-{name}.safetensors"] = ({key: value.contiguous() for key, value in state.items()}, {})
        transformers[name] = network
    random = numpy.random.Generator(numpy.random.PCG64(4))
    text = torch.from_numpy(random.standard_normal(TEXT).astype(numpy.float32)).bfloat16()
    files["text.safetensors"] = ({"text_states": text.float()}, {})
    files["pos_emb.pt"] = (saved(texts / "pos_emb.pt", text), {})
    # The reference reads it and does not use it.
    saved(texts / "neg_emb.pt", -text)
    return Models(vae, transformers, texts), files


# Pipeline


@dataclass
class Run:
    """What a run of the reference's pipeline gives."""

    frames: torch.Tensor  # [frames, height, width, 3], 0..1
    noise: list[torch.Tensor]  # of each batch: [frames, height, width, channels]
    latents: list[torch.Tensor]  # encoded frames, scaled
    restored: list[torch.Tensor]  # the transformer's latents, scaled
    decoded: torch.Tensor  # frames before the colours are corrected, nearly in -1..1
    slices: list[tuple[int, int]]  # the frames whose colours are corrected together


def quantiles(first: int, last: int, count: int, **_: object) -> torch.Tensor:
    """Equal steps from 0 to 1, so that their product with a whole number is never just below a whole number."""
    if (first, last) != (0, 1):
        raise AssertionError("the reference corrects colours with other steps")
    return torch.arange(count, dtype=torch.float64) / max(count - 1, 1) * (1.0 + 1e-12)


@contextlib.contextmanager
def same_on_each_machine() -> Iterator[None]:
    """The reference sorts without an order of equal values, and its float32 quantiles are rounded by the vectors' width.
    Here, equal values keep their order, and quantiles are exact."""
    stable = functools.partial(torch.sort, stable=True)
    with mock.patch.object(torch, "sort", stable), mock.patch.object(torch, "linspace", quantiles):
        yield


def run(
    reference: Reference,
    models: Models,
    case: Case,
    frames: torch.Tensor,
    dtype: torch.dtype,
    without: str | None = None,
) -> Run:
    """The reference's four phases. `without` sets one of noise, text, transformer and latents to zeros."""
    quiet, phases = Quiet(), reference.phases
    context = reference.utils.setup_generation_context(dit_device="cpu", vae_device="cpu", debug=quiet)
    # The reference computes in bfloat16.
    context["compute_dtype"] = dtype
    context["cache_context"] = {"dit_cache": False, "vae_cache": False}
    kind = TRANSFORMERS[case.transformer].kind
    config = reference.config.load_config(str(Path(phases.__file__).parents[2] / f"configs_{kind[4:]}" / "main.yaml"))
    if config.vae.scaling_factor != SCALING_FACTOR:
        raise AssertionError(f"the reference scales latents by {config.vae.scaling_factor}")
    runner = reference.infer.VideoDiffusionInfer(config, quiet)
    runner.vae = models.vae.to(dtype)
    runner.vae.set_causal_slicing(**config.vae.slicing)
    transformer = models.transformers[case.transformer].to(dtype)
    runner.dit = transformer
    if without == "transformer":
        # Its velocity is zero.
        forward = transformer.forward

        def zeros(*arguments, **named):
            made = forward(*arguments, **named)
            made.vid_sample.zero_()
            return made

        patched = mock.patch.object(transformer, "forward", zeros)
    else:
        patched = contextlib.nullcontext()
    context["text_embeds"] = reference.utils.load_text_embeddings(
        str(models.texts), context["dit_device"], dtype, quiet
    )
    if without == "text":
        context["text_embeds"]["texts_pos"][0].zero_()

    drawn = []
    randn_like = torch.randn_like

    def draw(like: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Noise rounded to float32 in any case."""
        made = randn_like(like, dtype=torch.float32)
        drawn.append(made.clone(memory_format=torch.contiguous_format))
        return (made * 0 if without == "noise" else made).to(dtype or like.dtype)

    with mock.patch.object(torch, "randn_like", draw), patched, contextlib.redirect_stderr(io.StringIO()):
        images, _ = reference.utils.compute_generation_info(
            context,
            frames.to(dtype),
            resolution=case.resolution,
            batch_size=case.batch,
            uniform_batch_size=case.uniform,
            seed=case.seed,
            temporal_overlap=case.overlap,
            debug=quiet,
        )
        context = phases.encode_all_batches(
            runner,
            context,
            images,
            quiet,
            batch_size=case.batch,
            uniform_batch_size=case.uniform,
            seed=case.seed,
            temporal_overlap=case.overlap,
            resolution=case.resolution,
            color_correction=case.colour,
        )
        if drawn:
            raise AssertionError(f"{case.name}: noise is drawn before the transformer's")
        if without == "latents":
            for latent in context["all_latents"]:
                latent.zero_()
        latents = [latent.clone() for latent in context["all_latents"]]
        context = phases.upscale_all_batches(runner, context, quiet, seed=case.seed, cache_model=True)
        restored = [latent.clone() for latent in context["all_upscaled_latents"]]
        context = phases.decode_all_batches(runner, context, quiet, cache_model=True)
        decoded = context["final_video"].clone()
        slices = [(start, end) for start, end, _, _ in context["decode_batch_info"]]
        with same_on_each_machine():
            context = phases.postprocess_all_batches(
                context, quiet, color_correction=case.colour, temporal_overlap=case.overlap, batch_size=case.batch
            )
    # Of two noises of each batch, the second is for an option that is off.
    return Run(context["final_video"], drawn[::2], latents, restored, decoded, slices)


def assert_alive(reference: Reference, models: Models, case: Case, frames: torch.Tensor) -> None:
    """Checks that every part changes the restored frames. Correcting the colours would hide it."""
    plain = replace(case, colour="none")
    made = run(reference, models, plain, frames, torch.float64)
    inside = float((made.decoded.abs() <= 1.0).double().mean())
    spread = float(made.decoded.std())
    if inside < 0.97 or not 0.15 <= spread <= 0.6:
        raise AssertionError(
            f"{case.name}: {inside:.1%} of the decoded values are in -1..1, with deviation {spread:.2f}"
        )
    for part in ("noise", "text", "transformer", "latents"):
        other = run(reference, models, plain, frames, torch.float64, part)
        changes = (other.frames - made.frames).abs()
        if changes.mean() < 0.01 or changes.max() < 0.1:
            raise AssertionError(
                f"{case.name}: without its {part} the frames change by {float(changes.max()):.1e} at most, "
                f"{float(changes.mean()):.1e} on average"
            )


def channels_first(latent: torch.Tensor) -> torch.Tensor:
    return latent.permute(3, 0, 1, 2).float().contiguous()


def make_case(reference: Reference, models: Models, case: Case) -> tuple[dict[str, File], str]:
    """The files of a case, and how far float32 arithmetic is from them."""
    random = numpy.random.Generator(numpy.random.PCG64(case.seed))
    frames = numpy.round(255.0 * pictures(random, case.frames, case.height, case.width)).astype(numpy.uint8)
    images = torch.from_numpy(frames).float() / 255.0
    with torch.no_grad():
        made = run(reference, models, case, images, torch.float64)
        single = run(reference, models, case, images, torch.float32)
        assert_alive(reference, models, case, images)
    for noise in made.noise:
        if not torch.equal(noise, draw_noise(reference, case.seed, tuple(noise.shape))):
            raise AssertionError(f"{case.name}: the noise is not that of {tuple(noise.shape)}")
    if case.colour != "none" and float((made.frames - (made.decoded.clamp(-1, 1) + 1) / 2).abs().mean()) < 0.01:
        raise AssertionError(f"{case.name}: correcting the colours changes nothing")
    errors = (single.frames.double() - made.frames).abs()
    tensors = {"input.frames": torch.from_numpy(frames), "output.frames": made.frames.float().contiguous()}
    for number, (noise, latent, restored) in enumerate(zip(made.noise, made.latents, made.restored, strict=True)):
        tensors[f"input.noise.{number}"] = channels_first(noise)
        tensors[f"between.latent.{number}"] = channels_first(latent)
        tensors[f"between.restored.{number}"] = channels_first(restored)
    metadata = described(
        transformer=f"transformer-{case.transformer}.safetensors",
        resolution=case.resolution,
        batch_size=case.batch,
        uniform_batch_size=case.uniform,
        temporal_overlap=case.overlap,
        color_correction=case.colour,
        seed=case.seed,
        slices=made.slices,
    )
    remark = f"float32 arithmetic differs by {float(errors.max()):.1e}, {float(errors.mean()):.1e} on average"
    return {"restoration.golden.safetensors": (tensors, metadata)}, remark


# Pieces


RESIZES = [  # frames, height, width, resolution, greatest side or 0
    (1, 13, 17, 24, 0),
    (2, 21, 15, 33, 0),
    (1, 37, 50, 20, 0),
    (1, 60, 45, 7, 0),
    (1, 19, 19, 16, 0),
    (1, 16, 23, 16, 0),
    (1, 11, 30, 22, 41),
    (1, 40, 17, 30, 33),
]
COLOUR_SIZES = [(1, 35, 44), (3, 24, 33), (1, 12, 15)]  # frames, height, width
NOISES = [(2, 6, 6, 4), (1, 4, 4, 4), (2, 90, 160, 16)]  # frames, height, width, channels
NOISE_SEED = 42


def make_resizes(reference: Reference, random: numpy.random.Generator) -> File:
    tensors, rows = {}, []
    for number, (frames, height, width, resolution, greatest) in enumerate(RESIZES):
        # Sharp edges, so that the result leaves 0..1.
        values = pictures(random, frames, height, width)
        values = numpy.where(random.uniform(size=values.shape) < 0.3, numpy.round(values), values)
        value = torch.from_numpy(values.astype(numpy.float32)).permute(0, 3, 1, 2).contiguous()
        resize = reference.resize.NaResize(resolution, "side", downsample_only=False, max_resolution=greatest)
        prepare = reference.utils.prepare_video_transforms(resolution, greatest)
        tensors[f"input.{number}"] = value
        tensors[f"resized.{number}"] = resize(value.double()).float().contiguous()
        tensors[f"prepared.{number}"] = prepare(value.double()).float().contiguous()
        rows.append({"resolution": resolution, "max_resolution": greatest})
    return tensors, described(rows=rows)


def correct(reference: Reference, colour: str, content: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
    """Content with the style's colours, as the reference's last phase calls its functions."""
    functions, quiet = reference.color_fix, Quiet()
    content, style = content.clone(), style.clone()
    with same_on_each_machine():
        if colour == "lab":
            return functions.lab_color_transfer(content, style, quiet, luminance_weight=0.8)
        if colour == "wavelet":
            return functions.wavelet_reconstruction(content, style, quiet)
        if colour == "adain":
            return functions.adaptive_instance_normalization(content, style)
        if colour == "hsv":
            return functions.hsv_saturation_histogram_match(content, style, quiet)
        return functions.wavelet_adaptive_color_correction(content, style, quiet)


def make_colours(reference: Reference, random: numpy.random.Generator) -> tuple[File, dict[str, float]]:
    """Random pictures with each correction, and how far float32 arithmetic is from each."""
    tensors, errors = {}, dict.fromkeys(COLOURS, 0.0)
    for number, size in enumerate(COLOUR_SIZES):
        # The content leaves -1..1, as decoded frames do.
        content, style = (
            torch.from_numpy((scale * (2.0 * pictures(random, *size) - 1.0)).astype(numpy.float32))
            .permute(0, 3, 1, 2)
            .contiguous()
            for scale in (1.3, 0.8)
        )
        tensors[f"content.{number}"], tensors[f"style.{number}"] = content, style
        for colour in COLOURS:
            made = correct(reference, colour, content.double(), style.double())
            single = correct(reference, colour, content, style).double()
            errors[colour] = max(errors[colour], float((single - made).abs().max()))
            # Only hsv leaves small pictures alone: there are too few pixels of each hue.
            changed = float((made - content.clamp(-1, 1)).abs().mean())
            if changed < 0.01 and not (colour == "hsv" and size[1] < 16):
                raise AssertionError(f"{colour} changes the pictures {size} by {changed:.1e} only")
            tensors[f"{colour}.{number}"] = made.float().contiguous()
    return (tensors, described()), errors


def make_times(reference: Reference) -> dict:
    """The numbers of the frames that the network sees of a batch."""

    def padded(frames: int, count: int) -> list[int]:
        images = torch.arange(frames, dtype=torch.float32).reshape(-1, 1, 1, 1)
        video = reference.phases._prepare_video_batch(images, 0, frames, uniform_padding=count)
        return [int(frame) for frame in reference.phases._apply_4n1_padding(video).flatten()]

    def prepended(frames: int, count: int) -> list[int]:
        images = torch.arange(frames, dtype=torch.float32).reshape(-1, 1, 1, 1)
        made = reference.utils.pad_video_temporal(images, count=count, temporal_dim=0, prepend=True)
        return [int(frame) for frame in made.flatten()]

    return {
        "reference": f"naxci1/ComfyUI-SeedVR2.5 {REFERENCE}",
        "batches": [{"frames": frames, "indices": padded(frames, 0)} for frames in range(1, 14)],
        "uniform": [
            {"frames": frames, "batch_size": batch, "indices": padded(frames, batch - frames)}
            for batch in (5, 6, 9, 13)
            for frames in range(1, batch)
        ],
        "prepended": [
            {"frames": frames, "prepend": count, "indices": prepended(frames, count)}
            for frames in range(1, 6)
            for count in range(1, 7)
        ],
    }


def make_blends(reference: Reference) -> File:
    """The weights of the earlier batch's frames."""
    tensors = {}
    for overlap in range(1, 9):
        ones = torch.ones(overlap, 1, 1, 1, dtype=torch.float64)
        made = reference.utils.blend_overlapping_frames(ones, torch.zeros_like(ones), overlap)
        tensors[f"previous.{overlap}"] = made.flatten().float()
    return tensors, described()


def draw_noise(reference: Reference, seed: int, shape: tuple[int, int, int, int]) -> torch.Tensor:
    """Noise `[frames, height, width, channels]` as the reference draws it on the CPU: like a latent video whose
    channels come first in memory."""
    frames, height, width, channels = shape
    encoded = torch.zeros(1, channels, frames, height, width)
    reference.seed.set_seed(seed)
    return torch.randn_like(reference.performance.optimized_channels_to_last(encoded).squeeze(0))


def make_noises(reference: Reference) -> File:
    tensors, sums = {}, {}
    for shape in NOISES:
        name = "x".join(map(str, shape))
        drawn = channels_first(draw_noise(reference, NOISE_SEED, shape))
        if drawn.numel() < 1000:
            tensors[name] = drawn
        else:
            flat = drawn.flatten()
            tensors[f"{name}.first"], tensors[f"{name}.last"] = flat[:16].clone(), flat[-16:].clone()
        sums[name] = math.fsum(drawn.flatten().tolist())
    return tensors, described(seed=NOISE_SEED, sums=sums)


def make_pieces(reference: Reference) -> tuple[dict[str, File], str]:
    random = numpy.random.Generator(numpy.random.PCG64(11))
    resizes = make_resizes(reference, random)
    colours, errors = make_colours(reference, random)
    files: dict[str, File] = {
        "resize.safetensors": resizes,
        "colour.safetensors": colours,
        "time.json": (make_times(reference), {}),
        "blend.safetensors": make_blends(reference),
        "noise.safetensors": make_noises(reference),
    }
    differences = ", ".join(f"{colour} {error:.1e}" for colour, error in errors.items())
    return files, f"float32 arithmetic differs by: {differences}"


def cases(path: Path) -> Iterator[tuple[str, dict[str, File], str]]:
    """Each case's name, its files, and a remark, with the reference's checkout at a path."""
    reference = load_reference(path)
    yield "pieces", *make_pieces(reference)
    with tempfile.TemporaryDirectory() as texts:
        models, files = make_models(reference, Path(texts))
        yield "models", files, ""
        for case in CASES:
            yield case.name, *make_case(reference, models, case)


if __name__ == "__main__":
    sys.exit(main(FOLDER, "Make or check the golden data of SeedVR2's restoration pipeline.", cases, TOTAL_BYTES))
