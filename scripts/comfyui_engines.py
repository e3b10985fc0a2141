"""Small engines of every task, of the tests' golden data, for try_comfyui.py."""

import subprocess
import sys
from pathlib import Path

from small_models import ROOT, write_pipeline, write_restorer, write_video_autoencoder

#: The programs of the wheel.
PROGRAMS = Path(sys.executable).parent

PROFILE = """\
name: small
provider: cpu
precision: fp32
tasks:
  upscale: { tiles: [24x24, 96x96] }
  unet: { tiles: [8x8] }
  vae_encoder: { tiles: [64x64] }
  vae_decoder: { tiles: [8x8] }
  inpaint: { tiles: [96x96] }
floors:
  psnr_db: 100
  cosine: 0.999999
"""


def run(*command: object) -> str:
    """Runs a program that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build_engines(folder: Path, xtask: Path) -> None:
    """Small engines of every task, as the tests have them: compact-x4, depth, eraser, restorer, sd15 and vae."""
    work = folder.parent / "models-of-engines"
    work.mkdir()
    profile = work / "small.yaml"
    profile.write_text(PROFILE)

    def build(model: Path, name: str) -> None:
        run(PROGRAMS / "engine-builder", "build", model, "--profile", profile, "-o", folder / name)

    build(ROOT / "models/compact-x4.safetensors", "compact-x4")
    run(xtask, "synth", "DepthAnything", "-o", work / "depth.safetensors")
    export = ["export", work / "depth.safetensors", "-o", work / "depth.onnx", "--weights", "copy"]
    run(PROGRAMS / "exporter", *export, "--shapes", "pixel_values:1x3x70x70")
    build(work / "depth.onnx", "depth")
    run(xtask, "synth", "LaMa", "-o", work / "eraser.safetensors")
    build(work / "eraser.safetensors", "eraser")
    build(write_pipeline(work / "sd15", "sd"), "sd15")
    build(write_video_autoencoder(work / "vae"), "vae")
    build(write_restorer(work / "restorer"), "restorer")
