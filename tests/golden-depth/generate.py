#!/usr/bin/env python3
"""Makes the golden data of this folder: what the reference's script makes of a picture and a depth map.

    python3 -m pip install -r tests/golden-systems/requirements.txt -r tests/golden-depth/requirements.txt
    git clone https://github.com/Aedelon/rgbd-depth REPOSITORIES/rgbd-depth    (commit in tests/golden-systems)
    git clone https://github.com/toddllm/mirage-hello REPOSITORIES/mirage-hello
    python3 tests/golden-depth/generate.py REPOSITORIES              writes every case
    python3 tests/golden-depth/generate.py REPOSITORIES --check    makes every case in memory, compares it with its file

The networks and their weights are those of tests/golden-systems. Pictures and maps go through files and through the
functions of the reference's `infer.py`, in float32, as its users run it. Depth Anything V2's own `infer_image` differs
in two lines, which stand here: the order of the channels, and how the result is resized.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import cv2
import numpy
import torch

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path.insert(0, str(FOLDER.parent))
from golden_files import File, extent, write  # noqa: E402: the module stands beside this folder

TOTAL_BYTES = 400_000

# Name, architecture of tests/golden-systems, width and height of the picture, `--input-size`.
CASES = [
    ("rgbd-wide", "RGBDDepth", (96, 72), 56),
    ("rgbd-tall", "RGBDDepth", (61, 97), 42),
    ("picture-wide", "DepthAnything", (96, 72), 56),
    ("picture-enlarged", "DepthAnything", (40, 40), 70),
]


def systems():
    """The module that knows the networks."""
    specification = importlib.util.spec_from_file_location("systems", FOLDER.parent / "golden-systems" / "generate.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules["systems"] = module
    specification.loader.exec_module(module)
    return module


def picture_of(width: int, height: int) -> numpy.ndarray:
    """A part of a photograph, as cv2 has it: blue, green, red."""
    photo = cv2.imread(str(ROOT / "tests" / "images" / "coffee.png"))
    return numpy.ascontiguousarray(photo[60 : 60 + 2 * height : 2, 80 : 80 + 2 * width : 2])


def map_of(width: int, height: int, random: numpy.random.Generator) -> numpy.ndarray:
    """Millimetres: a slope with steps, holes without a measurement, and points beyond 25 metres."""
    rows, columns = numpy.mgrid[:height, :width]
    millimetres = 700 + 9 * rows + 1300 * ((columns // 17) % 3) + random.integers(0, 40, (height, width))
    millimetres[random.random((height, width)) < 0.2] = 0
    millimetres[random.random((height, width)) < 0.03] = 25001
    return millimetres.astype(numpy.uint16)


def infer_image(network: torch.nn.Module, picture: numpy.ndarray, input_size: int) -> numpy.ndarray:
    """`DepthAnythingV2.infer_image`, by the transformation that both repositories share. `picture` as cv2 reads it."""
    from rgbddepth.util.transform import NormalizeImage, PrepareForNet, Resize

    image = cv2.cvtColor(picture, cv2.COLOR_BGR2RGB) / 255.0
    sizes = {"width": input_size, "height": input_size, "keep_aspect_ratio": True, "ensure_multiple_of": 14}
    how = {"resize_target": False, "resize_method": "lower_bound", "image_interpolation_method": cv2.INTER_CUBIC}
    resize = Resize(**sizes, **how)
    sample = {"image": image}
    for step in (resize, NormalizeImage(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]), PrepareForNet()):
        sample = step(sample)
    depth = network(torch.from_numpy(sample["image"]).unsqueeze(0))
    size = picture.shape[:2]
    return torch.nn.functional.interpolate(depth[:, None], size, mode="bilinear", align_corners=True)[0, 0].numpy()


def make(name: str, case, size: tuple[int, int], input_size: int, of) -> tuple[dict[str, File], str]:
    import infer

    random = numpy.random.Generator(numpy.random.PCG64(len(name)))
    picture, millimetres = picture_of(*size), map_of(*size, random)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder)
        synth = ["cargo", "xtask", "synth", case.architecture, "--preset", case.preset, "--seed", str(case.seed)]
        subprocess.run([*synth, "-o", str(path / "checkpoint.safetensors")], cwd=ROOT, check=True, capture_output=True)
        network = of.load(case, path / "checkpoint.safetensors").float()
        cv2.imwrite(str(path / "picture.png"), picture)
        cv2.imwrite(str(path / "map.png"), millimetres)
        tensors = {"picture": torch.from_numpy(picture[:, :, ::-1].copy())}
        if case.architecture == "RGBDDepth":
            loaded = infer.load_images(str(path / "picture.png"), str(path / "map.png"), 1000.0, 25.0)
            predicted = network.infer_image(loaded[0], loaded[2], input_size=input_size)
            with numpy.errstate(divide="ignore"):
                depth = 1 / predicted
            depth[numpy.isinf(depth)] = 0  # no depth
            colours = infer.colorize_depth_maps(depth, min_depth=0.1, max_depth=5.0, cmap="Spectral")
            colours = (numpy.rollaxis(colours[0], 0, 3) * 255).astype(numpy.uint8)
            tensors["map"] = torch.from_numpy(millimetres.astype(numpy.int32))
            tensors["colours"] = torch.from_numpy(colours.copy())
        else:
            depth = infer_image(network, cv2.imread(str(path / "picture.png")), input_size)
    tensors["depth"] = torch.from_numpy(numpy.ascontiguousarray(depth.astype(numpy.float32)))
    found = tensors["depth"][tensors["depth"] > 0]
    if found.numel() < 0.5 * tensors["depth"].numel() or extent(found) < 0.1:
        raise AssertionError(f"{name}: {found.numel()} pixels with depth, with an extent of {extent(found):.2e}")
    metadata = {
        "architecture": case.architecture,
        "preset": case.preset,
        "seed": str(case.seed),
        "input_size": str(input_size),
        "generator": ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "opencv-python-headless")),
    }
    remark = f"depth from {float(found.min()):.3f} to {float(found.max()):.3f}, median {float(found.median()):.3f}"
    return {"golden.safetensors": (tensors, metadata)}, remark


def main() -> int:
    parser = argparse.ArgumentParser(description="Make or check the golden data of depth from pictures and maps.")
    parser.add_argument("repositories", type=Path, help="the folder with the references' repositories")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs by above 1e-6")
    arguments = parser.parse_args()
    for place in ("rgbd-depth", "mirage-hello/examples/basic", "mirage-hello/examples/advanced"):
        sys.path.insert(0, str(arguments.repositories / place))
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    of = systems()
    networks = {case.architecture: case for case in reversed(of.CASES)}

    def made() -> Iterator[tuple[str, dict[str, File], str]]:
        for name, architecture, size, input_size in CASES:
            yield name, *make(name, networks[architecture], size, input_size, of)

    return write(FOLDER, made(), TOTAL_BYTES, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
