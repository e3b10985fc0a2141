#!/usr/bin/env python3
"""Makes the golden data of this folder with scikit-image's structural similarity.

    python3 -m pip install -r tests/golden-ssim/requirements.txt
    python3 tests/golden-ssim/generate.py              writes every file
    python3 tests/golden-ssim/generate.py --check      makes every file in memory and compares it with the file
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

FOLDER = Path(__file__).resolve().parent
PHOTO = FOLDER.parent / "images" / "coffee.png"
# Left, top, right and bottom: an odd width, and more than one window in both directions.
PART = (200, 120, 263, 168)


def pictures() -> dict[str, Image.Image]:
    photo = Image.open(PHOTO).convert("RGB").crop(PART)
    samples = np.asarray(photo).astype(np.int64)
    generator = np.random.default_rng(17)
    noisy = np.clip(samples + generator.integers(-20, 21, samples.shape), 0, 255).astype(np.uint8)
    return {
        "photo": photo,
        "noisy": Image.fromarray(noisy),
        "blurred": photo.filter(ImageFilter.GaussianBlur(1.2)),
        "coarse": Image.fromarray((samples // 32 * 32 + 16).astype(np.uint8)),
        "dark": Image.fromarray((samples * 3 // 4).astype(np.uint8)),
        "turned": Image.fromarray((255 - samples).astype(np.uint8)),
        # One window, and a strip of windows.
        "photo-11x11": photo.crop((0, 0, 11, 11)),
        "noisy-11x11": Image.fromarray(noisy).crop((0, 0, 11, 11)),
        "photo-12x30": photo.crop((5, 5, 17, 35)),
        "noisy-12x30": Image.fromarray(noisy).crop((5, 5, 17, 35)),
    }


PAIRS = [("photo", name) for name in ("noisy", "blurred", "coarse", "dark", "turned")]
PAIRS += [("photo-11x11", "noisy-11x11"), ("photo-12x30", "noisy-12x30")]


def figures(one: Image.Image, other: Image.Image) -> dict[str, float]:
    one, other = np.asarray(one), np.asarray(other)
    # The values of Wang and others 2004, as scikit-image's documentation gives them.
    ssim = structural_similarity(
        one, other, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=255, channel_axis=2
    )
    return {"ssim": float(ssim), "psnr_db": float(peak_signal_noise_ratio(one, other, data_range=255))}


def files() -> dict[str, bytes]:
    made, all_pictures = {}, pictures()
    for name, picture in all_pictures.items():
        buffer = io.BytesIO()
        picture.save(buffer, "PNG", optimize=True)
        made[f"{name}.png"] = buffer.getvalue()
    pairs = [{"one": one, "other": other} | figures(all_pictures[one], all_pictures[other]) for one, other in PAIRS]
    made["expected.json"] = (json.dumps(pairs, indent=1) + "\n").encode()
    return made


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    different = 0
    for name, content in files().items():
        path = FOLDER / name
        if not arguments.check:
            path.write_bytes(content)
        elif path.read_bytes() != content:
            print(f"{name}: differs")
            different += 1
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
