"""Small engines of every task, of the tests' golden data, for try_comfyui.py."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
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
    build(write_pipeline(work / "sd15"), "sd15")
    build(write_video_autoencoder(work / "vae"), "vae")
    build(write_restorer(work / "restorer"), "restorer")


def write_pipeline(folder: Path) -> Path:
    """The pipeline `sd` of tests/golden-pipelines in diffusers' layout."""
    golden = ROOT / "tests/golden-pipelines"
    table = json.loads((golden / "pictures/runs.json").read_text())
    row = table["pipelines"]["sd"]
    index: dict[str, Any] = {"_class_name": row["class"] + "Pipeline"}
    for part, network in row["parts"].items():
        shutil.copytree(golden / network, folder / part)
        configuration = json.loads((folder / part / "config.json").read_text())
        name = configuration.get("_class_name") or configuration["architectures"][0]
        index[part] = ["transformers" if name.startswith("CLIP") else "diffusers", name]
        if part in table["tokenizers"]:
            tokenizer = part.replace("text_encoder", "tokenizer")
            shutil.copytree(ROOT / "tests/golden-tokenizer" / table["tokenizers"][part], folder / tokenizer)
            (folder / tokenizer / "expected.json").unlink()
            index[tokenizer] = ["transformers", "CLIPTokenizer"]
    index["scheduler"] = ["diffusers", row["scheduler"]["_class_name"]]
    (folder / "scheduler").mkdir()
    (folder / "scheduler/scheduler_config.json").write_text(json.dumps(row["scheduler"]))
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def write_restorer(folder: Path) -> Path:
    """A model file of the small pipeline in tests/golden-restoration, for results of at most 48x32."""
    folder.mkdir()
    transformer = "transformer-3b.safetensors"
    files = ["vae.safetensors", "pos_emb.pt", transformer]
    for name in files:
        shutil.copy(ROOT / "tests/golden-restoration/models" / name, folder)
    graphs = video_graphs("vae.safetensors", "32x48", "4x6")
    sizes = {"tiles": ["4x6"], "frames": 2}
    graphs["transformer"] = {"task": "transformer", "architecture": "NaDiT", "checkpoint": transformer, "sizes": sizes}
    model = {
        "name": "restorer",
        "description": "A small pipeline with random weights that restores films.",
        "licence": "Apache-2.0",
        "provenance": "Random weights.",
        "files": {name: {} for name in files},
        "restoration": {"text": "pos_emb.pt"},
        "graphs": graphs,
    }
    # JSON is YAML.
    (folder / "restorer.yaml").write_text(json.dumps(model))
    return folder / "restorer.yaml"


def video_graphs(checkpoint: str, pixels: str, latents: str) -> dict[str, Any]:
    """The graphs of a video autoencoder, for tiles of these sizes."""
    return {
        f"{half}_{chunk}": {
            "task": f"vae_{half}",
            "architecture": f"VideoAutoencoderKL{half.capitalize()}",
            "checkpoint": checkpoint,
            "set": {"chunk": chunk},
            "sizes": {"tiles": [tile], "frames": frames},
        }
        for half, chunk, tile, frames in [
            ("encoder", "first", pixels, 5),
            ("encoder", "next", pixels, 4),
            ("decoder", "first", latents, 2),
            ("decoder", "next", latents, 1),
        ]
    }


def write_video_autoencoder(folder: Path) -> Path:
    """A model file of the small autoencoder in tests/golden-video-vae, with the parts of models/seedvr2-vae.yaml."""
    folder.mkdir()
    weights = folder / "vae.safetensors"
    shutil.copy(ROOT / "tests/golden-video-vae/seedvr2/ema_vae.safetensors", weights)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    model = {
        "name": "vae",
        "description": "A small video autoencoder with random weights.",
        "licence": "Apache-2.0",
        "provenance": "Random weights.",
        "source": {"hub": {"repository": "none/none", "revision": "main"}},
        "files": {weights.name: {"sha256": digest, "size": weights.stat().st_size}},
        "graphs": video_graphs(weights.name, "32x32", "4x4"),
    }
    # JSON is YAML.
    (folder / "vae.yaml").write_text(json.dumps(model))
    return folder / "vae.yaml"
