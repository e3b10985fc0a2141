#!/usr/bin/env python3
"""Makes the golden data of this folder with diffusers' own schedulers.

    python3 -m pip install -r tests/golden-schedulers/requirements.txt
    python3 tests/golden-schedulers/generate.py              writes every case
    python3 tests/golden-schedulers/generate.py --check      makes every case in memory, compares it with the files

A case is a row of CASES and nothing else: a class, its configuration and the run. The network is random numbers. Every
case runs twice: in float64, which is stored, and as diffusers runs it, in float32, which has to be near.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import diffusers
import numpy
import torch
from diffusers import StableDiffusionXLImg2ImgPipeline

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden_files import File, write  # noqa: E402: the module stands beside this folder

FOLDER = Path(__file__).resolve().parent
TOTAL_BYTES = 1_000_000
SHAPE = (1, 1, 4, 4)
NOISE_SEED, OUTPUT_SEED, PICTURE_SEED = 42, 1, 2
# How far diffusers' own float32 run may be from its float64 run, of a tensor's largest value.
FLOAT32_TOLERANCE = 1e-3
# Those whose steps take a generator.
WITH_NOISE = (
    "DDIMScheduler", "TCDScheduler", "LCMScheduler", "EulerAncestralDiscreteScheduler", "DPMSolverMultistepScheduler"
)

LATENT = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
ZERO_SNR = LATENT | {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "prediction_type": "v_prediction"}
VELOCITY, SAMPLE = {"prediction_type": "v_prediction"}, {"prediction_type": "sample"}
KARRAS, EXPONENTIAL = {"use_karras_sigmas": True}, {"use_exponential_sigmas": True}
SIGMA_MIN = {"final_sigmas_type": "sigma_min"}
LEADING, TRAILING, LINSPACE = ({"timestep_spacing": name} for name in ("leading", "trailing", "linspace"))
COSINE = {"beta_schedule": "squaredcos_cap_v2"}

# As published with the pipelines.
SD_15 = LATENT | {
    "clip_sample": False, "set_alpha_to_one": False, "skip_prk_steps": True, "steps_offset": 1, "trained_betas": None
}
SD_21 = SD_15 | VELOCITY
SDXL = SD_15 | LEADING | {
    "interpolation_type": "linear", "prediction_type": "epsilon", "sample_max_value": 1.0, "use_karras_sigmas": False
}
TURBO = SDXL | TRAILING
LCM = LATENT | {
    "original_inference_steps": 50, "timestep_scaling": 10.0, "set_alpha_to_one": True, "clip_sample": False,
    "steps_offset": 1
} | LEADING


@dataclass(frozen=True)
class Case:
    """One run of a scheduler."""

    name: str
    steps: int
    config: dict
    run: dict = field(default_factory=dict)  # strength, eta, start, end


def cases(*rows: tuple) -> list[Case]:
    return [Case(*row) for row in rows]


CASES = {
    "EulerDiscreteScheduler": cases(
        ("defaults", 10, {}),
        ("sd15", 20, SD_15),
        ("sdxl", 30, SDXL),
        ("sdxl-base-part", 25, SDXL, {"end": 0.8}),
        ("sdxl-refiner-part", 25, SDXL, {"start": 0.8}),
        ("one-step", 1, TURBO),
        ("one-step-linspace", 1, LATENT),
        ("karras", 12, SDXL | KARRAS),
        ("karras-bounds", 8, LATENT | KARRAS | {"sigma_min": 0.05, "sigma_max": 10.0}),
        ("exponential", 12, SDXL | EXPONENTIAL),
        ("log-linear", 7, LATENT | {"interpolation_type": "log_linear"}),
        ("sigma-min", 8, LATENT | SIGMA_MIN),
        ("zero-snr", 10, ZERO_SNR),
        ("velocity", 8, SD_21),
        ("sample", 8, LATENT | SAMPLE),
        ("cosine", 8, COSINE),
        ("trained-betas", 5, {"num_train_timesteps": 10, "trained_betas": [0.01 * (1 + index) for index in range(10)]}),
        ("image", 20, SDXL, {"strength": 0.6}),
    ),
    "EulerAncestralDiscreteScheduler": cases(
        ("defaults", 10, {}),
        ("sd15", 20, SD_15),
        ("turbo-1", 1, TURBO),
        ("turbo-4", 4, TURBO),
        ("zero-snr", 10, ZERO_SNR),
        ("velocity", 8, SD_21),
        ("image", 20, SDXL, {"strength": 0.5}),
        ("turbo-image", 4, TURBO, {"strength": 0.5}),
    ),
    "DDIMScheduler": cases(
        ("defaults", 10, {}),
        ("sd15", 20, SD_15),
        ("sd21", 20, SD_21),
        ("eta", 10, SD_15, {"eta": 1.0}),
        ("eta-half", 7, SD_21 | TRAILING, {"eta": 0.5}),
        ("zero-snr", 10, ZERO_SNR | {"clip_sample": False}),
        ("trailing", 7, SD_15 | TRAILING),
        ("linspace", 7, SD_15 | LINSPACE),
        ("sample", 8, LATENT | SAMPLE | {"clip_sample_range": 0.7}),
        ("set-alpha-to-one", 8, SD_15 | {"set_alpha_to_one": True}),
        ("image", 20, SD_15, {"strength": 0.75}),
    ),
    "PNDMScheduler": cases(
        ("defaults", 10, {}),
        ("sd15", 20, SD_15),
        ("sd15-1", 1, SD_15),
        ("sd15-2", 2, SD_15),
        ("sd15-50", 50, SD_15),
        ("velocity", 10, SD_21),
        ("runge-kutta", 10, LATENT | VELOCITY | {"set_alpha_to_one": True}),
        ("runge-kutta-4", 4, LATENT),
        ("runge-kutta-image", 10, LATENT, {"strength": 0.5}),
        ("runge-kutta-image-short", 10, LATENT | VELOCITY, {"strength": 0.1}),
        ("runge-kutta-refiner-part", 10, LATENT, {"start": 0.6}),
        ("trailing", 7, SD_15 | TRAILING),
        ("linspace", 7, SD_15 | LINSPACE),
        ("image", 20, SD_15, {"strength": 0.75}),
        ("image-second", 20, SD_15, {"strength": 0.95}),
    ),
    "LMSDiscreteScheduler": cases(
        ("defaults", 10, {}),
        ("sd15", 20, SD_15),
        ("karras", 12, SD_15 | KARRAS),
        ("exponential", 12, SD_15 | EXPONENTIAL),
        ("velocity", 8, SD_21 | LEADING),
        ("sample", 8, LATENT | SAMPLE),
        ("trailing", 8, LATENT | TRAILING),
        ("image", 20, SDXL, {"strength": 0.5}),
    ),
    "HeunDiscreteScheduler": cases(
        ("defaults", 10, {}),
        ("sd15", 12, SD_15),
        ("karras", 8, SDXL | KARRAS),
        ("exponential", 8, SDXL | EXPONENTIAL),
        ("velocity", 8, SD_21),
        ("sample", 8, LATENT | SAMPLE | {"clip_sample": True, "clip_sample_range": 0.5}),
        ("trailing", 8, LATENT | TRAILING),
        ("image", 10, SDXL, {"strength": 0.5}),
        ("sdxl-base-part", 10, SDXL, {"end": 0.8}),
        ("sdxl-refiner-part", 10, SDXL, {"start": 0.8}),
    ),
    "DPMSolverMultistepScheduler": cases(
        ("defaults", 10, {}),
        ("sd15", 20, SD_15),
        ("sd21", 20, SD_21),
        ("2m-karras", 20, SDXL | KARRAS),
        ("2m-karras-cosine", 10, COSINE | KARRAS),
        ("2m-exponential", 12, SDXL | EXPONENTIAL),
        ("2m-lu", 12, SDXL | {"use_lu_lambdas": True}),
        ("2m-sde", 10, SDXL | {"algorithm_type": "sde-dpmsolver++"}),
        ("2m-sde-karras", 20, SDXL | KARRAS | {"algorithm_type": "sde-dpmsolver++"}),
        ("2m-sde-heun", 10, SDXL | {"algorithm_type": "sde-dpmsolver++", "solver_type": "heun"}),
        ("3m", 12, SDXL | {"solver_order": 3}),
        ("3m-20", 20, SDXL | {"solver_order": 3}),
        ("3m-sde", 10, SDXL | {"solver_order": 3, "algorithm_type": "sde-dpmsolver++"}),
        ("1m", 6, SDXL | {"solver_order": 1}),
        ("heun", 10, SDXL | {"solver_type": "heun"}),
        ("euler-at-final", 20, SDXL | SIGMA_MIN | {"euler_at_final": True}),
        ("no-lower-order", 10, SDXL | SIGMA_MIN | {"lower_order_final": False}),
        ("sigma-min", 20, SDXL | SIGMA_MIN | LINSPACE),
        ("noise", 10, LATENT | SIGMA_MIN | {"algorithm_type": "dpmsolver"}),
        (
            "noise-velocity-heun", 10,
            LATENT | SIGMA_MIN | VELOCITY | {"algorithm_type": "dpmsolver", "solver_type": "heun"},
        ),
        ("noise-sample-3", 10, LATENT | SIGMA_MIN | SAMPLE | {"algorithm_type": "dpmsolver", "solver_order": 3}),
        ("noise-sde", 10, LATENT | SIGMA_MIN | {"algorithm_type": "sde-dpmsolver"}),
        ("noise-sde-heun", 10, LATENT | SIGMA_MIN | {"algorithm_type": "sde-dpmsolver", "solver_type": "heun"}),
        ("sample", 8, LATENT | SAMPLE),
        ("lambda-clipped", 10, COSINE | {"lambda_min_clipped": -5.1}),
        ("lambda-clipped-trailing", 10, COSINE | TRAILING | {"lambda_min_clipped": -5.1}),
        ("zero-snr", 10, ZERO_SNR),
        ("zero-snr-sde", 10, ZERO_SNR | {"algorithm_type": "sde-dpmsolver++"}),
        ("trailing", 8, SDXL | TRAILING),
        ("one-step", 1, SDXL | TRAILING),
        ("image", 20, SDXL, {"strength": 0.6}),
        ("image-sde-karras", 20, SDXL | KARRAS | {"algorithm_type": "sde-dpmsolver++"}, {"strength": 0.3}),
    ),
    "UniPCMultistepScheduler": cases(
        ("defaults", 10, {}),
        ("sd15", 20, SD_15),
        ("sd21", 20, SD_21),
        ("karras", 12, SDXL | KARRAS),
        ("karras-bounds", 8, SDXL | KARRAS | {"sigma_min": 0.05, "sigma_max": 10.0}),
        ("exponential", 12, SDXL | EXPONENTIAL),
        ("order-1", 6, SDXL | {"solver_order": 1}),
        ("order-3", 10, SDXL | {"solver_order": 3}),
        ("bh1", 10, SDXL | SIGMA_MIN | {"solver_type": "bh1"}),
        ("bh1-order-3", 10, SDXL | SIGMA_MIN | {"solver_type": "bh1", "solver_order": 3}),
        ("noise", 10, SDXL | SIGMA_MIN | {"predict_x0": False}),
        ("noise-velocity", 10, SDXL | SIGMA_MIN | VELOCITY | {"predict_x0": False, "solver_order": 3}),
        ("noise-sample", 10, SDXL | SIGMA_MIN | SAMPLE | {"predict_x0": False}),
        ("sigma-min", 10, SDXL | SIGMA_MIN | LINSPACE | {"lower_order_final": False}),
        ("disable-corrector", 10, SDXL | {"disable_corrector": [0, 1, 5]}),
        ("sample", 8, LATENT | SAMPLE),
        ("zero-snr", 10, ZERO_SNR),
        ("trailing", 8, SDXL | TRAILING),
        ("image", 20, SDXL, {"strength": 0.6}),
    ),
    "LCMScheduler": cases(
        ("defaults", 4, {}),
        ("lcm-1", 1, LCM),
        ("lcm-8", 8, LCM),
        ("velocity", 4, LCM | VELOCITY),
        ("sample", 4, LCM | SAMPLE | {"clip_sample": True}),
        ("zero-snr", 4, ZERO_SNR),
        ("original-steps", 7, LCM | {"original_inference_steps": 100, "timestep_scaling": 5.0}),
        ("image", 8, LCM, {"strength": 0.5}),
    ),
    "TCDScheduler": cases(
        ("defaults", 4, {}),
        ("gamma", 4, LCM, {"eta": 0.3}),
        ("gamma-8", 8, LCM, {"eta": 1.0}),
        ("velocity", 4, LCM | VELOCITY, {"eta": 0.3}),
        ("sample", 4, LCM | SAMPLE, {"eta": 0.3}),
        ("zero-snr", 4, ZERO_SNR, {"eta": 0.5}),
        ("image", 8, LCM, {"strength": 0.5, "eta": 0.3}),
    ),
}


class Float64:
    """A module of which `float32` is float64."""

    def __init__(self, module, float64):
        self.__dict__.update(module=module, float32=float64)

    def __getattr__(self, name: str):
        return getattr(self.module, name)


def randn_tensor(shape, generator=None, device=None, dtype=None):
    """Noise is drawn in float32, whatever the scheduler computes in."""
    return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype)


@contextlib.contextmanager
def in_float64(module) -> Iterator[None]:
    """diffusers' scheduler computes everything in float64."""
    before = module.torch, module.np
    module.torch, module.np = Float64(torch, torch.float64), Float64(numpy, numpy.float64)
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        module.torch, module.np = before
        torch.set_default_dtype(torch.float32)


def timesteps_of(scheduler, case: Case) -> torch.Tensor:
    """What the pipelines of SDXL run, which those of Stable Diffusion run, too."""
    pipeline = SimpleNamespace(scheduler=scheduler)
    chosen = StableDiffusionXLImg2ImgPipeline.get_timesteps(
        pipeline, case.steps, case.run.get("strength", 1.0), None, case.run.get("start")
    )[0]
    if end := case.run.get("end"):
        train = scheduler.config.num_train_timesteps
        cutoff = int(round(train - (end * train)))
        chosen = chosen[: len([timestep for timestep in chosen if timestep >= cutoff])]
    return chosen


def run(kind: type, case: Case, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    scheduler = kind.from_config({"_class_name": kind.__name__, **case.config})
    scheduler.set_timesteps(case.steps)
    timesteps = timesteps_of(scheduler, case)
    noise = torch.Generator("cpu").manual_seed(NOISE_SEED)
    outputs = torch.Generator("cpu").manual_seed(OUTPUT_SEED)
    picture = randn_tensor(SHAPE, torch.Generator("cpu").manual_seed(PICTURE_SEED), None, dtype)
    start = randn_tensor(SHAPE, noise, None, dtype)
    if "strength" in case.run:
        sample = scheduler.add_noise(picture, start, timesteps[:1])
    else:
        sample = start * scheduler.init_noise_sigma
    extra = {"eta": case.run.get("eta", 0.0)} if kind.__name__ in ("DDIMScheduler", "TCDScheduler") else {}
    if kind.__name__ in WITH_NOISE:
        extra["generator"] = noise
    made = {"sample": [sample], "divisor": [], "noised": []}
    for timestep in timesteps:
        scaled = scheduler.scale_model_input(sample, timestep)
        made["divisor"].append((sample.double() / scaled.double()).median())
        made["noised"].append(scheduler.add_noise(picture, start, timestep[None])[0, 0, 0])
        output = randn_tensor(SHAPE, outputs, None, dtype)
        sample = scheduler.step(output, timestep, sample, **extra).prev_sample
        made["sample"].append(sample)
    tensors = {name: torch.stack(rows).double() for name, rows in made.items()}
    tensors["sample"] = tensors["sample"].flatten(1)
    deviation = torch.as_tensor(scheduler.init_noise_sigma).double().reshape(1)
    return tensors | {"timesteps": timesteps.double(), "initial_deviation": deviation}


def files(class_name: str, rows: list[Case]) -> tuple[dict[str, File], float]:
    kind = getattr(diffusers, class_name)
    module = import_module(kind.__module__)
    if hasattr(module, "randn_tensor"):
        module.randn_tensor = randn_tensor
    made, worst = {}, 0.0
    for case in rows:
        with in_float64(module):
            exact = run(kind, case, torch.float64)
        usual = run(kind, case, torch.float32)
        for name, tensor in exact.items():
            if not tensor.isfinite().all():
                raise SystemExit(f"{class_name}/{case.name}: {name} has values that are no numbers")
            difference = float((tensor - usual[name]).abs().max())
            if name == "timesteps" and difference == 1.0:
                print(f"{class_name}/{case.name}: a timestep is one less in float32, by truncation", flush=True)
                continue
            error = difference / max(1.0, float(tensor.abs().max()))
            if error > FLOAT32_TOLERANCE:
                which = f"{class_name}/{case.name}: {name}"
                raise SystemExit(f"{which} in float32 differs by {error:.1e} of its largest value")
            worst = max(worst, error)
        metadata = {
            "config": json.dumps({"_class_name": class_name, **case.config}),
            "run": json.dumps({"steps": case.steps, **case.run}),
            "generator": f"diffusers {version('diffusers')}, torch {version('torch')}",
        }
        made[f"{case.name}.safetensors"] = ({key: tensor.contiguous() for key, tensor in exact.items()}, metadata)
    return made, worst


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)  # deprecated algorithm types are cases, too
    diffusers.utils.logging.set_verbosity_error()

    def all_files() -> Iterator[tuple[str, dict[str, File], str]]:
        for class_name, rows in CASES.items():
            made, worst = files(class_name, rows)
            yield class_name, made, f"{len(rows)} runs; float32 differs by {worst:.1e}"

    return write(FOLDER, all_files(), TOTAL_BYTES, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
