"""Small models of the tests' golden data, as users have models: for scripts that build engines of them."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def write_pipeline(folder: Path, name: str) -> Path:
    """A pipeline of tests/golden-pipelines in diffusers' layout: `GoldenPipelines::write_folder` of the tests."""
    golden = ROOT / "tests/golden-pipelines"
    table = json.loads((golden / "pictures/runs.json").read_text(encoding="utf-8"))
    row = table["pipelines"][name]
    index: dict[str, Any] = {"_class_name": row["class"] + "Pipeline"}
    for part, network in row["parts"].items():
        shutil.copytree(golden / network, folder / part)
        configuration = json.loads((folder / part / "config.json").read_text(encoding="utf-8"))
        kind = configuration.get("_class_name") or configuration["architectures"][0]
        index[part] = ["transformers" if kind.startswith("CLIP") else "diffusers", kind]
        if case := table["tokenizers"].get(part):
            tokenizer = part.replace("text_encoder", "tokenizer")
            ignored = shutil.ignore_patterns("expected.json")
            shutil.copytree(ROOT / "tests/golden-tokenizer" / case, folder / tokenizer, ignore=ignored)
            index[tokenizer] = ["transformers", "CLIPTokenizer"]
    index |= {key: row[key] for key in ("force_zeros_for_empty_prompt", "requires_aesthetics_score") if key in row}
    index["scheduler"] = ["diffusers", row["scheduler"]["_class_name"]]
    (folder / "scheduler").mkdir()
    (folder / "scheduler/scheduler_config.json").write_text(json.dumps(row["scheduler"]), encoding="utf-8")
    (folder / "model_index.json").write_text(json.dumps(index), encoding="utf-8")
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
